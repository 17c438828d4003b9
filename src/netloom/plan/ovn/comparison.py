"""The differences between two plans: rows, and ports on nodes, that are created, changed and removed.  Pure.

A row is compared with all its columns, those of its own resource and those that others fill. Of sets and maps only the
difference is reported: of a switch with a thousand ports the new one.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network
from netloom.plan.node.grants import EVERYTHING
from netloom.plan.node.ports import Host, PortPlan, plan_ports
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Ref


class Kind(StrEnum):
    """What happens to something."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


class Column(Struct, frozen=True, omit_defaults=True):
    """One column that differs; of a set or a map only the difference."""

    name: str
    old: str = ""
    new: str = ""
    less: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


class RowChange(Struct, frozen=True):
    """What happens to one row."""

    kind: Kind
    unit: Unit
    """The resource that it belongs to."""
    table: str
    key: str
    columns: tuple[Column, ...] = ()


class PortChange(Struct, frozen=True):
    """What happens to one port on its node."""

    kind: Kind
    node: str
    unit: Unit
    columns: tuple[Column, ...] = ()
    problem: str = ""


def rows(before: DesiredRows, after: DesiredRows) -> list[RowChange]:
    """Return the rows that differ between two plans, by resource."""
    found: list[RowChange] = []
    for ref in sorted(before.rows.keys() | after.rows.keys()):
        old, new = _columns(before, ref), _columns(after, ref)
        if old == new:
            continue
        kind = Kind.CREATE if ref not in before.rows else Kind.REMOVE if ref not in after.rows else Kind.CHANGE
        unit = before.of[ref] if kind is Kind.REMOVE else after.of[ref]
        found.append(RowChange(kind, unit, *ref, differences(old, new)))
    return sorted(found, key=lambda one: (one.unit, one.table, one.key))


def _columns(desired: DesiredRows, ref: Ref) -> dict[str, Any]:
    row = desired.rows.get(ref)
    if row is None:
        return {}
    # In a set key and value are the same; members with other keys are entries of a map.
    members = {
        column: dict(entries) if any(key != value for key, value in entries.items()) else frozenset(entries)
        for column, entries in desired.members(ref).items()
    }
    return {**row.columns, **members}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns that differ."""
    found = []
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if one == other or not (one or other or one is False or other is False or one == 0 or other == 0):
            continue
        if _many(one) or _many(other):
            less, more = _entries(one), _entries(other)
            found.append(Column(name, less=tuple(sorted(less - more)), more=tuple(sorted(more - less))))
        else:
            found.append(Column(name, shown(one), shown(other)))
    return tuple(found)


def _many(value: object) -> bool:
    return isinstance(value, frozenset | tuple | list | Mapping) and not isinstance(value, Ref)


def _entries(value: Any) -> set[str]:  # noqa: ANN401  # a column
    if value is None:
        return set()
    if isinstance(value, Mapping):
        return {f"{key}={shown(one)}" for key, one in value.items()}
    return {shown(one) for one in value}


def shown(value: object) -> str:
    """Return a value of a column for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value.key if isinstance(value, Ref) else str(value)


def ports(before: Iterable[Resource], after: Iterable[Resource]) -> list[PortChange]:
    """Return the ports that differ on the nodes, by node."""
    old, new = _ports(before), _ports(after)
    found = []
    for place in sorted(old.keys() | new.keys()):
        one, other = old.get(place), new.get(place)
        if one == other:
            continue
        kind = Kind.CREATE if one is None else Kind.REMOVE if other is None else Kind.CHANGE
        node, unit = place
        if isinstance(other, Problem):
            found.append(PortChange(kind, node, unit, problem=other.message))
            continue
        found.append(PortChange(kind, node, unit, differences(_shown_fields(one), _shown_fields(other))))
    return found


def _shown_fields(plan: PortPlan | Problem | None) -> dict[str, Any]:
    if not isinstance(plan, PortPlan):
        return {}
    found = structs.asdict(plan)
    found["type"] = plan.type.value
    found["routes"] = tuple(f"{route.to} via {route.via}" for route in plan.routes)
    # Not the fields that are the same for all, that the object itself has, or that only the node knows.
    return {key: value for key, value in found.items() if key not in _HIDDEN}


_HIDDEN = ("uid", "namespace", "name", "mtu", "parent_uid", "netns_root", "netns_identity", "own_netns", "takes_used")


def _ports(resources: Iterable[Resource]) -> dict[tuple[str, Unit], PortPlan | Problem]:
    resources = list(resources)
    networks = [one for one in resources if isinstance(one, Network)]
    physical = {one.spec.provider.physical_network for one in networks if one.spec.provider}
    # Only the node knows which physical networks it has, and what it grants: assume all.
    host = Host(physical_networks=frozenset(physical), grants=EVERYTHING)
    plans = plan_ports(resources, host)
    found = {}
    for one in resources:
        if isinstance(one, NetworkAttachment) and isinstance(plan := plans[_key(one)], PortPlan | Problem):
            found[one.spec.node, Unit(one.kind, *_key(one))] = plan
    return found


def _key(one: Resource) -> tuple[str, str]:
    return one.metadata.namespace, one.metadata.name
