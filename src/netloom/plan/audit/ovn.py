"""Audits of OVN's southbound and of the nodes' switches against the resources.  Pure.

Each audit compares the desired state with the observed state of one place, and returns findings. The input is plain
values, whatever their source. Usually there are no findings.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.cluster import AGENT_SILENT_SECONDS, Node
from netloom.plan.audit.finding import Check, Finding
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Unit

ATTACHMENT = "NetworkAttachment"
NODE = "Node"


# The southbound.


class ExpectedBinding(Struct, frozen=True):
    """A port the southbound should have."""

    unit: Unit
    port: str
    node: str = ""
    """The node that it should be on; "": any."""


def audit_southbound(
    expected: Iterable[ExpectedBinding], bound: Mapping[str, str], chassis: Collection[str], nodes: Iterable[Node]
) -> list[Finding]:
    """Return the differences between ports and Nodes and the southbound.

    `bound` has the chassis that has claimed each port of the southbound; "" for none.
    """
    found = [finding for one in expected for finding in _port(one, bound.get(one.port))]
    known = {one.metadata.name for one in nodes}
    for name in sorted(set(chassis) - known):
        text = "OVN has a chassis of this name, and there is no Node of this name"
        found.append(Finding(Check.CHASSIS_WITHOUT_NODE, NODE, "", name, text, name))
    for name in sorted(known - set(chassis)):
        text = "OVN has no chassis of this name: its ovn-controller never reached the southbound database"
        found.append(Finding(Check.NODE_WITHOUT_CHASSIS, NODE, "", name, text, name))
    return sorted(found)


def _port(one: ExpectedBinding, chassis: str | None) -> Iterator[Finding]:
    if chassis is None:
        yield Finding(Check.PORT_UNKNOWN, *one.unit, f"the southbound has no port {one.port}: ovn-northd is behind")
    elif not chassis and one.unit.kind == ATTACHMENT:
        yield Finding(Check.PORT_UNBOUND, *one.unit, f"no chassis has claimed port {one.port}; {one.node} should")
    elif not chassis:
        yield Finding(Check.GATEWAY_UNBOUND, *one.unit, f"no chassis has claimed its gateway {one.port}")
    elif one.node and chassis != one.node:
        text = f"port {one.port} is on chassis {chassis}, and should be on {one.node}"
        yield Finding(Check.PORT_ELSEWHERE, *one.unit, text)


def audit_nodes(nodes: Iterable[Node], now: datetime) -> list[Finding]:
    """Return a finding for each Node that is not ready or silent."""
    found = []
    for one in nodes:
        name, ready = one.metadata.name, one.status.condition("Ready")
        if ready is not None and ready.status != "True":
            text = ready.message or f"it is not Ready ({ready.reason})"
            found.append(Finding(Check.NODE_NOT_READY, NODE, "", name, text))
        elif _silent(one, now):
            text = f"its agent has sent no heartbeat since {one.status.last_heartbeat or 'it was created'}"
            found.append(Finding(Check.NODE_NOT_READY, NODE, "", name, text))
    return found


def _silent(one: Node, now: datetime) -> bool:
    try:
        last = datetime.fromisoformat(one.status.last_heartbeat)
    except ValueError:
        return True
    return (now - last).total_seconds() > AGENT_SILENT_SECONDS


# A node's switch.


class Interface(Struct, frozen=True):
    """An interface of ours on a switch."""

    name: str
    of: Unit | None
    """The resource in its external_ids; None where that cannot be parsed."""
    uid: str
    internal: bool
    installed: bool
    works: bool
    """Whether the switch has a port number for it."""
    error: str = ""
    ids: Mapping[str, str] = {}
    """Those of its external_ids that are ours."""


class ExpectedInterface(Struct, frozen=True):
    """A port that should be on a switch."""

    plan: PortPlan
    ids: Mapping[str, str]
    """The external_ids that its interface should have."""
    faults: tuple[str, ...] = ()
    """What is wrong with its devices."""


def audit_switch(
    wanted: Iterable[ExpectedInterface], seen: Iterable[Interface], waiting: Collection[Unit]
) -> list[Finding]:
    """Return the differences between the ports that a node should have and those of its switch.

    `waiting` are other objects whose interfaces stay: attachments of the node without a plan, because their Network is
    not known, and what has tunnel ports.
    """
    by_unit: dict[Unit | None, list[Interface]] = {}
    for interface in seen:
        by_unit.setdefault(interface.of, []).append(interface)
    found: list[Finding] = []
    for one in wanted:
        unit = Unit(ATTACHMENT, one.plan.namespace, one.plan.name)
        found += _interfaces(unit, one, by_unit.pop(unit, []))
    for of, several in by_unit.items():
        if of in waiting:
            continue
        for interface in several:
            whose = f"and {of} is not on this node" if of else "and its external_ids name no attachment"
            text = f"interface {interface.name} is on the switch, {whose}"
            about = of or Unit("Interface", "", interface.name)
            found.append(Finding(Check.LEFTOVER_INTERFACE, *about, text, interface.name))
    return sorted(found)


def _interfaces(unit: Unit, one: ExpectedInterface, seen: list[Interface]) -> Iterator[Finding]:
    plan = one.plan
    for interface in seen:
        if interface.uid != plan.uid or interface.name != plan.device or plan.parent:
            text = f"interface {interface.name} belongs to an earlier attachment of this name"
            yield Finding(Check.LEFTOVER_INTERFACE, *unit, text, interface.name, replaced=True)
    if plan.parent:
        return  # Findings about its parent's interface are reported for the parent.
    mine = next((found for found in seen if found.uid == plan.uid and found.name == plan.device), None)
    if mine is None:
        yield Finding(Check.MISSING_INTERFACE, *unit, f"its interface {plan.device} is not on the switch", plan.device)
        return
    wrong = sorted(f"{k} is {mine.ids.get(k, 'absent')}, not {v}" for k, v in one.ids.items() if mine.ids.get(k) != v)
    if mine.internal is not (plan.type is PortType.INTERNAL):
        wrong.append(f"it should {'' if plan.type is PortType.INTERNAL else 'not '}be internal")
    if wrong:
        text = f"interface {plan.device} is not as planned: {', '.join(wrong)}"
        yield Finding(Check.WRONG_INTERFACE, *unit, text, plan.device)
    if mine.error or not mine.works:
        text = f"the switch cannot use interface {plan.device}: {mine.error or 'it has no port number'}"
        yield Finding(Check.BROKEN_INTERFACE, *unit, text, plan.device)
    elif not mine.installed:
        text = f"ovn-controller has not installed the flows of {plan.device}"
        yield Finding(Check.NOT_INSTALLED, *unit, text, plan.device)
    if one.faults:
        yield Finding(Check.WRONG_DEVICE, *unit, "; ".join(one.faults), plan.device)


def audit_mirrors(wanted: Collection[Unit], seen: Collection[Unit]) -> list[Finding]:
    """Return the mirrors of ours that a switch should not have, and those that are missing."""
    more = [
        Finding(Check.LEFTOVER_MIRROR, *unit, "its mirror is on the switch, and should not be")
        for unit in set(seen) - set(wanted)
    ]
    less = [Finding(Check.MISSING_MIRROR, *unit, "its mirror is not on the switch") for unit in set(wanted) - set(seen)]
    return sorted(more + less)


def audit_devices(pairs: Mapping[str, str], used: Collection[str]) -> list[Finding]:
    """Return the device pairs of ours that nothing uses; `pairs` has the uid that each was created for."""
    return [
        Finding(Check.LEFTOVER_DEVICE, "Device", "", name, f"it was created for the attachment with uid {uid}", name)
        for name, uid in sorted(pairs.items())
        if name not in used
    ]
