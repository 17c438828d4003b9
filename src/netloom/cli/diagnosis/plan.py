"""`netloom plan -f`: what applying files, or deleting what is in them, would change in OVN and on each node.

    what there is ────────────────► foresee ─► Planner ─┐
    what there is, with the files ► foresee ─► Planner ─┴► compare ─► + ~ - , by resource and by node

The server says what an object would be after an apply, by a dry run, so what is planned passed the same admission as
what is applied. Nothing is changed. What controllers will choose, as addresses, is told as such.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote

import click
import msgspec
from msgspec import Struct

from netloom.cli.diagnosis.plan_text import lines
from netloom.cli.failure import explain
from netloom.cli.objects import apply as applying
from netloom.cli.objects import manifests
from netloom.cli.objects.delete import IN_USE
from netloom.cli.options import Session, connected
from netloom.client.resources import of_document
from netloom.diagnose import snapshot as everything
from netloom.errors import Conflict, NetloomError, NotFound, Unreachable
from netloom.model import addresses
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Resource
from netloom.model.networks import Network, Subnet
from netloom.model.references import REFERENCES
from netloom.model.registry import KINDS
from netloom.plan.node import grants
from netloom.plan.node.grants import ProviderGrants
from netloom.plan.ovn import comparison as comparing
from netloom.plan.ovn.comparison import PortChange, RowChange
from netloom.plan.ovn.desired import Wanted
from netloom.plan.ovn.forecast import Foreseen, foresee
from netloom.plan.problem import Problem, Unit
from netloom.run.config import listed


class Outcome(Struct, frozen=True, kw_only=True):
    """What would come of it."""

    objects: dict[str, str]
    """What would become of each object: created, configured, unchanged, deleted."""
    rows: tuple[RowChange, ...] = ()
    ports: tuple[PortChange, ...] = ()
    problems: dict[str, tuple[str, ...]] = {}
    """What would not work, by resource."""


@click.command()
@applying.from_files
@click.option("--delete", "deleting", is_flag=True, help="Plan for deleting these objects, not for applying them.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that others manage.")
@click.option(
    "--provider-grants",
    envvar="NETLOOM_PROVIDER_GRANTS",
    metavar="NS=PHYSNET[:VLANS],...",
    help="What the controllers grant; unless given, what they said of each Network.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it.")
@connected
def plan(
    session: Session,
    files: tuple[str, ...],
    deleting: bool,
    force_conflicts: bool,
    provider_grants: str | None,
    output: str,
) -> int:
    """Show what applying files would change in OVN and on each node; change nothing."""
    granted = None if provider_grants is None else grants.provider_grants(listed(provider_grants))
    found = manifests.read(files)
    if not found:
        raise click.UsageError(f"No objects in {', '.join(files)}.")
    before = {everything.unit(one): one for one in everything.load(session.client)}
    overlay = _Overlay(session, before, force=force_conflicts)
    after = overlay.without(found) if deleting else overlay.with_(found)
    outcome = compare(before.values(), after.values(), overlay.objects, granted)
    if output == "json":
        click.echo(json.dumps(_document(outcome), indent=4, ensure_ascii=False))
    else:
        click.echo("\n".join(lines(outcome)))
    return 1 if overlay.failed else 0


def _document(outcome: Outcome) -> dict[str, object]:
    def named(changes: Sequence[RowChange | PortChange]) -> list[dict[str, object]]:
        return [{**msgspec.to_builtins(one), "unit": str(one.unit)} for one in changes]

    return {**msgspec.to_builtins(outcome), "rows": named(outcome.rows), "ports": named(outcome.ports)}


class _Overlay:
    """What there is, with files laid over it."""

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
            if kind is not None and kind.type in everything.PLANNED:
                value = everything.value(new, kind.type)
                after[everything.unit(value)] = value
        return after

    def without(self, found: Sequence[manifests.Manifest]) -> dict[Unit, Resource]:
        """Return all resources as they would be after these are deleted."""
        doomed = {self._unit(one): one for one in found if self._readable(one)}
        after = {unit: one for unit, one in self._before.items() if unit not in doomed}
        for unit, manifest in doomed.items():
            resource = of_document(self._session.client, manifest.document)
            path = resource.path(unit.namespace, quote(unit.name, safe=""))
            try:
                self._session.client.call("DELETE", path, {"dryRun": "All"})
            except Unreachable:
                raise
            except NotFound:
                self.objects[f"{resource.qualified}/{unit.name}"] = "not there"
                continue
            except NetloomError as error:
                if not self._goes_with(unit, error, after):
                    self._refuse(explain(error, where=manifest.where))
                    if unit in self._before:
                        after[unit] = self._before[unit]
                    continue
            self.objects[f"{resource.qualified}/{unit.name}"] = "deleted"
        return after

    def _goes_with(self, unit: Unit, error: NetloomError, after: Mapping[Unit, Resource]) -> bool:
        """Whether something cannot be deleted only because of others that are deleted too."""
        if not isinstance(error, Conflict) or not any(cause.reason == IN_USE for cause in error.causes):
            return False
        return not _used(unit, after.values()) and not _addressed(unit, self._before, after.values())

    def _readable(self, manifest: manifests.Manifest) -> bool:
        if manifest.error is not None:
            self._refuse(explain(manifest.error, where=manifest.where))
            return False
        try:
            of_document(self._session.client, manifest.document)
        except NotFound as error:
            self._refuse(explain(error, where=manifest.where))
            return False
        return True

    def _unit(self, manifest: manifests.Manifest) -> Unit:
        metadata = manifest.document["metadata"]
        resource = of_document(self._session.client, manifest.document)
        namespace = str(metadata.get("namespace") or self._session.namespace) if resource.namespaced else ""
        return Unit(resource.kind, namespace, str(metadata.get("name", "")))

    def _refuse(self, text: str) -> None:
        self.failed = True
        click.echo(text, err=True)


def _used(unit: Unit, staying: Iterable[Resource]) -> bool:
    """Whether anything that stays names an object."""
    naming = [one for one in REFERENCES if one.target.name == unit.kind]
    for resource in staying:
        kind = KINDS.of(resource)
        mine = [one for one in naming if one.holder is kind]
        if not mine or unit.namespace not in ("", resource.metadata.namespace):
            continue
        document = kind.document(resource)
        if any(unit.name in reference.names(document) for reference in mine):
            return True
    return False


def _addressed(unit: Unit, before: Mapping[Unit, Resource], staying: Iterable[Resource]) -> bool:
    """Whether anything that stays has an address of a Subnet."""
    subnet = before.get(unit)
    if not isinstance(subnet, Subnet):
        return False
    mine = (unit.namespace, subnet.spec.network)
    return any(
        addresses.within(ip.partition("/")[0], subnet.spec.cidr)
        for one in staying
        if isinstance(one, NetworkAttachment) and (one.metadata.namespace, one.spec.network) == mine
        for ip in one.status.ips
    )


def compare(
    before: Iterable[Resource],
    after: Iterable[Resource],
    objects: dict[str, str],
    granted: ProviderGrants | None = None,
) -> Outcome:
    """Return what differs between two worlds.

    Which physical networks are `granted` only the controllers know; None: what they said is in the statuses, and a
    Network that they have not looked at is planned as if it were granted, with a note.
    """
    old = foresee(before)
    new = foresee(after, old)
    past = everything.planned(old.resources).wanted
    future = everything.planned(new.resources, None if granted is None else granted.refusal).wanted
    if granted is None:
        _note_unjudged(old)
        _note_unjudged(new)
    say = _sayer({**old.stand_ins, **new.stand_ins})
    rows = [msgspec.structs.replace(one, columns=_said(one.columns, say)) for one in comparing.rows(past, future)]
    ports = comparing.ports(old.resources, new.resources)
    return Outcome(
        objects=objects,
        rows=tuple(rows),
        ports=tuple(msgspec.structs.replace(one, columns=_said(one.columns, say)) for one in ports),
        problems=_problems(old, new, past, future),
    )


def _note_unjudged(world: Foreseen) -> None:
    """Say of which Networks it is not known whether they may join their physical networks."""
    for one in everything.of_type(world.resources, Network):
        if one.spec.provider is not None and everything.judged(one) is None:
            unit = everything.unit(one)
            needed = grants.needed(one.metadata.namespace, one.spec.provider)
            said = f"spec.provider: this holds if the controllers' setting {grants.PROVIDER_GRANTS} grants {needed}"
            world.notes[unit] = (*world.notes.get(unit, ()), said)


def _problems(old: Foreseen, new: Foreseen, past: Wanted, future: Wanted) -> dict[str, tuple[str, ...]]:
    """Return what would not work, and does not already."""
    found: dict[str, tuple[str, ...]] = {}
    for unit in sorted({*new.notes, *future.problems}):
        then = {*old.notes.get(unit, ()), *_words(past.problems.get(unit, ()))}
        now = [*new.notes.get(unit, ()), *_words(future.problems.get(unit, ()))]
        if fresh := tuple(word for word in now if word not in then):
            found[str(unit)] = fresh
    return found


def _words(problems: Iterable[Problem]) -> list[str]:
    return [problem.message for problem in problems]


_WORD = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|\d+(?:\.\d+){3}|[0-9a-f]*:[0-9a-f:]*[0-9a-f]|\w+")
"""A MAC, an address of either family, or a word."""


def _sayer(stand_ins: dict[str, str]) -> Callable[[str], str]:
    """Return what says of a text what is meant."""
    return lambda text: _WORD.sub(lambda found: stand_ins.get(found[0], found[0]), text) if stand_ins else text


def _said(columns: Iterable[comparing.Column], say: Callable[[str], str]) -> tuple[comparing.Column, ...]:
    return tuple(
        comparing.Column(one.name, say(one.old), say(one.new), tuple(map(say, one.less)), tuple(map(say, one.more)))
        for one in columns
    )
