"""What a change of resources would change in OVN and on the nodes.  Pure.

    resources before ─► forecast ─► Planner ─┐
    resources after ──► forecast ─► Planner ─┴► comparison: rows by resource, ports by node

Values that controllers will choose, such as addresses, are replaced by what they stand for.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from netloom.diagnose import snapshot
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.references import REFERENCES
from netloom.model.registry import KINDS
from netloom.model.values import addresses
from netloom.plan.node import grants
from netloom.plan.node.grants import ProviderGrants
from netloom.plan.ovn import comparison as comparing
from netloom.plan.ovn.comparison import PortChange, RowChange
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.forecast import Forecast, forecast
from netloom.plan.problem import Problem, Unit

UNCHANGED, NOT_FOUND = "unchanged", "not found"


class Effects(Struct, frozen=True, kw_only=True):
    """The effects of a change."""

    objects: dict[str, str]
    """The result for each object: created, configured, unchanged, deleted or not found."""
    rows: tuple[RowChange, ...] = ()
    ports: tuple[PortChange, ...] = ()
    problems: dict[str, tuple[str, ...]] = {}
    """New problems, by resource."""


def is_used(unit: Unit, before: Mapping[Unit, Resource], remaining: Collection[Resource]) -> bool:
    """Whether any of the remaining resources refers to an object, or has an address of a Subnet."""
    return _is_named(unit, remaining) or _has_addresses(unit, before, remaining)


def _is_named(unit: Unit, remaining: Iterable[Resource]) -> bool:
    naming = [one for one in REFERENCES if one.target.name == unit.kind]
    for resource in remaining:
        kind = KINDS.of(resource)
        mine = [one for one in naming if one.holder is kind]
        if not mine or unit.namespace not in ("", resource.metadata.namespace):
            continue
        document = kind.document(resource)
        if any(unit.name in reference.names(document) for reference in mine):
            return True
    return False


def _has_addresses(unit: Unit, before: Mapping[Unit, Resource], remaining: Iterable[Resource]) -> bool:
    subnet = before.get(unit)
    if not isinstance(subnet, Subnet):
        return False
    mine = (unit.namespace, subnet.spec.network)
    return any(
        addresses.within(ip.partition("/")[0], subnet.spec.cidr)
        for one in remaining
        if isinstance(one, NetworkAttachment) and (one.metadata.namespace, one.spec.network) == mine
        for ip in one.status.ips
    )


def compare(
    before: Iterable[Resource],
    after: Iterable[Resource],
    objects: dict[str, str],
    granted: ProviderGrants | None = None,
) -> Effects:
    """Return the differences in OVN and on the nodes between two sets of resources.

    `granted` are the physical networks that the controllers grant. If it is None, their decisions are taken from the
    statuses, and a Network without a decision is planned as if it were granted, with a note.
    """
    old = forecast(before)
    new = forecast(after, old)
    past = snapshot.planned(old.resources).desired
    future = snapshot.planned(new.resources, None if granted is None else granted.refusal).desired
    if granted is None:
        _note_undecided(old)
        _note_undecided(new)
    replace = _replacer({**old.placeholders, **new.placeholders})
    rows = [
        msgspec.structs.replace(one, columns=_replaced(one.columns, replace)) for one in comparing.rows(past, future)
    ]
    ports = comparing.ports(old.resources, new.resources)
    return Effects(
        objects=objects,
        rows=tuple(rows),
        ports=tuple(msgspec.structs.replace(one, columns=_replaced(one.columns, replace)) for one in ports),
        problems=_problems(old, new, past, future),
    )


def _note_undecided(world: Forecast) -> None:
    """Add a note to each Network for which it is not known whether it may use its physical network."""
    for one in snapshot.of_type(world.resources, Network):
        if one.spec.provider is not None and snapshot.provider_refusal(one) is None:
            unit = snapshot.unit(one)
            needed = grants.needed(one.metadata.namespace, one.spec.provider)
            note = f"spec.provider: valid only if the controllers' setting {grants.PROVIDER_GRANTS} grants {needed}"
            world.notes[unit] = (*world.notes.get(unit, ()), note)


def _problems(old: Forecast, new: Forecast, past: DesiredRows, future: DesiredRows) -> dict[str, tuple[str, ...]]:
    """Return the problems that do not exist already."""
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


def _replacer(stand_ins: dict[str, str]) -> Callable[[str], str]:
    """Return a function that replaces placeholders in a text by what they stand for."""
    return lambda text: _WORD.sub(lambda found: stand_ins.get(found[0], found[0]), text) if stand_ins else text


def _replaced(columns: Iterable[comparing.Column], replace: Callable[[str], str]) -> tuple[comparing.Column, ...]:
    return tuple(
        comparing.Column(
            one.name, replace(one.old), replace(one.new), tuple(map(replace, one.less)), tuple(map(replace, one.more))
        )
        for one in columns
    )
