"""The vxlan fabric from outside: what doctor finds of flows, and how a packet is followed through them."""

import pytest

from netloom.diagnose.node.fabric import compared
from netloom.diagnose.node.inspection import plans_of
from netloom.diagnose.snapshot import fabric_of
from netloom.diagnose.trace import vxlan
from netloom.diagnose.trace.packet import endpoint
from netloom.diagnose.trace.vxlan import SwitchState
from netloom.errors import Invalid
from netloom.model.document import Resource
from netloom.model.kinds.networks import Fabric
from netloom.plan.node.grants import EVERYTHING
from netloom.plan.node.ports import Host, PortPlan
from netloom.plan.vxlan.fabric import VxlanPlan
from netloom.plan.vxlan.inputs import plan_fabric
from tests.plan.planning import resources

VTEP = 1
WORLD = """
{kind: Network, metadata: {name: red}, spec: {fabric: vxlan}, status: {vni: 10}}
---
{kind: EVPNNetwork, metadata: {name: red}, spec: {network: red, speaker: main}, status: {forwarding: true, node: n2}}
---
kind: RemoteVTEP
metadata: {name: red.198-51-100-1.10.0}
spec: {evpnNetwork: red, network: red, node: n2, address: 198.51.100.1, vni: 77, localVNI: 10, macs: [{mac: "02:00:00:00:01:01", ips: [10.1.0.101, "fd01::101"]}]}
---
kind: RemoteVTEP
metadata: {name: red.198-51-100-2.10.0}
spec: {evpnNetwork: red, network: red, node: n1, address: 198.51.100.2, vni: 77, localVNI: 10, macs: [{mac: "02:00:00:00:02:01", ips: [10.1.0.102]}]}
---
{kind: Network, metadata: {name: green}, spec: {fabric: vxlan}, status: {vni: 11}}
---
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 12}}
---
{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}
---
{kind: Node, metadata: {name: n2}, spec: {underlayIP: 172.31.0.2}}
---
kind: NetworkAttachment
metadata: {name: a, uid: u-a}
spec: {node: n1, network: red}
status: {ips: [10.1.0.2/24, "fd01::2/64"], locks: [{ip: "10.1.0.2", uid: u}, {ip: "fd01::2", uid: u}], mac: "06:01:00:02:00:0a", vni: 10, hostIP: 172.31.0.1, conditions: [{type: Addressed, status: "True"}]}
---
kind: NetworkAttachment
metadata: {name: b, uid: u-b}
spec: {node: n2, network: red}
status: {ips: [10.1.0.3/24, "fd01::3/64"], locks: [{ip: "10.1.0.3", uid: u}, {ip: "fd01::3", uid: u}], mac: "06:01:00:03:00:0a", vni: 10, hostIP: 172.31.0.2, conditions: [{type: Addressed, status: "True"}]}
---
kind: NetworkAttachment
metadata: {name: shut, uid: u-shut, labels: {app: shut}}
spec: {node: n1, network: red}
status: {ips: [10.1.0.4/24], locks: [{ip: "10.1.0.4", uid: u}], mac: "06:01:00:04:00:0a", vni: 10, hostIP: 172.31.0.1, conditions: [{type: Addressed, status: "True"}]}
---
kind: NetworkAttachment
metadata: {name: twin, uid: u-twin}
spec: {node: n2, network: green}
status: {ips: [10.1.0.2/24], locks: [{ip: "10.1.0.2", uid: u}], mac: "06:01:00:02:00:0b", vni: 11, hostIP: 172.31.0.2, conditions: [{type: Addressed, status: "True"}]}
---
{kind: NetworkAttachment, metadata: {name: ovn}, spec: {node: n1, network: blue}, status: {ips: [10.1.0.9/24], locks: [{ip: "10.1.0.9", uid: u}], mac: "06:01:00:09:00:0c", vni: 12}}
---
{kind: SecurityProfile, metadata: {name: shut}, spec: {selector: {matchLabels: {app: shut}}, ingress: [], egress: []}}
"""  # noqa: E501 - One line for each attachment's status.


def node(name: str, every: list[Resource]) -> tuple[VxlanPlan, dict[int, str], list[PortPlan]]:
    """Return a node's fabric, its ports by number, and what was planned for it."""
    plans, _ = plans_of(every, name, Host(grants=EVERYTHING))
    numbers = {one.uid: number for number, one in enumerate(plans.values(), 2) if one.vni}
    plan = plan_fabric(every, name, plans, lambda one: numbers[one.uid], VTEP)
    mine = [one for one in plans.values() if one.vni]
    return plan, {numbers[one.uid]: f"{one.namespace}/{one.name}" for one in mine}, mine


def trace(start: str, end: str, *, protocol: str = "icmp", v6: bool = False) -> tuple[list[str], bool, str]:
    every = resources(WORLD)

    def look(name: str) -> SwitchState:
        plan, ports, _ = node(name, every)
        return SwitchState(list(plan.claims.flows.values()), ports, VTEP)

    one = endpoint(start, "default", every)
    sent = vxlan.packet(
        one, vxlan.target(one, endpoint(end, "default", every), every), protocol=protocol, number=80, v6=v6
    )
    hops, delivered, verdict = vxlan.trace(look, one, sent, every)
    return [f"{hop.place}: {hop.what}" for hop in hops], delivered, verdict


@pytest.mark.parametrize("protocol", ["icmp", "tcp", "udp"])
@pytest.mark.parametrize("v6", [False, True])
def test_a_packet_is_followed_through_the_tunnel_to_its_port(protocol: str, v6: bool) -> None:
    hops, delivered, verdict = trace("a", "b", protocol=protocol, v6=v6)
    assert (delivered, verdict) == (True, "delivered to b")
    assert hops == [
        "node n1: from a, in Network red",
        "node n1: through the tunnel to n2, VNI 10",
        "node n2: to the port of b",
    ]


@pytest.mark.parametrize("address", ["10.1.0.101", "fd01::101"])
def test_a_packet_to_another_site_is_followed_to_its_vtep(address: str) -> None:
    hops, delivered, verdict = trace("a", address)
    assert (delivered, verdict) == (True, "sent to another site, by its VTEP 198.51.100.1")
    assert hops == ["node n1: from a, in Network red", "node n1: through the tunnel to VTEP 198.51.100.1, VNI 77"]
    assert trace("a", "10.1.0.102")[1:] == (False, "dropped on n1: no port of the Network has the destination")


def test_an_address_is_looked_for_in_the_senders_own_network() -> None:
    assert trace("b", "10.1.0.2")[2] == "delivered to a"
    assert trace("twin", "10.1.0.3")[1:] == (
        False,
        "dropped: no attachment of Network green has 10.1.0.3, so its MAC is unknown",
    )


def test_who_stops_a_packet_is_said() -> None:
    assert trace("a", "shut")[2] == "dropped on n1: a SecurityProfile of the receiver does not allow it"
    assert trace("b", "shut")[2] == "dropped on n1: a SecurityProfile of the receiver does not allow it"
    assert trace("shut", "b")[2] == "dropped on n1: a SecurityProfile of the sender does not allow it"


def test_ends_without_a_common_family_are_told_so() -> None:
    with pytest.raises(Invalid, match="same family"):
        trace("shut", "fd01::3")


def test_an_attachment_is_of_the_fabric_of_its_network() -> None:
    every = resources(WORLD)
    assert fabric_of(endpoint("a", "default", every).attachment, every) is Fabric.VXLAN
    assert fabric_of(endpoint("ovn", "default", every).attachment, every) is Fabric.OVN
    assert fabric_of(endpoint("10.9.9.9", "default", every).attachment, every) is None


def test_flows_that_are_missing_wrong_or_too_many_are_found() -> None:
    plan, _, plans = node("n1", resources(WORLD))
    seen = dict(plan.claims.flows)
    assert compared("n1", plan, plans, seen) == []
    own = plan.claims.claimed(f"local/{plans[0].uid}")[0]
    far = next(flow for flow in plan.claims.flows.values() if "tun_dst" in str(flow))
    stray = plan.claims.claimed("base")[0]
    del seen[own.key], seen[far.key]
    more = type(stray)(99, 1, (), (), stray.cookie)
    seen[more.key] = more
    found = compared("n1", plan, plans, seen)
    assert [(one.check.value, one.kind, one.name) for one in found] == [
        ("leftover-flows", "Node", "n1"),
        ("missing-flows", "NetworkAttachment", "a"),
        ("missing-flows", "Node", "n1"),
    ]
