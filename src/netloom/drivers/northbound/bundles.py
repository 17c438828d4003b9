"""What to write to a northbound database, by resource.  Pure.

A bundle is all changes of one resource. It is written as a whole or not at all, so a resource that the database refuses
costs itself only.
"""

from collections import Counter
from typing import Any

from msgspec import Struct

from netloom.plan.problem import Unit
from netloom.plan.rows import Ref


class New(Struct, frozen=True, gc=False):
    """A row to insert."""

    ref: Ref
    uuid: str
    columns: dict[str, Any]


class Changed(Struct, frozen=True, gc=False):
    """Columns to change, and their observed values."""

    ref: Ref
    uuid: str
    seen: dict[str, Any]
    columns: dict[str, Any]


class Touch(Struct, frozen=True, gc=False):
    """A value to add to, or to remove from, a set or (with a key) a map of a row."""

    ref: Ref
    uuid: str
    column: str
    value: Any
    key: str | None = None


class Gone(Struct, frozen=True, gc=False):
    """A row to delete."""

    ref: Ref
    uuid: str


class Bundle(Struct):
    """The changes of one resource."""

    unit: Unit
    inserts: list[New] = []
    updates: list[Changed] = []
    joins: list[Touch] = []
    leaves: list[Touch] = []
    removals: list[Gone] = []
    needs: set[Unit] = set()
    """The resources whose new rows it refers to."""
    glued: bool = False
    """Whether it and the next one need each other: they go into one transaction."""

    @property
    def size(self) -> int:
        """The number of changes."""
        return len(self.inserts) + len(self.updates) + len(self.joins) + len(self.leaves) + len(self.removals)

    @property
    def weight(self) -> int:
        """The approximate number of operations: changes of one set become one."""
        own = len(self.inserts) + len(self.updates) + len(self.removals)
        return own + (len(self.joins) + len(self.leaves) + 3) // 8

    @property
    def takes(self) -> bool:
        """Whether it only removes."""
        return not (self.inserts or self.updates or self.joins)


def describe(bundle: Bundle) -> tuple[Counter[str], str]:
    """Return the number of rows by table that a bundle changes, and a description for people."""
    rows: dict[tuple[Ref, str], set[str]] = {}
    for new in bundle.inserts:
        rows[new.ref, new.uuid] = {"was missing"}
    for change in bundle.updates:
        rows.setdefault((change.ref, change.uuid), set()).update(change.columns)
    for touch in (*bundle.joins, *bundle.leaves):
        rows.setdefault((touch.ref, touch.uuid), set()).add(touch.column)
    for gone in bundle.removals:
        rows[gone.ref, gone.uuid] = {"was not needed"}
    words = [f"{ref.table} {ref.key}: {', '.join(sorted(what))}" for (ref, _), what in sorted(rows.items())]
    return Counter(ref.table for ref, _ in rows), "; ".join(words)


def kept(bundles: list[Bundle]) -> list[Bundle]:
    """Return bundles without their removals."""
    for one in bundles:
        one.leaves, one.removals = [], []
    return [one for one in bundles if one.size]


def ordered(bundles: list[Bundle]) -> list[Bundle]:
    """Return bundles in an order in which each follows those it needs, and those that only remove come last.

    Bundles that need each other are adjacent and `glued`.
    """
    by_unit = {one.unit: one for one in bundles}
    found: list[Bundle] = []
    begun: set[Unit] = set()
    ended: set[Unit] = set()
    awaited: dict[Unit, int] = {}
    """Units that need each other in a cycle: all bundles from this position on go together."""

    def visit(bundle: Bundle) -> None:
        begun.add(bundle.unit)
        for unit in sorted(bundle.needs):
            needed = by_unit.get(unit)
            if needed is None or unit in ended:
                continue
            if unit in begun:
                awaited.setdefault(unit, len(found))
            else:
                visit(needed)
        ended.add(bundle.unit)
        if bundle.unit in awaited:
            for one in found[awaited[bundle.unit] :]:
                one.glued = True
        found.append(bundle)

    for bundle in bundles:
        if bundle.unit in begun or bundle.takes:
            continue
        if bundle.needs:
            visit(bundle)
        else:
            begun.add(bundle.unit)
            ended.add(bundle.unit)
            found.append(bundle)
    return found + [one for one in bundles if one.unit not in begun]
