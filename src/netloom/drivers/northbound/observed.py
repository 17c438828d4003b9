"""Our rows in a northbound database, by key.  Pure.

A row is ours when its `external_ids` name our owner. They also have its key, which says what it represents, so that a
restart finds every row again. Of rows of other owners only the names are stored: a name in use is not available. Of two
rows with one key, left by a crash or by two writers at once, the one with the smaller uuid counts and the other is a
double.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from netloom.ovsdb.schema import Schema
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref

OWNER = "netloom-owner"
KEY = "netloom-key"
OF = "netloom-of"

NAMED = frozenset(("Logical_Switch", "Logical_Router", "Load_Balancer"))
"""Tables in which people and programs find rows by name, although the schema does not make names unique."""


class Link(NamedTuple):
    """A column that refers to rows."""

    strong: bool
    """Whether it keeps the row it refers to alive."""
    many: bool


class Table(Struct, frozen=True):
    """The properties of a table that writing needs."""

    root: bool
    """Whether its rows can exist unreferenced."""
    columns: frozenset[str]
    maps: frozenset[str]
    links: Mapping[str, Link]
    sets: frozenset[str]
    """Columns with more than one value, links among them."""
    unique: bool
    """Whether names are unique."""


Shape = Mapping[str, Table]


def shape(schema: Schema, followed: Mapping[str, Sequence[str] | None]) -> Shape:
    """Return the monitored columns of the tables whose rows can have an owner.

    Columns that are not monitored are not written either: their values are unknown.
    """
    return {
        name: Table(
            root=table.is_root,
            columns=frozenset(table.columns if (columns := followed[name]) is None else columns) & table.columns.keys(),
            maps=frozenset(column for column, kind in table.columns.items() if kind.is_map),
            links={
                column: Link(strong=not kind.key.ref_weak, many=kind.max > 1)
                for column, kind in table.columns.items()
                if kind.key.ref_table and not kind.is_map and column in (followed[name] or table.columns)
            },
            sets=frozenset(column for column, kind in table.columns.items() if kind.is_set),
            unique=("name",) in table.indexes,
        )
        for name, table in schema.tables.items()
        if "external_ids" in table.columns and name in followed
    }


class ObservedRows:
    """The rows of one owner in a database."""

    def __init__(self, owner: str, shape: Shape) -> None:
        self.owner = owner
        self.shape = shape
        self.uuids: dict[Ref, str] = {}
        self.refs: dict[str, Ref] = {}
        """Of all our rows, including doubles."""
        self.rows: dict[str, Any] = {}
        """The rows of the cache, with an attribute for each column."""
        self.doubles: dict[Ref, set[str]] = {}
        self.in_flight: dict[Ref, str] = {}
        """Rows that were sent and are not observed yet."""
        self.taken: dict[tuple[str, str], set[str]] = {}
        """Names in use by other owners: (table, name), and the uuids of the rows."""

    def learn(self, new: Shape) -> None:
        """Set the properties of the tables; until then names count as unique."""
        self.shape = new
        for table, name in [key for key in self.taken if not self._once(key[0])]:
            del self.taken[table, name]

    def _once(self, table: str) -> bool:
        """Return whether the names in a table are unique, or are treated as unique."""
        known = self.shape.get(table)
        return known is None or known.unique or table in NAMED

    def row(self, ref: Ref) -> Any | None:  # noqa: ANN401  # a row of any table
        """Return a row of ours, or None."""
        uuid = self.uuids.get(ref)
        return None if uuid is None else self.rows[uuid]

    def unit(self, uuid: str) -> Unit:
        """Return the resource in the external_ids of one of our rows."""
        ref = self.refs[uuid]
        return Unit.parse(self.rows[uuid].external_ids.get(OF, "")) or Unit(ref.table, "", ref.key)

    def changed(self, table: str, uuid: str, old: Any | None, new: Any | None) -> None:  # noqa: ANN401  # as above
        """Process the insertion, change or deletion of a row."""
        key = None if new is None else self._key(new)
        if old is not None:
            was = self._key(old)
            if was is not None and was == key:
                self.rows[uuid] = new  # The usual case: our row, changed.
                return
            self._forget(table, uuid, old, was)
        if new is None:
            return
        if key is None:
            for name in self._name(table, new):
                self.taken.setdefault((table, name), set()).add(uuid)
            return
        ref = Ref(table, key)
        self.refs[uuid] = ref
        self.rows[uuid] = new
        first = self.uuids.setdefault(ref, uuid)
        if first == uuid:
            return
        self.uuids[ref] = min(first, uuid)
        self.doubles.setdefault(ref, set()).add(max(first, uuid))

    def _forget(self, table: str, uuid: str, old: Any, was: str | None) -> None:  # noqa: ANN401  # as above
        if was is None:
            for name in self._name(table, old):
                holders = self.taken.get((table, name), set())
                holders.discard(uuid)
                if not holders:
                    self.taken.pop((table, name), None)
            return
        ref = self.refs.pop(uuid, None)
        self.rows.pop(uuid, None)
        if ref is None:
            return
        others = self.doubles.get(ref, set())
        others.discard(uuid)
        if self.uuids.get(ref) == uuid:
            del self.uuids[ref]
            if others:
                self.uuids[ref] = min(others)
                others.discard(self.uuids[ref])
        if not others:
            self.doubles.pop(ref, None)

    def _key(self, row: Any) -> str | None:  # noqa: ANN401  # as above
        """Return the key of a row that is ours."""
        ids = getattr(row, "external_ids", None)
        if not ids or ids.get(OWNER) != self.owner:
            return None
        key: str | None = ids.get(KEY)
        return key

    def _name(self, table: str, row: Any) -> Iterable[str]:  # noqa: ANN401  # as above
        if not self._once(table):
            return ()
        name = getattr(row, "name", "")
        return (name,) if name else ()
