"""`netloom doctor`: what is amiss, in plain words, and with --repair mended where that is safe.

It knows nothing by itself: each chapter looks at one part of Netloom, through the API, in OVN's databases or on the
nodes, and says what it finds. A finding names an object, what is wrong with it and what to do; a chapter may be able to
mend it. What cannot be reached is said, and is no failure. Exit status 0: nothing is amiss, or nothing any more; 1:
something is.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Protocol

import click
import msgspec
from msgspec import Struct

from netloom.cli.options import Session
from netloom.cli.tables import safe
from netloom.diagnose.access import Access, accessing


class Complaint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is amiss."""

    check: str
    """Which check found it, in one word."""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    message: str
    """What is wrong with it."""
    advice: str
    """What to do."""
    repair: str = ""
    """What --repair did about it; "" where it did nothing."""

    @property
    def about(self) -> str:
        """The object, as people name it."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


class Report(Struct, frozen=True, kw_only=True):
    """What a chapter found."""

    chapter: str
    looked_at: dict[str, int]
    """How many objects of which kind."""
    mended: tuple[Complaint, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    """What is amiss still."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, and why."""


class Chapter(Protocol):
    """One part of Netloom that can be looked at."""

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Look, and mend if told to."""


def chapters(access: Access) -> dict[str, Chapter]:
    """Return all chapters, in the order in which they are read."""
    from netloom.diagnose.doctor.addresses import Addresses  # a chapter costs nothing until it is read
    from netloom.diagnose.doctor.nodes import NodesChapter
    from netloom.diagnose.doctor.northbound import NorthboundChapter
    from netloom.diagnose.doctor.southbound import SouthboundChapter
    from netloom.diagnose.doctor.store import StoreChapter

    return {
        "store": StoreChapter(),
        "addresses": Addresses(),
        "northbound": NorthboundChapter(access),
        "southbound": SouthboundChapter(access),
        "nodes": NodesChapter(access),
    }


MOST = 20
"""How many of one sort are told in words; JSON has them all."""
CHAPTERS = ("store", "addresses", "northbound", "southbound", "nodes")


@click.command()
@click.option("--chapter", "only", multiple=True, type=click.Choice(CHAPTERS), help="Only this part; may be repeated.")
@click.option("--repair", is_flag=True, help="Mend what can be mended safely.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it.")
@accessing
def doctor(session: Session, access: Access, repair: bool, only: tuple[str, ...], output: str) -> int:
    """Show what is amiss, and mend it where that is safe.

    Resources are compared with each other, with OVN's databases, and with the switch and the namespaces of every node,
    as far as these can be reached.
    """
    read = [chapter for name, chapter in chapters(access).items() if not only or name in only]
    reports = [chapter.examine(session, repair=repair) for chapter in read]
    amiss = sum(len(report.complaints) for report in reports)
    if output == "json":
        whole = {"healthy": not amiss, "chapters": [msgspec.to_builtins(report) for report in reports]}
        click.echo(json.dumps(whole, indent=4, ensure_ascii=False))
    else:
        for report in reports:
            click.echo(safe("\n".join(_lines(report))))
    return 1 if amiss else 0


def _lines(report: Report) -> list[str]:
    counted = ", ".join(f"{count} {kind}" for kind, count in report.looked_at.items())
    lines = [f"{report.chapter}: looked at {counted}."] if counted else []
    lines += [f"{report.chapter}: not looked at: {what}." for what in report.unseen]
    for complaint in report.mended:
        lines += [f"  {complaint.about}: {complaint.message}.", f"    Mended: {complaint.repair}."]
    for several in _alike(report.complaints):
        for complaint in several[:MOST]:
            lines += [f"  {complaint.about}: {complaint.message}.  [{complaint.check}]"]
            lines += [f"    Not mended: {complaint.repair}."] if complaint.repair else []
        if len(several) > MOST:
            lines += [f"  and {len(several) - MOST} more.  [{several[0].check}]"]
        lines += [f"    {several[0].advice}"]
    if not counted:
        return lines
    if not report.complaints:
        lines.append(f"{report.chapter}: {'nothing is amiss any more' if report.mended else 'nothing is amiss'}.")
    else:
        lines.append(f"{report.chapter}: {len(report.complaints)} amiss.")
    return lines


def _alike(complaints: Iterable[Complaint]) -> Iterator[list[Complaint]]:
    """Give complaints with those that call for the same together."""
    found: dict[tuple[str, str], list[Complaint]] = {}
    for complaint in complaints:
        found.setdefault((complaint.check, complaint.advice), []).append(complaint)
    yield from found.values()
