"""`netloom watch`: changes as they happen, each with its type (ADDED, MODIFIED, DELETED).

A watch that the server ends resumes from the last revision seen. If the server no longer has that revision, the
objects are listed again.
"""

import json
from collections.abc import Iterator

import click

from netloom.cli.durations import DURATION
from netloom.cli.objects.output import OutputType, name_of
from netloom.cli.objects.selection import select
from netloom.cli.options import ALL_NAMESPACES, FIELD_SELECTOR, SELECTOR, connected
from netloom.cli.shell_completion import complete_targets
from netloom.cli.tables import Aligner, rows
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.errors import Expired
from netloom.model.document import Document


@click.command()
@click.argument("words", nargs=-1, metavar="KIND [NAME] | KIND/NAME", shell_complete=complete_targets)
@click.option("-o", "--output", type=OutputType(), help="Output format; name and json print one line for each change.")
@SELECTOR
@FIELD_SELECTOR
@ALL_NAMESPACES
@click.option("--no-headers", is_flag=True, help="Do not print the column names.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop after this time, such as 30s.  [default: never]")
@connected
def watch(
    session: Session,
    words: tuple[str, ...],
    output: str | None,
    labels: str,
    fields: str,
    everywhere: bool,
    no_headers: bool,
    timeout: float | None,
) -> int:
    """Show objects, and then their changes as they happen."""
    wanted, where = select(session, words, everywhere=everywhere, labels=labels, fields=fields)
    if len(wanted) > 1:
        raise click.UsageError("watch follows one kind, or one object.")
    return follow(session, wanted[0], where, output=output, headers=not no_headers, events=True, seconds=timeout)


def follow(
    session: Session,
    target: Target,
    where: Scope,
    *,
    output: str | None,
    headers: bool,
    events: bool,
    seconds: float | None = None,
) -> int:
    """Print the objects and then every change, until interrupted or `seconds` have passed."""
    printer = Printer(where, output=output, headers=headers, events=events)
    while True:
        revision = _begin(session, target, where, printer)
        try:
            for event in lists.changes(session.client, target, where, revision, table=printer.tabular, seconds=seconds):
                printer.show(event)
        except Expired:
            continue
        return 0


def _begin(session: Session, target: Target, where: Scope, printer: "Printer") -> str:
    """Show the objects and return the revision to watch from."""
    if not printer.tabular:
        found, revision = lists.objects(session.client, target, where)
        for document in found:
            printer.show({"type": "ADDED", "object": document})
        return revision
    revision = ""
    for page in lists.tables(session.client, target, where):
        revision = str(page["metadata"].get("resourceVersion", ""))
        printer.show({"type": "ADDED", "object": page})
    return revision


class Printer:
    """Prints watch events as rows of one table, or as lines."""

    def __init__(self, where: Scope, *, output: str | None, headers: bool, events: bool) -> None:
        self._where = where
        self._output = output
        self._headers = headers
        self._events = events
        self._aligner = Aligner()
        self._columns: object = None
        self.tabular = output in (None, "wide")

    def show(self, event: Document) -> None:
        """Print one event."""
        if self.tabular:
            lines: list[str] = self._aligner.lines(self._rows(event))
        elif self._output == "name":
            lines = [name_of(event["object"])]
        else:
            document = {k: v for k, v in event["object"]["metadata"].items() if k != "managedFields"}
            shown = {**event["object"], "metadata": document}
            lines = [json.dumps({"type": event["type"], "object": shown} if self._events else shown)]
        if lines:
            click.echo("\n".join(lines))

    def _rows(self, event: Document) -> Iterator[list[object]]:
        table = event["object"]
        # Only the first Table of a watch carries the columns.
        if table.get("columnDefinitions"):
            self._columns = table["columnDefinitions"]
        elif self._columns:
            table = {**table, "columnDefinitions": self._columns}
        if not table.get("rows"):
            return
        shown = rows(table, wide=self._output == "wide", header=self._headers, namespaces=not self._where.namespace)
        for number, row in enumerate(shown):
            first = "EVENT" if self._headers and number == 0 else event["type"]
            yield [first, *row] if self._events else row
        self._headers = False
