"""`netloom get`: the server's Tables, or objects as YAML, JSON, names or JSONPath."""

from collections.abc import Sequence

import click

from netloom.cli.objects.output import OutputType, print_documents
from netloom.cli.objects.selection import select
from netloom.cli.objects.watch import follow
from netloom.cli.options import ALL_NAMESPACES, FIELD_SELECTOR, SELECTOR, connected
from netloom.cli.shell_completion import complete_targets
from netloom.cli.tables import Aligner, rows
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Document


@click.command()
@click.argument("words", nargs=-1, metavar="KIND[,KIND...] [NAME...] | KIND/NAME...", shell_complete=complete_targets)
@click.option("-o", "--output", type=OutputType(), help="Output format.")
@SELECTOR
@FIELD_SELECTOR
@ALL_NAMESPACES
@click.option("-w", "--watch", "watching", is_flag=True, help="List the objects, then follow their changes.")
@click.option("--no-headers", is_flag=True, help="Do not print the column names.")
@click.option("--show-labels", is_flag=True, help="Add a column with the labels.")
@click.option("--show-managed-fields", is_flag=True, help="Keep managedFields in YAML and JSON.")
@click.option("--ignore-not-found", is_flag=True, help="Succeed even if an object does not exist.")
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
    wanted, where = select(session, words, everywhere=everywhere, labels=labels, fields=fields)
    if watching:
        if len(wanted) > 1:
            raise click.UsageError("-w follows one kind, or one object.")
        return follow(session, wanted[0], where, output=output, headers=not no_headers, events=False)
    failures = Failures(ignore_not_found=ignore_not_found)
    if output in (None, "wide"):
        _print_tables(
            session, wanted, where, failures, wide=output == "wide", headers=not no_headers, labels=show_labels
        )
        return failures.status
    found = list[Document]()
    for target in wanted:
        with failures:
            found += lists.objects(session.client, target, where)[0]
    single = len(wanted) == 1 and bool(wanted[0].name)
    if found or not single:
        print_documents(found, output or "", single=single, managed_fields=show_managed_fields)
    return failures.status


class Failures:
    """Prints errors about single objects, so that the remaining objects are still shown."""

    def __init__(self, *, ignore_not_found: bool = False) -> None:
        self._ignore = ignore_not_found
        self.status = 0

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


def _print_tables(
    session: Session,
    wanted: Sequence[Target],
    where: Scope,
    failures: Failures,
    *,
    wide: bool,
    headers: bool,
    labels: bool,
) -> None:
    """Print the targets; of several kinds, each gets a table of its own and its names carry the kind."""
    kinds = list(dict.fromkeys(target.resource for target in wanted))
    shown = 0
    for kind in kinds:
        prefix = f"{kind.qualified}/" if len(kinds) > 1 else ""
        found: list[list[object]] = []
        for target in (t for t in wanted if t.resource == kind):
            with failures:
                for page in lists.tables(session.client, target, where):
                    header, everywhere = headers and not found, not where.namespace
                    found += rows(page, prefix=prefix, wide=wide, header=header, namespaces=everywhere, labels=labels)
        if len(found) > (1 if headers else 0):
            click.echo(("\n" if shown else "") + "\n".join(Aligner().lines(found)))
            shown += 1
    if not shown and not failures.status and not any(target.name for target in wanted):
        inside = f" in {where.namespace} namespace" if where.namespace else ""
        click.echo(f"No resources found{inside if any(k.namespaced for k in kinds) else ''}.", err=True)
