"""`netloom delete`: by file, by name, by label; dependents go as `--cascade` says; returns when they are gone.

What is still in use by others that are on their way out, as a Network by attachments that wait for their node, is tried
again when those are gone.
"""

import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import click
from msgspec import Struct

from netloom.cli.durations import DURATION
from netloom.cli.failure import explain
from netloom.cli.objects import manifests
from netloom.cli.objects.wait import A_WEEK, Goal, until
from netloom.cli.options import Session, connected
from netloom.cli.shell_completion import complete_targets
from netloom.client import lists as reading
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_document, targets
from netloom.errors import Conflict, NetloomError, NotFound, Unreachable

IN_USE = "InUse"
_GONE = Goal("delete")
POLICIES = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}


class Doomed(Struct, frozen=True):
    """One object to delete."""

    target: Target
    namespace: str
    uid: str = ""


@click.command()
@click.argument("words", nargs=-1, metavar="[KIND NAME... | KIND/NAME...]", shell_complete=complete_targets)
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="The objects of a file, a folder, or -.")
@click.option("-l", "--selector", "labels", default="", metavar="LABELS", help="The objects with these labels.")
@click.option("--field-selector", "fields", default="", metavar="FIELDS", help="The objects with these field values.")
@click.option("--all", "whole", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
@click.option(
    "--cascade",
    type=click.Choice(list(POLICIES)),
    default="background",
    show_default=True,
    help="What happens to dependents.",
)
@click.option("--wait/--no-wait", "waiting", default=True, help="Return when the objects are gone.  [default: wait]")
@click.option("--timeout", type=DURATION, default="0s", metavar="TIME", help="How long to wait; 0 is a week.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    is_flag=False,
    flag_value="server",
    help="Ask the server what would happen, change nothing.",
)
@click.option("--ignore-not-found", is_flag=True, help="An object that is not there is no failure.")
@connected
def delete(
    session: Session,
    words: tuple[str, ...],
    files: tuple[str, ...],
    labels: str,
    fields: str,
    whole: bool,
    everywhere: bool,
    cascade: str,
    waiting: bool,
    timeout: float,
    dry_run: str,
    ignore_not_found: bool,
) -> int:
    """Delete objects by file, name or label."""
    if bool(words) == bool(files):
        raise click.UsageError("Say what to delete: either -f FILE, or a kind and names.")
    where = reading.scope(session, everywhere=everywhere, labels=labels, fields=fields)
    deleter = Deleter(session, cascade=cascade, dry_run=dry_run == "server", ignore_not_found=ignore_not_found)
    doomed = deleter.from_files(files) if files else deleter.from_words(words, where, whole=whole)
    deadline = time.monotonic() + (timeout if timeout > 0 else A_WEEK)
    deleted = deleter.delete_all(doomed, deadline=deadline if waiting and dry_run == "none" else None)
    if not deleted and not deleter.failed and not ignore_not_found and not files:
        click.echo("No resources found.", err=True)
    return 1 if deleter.failed else 0


class Deleter:
    """Deletes one object after the other; one that is refused does not stop the rest."""

    def __init__(self, session: Session, *, cascade: str, dry_run: bool, ignore_not_found: bool) -> None:
        """Keep how to delete."""
        self._session = session
        self._body: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": POLICIES[cascade],
        }
        self._dry_run = dry_run
        self._ignore = ignore_not_found
        self.failed = False
        self.used: list[tuple[Doomed, Conflict]] = []
        """What is not deleted because others use it."""

    def from_files(self, files: tuple[str, ...]) -> Iterator[Doomed]:
        """Yield the objects of files, those made last first."""
        for manifest in reversed(manifests.read(files)):
            if manifest.error is not None:
                self._refuse(manifest.error, manifest.where)
                continue
            metadata = manifest.document["metadata"]
            try:
                resource = of_document(self._session.client, manifest.document)
            except NotFound as error:
                self._refuse(error, manifest.where)
                continue
            namespace = str(metadata.get("namespace") or self._session.namespace)
            yield Doomed(Target(resource, str(metadata.get("name", ""))), namespace if resource.namespaced else "")

    def from_words(self, words: tuple[str, ...], where: Scope, *, whole: bool) -> Iterator[Doomed]:
        """Yield the objects that words and selectors name."""
        for target in targets(self._session.client, words):
            if target.name:
                yield Doomed(target, where.namespace if target.resource.namespaced else "")
                continue
            if not where.query and not whole:
                raise click.UsageError("Name the objects, or say which by -l, --field-selector or --all.")
            for document in reading.objects(self._session.client, target, where)[0]:
                metadata = document["metadata"]
                found = Target(target.resource, metadata["name"])
                yield Doomed(found, str(metadata.get("namespace") or ""), str(metadata.get("uid") or ""))

    def delete_all(self, doomed: Iterable[Doomed], *, deadline: float | None) -> list[Doomed]:
        """Delete objects and return those that went; with a deadline, wait until they are gone."""
        deleted: list[Doomed] = []
        while True:
            self.used.clear()
            gone = [found for one in doomed if (found := self.delete(one))]
            deleted += gone
            for one in gone if deadline is not None else ():
                until(self._session, one.target, Scope(one.namespace), goal=_GONE, deadline=deadline or 0, uid=one.uid)
            # Who used them may be among those that are gone now.
            if deadline is None or not gone or not self.used:
                break
            doomed = [one for one, _ in self.used]
        for _, error in self.used:
            self._refuse(error, "")
        return deleted

    def delete(self, one: Doomed) -> Doomed | None:
        """Delete one object, say so, and return it with its uid; None where there is nothing to wait for."""
        resource, name = one.target.resource, one.target.name
        body = {**self._body, "preconditions": {"uid": one.uid}} if one.uid else self._body
        try:
            answer = self._session.client.call(
                "DELETE",
                resource.path(one.namespace, quote(name, safe="")),
                {"dryRun": "All"} if self._dry_run else None,
                body=body,
            )
        except Unreachable:
            raise
        except NetloomError as error:
            if isinstance(error, Conflict) and any(cause.reason == IN_USE for cause in error.causes):
                self.used.append((one, error))
            elif not (isinstance(error, NotFound) and self._ignore):
                self._refuse(error, "")
            return None
        click.echo(f'{resource.qualified} "{name}" deleted{" (server dry run)" if self._dry_run else ""}')
        # A Status where it is gone already, the object where finalizers keep it.
        about = answer.document.get("details") or answer.document.get("metadata") or {}
        return Doomed(one.target, one.namespace, one.uid or str(about.get("uid") or ""))

    def _refuse(self, error: NetloomError, where: str) -> None:
        self.failed = True
        click.echo(explain(error, where=where), err=True)
