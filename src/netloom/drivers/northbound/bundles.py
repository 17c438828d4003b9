"""What is to be written to a northbound database, resource by resource.  Pure.

A bundle is everything to be written for one resource: it is written whole or not at all, so a resource the database
refuses costs itself only.
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
    """Columns to change, and what they are seen to be."""

    ref: Ref
    uuid: str
    seen: dict[str, Any]
    columns: dict[str, Any]


class Touch(Struct, frozen=True, gc=False):
    """A value to put into, or to take out of, a set or (with a key) a map of a row."""

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
    """What is to be written for one resource."""

    unit: Unit
    inserts: list[New] = []
    updates: list[Changed] = []
    joins: list[Touch] = []
    leaves: list[Touch] = []
    removals: list[Gone] = []
    needs: set[Unit] = set()
    """Whose new rows it refers to."""
    glued: bool = False
    """Whether it and the next one need each other: they go together."""

    @property
    def size(self) -> int:
        """How many changes there are in it."""
        return len(self.inserts) + len(self.updates) + len(self.joins) + len(self.leaves) + len(self.removals)

    @property
    def weight(self) -> int:
        """How many operations it comes to, about: those on one set become one."""
        own = len(self.inserts) + len(self.updates) + len(self.removals)
        return own + (len(self.joins) + len(self.leaves) + 3) // 8

    @property
    def takes(self) -> bool:
        """Whether it only takes away."""
        return not (self.inserts or self.updates or self.joins)


def describe(bundle: Bundle) -> tuple[Counter[str], str]:
    """Return how many rows of which tables a bundle is about, and what it does, for people."""
    rows: dict[tuple[Ref, str], set[str]] = {}
    for new in bundle.inserts:
        rows[new.ref, new.uuid] = {"was gone"}
    for change in bundle.updates:
        rows.setdefault((change.ref, change.uuid), set()).update(change.columns)
    for touch in (*bundle.joins, *bundle.leaves):
        rows.setdefault((touch.ref, touch.uuid), set()).add(touch.column)
    for gone in bundle.removals:
        rows[gone.ref, gone.uuid] = {"was too many"}
    words = [f"{ref.table} {ref.key}: {', '.join(sorted(what))}" for (ref, _), what in sorted(rows.items())]
    return Counter(ref.table for ref, _ in rows), "; ".join(words)


def kept(bundles: list[Bundle]) -> list[Bundle]:
    """Return bundles without all that they take away."""
    for one in bundles:
        one.leaves, one.removals = [], []
    return [one for one in bundles if one.size]


def ordered(bundles: list[Bundle]) -> list[Bundle]:
    """Return bundles so that each comes after those it needs, and those that only take away come last.

    Bundles that need each other follow one another, `glued`.
    """
    by_unit = {one.unit: one for one in bundles}
    found: list[Bundle] = []
    begun: set[Unit] = set()
    ended: set[Unit] = set()
    awaited: dict[Unit, int] = {}
    """Who is needed by somebody it needs itself: all from there on must go with it."""

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
