"""`netloom doctor`: inconsistencies between resources, OVN and the nodes, and with --repair their repair.

The checks are in `netloom.diagnose.doctor`. The exit status is 0 if no inconsistency is left, else 1.
"""

from collections.abc import Iterable, Iterator

import click

from netloom.cli.diagnosis.options import accessing, hinted
from netloom.cli.options import OUTPUT
from netloom.cli.tables import safe
from netloom.cli.terminal import counted, print_json
from netloom.client.session import Session
from netloom.diagnose.access import Access
from netloom.diagnose.doctor.report import SECTIONS, Complaint, Report, examine

MOST = 20
"""How many complaints of one check are printed as text; JSON has them all."""


@click.command()
@click.option(
    "--section",
    "--chapter",
    "only",
    multiple=True,
    type=click.Choice(SECTIONS),
    help="Check only this part. May be repeated.",
)
@click.option("--repair", is_flag=True, help="Repair what is safe to repair.")
@OUTPUT
@accessing
def doctor(session: Session, access: Access, repair: bool, only: tuple[str, ...], output: str) -> int:
    """Check the whole system for inconsistencies, and with --repair, repair what is safe to repair.

    It compares resources with each other, with OVN's databases, and with the switch and the network namespaces of every
    node, as far as these can be reached.
    """
    reports = examine(session, access, only, repair=repair)
    problems = sum(len(report.complaints) for report in reports)
    if output == "json":
        print_json({"healthy": not problems, "chapters": reports})
    else:
        for report in reports:
            click.echo(safe("\n".join(lines(report))))
    return 1 if problems else 0


def lines(report: Report) -> list[str]:
    """Return a report as lines of text."""
    checked = ", ".join(f"{count} {kind}" for kind, count in report.checked.items())
    found = [f"{report.section}: checked {checked}."] if checked else []
    found += [f"{report.section}: not checked: {hinted(what)}." for what in report.unseen]
    for complaint in report.repaired:
        found += [f"  {complaint.subject}: {complaint.message}.", f"    Repaired: {complaint.repair}."]
    for several in _alike(report.complaints):
        for complaint in several[:MOST]:
            found += [f"  {complaint.subject}: {complaint.message}.  [{complaint.check}]"]
            found += [f"    Not repaired: {complaint.repair}."] if complaint.repair else []
        if len(several) > MOST:
            found += [f"  and {len(several) - MOST} more.  [{several[0].check}]"]
        found += [f"    {several[0].advice}"]
    if not checked:
        return found
    left = counted(len(report.complaints), "problem") if report.complaints else "no problems"
    return [*found, f"{report.section}: {left}{' left' if report.repaired else ' found'}."]


def _alike(complaints: Iterable[Complaint]) -> Iterator[list[Complaint]]:
    """Yield complaints grouped by check and advice."""
    found: dict[tuple[str, str], list[Complaint]] = {}
    for complaint in complaints:
        found.setdefault((complaint.check, complaint.advice), []).append(complaint)
    yield from found.values()
