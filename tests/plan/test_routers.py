"""Routers become logical routers with a port in each Network; a bad part costs that part."""

from typing import Any

import pytest
import yaml

from netloom.model.kinds.networks import Router
from netloom.plan import names
from netloom.plan.ovn.layer3 import router_ports
from netloom.plan.ovn.layer3.routers import plan_router
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from tests.plan.routers import ROUTER, members, planner, reasons, resource, routed, rows

INNER = "networks: [{network: blue}, {network: red}]"


def networks(outcome: Any) -> dict[str, set[str]]:
    return {key: set(columns["networks"]) for key, columns in rows(outcome, "Logical_Router_Port").items()}


def test_a_router_has_a_port_in_each_network_with_the_gateways_of_its_subnets() -> None:
    outcome = routed(INNER)
    assert outcome.problems == []
    assert networks(outcome) == {
        "ns/r1:blue": {"10.10.0.1/24", "fd00:10::1/64"},
        "ns/r1:red": {"10.20.0.254/24"},
    }
    router = Ref("Logical_Router", "ns/r1")
    assert members(outcome, "ports") == {
        (router, Ref("Logical_Router_Port", "ns/r1:blue")),
        (router, Ref("Logical_Router_Port", "ns/r1:red")),
        (Ref("Logical_Switch", "ns/blue"), Ref("Logical_Switch_Port", "ns/r1:blue:plug")),
        (Ref("Logical_Switch", "ns/red"), Ref("Logical_Switch_Port", "ns/r1:red:plug")),
    }


def test_the_switchs_port_is_the_peer_of_the_routers() -> None:
    plug = rows(routed(INNER), "Logical_Switch_Port")["ns/r1:blue:plug"]
    assert plug == {
        "name": "ns/r1:blue:plug",
        "type": "router",
        "addresses": frozenset({"router"}),
        "enabled": None,
        "options": {"router-port": "ns/r1:blue"},
    }


def test_a_link_that_is_down_closes_the_switchs_port_and_leaves_the_routers() -> None:
    outcome = routed("networks: [{network: red, ips: [10.20.0.7/24], linkDown: true}]")
    assert rows(outcome, "Logical_Switch_Port")["ns/r1:red:plug"]["enabled"] is False
    assert "enabled" not in rows(outcome, "Logical_Router_Port")["ns/r1:red"]


def test_addresses_that_are_given_replace_the_gateways() -> None:
    outcome = routed("networks: [{network: red, ips: [10.20.0.7/24, 10.20.0.7/24, 'fd00:20::1/64']}]")
    assert networks(outcome) == {"ns/r1:red": {"10.20.0.7/24", "fd00:20::1/64"}}
    assert outcome.problems == []


def test_a_network_without_subnets_takes_any_address() -> None:
    outcome = routed("networks: [{network: red, ips: [10.77.0.1/16]}]", "red-v4: null")
    assert networks(outcome) == {"ns/r1:red": {"10.77.0.1/16"}}


def test_macs_are_stable_unicast_local_and_different() -> None:
    macs = {router_ports.mac(router, network) for router in ("ns/a", "ns/b") for network in ("blue", "red")}
    assert len(macs) == 4
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs)
    assert router_ports.mac("ns/a", "blue") == router_ports.mac("ns/a", "blue")
    assert rows(routed(INNER), "Logical_Router_Port")["ns/r1:red"]["mac"] == router_ports.mac("ns/r1", "red")


@pytest.mark.parametrize(
    ("spec", "change", "reason", "field"),
    [
        ("networks: [{network: gone}]", "", "NetworkMissing", "spec.networks[0].network"),
        (
            "networks: [{network: blue}, {network: red}]",
            "red: {kind: Network, spec: {fabric: vxlan}}",
            "WrongFabric",
            "",
        ),
        ("networks: [{network: red}]", "red-v4: null", "SubnetMissing", "spec.networks[0]"),
        (
            "networks: [{network: red}]",
            "red-v4: {kind: Subnet, spec: {network: red, cidr: 10.20.0.0/24}, status: {errors: [overlaps]}}",
            "SubnetMissing",
            "",
        ),
        (
            "networks: [{network: red}]",
            "red-v4: {kind: Subnet, spec: {network: red, cidr: 10.20.0.0/32}, status: {validated: true}}",
            "SubnetMissing",
            "",
        ),
        ("networks: [{network: red, ips: [10.20.1.1/24]}]", "", "AddressOutside", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: [10.20.0.1/16]}]", "", "PrefixDiffers", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: [10.20.0.0/24]}]", "", "NotAHost", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: [10.20.0.255/24]}]", "", "NotAHost", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: ['fd00:20::/64']}]", "", "NotAHost", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: [224.0.0.1/24]}]", "", "NotAHost", "spec.networks[0].ips[0]"),
        ("networks: [{network: red, ips: [10.20.0.1]}]", "", "Malformed", "spec.networks[0].ips[0]"),
    ],
)
def test_a_foot_that_cannot_be_is_a_problem_and_not_planned(spec: str, change: str, reason: str, field: str) -> None:
    outcome = routed(spec, change or "{}")
    assert [one.reason for one in outcome.problems] == [reason]
    assert not field or reasons(outcome) == [(reason, field)]
    assert networks(outcome).keys() <= {"ns/r1:blue"}
    assert "ns/r1" in rows(outcome, "Logical_Router")


def test_a_router_of_networks_that_ovn_does_not_carry_is_a_problem_and_nothing_of_it_is_planned() -> None:
    outcome = routed("networks: [{network: red}]", "red: {kind: Network, spec: {fabric: vxlan}}")
    assert reasons(outcome) == [("WrongFabric", "spec.networks[0].network")]
    assert not outcome.rows


def test_one_bad_network_does_not_cost_the_others() -> None:
    outcome = routed("networks: [{network: gone}, {network: red, ips: [10.9.9.9/24]}, {network: blue}]")
    assert [one.reason for one in outcome.problems] == ["NetworkMissing", "AddressOutside"]
    assert networks(outcome).keys() == {"ns/r1:blue"}


def test_of_two_networks_with_one_block_the_earlier_is_joined() -> None:
    green = """
green: {kind: Network, spec: {}}
green-v4: {kind: Subnet, spec: {network: green, cidr: 10.10.0.0/16}, status: {validated: true}}
green-v6: {kind: Subnet, spec: {network: green, cidr: "fd00:30::/64"}, status: {validated: true}}
"""
    outcome = routed("networks: [{network: blue}, {network: green}]", green)
    assert networks(outcome) == {"ns/r1:blue": {"10.10.0.1/24", "fd00:10::1/64"}, "ns/r1:green": {"fd00:30::1/64"}}
    assert [one.reason for one in outcome.problems] == ["Overlap"]
    assert "10.10.0.0/24 of Network blue (spec.networks[0])" in outcome.problems[0].message


def test_link_local_addresses_may_be_the_same_everywhere() -> None:
    outcome = routed(
        "networks: [{network: blue, ips: [10.10.0.1/24, 'fe80::1/64']}, {network: red, ips: ['fe80::1/64']}]"
    )
    assert outcome.problems == []
    assert networks(outcome)["ns/r1:red"] == {"fe80::1/64"}


@pytest.mark.parametrize("fabric", ["vxlan", "linux"])
def test_a_router_of_other_fabrics_has_no_rows_and_says_why(fabric: str) -> None:
    other = (
        f"{{blue: {{kind: Network, spec: {{fabric: {fabric}}}}}, red: {{kind: Network, spec: {{fabric: {fabric}}}}}}}"
    )
    outcome = routed(INNER, other)
    assert (outcome.rows, outcome.members) == ([], [])
    assert [problem.reason for problem in outcome.problems] == ["WrongFabric", "WrongFabric"]


def test_a_router_without_networks_is_a_router() -> None:
    outcome = routed("{}")
    assert [row.ref for row in outcome.rows] == [Ref("Logical_Router", "ns/r1")]
    assert outcome.problems == []


def test_of_two_routers_with_one_address_the_smaller_name_has_it_whoever_came_first() -> None:
    both = {"kind": "Router", "spec": {"networks": [{"network": "red"}]}}
    for order in (("a", "b"), ("b", "a")):
        made = planner()
        for name in order:
            made.put(resource(name, both))
            made.flush()
        assert made.desired.problems.keys() == {Unit("Router", "ns", "b")}
        (problem,) = made.desired.problems[Unit("Router", "ns", "b")]
        assert problem.reason == "AddressTaken"
        assert "Router a" in problem.message
        assert Ref("Logical_Router_Port", "ns/a:red") in made.desired.rows
        assert Ref("Logical_Router_Port", "ns/b:red") not in made.desired.rows


def test_when_the_rival_goes_the_other_gets_the_address() -> None:
    made = planner()
    for name in ("a", "b"):
        made.put(resource(name, {"kind": "Router", "spec": {"networks": [{"network": "red"}]}}))
    made.flush()
    made.remove(Unit("Router", "ns", "a"))
    made.flush()
    assert made.desired.problems == {}
    assert Ref("Logical_Router_Port", "ns/b:red") in made.desired.rows


def test_a_router_is_planned_again_when_what_it_lacked_comes() -> None:
    made = planner("red: null\nred-v4: null")
    made.put(resource("r1", {"kind": "Router", "spec": yaml.safe_load(INNER)}))
    made.flush()
    assert made.desired.problems[Unit("Router", "ns", "r1")][0].reason == "NetworkMissing"
    made.put(resource("red", {"kind": "Network", "spec": {}}))
    made.flush()
    assert made.desired.problems[Unit("Router", "ns", "r1")][0].reason == "SubnetMissing"
    subnet = {"kind": "Subnet", "spec": {"network": "red", "cidr": "10.20.0.0/24"}, "status": {"validated": True}}
    made.put(resource("red-v4", subnet))
    made.flush()
    assert made.desired.problems == {}
    assert Ref("Logical_Router_Port", "ns/r1:red") in made.desired.rows


def test_a_router_with_other_addresses_is_not_planned_again_when_a_neighbour_changes() -> None:
    made = planner()
    for name, ip in (("a", "10.20.0.1/24"), ("b", "10.20.0.2/24")):
        made.put(resource(name, {"kind": "Router", "spec": {"networks": [{"network": "red", "ips": [ip]}]}}))
    made.flush()
    made.put(resource("a", {"kind": "Router", "spec": {"networks": [{"network": "red", "ips": ["10.20.0.3/24"]}]}}))
    assert made.world.drain() == {Unit("Router", "ns", "a")}


# Routes.


def test_static_routes_leave_by_the_foot_that_is_near_the_next_hop() -> None:
    outcome = routed(INNER + "\nroutes: [{to: 10.99.0.0/16, via: 10.20.0.7}, {to: 10.99.0.0/16, via: 10.10.0.7}]")
    assert outcome.problems == []
    found = rows(outcome, "Logical_Router_Static_Route")
    assert found["ns/r1:10.99.0.0/16:10.20.0.7"] == {
        "ip_prefix": "10.99.0.0/16",
        "nexthop": "10.20.0.7",
        "output_port": "ns/r1:red",
        "policy": "dst-ip",
    }
    assert found["ns/r1:10.99.0.0/16:10.10.0.7"]["output_port"] == "ns/r1:blue"
    assert {value.key for _, value in members(outcome, "static_routes")} == found.keys()


def test_a_route_that_is_there_twice_is_one_route() -> None:
    outcome = routed(INNER + "\nroutes: [{to: 10.99.0.0/16, via: 10.20.0.7}, {to: 10.99.0.0/16, via: 10.20.0.7}]")
    assert len(rows(outcome, "Logical_Router_Static_Route")) == 1
    assert len(members(outcome, "static_routes")) == 1


@pytest.mark.parametrize(
    ("route", "reason", "field"),
    [
        ("{to: 10.99.0.0/16, via: 10.77.0.7}", "NextHopFar", "spec.routes[0].via"),
        ("{to: 10.99.0.0/16, via: 10.20.0.254}", "NextHopOwn", "spec.routes[0].via"),
        ("{to: 10.99.0.0/16, via: nowhere}", "Malformed", "spec.routes[0].via"),
        ("{to: everywhere, via: 10.20.0.7}", "Malformed", "spec.routes[0].to"),
        ("{to: 0.0.0.0/0, via: 10.20.0.7}", "RouteTwice", "spec.routes[0].to"),
    ],
)
def test_a_route_that_cannot_be_costs_that_route(route: str, reason: str, field: str) -> None:
    outcome = routed(ROUTER + f"routes: [{route}, {{to: 10.98.0.0/16, via: 10.20.0.7}}]")
    assert reasons(outcome) == [(reason, field)]
    assert rows(outcome, "Logical_Router_Static_Route").keys() == {
        "ns/r1:0.0.0.0/0:192.0.2.1",
        "ns/r1:10.98.0.0/16:10.20.0.7",
    }


def test_a_router_with_no_port_at_all_says_so_of_its_routes() -> None:
    outcome = routed("routes: [{to: 10.99.0.0/16, via: 10.20.0.7}]")
    assert reasons(outcome) == [("NextHopFar", "spec.routes[0].via")]
    assert "(it has none)" in outcome.problems[0].message


# IPv6 advertisements.


def advertised(*changes: str) -> Any:
    return rows(routed(INNER, *changes), "Logical_Router_Port")["ns/r1:blue"]["ipv6_ra_configs"]


def test_ipv6_blocks_are_advertised_without_asking_for_addresses_that_would_be_dropped() -> None:
    assert advertised() == {
        "address_mode": "dhcpv6_stateful",
        "send_periodic": "true",
        "max_interval": "60",
        "min_interval": "20",
    }


def test_a_network_without_ipv6_is_not_advertised() -> None:
    assert rows(routed(INNER), "Logical_Router_Port")["ns/r1:red"]["ipv6_ra_configs"] == {}
    given = routed("networks: [{network: blue, ips: [10.10.0.1/24]}]")
    assert rows(given, "Logical_Router_Port")["ns/r1:blue"]["ipv6_ra_configs"] == {}


def test_advertisements_tell_of_mtu_name_servers_and_domain() -> None:
    told = advertised(
        """
blue: {kind: Network, spec: {mtu: 1400}}
blue-v6:
  kind: Subnet
  spec:
    network: blue
    cidr: "fd00:10::/64"
    dhcp: {enabled: false, dnsServers: [10.10.0.53, "fd00:10::53", "fd00:10::54"], domainName: lab.example}
  status: {validated: true}
"""
    )
    assert (told["mtu"], told["rdnss"], told["dnssl"]) == ("1400", "fd00:10::53", "lab.example")


def test_where_dhcp_is_served_the_mtu_inside_a_tunnel_is_told() -> None:
    served = (
        'blue-v6: {kind: Subnet, spec: {network: blue, cidr: "fd00:10::/64", dhcp: {enabled: true}},'
        " status: {validated: true}}"
    )
    assert advertised(served)["mtu"] == "1442"
    assert "mtu" not in advertised("blue: {kind: Network, spec: {mtu: 1000}}", served)


# Sizes.


def limits(*changes: str) -> dict[str, str | None]:
    ports = rows(routed(ROUTER, *changes), "Logical_Router_Port")
    return {key.rpartition(":")[2]: columns["options"].get("gateway_mtu") for key, columns in ports.items()}


def test_where_networks_differ_in_size_senders_are_told() -> None:
    assert limits() == {"blue": None, "red": None, "outside": None}
    assert limits("blue: {kind: Network, spec: {mtu: 1300}}") == {"blue": "1300", "red": None, "outside": None}
    sizes = """
blue: {kind: Network, spec: {mtu: 1300}}
red: {kind: Network, spec: {mtu: 1400}}
outside: {kind: Network, spec: {mtu: 1400, provider: {physicalNetwork: physnet1}}}
"""
    assert limits(sizes) == {"blue": "1300", "red": None, "outside": None}


def test_names_are_those_that_all_agree_on() -> None:
    outcome = routed(INNER)
    assert names.router("ns", "r1") in rows(outcome, "Logical_Router")
    assert names.router_port("ns", "r1", "blue") in rows(outcome, "Logical_Router_Port")
    assert names.peer_port("ns", "r1", "blue") in rows(outcome, "Logical_Switch_Port")


def test_planning_twice_gives_the_same() -> None:
    made = planner()
    router = resource("r1", {"kind": "Router", "spec": yaml.safe_load(ROUTER)})
    assert isinstance(router, Router)
    assert plan_router(made.world, router) == plan_router(made.world, router)
