"""An explanation as text, a step after the other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from netloom.cli.tables import align, clean
from netloom.cli.terminal import counted, paint

if TYPE_CHECKING:
    from netloom.diagnose.explain.explanation import Explanation
    from netloom.diagnose.explain.ovn import RowView

WIDE = 160
COLOURS = {"True": "green", "False": "red"}


def lines(found: "Explanation", *, flows: bool) -> Iterator[str]:
    """Give the lines."""
    unit = found.unit
    where = f"{unit.namespace}/{unit.name}" if unit.namespace else unit.name
    yield paint(clean(f"{unit.kind} {where}"), "cyan", bold=True)
    yield from _wish(found.wish)
    if found.conditions:
        yield "Conditions"
        rows = [(one.type, one.status, one.reason, one.message) for one in found.conditions]
        for row, text in zip(rows, align(rows, indent="  ").splitlines(), strict=True):
            yield paint(text, COLOURS.get(row[1], "yellow")) if row[1] != "True" else text
    if found.problems:
        yield paint("Problems", "red")
        yield from (clean(f"  {problem}") for problem in found.problems)
    yield from _north(found)
    yield from _south(found, flows=flows)
    if found.port is not None:
        yield f"On node {found.port.node}"
        yield from (clean(f"  {line}") for line in found.port.lines)
        yield from (paint(clean(f"  MISSING: {line}"), "red") for line in found.port.missing)
    if found.unseen:
        yield "Not looked at"
        yield from (clean(f"  {what}") for what in found.unseen)
    if found.next:
        yield "Where to look next"
        yield from (clean(f"  {what}") for what in found.next)


def _wish(spec: dict[str, Any]) -> Iterator[str]:
    yield "Wish"
    yield from (clean(f"  {key}: {_compact(value)}") for key, value in spec.items())


def _compact(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_compact(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_compact, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _north(found: "Explanation") -> Iterator[str]:
    if found.rows is None:
        if found.planned:
            yield f"Planned for the northbound: {counted(len(found.planned), 'row')}"
            yield from (clean(f"  {row}") for row in found.planned)
        return
    yield f"Northbound: {counted(len(found.rows), 'row')}"
    for row in found.rows:
        yield from _row(row)
    have = {f"{row.table} {row.key}" for row in found.rows}
    yield from (paint(clean(f"  MISSING: {row}"), "red") for row in found.planned if row not in have)


def _row(row: "RowView") -> Iterator[str]:
    yield clean(f"  {row.table} {row.key}")
    for column, value in row.columns.items():
        text = f"      {column}: {value}"
        yield clean(text if len(text) <= WIDE else f"{text[: WIDE - 1]}…")
    yield from (clean(f"      in {place}") for place in row.within)


def _south(found: "Explanation", *, flows: bool) -> Iterator[str]:
    south = found.south
    if south is None or not (south.lines or south.missing or south.flows):
        return
    yield "Southbound"
    yield from (clean(f"  {line}") for line in south.lines)
    yield from (paint(clean(f"  MISSING: {line}"), "red") for line in south.missing)
    if south.flows:
        yield f"  {counted(len(south.flows), 'logical flow')}" + ("" if flows else " (--flows lists them)")
    for flow in south.flows if flows else ():
        yield clean(
            f"    {flow.datapath} {flow.pipeline} {flow.table} {flow.stage} priority {flow.priority}:"
            f" {flow.match} => {flow.actions}"
        )
