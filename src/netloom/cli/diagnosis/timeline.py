"""The text of `netloom explain networkattachment/NAME --timeline`, with a bar for each step."""

from collections.abc import Iterator
from datetime import datetime

import click

from netloom.cli.tables import clean
from netloom.cli.terminal import paint, print_json
from netloom.diagnose.explain.timeline import EVENT, Moment, Sources, Timeline, Waiting, timeline
from netloom.model.values.ages import age

WIDTH = 32
"""The width of a bar, in columns."""


def show(sources: Sources, now: datetime, output: str) -> None:
    """Print the timeline of an attachment."""
    for unseen in sources.unseen:
        click.echo(f"Warning: cannot read {unseen}", err=True)
    found = timeline(sources, now)
    if output == "json":
        print_json(found)
    else:
        click.echo("\n".join(lines(found)))


def lines(found: Timeline) -> Iterator[str]:
    """Yield a timeline as lines of text."""
    title = f"NetworkAttachment {found.namespace}/{found.name}"
    yield paint(clean(title), "cyan", bold=True) + clean(f" on node {found.node}, in Network {found.network}")
    yield f"Created at {_clock(found.created, exact=found.exact)}" + (
        "" if found.exact else ", or up to a second later: the server records seconds, so durations are upper bounds"
    )
    total = max((one.offset for one in found.moments), default=0.0)
    if found.waiting:
        total = max([total, *(max(0.0, one.seconds) for one in found.waiting)])
    yield from _drawn(found, total or 1.0)
    if found.took is not None:
        yield paint(f"Ready {'' if found.exact else 'at most '}{_offset(found.took)} after its creation", "green")
    elif not found.waiting:
        yield "Not Ready"
    for one in found.waiting:
        yield from _waited(one)


def _drawn(found: Timeline, total: float) -> Iterator[str]:
    before = 0.0
    for one in found.moments:
        when = f"{'' if one.exact else '~'}{_offset(one.offset)}"
        yield clean(f"  {when:>11}  │{_bar(one, before, total)}│ {one.step:<9}{one.text}").rstrip()
        if one.step != EVENT:
            before = max(before, one.offset)


def _bar(one: Moment, before: float, total: float) -> str:
    """Return a bar from the step before to this one; a point for an Event."""
    end = min(WIDTH, max(0, round(one.offset / total * WIDTH)))
    if one.step == EVENT:
        return (" " * max(0, end - 1) + "·").ljust(WIDTH)
    begin = min(WIDTH, max(0, round(before / total * WIDTH)))
    drawn = " " * begin + "█" * (end - begin) if end > begin else " " * min(begin, WIDTH - 1) + "▏"
    return drawn.ljust(WIDTH)


def _offset(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if abs(seconds) < 60 else age(seconds)


def _waited(one: Waiting) -> Iterator[str]:
    yield paint(clean(f"Waiting {_offset(one.seconds)} for {one.what} (since {_clock(one.since)})"), "yellow")
    if one.reason or one.message:
        yield clean(f"  {one.reason}{': ' if one.message else ''}{one.message}")


def _clock(stamp: str, *, exact: bool = True) -> str:
    """Return a timestamp as date and time, to the millisecond or (not exact) to the second."""
    day, _, rest = stamp.partition("T")
    return f"{day} {rest[:12] if exact else rest[:8]} UTC"
