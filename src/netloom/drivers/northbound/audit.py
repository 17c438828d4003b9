"""Audit of our rows in a northbound database.  Pure.

It uses the comparison that writes rows (`diff`), so its findings are exactly what a sweep would repair.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from netloom.drivers.northbound.bundles import Bundle, Touch
from netloom.drivers.northbound.observed import ObservedRows
from netloom.plan.audit.finding import Check
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Ref


class RowFinding(Struct, frozen=True):
    """One row that differs from the plan."""

    check: Check
    unit: Unit
    """The resource that it belongs to."""
    table: str
    key: str
    message: str


def findings(
    bundles: Sequence[Bundle], problems: Mapping[Unit, Problem], seen: ObservedRows, wanted: Collection[Ref]
) -> list[RowFinding]:
    """Return the findings, from what would be written."""
    new = {one.uuid for bundle in bundles for one in bundle.inserts}
    found: set[RowFinding] = set()
    drift: dict[tuple[Unit, Ref], set[str]] = {}
    for bundle in bundles:
        unit = bundle.unit
        for row in bundle.inserts:
            found.add(RowFinding(Check.MISSING_ROW, unit, *row.ref, "it is not in the northbound database"))
        for change in bundle.updates:
            words = {_differs(name, change.seen[name], value) for name, value in change.columns.items()}
            drift.setdefault((unit, change.ref), set()).update(words)
        for touch in bundle.joins:
            if touch.value not in new and touch.uuid not in new:
                drift.setdefault((unit, touch.ref), set()).add(f"{touch.column} lacks {_entry(touch, seen)}")
        for touch in bundle.leaves:
            gone = _gone(unit, touch, seen, wanted)
            if gone is not None:
                found.add(gone)
            else:
                text = f"{touch.column} has {_entry(touch, seen)}, which the plan does not have"
                drift.setdefault((unit, touch.ref), set()).add(text)
        for removal in bundle.removals:
            found.add(_removed(unit, removal.ref, removal.uuid, seen))
    for (unit, ref), several in drift.items():
        found.add(RowFinding(Check.DRIFTED_ROW, unit, *ref, "; ".join(sorted(several))))
    for unit, problem in problems.items():
        found.add(RowFinding(Check.REFUSED_ROWS, unit, "", "", problem.message))
    return sorted(found, key=lambda one: (one.unit, one.table, one.key, one.check))


def _gone(unit: Unit, touch: Touch, seen: ObservedRows, wanted: Collection[Ref]) -> RowFinding | None:
    """Return that a row should not exist, if that is why a reference to it is removed."""
    target = seen.refs.get(touch.value) if isinstance(touch.value, str) else None
    if target is None or (target in wanted and seen.uuids.get(target) == touch.value):
        return None
    return _removed(unit, target, touch.value, seen)


def _removed(unit: Unit, ref: Ref, uuid: str, seen: ObservedRows) -> RowFinding:
    if uuid in seen.doubles.get(ref, ()):
        return RowFinding(Check.DOUBLE_ROW, unit, *ref, "it exists twice")
    return RowFinding(Check.LEFTOVER_ROW, unit, *ref, "no resource needs it")


def _entry(touch: Touch, seen: ObservedRows) -> str:
    target = seen.refs.get(touch.value) if isinstance(touch.value, str) else None
    value = target.key if target is not None else touch.value
    return f"{touch.key}={value}" if touch.key else str(value)


def _differs(column: str, seen: object, wanted: object) -> str:
    if isinstance(seen, dict) and isinstance(wanted, dict):
        keys = sorted(key for key in {*seen, *wanted} if seen.get(key) != wanted.get(key))
        words = [f"{key} is {_shown(seen.get(key))}, not {_shown(wanted.get(key))}" for key in keys]
        return f"{column}: {', '.join(words)}"
    return f"{column} is {_shown(seen)}, not {_shown(wanted)}"


def _shown(value: Any) -> str:  # noqa: ANN401  # a column
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value))) or "empty"
    return "absent" if value is None else str(value) or "empty"
