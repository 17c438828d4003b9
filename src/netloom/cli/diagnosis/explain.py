"""`netloom explain KIND/NAME`: the state of an object in the API, in OVN and on its node.

`--timeline` shows instead when each step of an attachment was completed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import click
import msgspec

from netloom.cli.diagnosis import timeline as timelines
from netloom.cli.diagnosis.options import accessing, hinted
from netloom.cli.objects.selection import targets
from netloom.cli.options import OUTPUT
from netloom.cli.shell_completion import complete_targets
from netloom.cli.tables import align, clean
from netloom.cli.terminal import counted, paint, print_json
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.session import Session
from netloom.client.suggestions import suggesting
from netloom.diagnose.access import Access
from netloom.diagnose.explain import explanation
from netloom.diagnose.explain.explanation import Explanation
from netloom.diagnose.explain.ovn import RowView
from netloom.diagnose.explain.sources import read
from netloom.model.registry import NETWORK_ATTACHMENT

WIDE = 160
COLOURS = {"True": "green", "False": "red"}


@click.command()
@click.argument("words", nargs=-1, metavar="KIND NAME | KIND/NAME", shell_complete=complete_targets)
@click.option("--flows", is_flag=True, help="List the logical flows instead of only counting them.")
@click.option("--timeline", is_flag=True, help="Show when each step of a NetworkAttachment was completed.")
@OUTPUT
@accessing
def explain(session: Session, access: Access, words: tuple[str, ...], flows: bool, timeline: bool, output: str) -> int:
    """Show the state of an object: its conditions, its rows in OVN, its port on the node, and where to look next."""
    found = targets(session.client, words)
    if len(found) != 1 or not found[0].name:
        raise click.UsageError("Name one object, such as `network/blue` or `networkattachment alice`.")
    with suggesting(session, found[0]):
        document = lists.one(session.client, found[0], Scope(session.namespace))
    if timeline:
        if found[0].resource.kind != NETWORK_ATTACHMENT.name:
            raise click.UsageError("--timeline requires a networkattachment.")
        timelines.show(read(session.client, document), datetime.now(UTC), output)
        return 0
    result = explanation.explain(session, access, found[0], document)
    if output == "json":
        print_json({**msgspec.structs.asdict(result), "unit": str(result.unit)})
    else:
        click.echo("\n".join(lines(result, flows=flows)))
    return 0


def lines(found: Explanation, *, flows: bool) -> Iterator[str]:
    """Yield an explanation as lines of text."""
    unit = found.unit
    where = f"{unit.namespace}/{unit.name}" if unit.namespace else unit.name
    yield paint(clean(f"{unit.kind} {where}"), "cyan", bold=True)
    yield "Spec"
    yield from (clean(f"  {key}: {_compact(value)}") for key, value in found.spec.items())
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
        yield "Not checked"
        yield from (clean(f"  {hinted(what)}") for what in found.unseen)
    if found.next:
        yield "Where to look next"
        yield from (clean(f"  {what}") for what in found.next)


def _compact(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_compact(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_compact, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _north(found: Explanation) -> Iterator[str]:
    if found.rows is None:
        if found.planned:
            yield f"Planned for the northbound: {counted(len(found.planned), 'row')}"
            yield from (clean(f"  {row}") for row in found.planned)
        return
    yield f"Northbound: {counted(len(found.rows), 'row')}"
    for row in found.rows:
        yield from _row(row)
    yield from (paint(clean(f"  MISSING: {row}"), "red") for row in found.missing_rows)


def _row(row: RowView) -> Iterator[str]:
    yield clean(f"  {row.table} {row.key}")
    for column, value in row.columns.items():
        text = f"      {column}: {value}"
        yield clean(text if len(text) <= WIDE else f"{text[: WIDE - 1]}…")
    yield from (clean(f"      in {place}") for place in row.within)


def _south(found: Explanation, *, flows: bool) -> Iterator[str]:
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
