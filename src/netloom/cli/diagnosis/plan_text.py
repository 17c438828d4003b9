"""The outcome of a plan as text: `+` created, `~` changed, `-` removed."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from netloom.cli.tables import clean
from netloom.cli.terminal import paint
from netloom.diagnose.changes import NOT_FOUND, UNCHANGED, Effects
from netloom.plan.ovn.comparison import Column, Kind, PortChange, RowChange

SIGNS = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.REMOVE: "-"}
COLOURS = {Kind.CREATE: "green", Kind.CHANGE: "yellow", Kind.REMOVE: "red"}
MOST = 12
"""How many elements of a set are listed."""


def lines(outcome: Effects) -> Iterator[str]:
    """Yield the outcome as lines of text."""
    for name, what in outcome.objects.items():
        yield f"{name} {what if what in (UNCHANGED, NOT_FOUND) else f'would be {what}'}"
    for title, some in (("In OVN:", _rows(outcome.rows)), ("On the nodes:", _ports(outcome.ports))):
        body = list(some)
        if body:
            yield from ("", title, *body)
    if outcome.problems:
        yield from ("", paint("Problems:", "red"))
        for unit, words in outcome.problems.items():
            yield from (clean(f"  {unit}: {word}") for word in words)
    yield ""
    yield _summary(outcome)


def _rows(rows: Iterable[RowChange]) -> Iterator[str]:
    for unit, some in groupby(rows, key=lambda one: one.unit):
        yield f"  {unit}"
        for row in some:
            yield paint(f"    {SIGNS[row.kind]} {row.table} {clean(row.key)}", COLOURS[row.kind])
            if row.kind is not Kind.REMOVE:
                yield from _columns(row.columns, row.kind)


def _ports(ports: Iterable[PortChange]) -> Iterator[str]:
    for node, some in groupby(ports, key=lambda one: one.node):
        yield f"  {node}"
        for port in some:
            yield paint(f"    {SIGNS[port.kind]} {port.unit}", COLOURS[port.kind])
            if port.problem:
                yield f"        not plugged: {clean(port.problem)}"
            if port.kind is not Kind.REMOVE:
                yield from _columns(port.columns, port.kind)


def _columns(columns: Iterable[Column], kind: Kind) -> Iterator[str]:
    for column in columns:
        if column.less or column.more:
            new = kind is Kind.CREATE
            words = [*(f"- {one}" for one in column.less), *(one if new else f"+ {one}" for one in column.more)]
            more = len(words) - MOST
            shown = words if more <= 0 else [*words[:MOST], f"and {more} more"]
            yield clean(f"        {column.name}: {', '.join(shown)}")
        elif kind is Kind.CREATE:
            yield clean(f"        {column.name}: {column.new}")
        else:
            yield clean(f"        {column.name}: {column.old or '(none)'} -> {column.new or '(none)'}")


def _summary(outcome: Effects) -> str:
    if not outcome.rows and not outcome.ports:
        return "Nothing would change in OVN or on the nodes."
    counts = [f"{sum(one.kind is kind for one in outcome.rows)} {word}" for kind, word in _WORDS.items()]
    ports = [f"{sum(one.kind is kind for one in outcome.ports)} {word}" for kind, word in _WORDS.items()]
    return f"Rows in OVN: {', '.join(counts)}. Ports on nodes: {', '.join(ports)}."


_WORDS = {Kind.CREATE: "to create", Kind.CHANGE: "to change", Kind.REMOVE: "to remove"}
