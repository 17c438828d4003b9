"""`netloom doctor`: what is amiss, in plain words, and with --repair mended where that is safe.

It knows nothing by itself: each chapter looks at one part of Netloom through the API and says what it finds. A finding
names an object, what is wrong with it and what to do; a chapter may be able to mend it. Exit status 0: nothing is
amiss, or nothing any more; 1: something is.
"""

import json
from collections.abc import Sequence
from typing import Protocol

import click
import msgspec
from msgspec import Struct

from netloom.cli.session import Session, connected
from netloom.cli.tables import safe


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


class Chapter(Protocol):
    """One part of Netloom that can be looked at."""

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Look, and mend if told to."""


def chapters() -> Sequence[Chapter]:
    """Return all chapters, in the order in which they are read."""
    from netloom.cli.doctor_addresses import Addresses  # a chapter costs nothing until it is read

    return (Addresses(),)


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended safely.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it.")
@connected
def doctor(session: Session, repair: bool, output: str) -> int:
    """Show what is amiss, and mend it where that is safe."""
    reports = [chapter.examine(session, repair=repair) for chapter in chapters()]
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
    lines = [f"{report.chapter}: looked at {counted}."]
    for complaint in report.mended:
        lines += [f"  {complaint.about}: {complaint.message}.", f"    Mended: {complaint.repair}."]
    for complaint in report.complaints:
        lines += [f"  {complaint.about}: {complaint.message}.  [{complaint.check}]"]
        lines += [f"    Not mended: {complaint.repair}."] if complaint.repair else []
        lines += [f"    {complaint.advice}"]
    if not report.complaints:
        lines.append(f"{report.chapter}: {'nothing is amiss any more' if report.mended else 'nothing is amiss'}.")
    else:
        lines.append(f"{report.chapter}: {len(report.complaints)} amiss.")
    return lines
