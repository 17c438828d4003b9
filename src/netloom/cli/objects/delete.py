"""`netloom delete`: by file, name or label; returns when the objects are gone.

An object that is used only by others that are being deleted, such as a Network by attachments whose node has still to
unplug them, is deleted again when those are gone.
"""

import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import click
from msgspec import Struct

from netloom.cli.durations import DURATION
from netloom.cli.failure import explain
from netloom.cli.objects import manifests
from netloom.cli.objects.selection import select, target_of
from netloom.cli.objects.wait import A_WEEK, Goal, until
from netloom.cli.options import ALL_NAMESPACES, DRY_RUN, FIELD_SELECTOR, SELECTOR, connected
from netloom.cli.shell_completion import complete_targets
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
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
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Delete the objects in this file or directory, or - for standard input.",
)
@SELECTOR
@FIELD_SELECTOR
@click.option("--all", "whole", is_flag=True, help="Delete all objects of the kind in the namespace.")
@ALL_NAMESPACES
@click.option(
    "--cascade",
    type=click.Choice(list(POLICIES)),
    default="background",
    show_default=True,
    help="Delete dependents after the object, before it, or not at all.",
)
@click.option("--wait/--no-wait", "waiting", default=True, help="Wait until the objects are gone.  [default: wait]")
@click.option(
    "--timeout", type=DURATION, default="0s", metavar="TIME", help="Stop waiting after this time; 0 means a week."
)
@DRY_RUN
@click.option("--ignore-not-found", is_flag=True, help="Succeed even if an object does not exist.")
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
        raise click.UsageError("Specify the objects: either -f FILE, or a kind and names.")
    deleter = Deleter(session, cascade=cascade, dry_run=dry_run == "server", ignore_not_found=ignore_not_found)
    if files:
        doomed = deleter.from_files(files)
    else:
        wanted, where = select(session, words, everywhere=everywhere, labels=labels, fields=fields)
        doomed = deleter.from_targets(wanted, where, whole=whole)
    deadline = time.monotonic() + (timeout if timeout > 0 else A_WEEK)
    deleted = deleter.delete_all(doomed, deadline=deadline if waiting and dry_run == "none" else None)
    if not deleted and not deleter.failed and not ignore_not_found and not files:
        click.echo("No resources found.", err=True)
    return 1 if deleter.failed else 0


class Deleter:
    """Deletes objects one by one; one that the server refuses to delete does not stop the rest."""

    def __init__(self, session: Session, *, cascade: str, dry_run: bool, ignore_not_found: bool) -> None:
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
        """Objects that were not deleted because others use them."""

    def from_files(self, files: tuple[str, ...]) -> Iterator[Doomed]:
        """Yield the objects of files, in the reverse of the order in which they are created."""
        for manifest in reversed(manifests.read(files)):
            try:
                yield Doomed(*target_of(self._session, manifest))
            except Unreachable:
                raise
            except NetloomError as error:
                self._refuse(error, manifest.where)

    def from_targets(self, wanted: Iterable[Target], where: Scope, *, whole: bool) -> Iterator[Doomed]:
        """Yield the objects that targets and selectors name."""
        for target in wanted:
            if target.name:
                yield Doomed(target, where.namespace if target.resource.namespaced else "")
                continue
            if not where.query and not whole:
                raise click.UsageError("Name the objects, or select them by -l, --field-selector or --all.")
            for document in lists.objects(self._session.client, target, where)[0]:
                metadata = document["metadata"]
                found = Target(target.resource, metadata["name"])
                yield Doomed(found, str(metadata.get("namespace") or ""), str(metadata.get("uid") or ""))

    def delete_all(self, doomed: Iterable[Doomed], *, deadline: float | None) -> list[Doomed]:
        """Delete objects and return those deleted; with a deadline, wait until they are gone."""
        deleted: list[Doomed] = []
        while True:
            self.used.clear()
            gone = [found for one in doomed if (found := self.delete(one))]
            deleted += gone
            for one in gone if deadline is not None else ():
                until(self._session, one.target, Scope(one.namespace), goal=_GONE, deadline=deadline or 0, uid=one.uid)
            # The objects that used them may be gone now.
            if deadline is None or not gone or not self.used:
                break
            doomed = [one for one, _ in self.used]
        for _, error in self.used:
            self._refuse(error, "")
        return deleted

    def delete(self, one: Doomed) -> Doomed | None:
        """Delete one object, print that, and return it with its uid; None if there is nothing to wait for."""
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
        # The answer is a Status if the object is gone already, or the object if finalizers keep it.
        about = answer.get("details") or answer.get("metadata") or {}
        return Doomed(one.target, one.namespace, one.uid or str(about.get("uid") or ""))

    def _refuse(self, error: NetloomError, where: str) -> None:
        self.failed = True
        click.echo(explain(error, where=where), err=True)
