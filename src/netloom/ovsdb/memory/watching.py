"""Monitors of the in-memory server: updates from the edits of a transaction.  Pure."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from netloom.ovsdb.datum import Fault, condition, default, elements_of
from netloom.ovsdb.memory.engine import Database, canonical, column_type
from netloom.ovsdb.memory.integrity import Edit, Edits, Values
from netloom.ovsdb.notation import Uuid, Wire
from netloom.ovsdb.schema import TableSchema

Test = Callable[[Uuid, Values], bool]
KINDS = ("initial", "insert", "delete", "modify")


class MonitoredTable(Struct):
    """One table of a monitor."""

    columns: dict[str, list[str]]
    """The monitored columns, by kind of change."""
    tests: list[Test] | None
    """Only rows for which one of these holds; None: all rows."""

    def matches(self, uuid: Uuid, row: Values | None) -> bool:
        """Return whether a row is monitored."""
        return row is not None and (self.tests is None or any(test(uuid, row) for test in self.tests))


def monitored_table(schema: TableSchema, wire: Wire, *, conditional: bool) -> MonitoredTable:
    """Return the contents of one table's <monitor-request>s."""
    requests = wire if isinstance(wire, list) else [wire]
    columns: dict[str, list[str]] = {kind: [] for kind in KINDS}
    tests: list[Test] | None = None
    for request in requests:
        if not isinstance(request, dict):
            raise Fault("syntax error", "a monitor request is not an object")
        select = request.get("select", {})
        for kind in KINDS:
            if select.get(kind, True):
                columns[kind] += request.get("columns", list(schema.columns))
        if conditional and request.get("where"):
            tests = (tests or []) + [_test(schema, clause) for clause in request["where"]]
    for column in {name for names in columns.values() for name in names}:
        column_type(schema, column)
    return MonitoredTable(columns, tests)


def _test(schema: TableSchema, clause: Wire) -> Test:
    if isinstance(clause, bool):
        return lambda _uuid, _row: clause
    column, function, wire = clause
    test = condition(function, wire, column_type(schema, column), Uuid)
    if column == "_uuid":
        return lambda uuid, _row: test(uuid)
    return lambda _uuid, row: test(row[column])


class ServedMonitor(Struct):
    """One monitor."""

    id: Any
    database: Database
    version: int
    """The version of its updates: 1 for update, 2 for update2, 3 for update3."""
    tables: dict[str, MonitoredTable]

    def initial(self) -> dict[str, Any]:
        """Return all rows, as an update."""
        rows = {
            table: {uuid: Edit(None, row) for uuid, row in self.database.tables[table].items()} for table in self.tables
        }
        return self.updates(rows, initial=True)

    def updates(self, edits: Edits, *, initial: bool = False) -> dict[str, Any]:
        """Return a transaction's edits as an update for this monitor; empty if there is nothing to report."""
        found: dict[str, Any] = {}
        for table, one in self.tables.items():
            for uuid, edit in edits.get(table, {}).items():
                before, after = one.matches(uuid, edit.old), one.matches(uuid, edit.new)
                update = self._update(table, edit, (before, after), initial=initial)
                if update is not None:
                    found.setdefault(table, {})[str(uuid)] = update
        return found

    def _update(self, table: str, edit: Edit, matches: tuple[bool, bool], *, initial: bool) -> Wire:
        columns, kinds = self.tables[table].columns, self.database.schema.tables[table]
        match matches:
            case False, True:
                kind = "initial" if initial else "insert"
                if not columns[kind]:
                    return None
                assert edit.new is not None
                if self.version == 1:
                    return {"new": {name: canonical(edit.new[name]) for name in columns[kind]}}
                row = edit.new
                found = (name for name in columns[kind] if row[name] != default(kinds.columns[name]))
                return {kind: {name: canonical(row[name]) for name in found}}
            case True, False:
                assert edit.old is not None
                if not columns["delete"]:
                    return None
                row = edit.old
                old = {name: canonical(row[name]) for name in columns["delete"]}
                return {"old": old} if self.version == 1 else {"delete": None}
            case True, True:
                return self._modified(edit, columns["modify"], kinds)
        return None

    def _modified(self, edit: Edit, columns: list[str], kinds: TableSchema) -> Wire:
        old, new = edit.old, edit.new
        assert old is not None
        assert new is not None
        changed = [name for name in columns if old[name] != new[name]]
        if not changed:
            return None
        if self.version == 1:
            before = {name: canonical(old[name]) for name in changed}
            return {"old": before, "new": {name: canonical(new[name]) for name in columns}}
        return {
            "modify": {
                name: canonical(difference(old[name], new[name]) if kinds.columns[name].is_composite else new[name])
                for name in changed
            }
        }


def difference(old: Wire, new: Wire) -> Wire:
    """Return the difference of two sets or maps, as update2 has it."""
    before, after = elements_of(old), elements_of(new)
    if isinstance(before, dict) and isinstance(after, dict):
        gone = {key: value for key, value in before.items() if key not in after}
        return gone | {key: value for key, value in after.items() if key not in before or before[key] != value}
    return frozenset(before) ^ frozenset(after)
