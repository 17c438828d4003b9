"""What the tests of the northbound driver share: a database of plain rows that executes bundles, and short ways."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from netloom.drivers.northbound.bundles import Bundle
from netloom.drivers.northbound.diff import Comparison
from netloom.drivers.northbound.driver import TABLES
from netloom.drivers.northbound.observed import ObservedRows, Shape, shape
from netloom.ovsdb.schema import Schema
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Outcome, Ref, Row

SCHEMA = Schema.parse(json.loads(Path("/usr/share/ovn/ovn-nb.ovsschema").read_text()))
SHAPE: Shape = shape(SCHEMA, TABLES)

BLUE = Unit("Network", "ns1", "blue")
WEB = Unit("NetworkAttachment", "ns1", "web")
SWITCH = Ref("Logical_Switch", "ns1/blue")
PORT = Ref("Logical_Switch_Port", "ns1/web")


class Pipeline:
    """A row: an attribute for each column of its table."""

    def __init__(self, table: str, columns: dict[str, Any]) -> None:
        for name, column in SCHEMA.tables[table].columns.items():
            kind = column.shape[0]
            empty: Any = {"map": {}, "set": frozenset(), "optional": None, "required": ""}[kind]
            setattr(self, name, columns.get(name, empty))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Plain:
    """A database that executes bundles: rows, mutations, references, and the end of rows nobody holds."""

    def __init__(self, owner: str = "netloom") -> None:
        self.seen = ObservedRows(owner, SHAPE)
        self.rows: dict[tuple[str, str], Pipeline] = {}
        self.written = 0
        self._names: Iterator[int] = iter(range(1, 1_000_000))

    def uuid(self) -> str:
        return f"{next(self._names):08x}-0000-4000-8000-000000000000"

    def add(self, table: str, **columns: Any) -> str:
        uuid = self.uuid()
        self._set(table, uuid, columns)
        return uuid

    def change(self, table: str, uuid: str, **columns: Any) -> None:
        old = self.rows[table, uuid]
        self._set(table, uuid, {**vars(old), **columns})

    def drop(self, table: str, uuid: str) -> None:
        self.seen.changed(table, uuid, self.rows.pop((table, uuid)), None)

    def of(self, table: str) -> dict[str, Pipeline]:
        return {uuid: row for (name, uuid), row in self.rows.items() if name == table}

    def look(self, wanted: DesiredRows, delta: Delta | None = None, held: Iterable[Unit] = ()) -> list[Bundle]:
        self.last = Comparison(wanted, self.seen, new_uuid=self.uuid, held=frozenset(held))
        return self.last.everything() if delta is None else self.last.delta(delta)

    def apply(self, wanted: DesiredRows, delta: Delta | None = None) -> list[Bundle]:
        found = self.look(wanted, delta)
        if self.last.incomplete:
            found = self.look(wanted)
        for bundle in found:
            self.execute(bundle)
        return found

    def execute(self, bundle: Bundle) -> None:
        self.written += bundle.size
        for new in bundle.inserts:
            assert new.columns.keys() <= SHAPE[new.ref.table].columns
            self._set(new.ref.table, new.uuid, new.columns)
        for change in bundle.updates:
            self.change(change.ref.table, change.uuid, **change.columns)
        for joins, touches in ((False, bundle.leaves), (True, bundle.joins)):
            for one in touches:
                have = getattr(self.rows[one.ref.table, one.uuid], one.column)
                if one.key is not None:
                    after = {k: v for k, v in have.items() if k != one.key} | ({one.key: one.value} if joins else {})
                else:
                    after = have | {one.value} if joins else have - {one.value}
                self.change(one.ref.table, one.uuid, **{one.column: after})
        for gone in bundle.removals:
            self.drop(gone.ref.table, gone.uuid)
        self.collect()

    def collect(self) -> None:
        """Remove what nobody holds, and references to what is gone; strong ones to what is not there are wrong."""
        while True:
            held: set[tuple[str, str]] = set()
            for (table, uuid), row in list(self.rows.items()):
                for column, link in SHAPE[table].links.items():
                    target = SCHEMA.tables[table].columns[column].key.ref_table
                    value = getattr(row, column)
                    ones = value if link.many else ({value} - {None})
                    there = {one for one in ones if (target, one) in self.rows}
                    if link.strong:
                        assert there == set(ones), f"{table}.{column} refers to what is not there"
                        held |= {(target, one) for one in there}
                    elif there != set(ones):
                        after: Any = frozenset(there) if link.many else None
                        self.change(table, uuid, **{column: after})
            dead = [key for key in self.rows if not SHAPE[key[0]].root and key not in held]
            for key in dead:
                self.drop(*key)
            if not dead:
                return

    def _set(self, table: str, uuid: str, columns: dict[str, Any]) -> None:
        old, new = self.rows.get((table, uuid)), Pipeline(table, columns)
        self.rows[table, uuid] = new
        self.seen.changed(table, uuid, old, new)


def switch(name: str = "blue", **columns: Any) -> Outcome:
    return Outcome(rows=[Row("Logical_Switch", f"ns1/{name}", {"name": f"ns1/{name}", **columns})])


def port(name: str, *members: Member, on: str = "blue", **columns: Any) -> Outcome:
    ref = Ref("Logical_Switch_Port", f"ns1/{name}")
    joins = Member(Ref("Logical_Switch", f"ns1/{on}"), "ports", ref)
    return Outcome(rows=[Row(*ref, {"name": ref.key, **columns})], members=[joins, *members])


def attachment(name: str) -> Unit:
    return Unit("NetworkAttachment", "ns1", name)


def wanted(**outcomes: Outcome) -> DesiredRows:
    """Return what is wanted by a Network called blue, and attachments."""
    found = DesiredRows()
    for name, outcome in outcomes.items():
        found.replace(BLUE if name == "blue" else attachment(name), outcome)
    return found
