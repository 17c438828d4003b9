"""The way out: which node serves it, by which address, and what it costs when a part is wrong."""

import pytest
import yaml

from netloom.model.kinds.networks import Router
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.problem import Unit
from netloom.plan.rows import Outcome, Ref
from tests.plan.routers import ROUTER, members, planner, reasons, resource, routed, rows


def gateway(changed: str, *changes: str) -> Outcome:
    spec = yaml.safe_load(ROUTER)
    spec["gateway"] |= yaml.safe_load(changed)
    return routed(yaml.safe_dump(spec), *changes)


def ranks(outcome: Outcome) -> dict[str, int]:
    return {one["chassis_name"]: one["priority"] for one in rows(outcome, "HA_Chassis").values()}


def test_a_gateway_is_a_port_outside_that_a_group_of_nodes_serves() -> None:
    outcome = routed()
    assert outcome.problems == []
    port = rows(outcome, "Logical_Router_Port")["ns/r1:outside"]
    assert port["networks"] == {"192.0.2.10/24", "2001:db8:ff::10/64"}
    assert port["ha_chassis_group"] == Ref("HA_Chassis_Group", "ns/r1:outside")
    assert rows(outcome, "HA_Chassis_Group")["ns/r1:outside"] == {
        "name": "ns/r1:outside",
        "ha_chassis": frozenset({Ref("HA_Chassis", "ns/r1:outside:n1"), Ref("HA_Chassis", "ns/r1:outside:n2")}),
    }
    assert ranks(outcome) == {"n1": 100, "n2": 99}
    assert (Ref("Logical_Switch", "ns/outside"), Ref("Logical_Switch_Port", "ns/r1:outside:plug")) in members(
        outcome, "ports"
    )


def test_neighbours_are_told_of_all_addresses_when_the_gateway_moves() -> None:
    plug = rows(routed(), "Logical_Switch_Port")["ns/r1:outside:plug"]
    assert plug["options"] == {"router-port": "ns/r1:outside", "nat-addresses": "router"}


def test_everything_else_goes_to_the_next_hop() -> None:
    route = rows(routed(), "Logical_Router_Static_Route")["ns/r1:0.0.0.0/0:192.0.2.1"]
    assert (route["nexthop"], route["output_port"]) == ("192.0.2.1", "ns/r1:outside")
    six = gateway("nextHop: '2001:db8:ff::1'")
    assert "ns/r1:::/0:2001:db8:ff::1" in rows(six, "Logical_Router_Static_Route")


def test_the_other_family_goes_out_by_a_route_of_its_own() -> None:
    outcome = routed(ROUTER + "routes: [{to: '::/0', via: '2001:db8:ff::1'}]")
    assert outcome.problems == []
    assert rows(outcome, "Logical_Router_Static_Route")["ns/r1:::/0:2001:db8:ff::1"]["output_port"] == "ns/r1:outside"


def test_the_next_hop_written_as_a_route_too_is_one_route() -> None:
    outcome = routed(ROUTER + "routes: [{to: 0.0.0.0/0, via: 192.0.2.1}]")
    assert outcome.problems == []
    assert len(rows(outcome, "Logical_Router_Static_Route")) == 1


def test_a_gateway_without_a_next_hop_has_no_default_route() -> None:
    spec = yaml.safe_load(ROUTER)
    del spec["gateway"]["nextHop"]
    outcome = routed(yaml.safe_dump(spec))
    assert outcome.problems == []
    assert rows(outcome, "Logical_Router_Static_Route") == {}


@pytest.mark.parametrize(
    ("changed", "change", "reason", "field"),
    [
        ("network: gone", "", "NetworkMissing", "spec.gateway.network"),
        ("network: outside", "outside: {kind: Network, spec: {}}", "NotProvider", "spec.gateway.network"),
        ("network: outside", "outside: {kind: Network, spec: {fabric: linux}}", "WrongFabric", "spec.gateway.network"),
        ("ips: [10.10.0.77/24]", "", "Overlap", "spec.gateway.ips[0]"),
        ("ips: [192.0.2.0/24]", "", "NotAHost", "spec.gateway.ips[0]"),
        (
            "ips: [192.0.2.10/24]",
            "o: {kind: Subnet, spec: {network: outside, cidr: 198.51.100.0/24}, status: {validated: true}}",
            "AddressOutside",
            "spec.gateway.ips[0]",
        ),
        ("nodes: [gone]", "", "NodeMissing", "spec.gateway.nodes[0]"),
        ("nodes: [n3]", "", "NodeUnfit", "spec.gateway.nodes[0]"),
        ("nodes: []", "n1: null\nn2: null", "NoGatewayNode", "spec.gateway"),
    ],
)
def test_a_gateway_that_cannot_be_costs_the_way_out_only(changed: str, change: str, reason: str, field: str) -> None:
    outcome = gateway(changed, change or "{}")
    assert reasons(outcome)[0] == (reason, field)
    assert rows(outcome, "Logical_Router_Port").keys() == {"ns/r1:blue", "ns/r1:red"}
    for table in ("HA_Chassis_Group", "HA_Chassis", "NAT", "Logical_Router_Static_Route"):
        assert rows(outcome, table) == {}


def test_one_bad_address_of_several_costs_that_address() -> None:
    outcome = gateway("ips: [192.0.2.255/24, 192.0.2.11/24]")
    assert reasons(outcome) == [("NotAHost", "spec.gateway.ips[0]")]
    assert rows(outcome, "Logical_Router_Port")["ns/r1:outside"]["networks"] == {"192.0.2.11/24"}


def test_a_gateway_may_have_the_length_of_the_wire_where_the_subnet_is_a_part_of_it() -> None:
    part = "o: {kind: Subnet, spec: {network: outside, cidr: 192.0.2.0/28}, status: {validated: true}}"
    assert gateway("ips: [192.0.2.10/24]", part).problems == []


@pytest.mark.parametrize(
    ("hop", "reason"), [("192.0.3.1", "NextHopFar"), ("192.0.2.10", "NextHopOwn"), ("somewhere", "Malformed")]
)
def test_a_bad_next_hop_costs_the_default_route(hop: str, reason: str) -> None:
    outcome = gateway(f"nextHop: {hop}")
    assert reasons(outcome) == [(reason, "spec.gateway.nextHop")]
    assert "ns/r1:outside" in rows(outcome, "Logical_Router_Port")
    assert rows(outcome, "Logical_Router_Static_Route") == {}


def test_a_missing_node_costs_that_node_and_the_others_keep_their_rank() -> None:
    outcome = gateway("nodes: [gone, n1, n3, n2]")
    assert reasons(outcome) == [("NodeMissing", "spec.gateway.nodes[0]"), ("NodeUnfit", "spec.gateway.nodes[2]")]
    assert ranks(outcome) == {"n1": 99, "n2": 97}


def test_where_no_nodes_are_named_those_with_the_physical_network_serve() -> None:
    outcome = gateway("nodes: []")
    assert outcome.problems == []
    assert ranks(outcome).keys() == {"n1", "n2"}
    everywhere = "outside: {kind: Network, spec: {provider: {physicalNetwork: physnet1}}}"
    assert ranks(gateway("nodes: []", everywhere)).keys() == {"n1", "n2", "n3"}


def test_gateways_that_name_no_nodes_spread_and_are_served_by_five_at_most() -> None:
    nodes = "\n".join(f"n{i}: {{kind: Node, spec: {{underlayIP: 172.31.0.{i}}}}}" for i in range(1, 10))
    everywhere = "outside: {kind: Network, spec: {provider: {physicalNetwork: physnet1}}}"
    first = set()
    for name in ("r1", "r2", "r3", "r4", "r5", "r6"):
        spec = "gateway: {network: outside, ips: [192.0.2.10/24]}"
        found = ranks(routed(spec, nodes, everywhere, name=name))
        assert sorted(found.values()) == [96, 97, 98, 99, 100]
        first |= {node for node, rank in found.items() if rank == 100}
    assert len(first) > 2


def test_a_node_that_comes_joins_the_group() -> None:
    made = planner("n2: null")
    made.put(resource("r1", {"kind": "Router", "spec": yaml.safe_load(ROUTER)}))
    made.flush()
    assert made.desired.problems[Unit("Router", "ns", "r1")][0].reason == "NodeMissing"
    made.put(resource("n2", {"kind": "Node", "metadata": {"labels": {"rack": "a"}}, "spec": {"underlayIP": "1.1.1.1"}}))
    delta = made.flush()
    assert made.desired.problems == {}
    assert delta.rows == {Ref("HA_Chassis_Group", "ns/r1:outside"), Ref("HA_Chassis", "ns/r1:outside:n2")}


DMZ = """
dmz: {kind: Network, spec: {provider: {physicalNetwork: physnet1, vlan: 7, nodes: {matchLabels: {rack: RACK}}}}}
dmz-v4: {kind: Subnet, spec: {network: dmz, cidr: 10.30.0.0/24}, status: {validated: true}}
"""


def served(outcome: Outcome, network: str) -> dict[str, int]:
    group = rows(outcome, "HA_Chassis_Group")[f"ns/r1:{network}"]
    found = rows(outcome, "HA_Chassis")
    return {found[ref.key]["chassis_name"]: found[ref.key]["priority"] for ref in group["ha_chassis"]}


def test_a_foot_in_a_physical_network_is_served_where_the_gateway_is() -> None:
    spec = yaml.safe_load(ROUTER)
    spec["networks"].append({"network": "dmz"})
    spec["gateway"]["nodes"] = ["gone", "n2", "n1"]
    outcome = routed(yaml.safe_dump(spec), DMZ.replace("RACK", "a"))
    assert reasons(outcome) == [("NodeMissing", "spec.gateway.nodes[0]")]
    ports = rows(outcome, "Logical_Router_Port")
    assert ports["ns/r1:dmz"]["ha_chassis_group"] == Ref("HA_Chassis_Group", "ns/r1:dmz")
    assert ports["ns/r1:blue"]["ha_chassis_group"] is None
    assert served(outcome, "dmz") == served(outcome, "outside") == {"n2": 99, "n1": 98}
    plugs = rows(outcome, "Logical_Switch_Port")
    assert plugs["ns/r1:dmz:plug"]["options"] == {"router-port": "ns/r1:dmz", "nat-addresses": "router"}


def test_where_no_gateway_node_has_its_physical_network_those_that_have_serve_a_port() -> None:
    spec = yaml.safe_load(ROUTER)
    spec["networks"].append({"network": "dmz"})
    outcome = routed(yaml.safe_dump(spec), DMZ.replace("RACK", "b"))
    assert outcome.problems == []
    assert served(outcome, "dmz") == {"n3": 100}
    assert served(routed("networks: [{network: dmz}]", DMZ.replace("RACK", "a")), "dmz").keys() == {"n1", "n2"}


def test_where_no_node_has_its_physical_network_a_foot_is_not_planned() -> None:
    outcome = routed("networks: [{network: blue}, {network: dmz}]", DMZ.replace("RACK", "c"))
    assert reasons(outcome) == [("NoGatewayNode", "spec.networks[1]")]
    assert rows(outcome, "Logical_Router_Port").keys() == {"ns/r1:blue"}


def test_two_routers_with_one_address_outside_the_smaller_name_has_it() -> None:
    rival = "a: {kind: Router, spec: {gateway: {network: outside, ips: [192.0.2.10/24, 'fd00::7/64'], nodes: [n1]}}}"
    outcome = routed(ROUTER, rival)
    assert reasons(outcome) == [
        ("AddressTaken", "spec.gateway.ips[0]"),
        ("NextHopFar", "spec.gateway.nextHop"),
    ]
    assert rows(outcome, "Logical_Router_Port")["ns/r1:outside"]["networks"] == {"2001:db8:ff::10/64"}


def test_the_redirect_port_tells_where_the_gateway_is() -> None:
    router = resource("r1", {"kind": "Router", "spec": yaml.safe_load(ROUTER)})
    assert isinstance(router, Router)
    assert redirect_port(router) == "cr-ns/r1:outside"
    inner = resource("r2", {"kind": "Router", "spec": {}})
    assert isinstance(inner, Router)
    assert redirect_port(inner) == ""
