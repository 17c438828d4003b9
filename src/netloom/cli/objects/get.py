"""`netloom get`: the server's own Tables, or the objects as YAML, JSON, names or JSONPath."""

from collections.abc import Iterator, Sequence

import click

from netloom.cli.objects.output import OutputType, print_documents
from netloom.cli.objects.watch import follow
from netloom.cli.options import Session, connected
from netloom.cli.shell_completion import complete_targets
from netloom.cli.tables import Aligner, rows
from netloom.client import lists as reading
from netloom.client.lists import Scope
from netloom.client.resources import Resource, Target, targets
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Document


@click.command()
@click.argument("words", nargs=-1, metavar="KIND[,KIND...] [NAME...] | KIND/NAME...", shell_complete=complete_targets)
@click.option("-o", "--output", type=OutputType(), help="How to show them.")
@click.option("-l", "--selector", "labels", default="", metavar="LABELS", help="Only objects with these labels.")
@click.option("--field-selector", "fields", default="", metavar="FIELDS", help="Only objects with these field values.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Show them, then their changes.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
@click.option("--show-labels", is_flag=True, help="A column with the labels.")
@click.option("--show-managed-fields", is_flag=True, help="In YAML and JSON, also who manages which field.")
@click.option("--ignore-not-found", is_flag=True, help="An object that is not there is no failure.")
@connected
def get(
    session: Session,
    words: tuple[str, ...],
    output: str | None,
    labels: str,
    fields: str,
    everywhere: bool,
    watching: bool,
    no_headers: bool,
    show_labels: bool,
    show_managed_fields: bool,
    ignore_not_found: bool,
) -> int:
    """Show objects as a table, YAML or JSON."""
    wanted = targets(session.client, words)
    where = reading.scope(session, everywhere=everywhere, labels=labels, fields=fields)
    if watching:
        if len(wanted) > 1:
            raise click.UsageError("-w shows the changes of one kind, or of one object.")
        return follow(session, wanted[0], where, output=output, headers=not no_headers, events=False)
    failures = Failures(ignore_not_found=ignore_not_found)
    if output in (None, "wide"):
        shower = Tables(session, where, wide=output == "wide", headers=not no_headers, labels=show_labels)
        shower.show(wanted, failures)
        return failures.status
    found: list[Document] = []
    for target in wanted:
        with failures.collecting():
            found += reading.objects(session.client, target, where)[0]
    single = len(wanted) == 1 and bool(wanted[0].name)
    if found or not single:
        print_documents(found, output or "", single=single, managed_fields=show_managed_fields)
    return failures.status


class Failures:
    """Collects what could not be shown, so that the rest is."""

    def __init__(self, *, ignore_not_found: bool = False) -> None:
        """Start with nothing failed."""
        self._ignore = ignore_not_found
        self.status = 0

    def collecting(self) -> "Failures":
        """Use as `with failures.collecting():`."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, NetloomError) or error.http_status >= 500 or error.http_status == 401:
            return False
        if isinstance(error, NotFound) and self._ignore:
            return True
        from netloom.cli.failure import explain  # only to fail

        click.echo(explain(error), err=True)
        self.status = 1
        return True


class Tables:
    """Prints Tables, one kind after the other."""

    def __init__(self, session: Session, where: Scope, *, wide: bool, headers: bool, labels: bool) -> None:
        """Keep how to print."""
        self._session = session
        self._where = where
        self._wide, self._headers, self._labels = wide, headers, labels

    def show(self, wanted: Sequence[Target], failures: Failures) -> None:
        """Print what is wanted; several kinds get a paragraph each and names with their kind."""
        kinds = list(dict.fromkeys(target.resource for target in wanted))
        shown = 0
        for kind in kinds:
            rows: list[list[object]] = []
            for target in (t for t in wanted if t.resource == kind):
                with failures.collecting():
                    for page in self._pages(target):
                        rows += list(self._rows(page, kind if len(kinds) > 1 else None, header=not rows))
            if len(rows) > (1 if self._headers else 0):
                click.echo(("\n" if shown else "") + "\n".join(Aligner().lines(rows)))
                shown += 1
        if not shown and not failures.status and not any(target.name for target in wanted):
            inside = f" in {self._where.namespace} namespace" if self._where.namespace else ""
            click.echo(f"No resources found{inside if any(k.namespaced for k in kinds) else ''}.", err=True)

    def _pages(self, target: Target) -> Iterator[Document]:
        if target.name:
            return iter([reading.one(self._session.client, target, self._where, table=True)])
        return reading.pages(self._session.client, target.resource, self._where, table=True)

    def _rows(self, page: Document, kind: Resource | None, *, header: bool) -> Iterator[list[object]]:
        yield from rows(
            page,
            prefix=f"{kind.qualified}/" if kind else "",
            wide=self._wide,
            header=header and self._headers,
            namespaces=not self._where.namespace,
            labels=self._labels,
        )
