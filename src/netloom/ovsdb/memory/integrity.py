"""The consistency rules of the in-memory database after each transaction.  Pure.

It maintains the reference counts of rows and the values of the indexes; the cost of a transaction depends on its
changes only. The order is that of ovsdb-server: strong references, garbage, row limits, weak references, indexes.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from netloom.ovsdb.datum import Fault, elements_of, shaped
from netloom.ovsdb.notation import Uuid, Wire
from netloom.ovsdb.schema import Schema

Values = dict[str, Any]
"""A row's columns, in the shapes of `notation`."""

Rows = dict[str, dict[Uuid, Values]]
Changes = dict[str, dict[Uuid, Values | None]]
"""New states of rows, by table and uuid; None: deleted."""

Place = tuple[str, Uuid]


class Edit(NamedTuple):
    """The change of one row in a transaction."""

    old: Values | None
    new: Values | None


Edits = dict[str, dict[Uuid, Edit]]


class Reference(NamedTuple):
    """A column with references to rows, in its keys or in its values."""

    column: str
    table: str
    of_keys: bool

    def uuids(self, row: Values) -> Iterator[Uuid]:
        """Yield the references of a row in this column."""
        elements = elements_of(row[self.column])
        yield from (elements if self.of_keys or not isinstance(elements, dict) else elements.values())


class Integrity:
    """The reference counts and indexes of a database."""

    def __init__(self, schema: Schema, rows: Rows) -> None:
        self._schema = schema
        self._rows = rows
        self._strong = {table: list(_references(table, schema, weak=False)) for table in schema.tables}
        self._weak = {table: list(_references(table, schema, weak=True)) for table in schema.tables}
        self._counts: Counter[Place] = Counter()
        self._indexes: dict[tuple[str, tuple[str, ...]], dict[Hashable, Uuid]] = {
            (name, index): {} for name, table in schema.tables.items() for index in table.indexes
        }

    def take(self, edits: Edits) -> None:
        """Commit settled edits."""
        self._counts.update(self._delta({t: {u: edit.new for u, edit in rows.items()} for t, rows in edits.items()}))
        for (table, columns), index in self._indexes.items():
            changed = edits.get(table, {})
            for edit in changed.values():
                if edit.old is not None:
                    index.pop(_key(edit.old, columns), None)
            for uuid, edit in changed.items():
                if edit.new is not None:
                    index[_key(edit.new, columns)] = uuid
        for table, rows in edits.items():
            for uuid, edit in rows.items():
                if edit.new is None:
                    del self._rows[table][uuid]
                else:
                    self._rows[table][uuid] = edit.new

    def settle(self, changes: Changes) -> Edits:
        """Return the edits of a transaction, or raise `Fault`."""
        draft = {
            table: {uuid: row for uuid, row in rows.items() if row != self._rows[table].get(uuid)}
            for table, rows in changes.items()
        }
        delta = self._delta(draft)
        self._check_strong(draft, delta)
        self._collect_garbage(draft, delta)
        self._check_numbers(draft)
        self._clean_weak(draft)
        self._check_indexes(draft)
        edits: Edits = {}
        for table, rows in draft.items():
            for uuid, new in rows.items():
                old = self._rows[table].get(uuid)
                if old != new:
                    edits.setdefault(table, {})[uuid] = Edit(old, new)
        return edits

    def _row(self, draft: Mapping[str, Mapping[Uuid, Values | None]], place: Place) -> Values | None:
        table, uuid = place
        changed = draft.get(table, {})
        return changed[uuid] if uuid in changed else self._rows[table].get(uuid)

    def _targets(self, place: Place, row: Values | None) -> Iterator[Place]:
        """Yield the references of a row; a reference to itself (by uuid, as in ovsdb-server) does not count."""
        if row is None:
            return
        for reference in self._strong[place[0]]:
            for uuid in reference.uuids(row):
                if uuid != place[1]:
                    yield reference.table, uuid

    def _delta(self, draft: Mapping[str, Mapping[Uuid, Values | None]]) -> Counter[Place]:
        """Return the changes of the strong reference counts."""
        delta: Counter[Place] = Counter()
        for table, rows in draft.items():
            for uuid, new in rows.items():
                delta.subtract(self._targets((table, uuid), self._rows[table].get(uuid)))
                delta.update(self._targets((table, uuid), new))
        return delta

    def _check_strong(self, draft: Changes, delta: Counter[Place]) -> None:
        for place, more in delta.items():
            if more > 0 and self._row(draft, place) is None:
                raise Fault("referential integrity violation", f"{place[0]} row {place[1]} does not exist")
        for table, rows in draft.items():
            for uuid, new in rows.items():
                left = self._counts[table, uuid] + delta[table, uuid]
                if new is None and left > 0:
                    details = f"cannot delete {table} row {uuid} because of {left} remaining reference(s)"
                    raise Fault("referential integrity violation", details)

    def _collect_garbage(self, draft: Changes, delta: Counter[Place]) -> None:
        places = [(table, uuid) for table, rows in draft.items() for uuid in rows] + list(delta)
        while places:
            table, uuid = place = places.pop()
            row = self._row(draft, place)
            if row is None or self._schema.tables[table].is_root or self._counts[place] + delta[place] > 0:
                continue
            draft.setdefault(table, {})[uuid] = None
            for target in self._targets(place, row):
                delta[target] -= 1
                places.append(target)

    def _check_numbers(self, draft: Changes) -> None:
        for table, rows in draft.items():
            there = self._rows[table]
            number = len(there) + sum((new is not None) - (uuid in there) for uuid, new in rows.items())
            if number > max(self._schema.tables[table].max_rows, len(there)):
                raise Fault("constraint violation", f"transaction causes {table} to contain {number} rows")

    def _clean_weak(self, draft: Changes) -> None:
        """Remove weak references to missing rows."""
        gone = {(table, uuid) for table, rows in draft.items() for uuid, new in rows.items() if new is None}
        for table, references in self._weak.items():
            candidates = {uuid: row for uuid, row in draft.get(table, {}).items() if row is not None}
            if any(reference.table == place[0] for place in gone for reference in references):
                candidates = {u: r for u, r in self._rows[table].items() if u not in draft.get(table, {})} | candidates
            for uuid, row in candidates.items():
                cleaned = self._cleaned(table, row, references, draft)
                if cleaned is not row:
                    draft.setdefault(table, {})[uuid] = cleaned

    def _cleaned(self, table: str, row: Values, references: list[Reference], draft: Changes) -> Values:
        for reference in references:
            dead = {uuid for uuid in reference.uuids(row) if self._row(draft, (reference.table, uuid)) is None}
            if not dead:
                continue
            kind = self._schema.tables[table].columns[reference.column]
            kept = _without(elements_of(row[reference.column]), dead, of_keys=reference.of_keys)
            if len(kept) < kind.min:
                raise Fault("constraint violation", f"Weak references in {table}.{reference.column} are too few.")
            row = {**row, reference.column: shaped(kept, kind)}
        return row

    def _check_indexes(self, draft: Changes) -> None:
        for (table, columns), index in self._indexes.items():
            changed = draft.get(table, {})
            mine: dict[Hashable, Uuid] = {}
            for uuid, new in changed.items():
                if new is None:
                    continue
                key = _key(new, columns)
                holder = index.get(key)
                if key in mine or (holder is not None and holder not in changed):
                    details = f"Transaction causes multiple rows in {table} to have identical values for {columns}"
                    raise Fault("constraint violation", details)
                mine[key] = uuid


def _references(table: str, schema: Schema, *, weak: bool) -> Iterator[Reference]:
    for column, kind in schema.tables[table].columns.items():
        for base, of_keys in ((kind.key, True), (kind.value, False)):
            if base is not None and base.ref_table and base.ref_weak == weak:
                yield Reference(column, base.ref_table, of_keys)


def _without(elements: Wire, dead: set[Uuid], *, of_keys: bool) -> Wire:
    if not isinstance(elements, dict):
        return elements - dead
    return {key: one for key, one in elements.items() if (key if of_keys else one) not in dead}


def _key(row: Values, columns: tuple[str, ...]) -> Hashable:
    return tuple(frozenset(value.items()) if isinstance(value := row[column], dict) else value for column in columns)
