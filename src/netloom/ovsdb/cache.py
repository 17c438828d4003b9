"""The monitored rows, as the server has them, with indexes.  Pure.

An update is applied completely or not at all. After a reconnect the server may send everything again: then only the
differences are changes.
"""

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.monitor import Change, Monitor, Row, Updates
from netloom.ovsdb.notation import Uuid

_NOTHING: Mapping[Uuid, Row] = MappingProxyType({})


class Index:
    """The rows of a table by the values of some columns.

    A column is a name, or "name:key" for one entry of a map; a row without that entry is not in the index.
    """

    __slots__ = ("_columns", "_found")

    def __init__(self, *columns: str) -> None:
        self._columns = [tuple(column.split(":", 1)) for column in columns]
        self._found: dict[Hashable, dict[Uuid, Row]] = {}

    def _key(self, row: Row) -> Hashable:
        values: list[Any] = []
        for column in self._columns:
            value = getattr(row, column[0])
            if len(column) == 2 and (value := value.get(column[1])) is None:
                return None
            values.append(frozenset(value.items()) if isinstance(value, dict) else value)
        return values[0] if len(values) == 1 else tuple(values)

    def _add(self, row: Row) -> None:
        if (key := self._key(row)) is not None:
            self._found.setdefault(key, {})[row._uuid] = row

    def _remove(self, row: Row) -> None:
        if (key := self._key(row)) is not None:
            rows = self._found[key]
            del rows[row._uuid]
            if not rows:
                del self._found[key]

    def get(self, *values: Hashable) -> Mapping[Uuid, Row]:
        """Return the rows with these values, by uuid."""
        return self._found.get(values[0] if len(values) == 1 else values, _NOTHING)

    def one(self, *values: Hashable) -> Row | None:
        """Return the row with these values; of several the one with the smallest uuid."""
        rows = self.get(*values)
        return rows[min(rows)] if rows else None

    def __contains__(self, values: Hashable) -> bool:
        return values in self._found

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Cache:
    """The known rows of a database."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[Uuid, Row]] = {}
        self._indexes: dict[str, dict[tuple[str, ...], Index]] = {}

    def rows(self, table: str) -> Mapping[Uuid, Row]:
        """Return a table's rows; the mapping stays current."""
        return self._tables.setdefault(table, {})

    def indexed(self, table: str, *columns: str) -> Index:
        """Return an index of a table by some columns; it is made once and stays current."""
        indexes = self._indexes.setdefault(table, {})
        if (found := indexes.get(columns)) is None:
            found = indexes[columns] = Index(*columns)
            for row in self.rows(table).values():
                found._add(row)
        return found

    def apply(self, updates: Updates, monitor: Monitor) -> list[Change]:
        """Apply the updates; return the changes."""
        changes: list[Change] = []
        for table, gone in updates.gone.items():
            rows = self.rows(table)
            changes += [Change(table, uuid, self._known(table, rows, uuid), None) for uuid in gone]
        for table, changed in updates.changed.items():
            rows = self.rows(table)
            for uuid, difference in changed.items():
                old = self._known(table, rows, uuid)
                changes.append(Change(table, uuid, old, monitor.changed(table, old, difference)))
        for table, whole in updates.whole.items():
            get = self.rows(table).get
            changes += [Change(table, uuid, get(uuid), row) for uuid, row in whole.items()]
        self._commit(changes)
        return changes

    def replace(self, updates: Updates) -> list[Change]:
        """Replace all rows by the updates; return the changes."""
        changes: list[Change] = []
        for table in {*self._tables, *updates.whole}:
            rows, now = self.rows(table), updates.whole.get(table, {})
            changes += [Change(table, uuid, old, None) for uuid, old in rows.items() if uuid not in now]
            changes += [Change(table, uuid, rows.get(uuid), row) for uuid, row in now.items() if rows.get(uuid) != row]
        self._commit(changes)
        return changes

    @staticmethod
    def _known(table: str, rows: Mapping[Uuid, Row], uuid: Uuid) -> Row:
        try:
            return rows[uuid]
        except KeyError:
            raise RemoteError(f"update of an unknown row of {table}") from None

    def _commit(self, changes: list[Change]) -> None:
        for table, uuid, old, new in changes:
            indexes = self._indexes.get(table)
            if indexes is not None:
                for index in indexes.values():
                    if old is not None:
                        index._remove(old)
                    if new is not None:
                        index._add(new)
            if new is None:
                self._tables[table].pop(uuid, None)
            else:
                self._tables[table][uuid] = new
