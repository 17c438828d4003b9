"""LoadBalancers: whose a VIP is, who answers for it, and from where endpoints are asked how they are."""

from typing import Any

import msgspec
import pytest

from netloom.model.kinds.policy import LoadBalancer, Protocol
from netloom.plan.ovn.layer3.load_balancers import load_balancer_ref
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.plan.rows import Column, Ref
from netloom.plan.world.world import Port
from tests.plan.planning import planned

WORLD = """
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 4096}}
---
{kind: Network, metadata: {name: red}, spec: {}, status: {vni: 4097}}
---
{kind: Subnet, metadata: {name: blue-v4}, spec: {network: blue, cidr: 10.10.0.0/24}, status: {validated: true}}
---
{kind: Subnet, metadata: {name: blue-v6}, spec: {network: blue, cidr: "fd00:10::/64"}, status: {validated: true}}
---
{kind: Subnet, metadata: {name: red-v4}, spec: {network: red, cidr: 10.20.0.0/24}, status: {validated: true}}
"""
ROUTER = "{kind: Router, metadata: {name: r1}, spec: {networks: [{network: blue}, {network: red}]}}"
VIP_ROUTER = Ref("Logical_Router_Port", "default/blue::vips:port")
WEB = Port("default", "web", "n1", "blue", ("10.10.0.9/24", "fd00:10::9/64"), "02:00:00:00:00:09", 4096, {"app": "web"})


def balancer(name: str = "lb", *vips: str, **spec: Any) -> LoadBalancer:
    """Return a balancer in network blue for port 80 of these addresses (`IP` or `IP/PORT`), with this besides."""
    given = [vip.partition("/") for vip in vips or ("10.10.0.100",)]
    whole = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "networks": ["blue"],
            "vips": [{"ip": ip, "port": int(port or 80)} for ip, _, port in given],
            **({} if "selector" in spec else {"endpoints": [{"ip": "10.10.0.9"}]}),
            **spec,
        },
    }
    return msgspec.convert(whole, LoadBalancer)


def world(*resources_: LoadBalancer | str) -> Planner:
    planner = planned(WORLD, *resources_)
    planner.put(WEB)
    planner.flush()
    return planner


def column(planner: Planner, name: str = "lb", column: str = "vips") -> Column:
    return planner.desired.rows[load_balancer_ref("default", name, Protocol.TCP)].columns[column]


def reasons(planner: Planner, name: str = "lb") -> list[str]:
    return [one.reason for one in planner.desired.problems.get(Unit("LoadBalancer", "default", name), ())]


def places(planner: Planner, name: str = "lb") -> list[str]:
    """Return the switches and routers a balancer's row is joined to."""
    ref = load_balancer_ref("default", name, Protocol.TCP)
    return sorted(
        one.key for one in planner.desired.rows if ref in planner.desired.members(one).get("load_balancer", ())
    )


def test_each_vip_stands_for_endpoints_of_its_family() -> None:
    planner = world(balancer("lb", "10.10.0.100", "FD00:10:0::100", selector={"matchLabels": {"app": "web"}}))
    assert column(planner) == {"10.10.0.100:80": "10.10.0.9:80", "[fd00:10::100]:80": "[fd00:10::9]:80"}
    assert reasons(planner) == []


def test_endpoints_follow_the_labels() -> None:
    planner = world(balancer(selector={"matchLabels": {"app": "web"}}))
    planner.put(msgspec.structs.replace(WEB, name="more", ips=("10.10.0.8/24",)))
    planner.flush()
    assert column(planner) == {"10.10.0.100:80": "10.10.0.8:80,10.10.0.9:80"}
    planner.put(msgspec.structs.replace(WEB, labels={}))
    planner.flush()
    assert column(planner) == {"10.10.0.100:80": "10.10.0.8:80"}


def test_a_vip_is_lost_to_an_attachment_of_its_address_and_had_again_when_that_goes() -> None:
    planner = world(balancer("lb", "10.10.0.100", "10.10.0.101"))
    thief = msgspec.structs.replace(WEB, name="thief", ips=("10.10.0.100/24",), labels={})
    planner.put(thief)
    planner.flush()
    assert column(planner) == {"10.10.0.101:80": "10.10.0.9:80"}
    assert planner.desired.rows[VIP_ROUTER].columns["networks"] == frozenset({"10.10.0.101/24"})
    [problem] = planner.desired.problems[Unit("LoadBalancer", "default", "lb")]
    assert problem.reason == "AddressInUse"
    assert problem.message.startswith("spec.vips[0].ip: 10.10.0.100 is that of NetworkAttachment thief in Network blue")
    planner.remove(Unit("NetworkAttachment", "default", "thief"))
    planner.flush()
    assert reasons(planner) == []
    assert planner.desired.rows[VIP_ROUTER].columns["networks"] == frozenset({"10.10.0.100/24", "10.10.0.101/24"})


def test_a_router_has_its_address_unless_it_serves_the_vip_itself() -> None:
    assert reasons(world(ROUTER, balancer("lb", "10.10.0.1"))) == ["AddressInUse"]
    assert reasons(world(ROUTER, balancer("lb", "10.10.0.1", routers=["r1"]))) == []


@pytest.mark.parametrize("ip", ["10.10.0.0", "10.10.0.255", "127.0.0.1", "224.0.0.1", "0.0.0.0", "fe80::1"])
def test_an_address_of_no_host_is_no_vip(ip: str) -> None:
    planner = world(balancer("lb", ip, selector={}))
    assert reasons(planner) == ["NotAHost"]
    assert not any(ref.table == "Load_Balancer" for ref in planner.desired.rows)


def test_of_two_who_want_a_vip_the_smaller_name_has_it_in_any_order() -> None:
    for balancers in ([balancer("a"), balancer("b")], [balancer("b"), balancer("a")]):
        planner = world(*balancers)
        assert (reasons(planner, "a"), reasons(planner, "b")) == ([], ["AddressInUse"])
    planner.remove(Unit("LoadBalancer", "default", "a"))
    planner.flush()
    assert reasons(planner, "b") == []


def test_two_share_an_address_by_port_and_by_place() -> None:
    planner = world(balancer("a"), balancer("b", "10.10.0.100/81"), balancer("c", networks=["red"]))
    assert [reasons(planner, name) for name in "abc"] == [[], [], []]


def test_a_router_s_networks_are_places_too() -> None:
    planner = world(ROUTER, balancer("a"), balancer("b", networks=[], routers=["r1"]))
    assert reasons(planner, "b") == ["AddressInUse"]


def test_the_stand_goes_over_to_the_next_when_its_balancer_goes() -> None:
    planner = world(balancer("a"), balancer("b", "10.10.0.100/81", "10.10.0.101"))
    assert planner.desired.of[VIP_ROUTER].name == "a"
    planner.remove(Unit("LoadBalancer", "default", "a"))
    planner.flush()
    assert planner.desired.of[VIP_ROUTER].name == "b"
    planner.remove(Unit("LoadBalancer", "default", "b"))
    planner.flush()
    assert VIP_ROUTER not in planner.desired.rows


def test_a_vip_outside_of_the_subnets_needs_no_vip_router() -> None:
    assert VIP_ROUTER not in world(balancer("lb", "192.0.2.80")).desired.rows


def test_a_router_that_serves_the_vip_answers_for_it_and_its_networks_balance() -> None:
    planner = world(ROUTER, balancer(networks=[], routers=["r1"]))
    assert VIP_ROUTER not in planner.desired.rows
    assert places(planner) == ["default/blue", "default/r1", "default/red"]


def test_the_stand_sends_what_is_for_elsewhere_to_the_router() -> None:
    planner = world(ROUTER, balancer("lb", "10.10.0.100", "fd00:10::100", selector={}))
    routes = [row.columns for ref, row in planner.desired.rows.items() if ref.table == "Logical_Router_Static_Route"]
    assert sorted((str(one["ip_prefix"]), str(one["nexthop"])) for one in routes) == [
        ("0.0.0.0/0", "10.10.0.1"),
        ("::/0", "fd00:10::1"),
    ]
    planner.remove(Unit("Router", "default", "r1"))
    planner.flush()
    assert not any(ref.table == "Logical_Router_Static_Route" for ref in planner.desired.rows)


def test_a_router_s_foot_without_an_address_in_the_family_is_no_way() -> None:
    router = "{kind: Router, metadata: {name: r1}, spec: {networks: [{network: blue, ips: ['fd00:10::1/64']}]}}"
    planner = world(router, balancer())
    assert not any(ref.table == "Logical_Router_Static_Route" for ref in planner.desired.rows)


def test_the_address_endpoints_are_asked_from_is_given_up_to_who_gets_it() -> None:
    planner = world(balancer(healthCheck={}))
    assert column(planner, column="ip_port_mappings") == {"10.10.0.9": "default/web:10.10.0.254"}
    planner.put(msgspec.structs.replace(WEB, name="last", ips=("10.10.0.254/24",), labels={}))
    planner.flush()
    assert column(planner, column="ip_port_mappings") == {"10.10.0.9": "default/web:10.10.0.253"}


def test_an_endpoint_behind_the_balancer_s_router_can_be_checked() -> None:
    far = msgspec.structs.replace(WEB, name="far", network="red", ips=("10.20.0.9/24",))
    planner = world(ROUTER, balancer(networks=[], routers=["r1"], endpoints=[{"ip": "10.20.0.9"}], healthCheck={}))
    assert reasons(planner) == ["NotChecked"]
    planner.put(far)
    planner.flush()
    assert reasons(planner) == []
    assert column(planner, column="ip_port_mappings") == {"10.20.0.9": "default/far:10.20.0.254"}


def test_an_attachment_outside_of_its_subnets_cannot_be_checked() -> None:
    planner = world(balancer(selector={"matchLabels": {"app": "web"}}, healthCheck={}))
    planner.remove(Unit("Subnet", "default", "blue-v4"))
    planner.flush()
    assert reasons(planner) == ["NotChecked"]


def test_a_vip_of_the_way_out_s_network_may_not_be_somebody_s_there() -> None:
    outside = """
{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}
---
{kind: Network, metadata: {name: outside}, spec: {provider: {physicalNetwork: p}}, status: {vni: 4098}}
---
kind: Router
metadata: {name: r1}
spec:
  networks: [{network: blue}]
  gateway: {network: outside, ips: [192.0.2.10/24], nodes: [n1]}
"""
    planner = world(outside, balancer("lb", "192.0.2.80", routers=["r1"]))
    assert reasons(planner) == []
    planner.put(msgspec.structs.replace(WEB, name="taken", network="outside", ips=("192.0.2.80/24",), labels={}))
    planner.flush()
    assert reasons(planner) == ["AddressInUse"]


def test_a_provider_network_s_vip_without_a_router_is_said_and_costs_only_its_answer() -> None:
    outside = """
{kind: Network, metadata: {name: outside}, spec: {provider: {physicalNetwork: p}}, status: {vni: 4098}}
---
{kind: Subnet, metadata: {name: out}, spec: {network: outside, cidr: 192.0.2.0/24}, status: {validated: true}}
"""
    planner = world(
        outside, balancer("a", "192.0.2.80", networks=["outside"]), balancer("b", "10.9.9.9", networks=["outside"])
    )
    assert (reasons(planner, "a"), reasons(planner, "b")) == (["RouterNeeded"], [])
    assert places(planner, "a") == ["default/outside"]


def test_an_attachment_that_comes_elsewhere_plans_no_balancer_again() -> None:
    planner = world(balancer(healthCheck={}))
    planner.put(msgspec.structs.replace(WEB, name="other", ips=("10.10.0.77/24",), labels={}))
    assert planner.world.drain() == {Unit("NetworkAttachment", "default", "other")}
