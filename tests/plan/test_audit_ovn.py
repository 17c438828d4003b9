"""What does not fit between resources, the southbound and a node: every check finds its own, and nothing else."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.cluster import Node
from netloom.plan.audit.finding import Check
from netloom.plan.audit.ovn import (
    ATTACHMENT,
    ExpectedBinding,
    ExpectedInterface,
    Interface,
    audit_devices,
    audit_mirrors,
    audit_nodes,
    audit_southbound,
    audit_switch,
)
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import Unit
from tests.plan.planning import resources

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
WEB = Unit(ATTACHMENT, "default", "web")
PLAN = PortPlan(
    uid="u1", namespace="default", name="web", type=PortType.VETH, device="nl1", inner="eth0", netns="/run/netns/web",
    mac="06:00:00:00:00:01", mtu=1400,
)  # fmt: skip
IDS = {"iface-id": "default/web", "attached-mac": PLAN.mac}
SEEN = Interface(name="nl1", of=WEB, uid="u1", internal=False, installed=True, works=True, ids=IDS)


def node(name: str, *, ready: str = "True", seen: str = "2026-11-15T11:59:55Z", message: str = "") -> Node:
    condition = f"{{type: Ready, status: '{ready}', reason: R, message: '{message}'}}"
    status = f"{{lastHeartbeat: '{seen}', conditions: [{condition}]}}"
    return cast("Node", resources(f"{{kind: Node, metadata: {{name: {name}}}, spec: {{underlayIP: 10.0.0.1}},"
                                  f" status: {status}}}")[0])  # fmt: skip


def south(bound: dict[str, str], *, chassis: tuple[str, ...] = ("n1",), nodes: tuple[str, ...] = ("n1",)) -> Any:
    found = audit_southbound(
        [ExpectedBinding(WEB, "default/web", "n1")], bound, chassis, [node(name) for name in nodes]
    )
    return [(one.check, one.name) for one in found]


def test_a_port_where_it_belongs_is_well() -> None:
    assert south({"default/web": "n1", "somebody/elses": ""}) == []


def test_a_port_that_is_nowhere_elsewhere_or_unknown_is_found() -> None:
    assert south({}) == [(Check.PORT_UNKNOWN, "web")]
    assert south({"default/web": ""}) == [(Check.PORT_UNBOUND, "web")]
    assert south({"default/web": "n2"}) == [(Check.PORT_ELSEWHERE, "web")]


def test_a_gateway_may_be_on_any_chassis_but_not_on_none() -> None:
    gateway = ExpectedBinding(Unit("Router", "default", "r"), "cr-default/r:out")
    assert audit_southbound([gateway], {gateway.port: "n7"}, [], []) == []
    [found] = audit_southbound([gateway], {gateway.port: ""}, [], [])
    assert (found.check, found.name) == (Check.GATEWAY_UNBOUND, "r")


def test_nodes_and_chassis_belong_together() -> None:
    bound = {"default/web": "n1"}
    assert south(bound, chassis=("n1", "old")) == [(Check.CHASSIS_WITHOUT_NODE, "old")]
    assert south(bound, nodes=("n1", "new")) == [(Check.NODE_WITHOUT_CHASSIS, "new")]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (node("n1"), None),
        (node("n1", ready="False", message="no switch"), "no switch"),
        (node("n1", ready="False"), "it is not Ready (R)"),
        (node("n1", seen="2026-11-15T11:50:00Z"), "its agent has sent no heartbeat since 2026-11-15T11:50:00Z"),
        (node("n1", seen="2026-11-15T11:59:22Z"), None),
        (node("n1", seen="2026-11-15T11:59:19Z"), "its agent has sent no heartbeat since 2026-11-15T11:59:19Z"),
        (node("n1", seen=""), "its agent has sent no heartbeat since it was created"),
    ],
)
def test_a_node_is_ready_and_heard_of(found: Node, said: str | None) -> None:
    assert [one.message for one in audit_nodes([found], NOW)] == ([] if said is None else [said])


def switch(*seen: Interface, faults: tuple[str, ...] = (), waiting: tuple[Unit, ...] = ()) -> list[tuple[Check, str]]:
    found = audit_switch([ExpectedInterface(PLAN, IDS, faults)], seen, waiting)
    return [(one.check, one.what) for one in found]


def test_an_interface_as_planned_is_well_whatever_else_it_carries() -> None:
    assert switch(replace(SEEN, ids={**IDS, "netloom-from": "ovs:br0", "note": "x"})) == []


@pytest.mark.parametrize(
    ("seen", "check"),
    [
        (replace(SEEN, installed=False), Check.NOT_INSTALLED),
        (replace(SEEN, works=False), Check.BROKEN_INTERFACE),
        (replace(SEEN, error="could not open network device"), Check.BROKEN_INTERFACE),
        (replace(SEEN, ids={**IDS, "iface-id": "default/other"}), Check.WRONG_INTERFACE),
        (replace(SEEN, ids={"iface-id": "default/web"}), Check.WRONG_INTERFACE),
        (replace(SEEN, internal=True), Check.WRONG_INTERFACE),
    ],
)
def test_an_interface_that_is_not_as_planned_is_found(seen: Interface, check: Check) -> None:
    assert switch(seen) == [(check, "nl1")]


def test_what_is_wrong_with_the_devices_is_one_finding() -> None:
    assert switch(SEEN, faults=("eth0 is down", "no route")) == [(Check.WRONG_DEVICE, "nl1")]


def test_a_vlan_of_anothers_port_needs_no_interface_and_should_have_none() -> None:
    child = ExpectedInterface(replace(PLAN, type=PortType.CHILD, parent="vm", parent_uid="u0", vlan=7), {})
    assert audit_switch([child], [], ()) == []
    [found] = audit_switch([child], [SEEN], ())
    assert (found.check, found.what) == (Check.LEFTOVER_INTERFACE, "nl1")


def test_an_attachment_without_an_interface_is_found() -> None:
    assert switch() == [(Check.MISSING_INTERFACE, "nl1")]


def test_interfaces_for_nobody_are_leftovers_but_not_those_of_who_waits() -> None:
    gone = replace(SEEN, name="nl9", of=Unit(ATTACHMENT, "default", "gone"), uid="u9")
    stray = replace(SEEN, name="nl8", of=None, uid="")
    leftover = Check.LEFTOVER_INTERFACE
    assert switch(SEEN, gone, stray) == [(leftover, "nl8"), (leftover, "nl9")]
    assert switch(SEEN, gone, waiting=(Unit(ATTACHMENT, "default", "gone"),)) == []


def test_an_interface_of_an_earlier_attachment_of_the_name_is_a_leftover() -> None:
    earlier = replace(SEEN, name="nl0", uid="u0")
    assert switch(SEEN, earlier) == [(Check.LEFTOVER_INTERFACE, "nl0")]
    assert sorted(switch(earlier)) == [(Check.LEFTOVER_INTERFACE, "nl0"), (Check.MISSING_INTERFACE, "nl1")]


def test_mirrors_and_pairs_that_nobody_wants_or_that_are_missing() -> None:
    one, other = Unit("Mirror", "default", "one"), Unit("Mirror", "default", "other")
    assert audit_mirrors({one}, {one}) == []
    assert [(f.check, f.name) for f in audit_mirrors({one}, {other})] == [
        (Check.LEFTOVER_MIRROR, "other"),
        (Check.MISSING_MIRROR, "one"),
    ]
    assert [(f.check, f.name) for f in audit_devices({"nl1": "u1", "nl2": "u2"}, {"nl1"})] == [
        (Check.LEFTOVER_DEVICE, "nl2")
    ]
