"""An in-memory database that executes transactions as ovsdb-server does (RFC 7047, section 5.2).  Pure.

Each operation is applied to a draft; at the end the draft must be consistent, or nothing is changed:

   strong references name existing rows           unreferenced rows of non-root tables are removed
   no table has too many rows                     weak references to removed rows are removed
   no two rows have the same index columns

Listeners get the changes of each commit. Uuids come from the given `Random`, so a history can be repeated.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from msgspec import Struct

from netloom.ovsdb.datum import Fault, condition, default, mutation, parse_value
from netloom.ovsdb.memory.integrity import Edit, Edits, Integrity, Values
from netloom.ovsdb.notation import ZERO, Uuid, Wire, atom_to_wire, to_wire
from netloom.ovsdb.schema import BaseType, ColumnType, Schema, TableSchema

UUID_TYPE = ColumnType(BaseType("uuid"), mutable=False)
HISTORY = 100


class TransactionOutcome(Struct):
    """The outcome of a transaction: the results on the wire; `parked` if a wait may still be fulfilled."""

    results: list[Any]
    edits: Edits
    parked: bool = False
    timeout: float | None = None
    """The timeout of the wait at which it is parked, in seconds; None: for ever."""


class Parked(Exception):
    """A wait that is not fulfilled, and has time left."""

    def __init__(self, timeout: float | None) -> None:
        super().__init__()
        self.timeout = timeout


class Database:
    """The rows."""

    def __init__(self, document: Mapping[str, Any], random: Random) -> None:
        self.document = document
        self.schema = Schema.parse(document)
        self.tables: dict[str, dict[Uuid, Values]] = {name: {} for name in self.schema.tables}
        self.last_id = ZERO
        self.history: deque[tuple[Uuid, Edits]] = deque(maxlen=HISTORY)
        """The edits of the last transactions, each with the id after it."""
        self.listeners: list[Callable[[Edits], None]] = []
        self.integrity = Integrity(self.schema, self.tables)
        self._random = random
        self._versions: dict[Uuid, Uuid] = {}

    def new_uuid(self) -> Uuid:
        """Return a new uuid."""
        return Uuid(str(UUID(int=self._random.getrandbits(128), version=4)))

    def version(self, uuid: Uuid) -> Uuid:
        """Return a row's `_version`."""
        return self._versions.setdefault(uuid, self.new_uuid())

    def transact(
        self, operations: Sequence[Any], *, owns: Callable[[str], bool] = lambda _: False, waits: bool = True
    ) -> TransactionOutcome:
        """Apply all operations, or none."""
        draft = Draft(self, owns=owns, waits=waits)
        results: list[Any] = []
        try:
            for operation in operations:
                results.append(draft.execute(operation))  # noqa: PERF401 - A fault needs the results before it.
        except Parked as parked:
            return TransactionOutcome([], {}, parked=True, timeout=parked.timeout)
        except Fault as fault:
            results.append({"error": fault.error, "details": fault.details})
            results += [None] * (len(operations) - len(results))
            return TransactionOutcome(results, {})
        try:
            edits = self.integrity.settle(draft.changed)
        except Fault as fault:
            return TransactionOutcome([*results, {"error": fault.error, "details": fault.details}], {})
        self._take(edits)
        return TransactionOutcome(results, edits)

    def _take(self, edits: Edits) -> None:
        if not edits:
            return
        self.integrity.take(edits)
        for rows in edits.values():
            for uuid in rows:
                self._versions.pop(uuid, None)
        self.last_id = self.new_uuid()
        self.history.append((self.last_id, edits))
        for listener in self.listeners:
            listener(edits)

    def since(self, last_id: str) -> Edits | None:
        """Return the changes after a transaction; None if they are no longer known."""
        if last_id == self.last_id != ZERO:
            return {}
        ids = [one for one, _ in self.history]
        if last_id not in ids:
            return None
        merged: Edits = {}
        for _, edits in list(self.history)[ids.index(Uuid(last_id)) + 1 :]:
            for table, rows in edits.items():
                into = merged.setdefault(table, {})
                for uuid, edit in rows.items():
                    into[uuid] = Edit(into[uuid].old if uuid in into else edit.old, edit.new)
        return merged


class Draft:
    """One transaction in progress."""

    def __init__(self, database: Database, *, owns: Callable[[str], bool], waits: bool) -> None:
        self._database = database
        self._schema = database.schema
        self._owns, self._waits = owns, waits
        self.changed: dict[str, dict[Uuid, Values | None]] = {}
        self._names: dict[str, Uuid] = {}
        self._inserted: set[str] = set()

    # Reading.

    def _table(self, operation: Mapping[str, Any]) -> tuple[str, TableSchema]:
        name = operation.get("table")
        if not isinstance(name, str) or name not in self._schema.tables:
            raise Fault("syntax error", f"No table named {name}.")
        return name, self._schema.tables[name]

    def _name(self, name: str) -> Uuid:
        if name not in self._names:
            self._names[name] = self._database.new_uuid()
        return self._names[name]

    def rows(self, table: str) -> Iterator[tuple[Uuid, Values]]:
        """Yield the current rows of a table."""
        changed = self.changed.get(table, {})
        for uuid, row in self._database.tables[table].items():
            if uuid not in changed:
                yield uuid, row
        for uuid, new in list(changed.items()):
            if new is not None:
                yield uuid, new

    def row(self, table: str, uuid: Uuid) -> Values | None:
        """Return the current state of a row."""
        changed = self.changed.get(table, {})
        return changed[uuid] if uuid in changed else self._database.tables[table].get(uuid)

    def _chosen(self, table: str, schema: TableSchema, where: Wire) -> list[tuple[Uuid, Values]]:
        if not isinstance(where, list):
            raise Fault("syntax error", "where is not an array")
        tests = [self._test(one, schema) for one in where]
        uuid = next((one[2] for one in where if one[:2] == ["_uuid", "=="]), None)
        if uuid is not None:  # Nearly every row is chosen so: no need to scan the table.
            key = parse_value(uuid, UUID_TYPE, self._name)
            row = self.row(table, key)
            rows: Iterable[tuple[Uuid, Values]] = [(key, row)] if row is not None else []
        else:
            rows = self.rows(table)
        return [(uuid, row) for uuid, row in rows if all(test(uuid, row) for test in tests)]

    def _test(self, clause: Wire, schema: TableSchema) -> Callable[[Uuid, Values], bool]:
        if isinstance(clause, bool):
            return lambda _uuid, _row: clause
        if not isinstance(clause, list) or len(clause) != 3 or not isinstance(clause[0], str):
            raise Fault("syntax error", "Parse error in condition.")
        column, function, wire = clause
        if column == "_uuid":
            test = condition(function, wire, UUID_TYPE, self._name)
            return lambda uuid, _row: test(uuid)
        if column == "_version":
            test = condition(function, wire, UUID_TYPE, self._name)
            return lambda uuid, _row: test(self._database.version(uuid))
        test = condition(function, wire, column_type(schema, column), self._name)
        return lambda _uuid, row: test(row[column])

    # Operations.

    def execute(self, operation: Wire) -> dict[str, Any]:
        """Execute one operation; return its result."""
        if not isinstance(operation, dict):
            raise Fault("syntax error", "Operation must be an object.")
        match operation.get("op"):
            case "insert":
                return self._insert(operation)
            case "select":
                return self._select(operation)
            case "update":
                return self._update(operation)
            case "mutate":
                return self._mutate(operation)
            case "delete":
                return self._delete(operation)
            case "wait":
                return self._wait(operation)
            case "comment" | "commit":
                return {}
            case "abort":
                raise Fault("aborted", "aborted by request")
            case "assert":
                if not self._owns(str(operation.get("lock"))):
                    raise Fault("not owner", f"Asserted lock {operation.get('lock')} not held.")
                return {}
            case unknown:
                raise Fault("syntax error", f'No operation "{unknown}"')

    def _parse_row(self, wire: Wire, schema: TableSchema) -> Values:
        if not isinstance(wire, dict):
            raise Fault("syntax error", "row is not an object")
        return {column: parse_value(value, column_type(schema, column), self._name) for column, value in wire.items()}

    def _set(self, table: str, uuid: Uuid, row: Values | None) -> None:
        self.changed.setdefault(table, {})[uuid] = row

    def _insert(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        given, name = operation.get("uuid"), operation.get("uuid-name")
        if given and (self.row(table, Uuid(given)) is not None or given in self.changed.get(table, {})):
            raise Fault("duplicate uuid", f"This UUID {given} would duplicate a UUID already present.")
        if name is not None:
            if name in self._inserted:
                raise Fault("duplicate uuid-name", f"This {name} appeared on an earlier insert.")
            self._inserted.add(name)
            if given:
                self._names[name] = Uuid(given)
        uuid = Uuid(given) if given else self._name(name) if name is not None else self._database.new_uuid()
        row = self._parse_row(operation.get("row"), schema)
        self._set(table, uuid, {column: default(kind) for column, kind in schema.columns.items()} | row)
        return {"uuid": ["uuid", str(uuid)]}

    def _select(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        columns = operation.get("columns", ["_uuid", "_version", *schema.columns])
        rows = []
        for uuid, row in self._chosen(table, schema, operation.get("where")):
            shown = {"_uuid": uuid, "_version": self._database.version(uuid), **row}
            rows.append({column: canonical(shown[column]) for column in columns})
        return {"rows": rows}

    def _update(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        changes = self._parse_row(operation.get("row"), schema)
        for column in changes:
            _must_be_mutable(schema, column, "update")
        chosen = self._chosen(table, schema, operation.get("where"))
        for uuid, row in chosen:
            self._set(table, uuid, row | changes)
        return {"count": len(chosen)}

    def _mutate(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        mutations = []
        for one in operation.get("mutations", ()):
            if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str):
                raise Fault("syntax error", "Parse error in mutation.")
            kind = column_type(schema, one[0])
            _must_be_mutable(schema, one[0], "mutate")
            mutations.append((one[0], mutation(one[1], one[2], kind, self._name)))
        chosen = self._chosen(table, schema, operation.get("where"))
        for uuid, row in chosen:
            changed = dict(row)
            for column, mutate in mutations:
                changed[column] = mutate(changed[column])
            self._set(table, uuid, changed)
        return {"count": len(chosen)}

    def _delete(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        chosen = self._chosen(table, schema, operation.get("where"))
        for uuid, _ in chosen:
            self._set(table, uuid, None)
        return {"count": len(chosen)}

    def _wait(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        table, schema = self._table(operation)
        columns = operation.get("columns", list(schema.columns))
        until, timeout = operation.get("until"), operation.get("timeout")
        if until not in ("==", "!="):
            raise Fault("syntax error", f'"until" must be "==" or "!=", not {until}')
        blank = {column: ZERO if column == "_uuid" else default(column_type(schema, column)) for column in columns}
        wanted = {_picture(blank | self._parse_row(row, schema), columns) for row in operation.get("rows", ())}
        chosen = self._chosen(table, schema, operation.get("where"))
        found = {_picture({"_uuid": uuid, **row}, columns) for uuid, row in chosen}
        if (found == wanted) == (until == "=="):
            return {}
        if self._waits and timeout != 0:
            raise Parked(None if timeout is None else timeout / 1000)
        raise Fault("timed out", '"where" clause test failed' if timeout == 0 else '"wait" timed out')


def column_type(schema: TableSchema, name: str) -> ColumnType:
    """Return a column's type."""
    if name in ("_uuid", "_version"):
        return UUID_TYPE
    try:
        return schema.columns[name]
    except KeyError:
        raise Fault("unknown column", f"No column {name} in this table.") from None


def _must_be_mutable(schema: TableSchema, name: str, action: str) -> None:
    if not column_type(schema, name).mutable:
        raise Fault("constraint violation", f"Cannot {action} immutable column {name}.")


def _picture(row: Values, columns: Iterable[str]) -> frozenset[Any]:
    return frozenset(
        (column, frozenset(value.items()) if isinstance(value := row[column], dict) else value) for column in columns
    )


def canonical(value: Wire) -> Wire:
    """Return a value as ovsdb-server writes it: sorted, and a set of one without its brackets."""
    if isinstance(value, frozenset):
        atoms = [atom_to_wire(one) for one in sorted(value)]
        return atoms[0] if len(atoms) == 1 else ["set", atoms]
    if isinstance(value, dict):
        return ["map", [[atom_to_wire(key), atom_to_wire(value[key])] for key in sorted(value)]]
    return to_wire(value)
