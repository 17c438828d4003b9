"""The vxlan fabric's flows on a real Open vSwitch: it takes them all, gives them back as they are, and acts on them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.openflow.flows import Drop, Flow, MeterSpec, Put
from netloom.openflow.io import Connection
from netloom.plan.vxlan.fabric import VxlanPlan
from netloom.plan.vxlan.sites import RECEIVERS
from tests.openflow.real import BRIDGE, Real, real_switch, within
from tests.plan.vxlan_nodes import nodes, profile, shaping, vtep

pytestmark = [pytest.mark.ovn, pytest.mark.root]

WEB: dict[str, Any] = {"matchLabels": {"app": "web"}}
PORTS = [{"protocol": "tcp", "port": 80}, {"protocol": "udp", "port": 100, "endPort": 200}, {"protocol": "icmp"}]

SHAPINGS: dict[str, dict[str, Any]] = {
    "s": {"from": {"network": "n42"}, "to": {"selector": WEB}, "rate": "10mbit"},
    "t": {"from": {"attachment": "other"}, "rate": "1mbit"},
}


@pytest.fixture(scope="module")
def switch() -> Iterator[Real]:
    """Give a switch with the ports of the plan below."""
    with real_switch() as found:
        for number in (11, 12, 13):
            device = f"p{number}"
            found.node.vsctl(
                "add-port", BRIDGE, device, "--", "set", "interface", device, "type=internal",
                f"ofport_request={number}",
            )  # fmt: skip
        yield found


def plan() -> VxlanPlan:
    """Return a plan with everything in it."""
    at = nodes("n1", "n2")
    at.plug("server", "n1", "10.0.0.1", "fd00::1", profiles=("web", "both"), allowed=("10.0.0.100", "fd00::100"))
    at.plug("client", "n1", "10.0.0.2", "fd00::2", labels={"app": "web"}, allowed=("10.0.0.100",))
    at.plug("other", "n1", "10.0.0.3", "fd00::3")
    at.plug("far", "n2", "10.0.0.4", "fd00::4", labels={"app": "web"}, allowed=("10.0.0.100",))
    at.put(
        profile("web", ingress=[{"from": [{"selector": WEB}, {"cidr": "192.0.2.0/24"}], "ports": PORTS}]),
        profile("both", ingress=[{"from": [{"profile": "web"}]}], egress=[{}, {"to": [{"cidr": "fd00::/64"}]}]),
        profile("all", selector=WEB, egress=[{"ports": [{"protocol": "sctp"}], "action": "reject"}, {}]),
        *(shaping(name, **spec) for name, spec in SHAPINGS.items()),
        vtep("east", "198.51.100.1", {"02:00:00:00:01:01": ("10.0.0.101", "fd00::101")}, vni=77),
        vtep("south", "2001:db8::1", {"02:00:00:00:01:02": ()}),
        *(vtep(f"v{at}", f"198.51.{at // 256}.{at % 256}", {}) for at in range(RECEIVERS)),
    )
    found = at.nodes["n1"].plan
    found.flush()
    return found


async def install(made: Connection, wanted: VxlanPlan) -> None:
    for number, spec in wanted.claims.meters.items():
        await made.set_meter(number, spec.rate_kbps, spec.burst)
    await made.change([Put(flow) for flow in wanted.claims.flows.values()])


def test_a_real_switch_takes_all_flows_and_gives_them_back_as_they_are(switch: Real) -> None:
    wanted = plan()

    async def story(made: Connection) -> tuple[list[Flow], dict[int, MeterSpec]]:
        await install(made, wanted)
        return await made.flows(), await made.meters()

    flows, meters = within(switch.socket, story)
    assert {flow.key: flow for flow in flows} == wanted.claims.flows
    assert meters == wanted.claims.meters


@pytest.mark.parametrize(
    ("sender", "packet", "passes"),
    [
        (12, "tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_dst=80", True),
        (12, "tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_dst=81", False),
        (12, "udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,udp_dst=177", True),
        (12, "udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,udp_dst=201", False),
        (12, "tcp6,ipv6_src=fd00::2,ipv6_dst=fd00::1,tp_dst=80", True),
        (12, "sctp,nw_src=10.0.0.2,nw_dst=10.0.0.1,sctp_dst=80", False),
        (13, "tcp,nw_src=10.0.0.3,nw_dst=10.0.0.1,tp_dst=80", False),
        (13, "tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_dst=80", False),
        (13, "dl_type=0x88b5", False),
    ],
)
def test_a_real_switch_judges_as_the_profiles_say(switch: Real, sender: int, packet: str, passes: bool) -> None:
    within(switch.socket, lambda made: install(made, plan()))
    ends = f"in_port={sender},dl_src=02:00:00:00:00:{sender - 10:02x},dl_dst=02:00:00:00:00:01"
    traced = switch.trace(f"{ends},{packet}")
    assert (re.search(r"output:11\b", traced) is not None) is passes, traced


def test_all_flows_can_be_removed_and_nothing_is_left(switch: Real) -> None:
    async def story(made: Connection) -> list[Flow]:
        await install(made, plan())
        await made.change([Drop(flow) for flow in await made.flows()])
        return await made.flows()

    assert within(switch.socket, story) == []
