"""`netloom plan -f`: what applying files, or deleting their objects, would change in OVN and on each node.

A dry run on the server returns each object as it would be after an apply, so what is planned has passed the same
admission as what is applied. Nothing is changed. The comparison is in `netloom.diagnose.changes`. In the text, `+` is
created, `~` changed, `-` removed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from urllib.parse import quote

import click
import msgspec

from netloom.cli.failure import explain
from netloom.cli.objects import apply as applying
from netloom.cli.objects import manifests
from netloom.cli.objects.delete import IN_USE
from netloom.cli.objects.selection import target_of
from netloom.cli.options import OUTPUT, connected
from netloom.cli.tables import clean
from netloom.cli.terminal import paint, print_json
from netloom.client.resources import Resource as ResourceKind
from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.changes import NOT_FOUND, UNCHANGED, Effects, compare, is_used
from netloom.errors import Conflict, NetloomError, NotFound, Unreachable
from netloom.model.document import Resource
from netloom.model.registry import KINDS
from netloom.plan.node import grants
from netloom.plan.ovn.comparison import Column, Kind, PortChange, RowChange
from netloom.plan.problem import Unit
from netloom.run.config import listed

SIGNS = {Kind.CREATE: "+", Kind.CHANGE: "~", Kind.REMOVE: "-"}
COLOURS = {Kind.CREATE: "green", Kind.CHANGE: "yellow", Kind.REMOVE: "red"}
MOST = 12
"""How many elements of a set are listed."""
_WORDS = {Kind.CREATE: "to create", Kind.CHANGE: "to change", Kind.REMOVE: "to remove"}


@click.command()
@applying.from_files
@click.option("--delete", "deleting", is_flag=True, help="Plan to delete the objects instead of applying them.")
@click.option("--force-conflicts", is_flag=True, help="Take ownership of fields that other managers own.")
@click.option(
    "--provider-grants",
    envvar="NETLOOM_PROVIDER_GRANTS",
    metavar="NS=PHYSNET[:VLANS],...",
    help="Physical networks that the controllers grant.  [default: from the Networks' statuses]",
)
@OUTPUT
@connected
def plan(
    session: Session,
    files: tuple[str, ...],
    deleting: bool,
    force_conflicts: bool,
    provider_grants: str | None,
    output: str,
) -> int:
    """Show what applying files would change in OVN and on each node, without changing anything."""
    granted = None if provider_grants is None else grants.provider_grants(listed(provider_grants))
    found = manifests.read(files)
    if not found:
        raise click.UsageError(f"There are no objects in {', '.join(files)}.")
    before = {snapshot.unit(one): one for one in snapshot.load(session.client)}
    overlay = _Overlay(session, before, force=force_conflicts)
    after = overlay.without(found) if deleting else overlay.with_(found)
    outcome = compare(before.values(), after.values(), overlay.objects, granted)
    if output == "json":
        print_json(_document(outcome))
    else:
        click.echo("\n".join(lines(outcome)))
    return 1 if overlay.failed else 0


def _document(outcome: Effects) -> dict[str, object]:
    def named(changes: Sequence[RowChange | PortChange]) -> list[dict[str, object]]:
        return [{**msgspec.to_builtins(one), "unit": str(one.unit)} for one in changes]

    return {**msgspec.to_builtins(outcome), "rows": named(outcome.rows), "ports": named(outcome.ports)}


class _Overlay:
    """The resources of the server, with the changes of files applied."""

    def __init__(self, session: Session, before: dict[Unit, Resource], *, force: bool) -> None:
        self.objects: dict[str, str] = {}
        self.failed = False
        self._session = session
        self._before = before
        self._query = {"fieldManager": applying.MANAGER, "force": str(force).lower(), "dryRun": "All"}

    def with_(self, found: Sequence[manifests.Manifest]) -> dict[Unit, Resource]:
        """Return all resources as they would be after an apply."""
        after = dict(self._before)
        for manifest in found:
            try:
                resource, old, new = applying.apply_one(self._session, manifest, self._query)
            except Unreachable:
                raise
            except NetloomError as error:
                self._refuse(applying.explain_refusal(error, manifest))
                continue
            self.objects[f"{resource.qualified}/{new['metadata']['name']}"] = applying.outcome(old, new)
            kind = next((one for one in KINDS if one.name == resource.kind and one.group == resource.group), None)
            if kind is not None and kind.type in snapshot.PLANNED:
                value = snapshot.value(new, kind.type)
                after[snapshot.unit(value)] = value
        return after

    def without(self, found: Sequence[manifests.Manifest]) -> dict[Unit, Resource]:
        """Return all resources as they would be after the deletion of these."""
        doomed = dict[Unit, tuple[ResourceKind, str]]()
        for manifest in found:
            try:
                target, namespace = target_of(self._session, manifest)
            except Unreachable:
                raise
            except NetloomError as error:
                self._refuse(explain(error, where=manifest.where))
            else:
                doomed[Unit(target.resource.kind, namespace, target.name)] = target.resource, manifest.where
        after = {unit: one for unit, one in self._before.items() if unit not in doomed}
        for unit, (resource, where) in doomed.items():
            path = resource.path(unit.namespace, quote(unit.name, safe=""))
            try:
                self._session.client.call("DELETE", path, {"dryRun": "All"})
            except Unreachable:
                raise
            except NotFound:
                self.objects[f"{resource.qualified}/{unit.name}"] = NOT_FOUND
                continue
            except NetloomError as error:
                if not self._is_used_by_deleted(unit, error, after):
                    self._refuse(explain(error, where=where))
                    if unit in self._before:
                        after[unit] = self._before[unit]
                    continue
            self.objects[f"{resource.qualified}/{unit.name}"] = "deleted"
        return after

    def _is_used_by_deleted(self, unit: Unit, error: NetloomError, after: Mapping[Unit, Resource]) -> bool:
        """Whether an object cannot be deleted only because of others that are deleted too."""
        if not isinstance(error, Conflict) or not any(cause.reason == IN_USE for cause in error.causes):
            return False
        return not is_used(unit, self._before, after.values())

    def _refuse(self, text: str) -> None:
        self.failed = True
        click.echo(text, err=True)


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
