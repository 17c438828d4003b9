"""Networks as switches, attachments as ports."""

from pathlib import Path
from typing import Any

import pytest

from netloom.plan.node.grants import provider_grants
from netloom.plan.ovn.layer2.switches import port, switch
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from netloom.plan.world.world import Port
from tests.plan.northd import write
from tests.plan.planning import planned, resources
from tests.support.ovn import ovn_central

BLUE = "{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 4096}}"
WEB = Unit("NetworkAttachment", "default", "web")


def subnet(name: str, cidr: str, more: str = "") -> str:
    spec = f"{{network: blue, cidr: '{cidr}'{more}}}"
    return f"{{kind: Subnet, metadata: {{name: {name}}}, spec: {spec}, status: {{validated: true}}}}"


def columns(*specs: str, **of: Any) -> Any:
    """Return the columns of the port of an attachment with such a planner input, planned with these objects."""
    given: dict[str, Any] = {"node": "n1", "network": "blue", "ips": ("10.0.0.9/24",), "mac": "02:00:00:00:00:09"} | of
    planner = planned(*specs)
    planner.put(Port(namespace="default", name="web", **given))
    planner.flush()
    return planner.desired.rows[port("default", "web")].columns


def security(*ips: str, **more: Any) -> list[str]:
    only: str
    (only,) = columns(BLUE, ips=ips, **more)["port_security"]
    mac, *rest = only.split()
    assert mac == "02:00:00:00:00:09"
    return rest


def test_a_network_is_a_switch_with_its_vni_on_the_wire() -> None:
    row = planned(BLUE).desired.rows[switch("default", "blue")]
    assert row.columns == {
        "name": "default/blue",
        "other_config": {"mcast_snoop": "false", "requested-tnl-key": "4096"},
    }


def test_an_attachment_is_a_port_of_its_switch_on_its_node() -> None:
    planner = planned(BLUE, Port("default", "web", "n1", "blue", ("10.0.0.9/24", "fd00::9/64"), "02:00:00:00:00:09"))
    assert planner.desired.members(switch("default", "blue"))["ports"].keys() == {port("default", "web")}
    assert planner.desired.rows[port("default", "web")].columns == {
        "name": "default/web",
        "addresses": frozenset({"02:00:00:00:00:09 10.0.0.9 fd00::9"}),
        "port_security": frozenset({"02:00:00:00:00:09 10.0.0.9/24 fd00::9"}),
        "enabled": True,
        "dhcpv4_options": None,
        "dhcpv6_options": None,
        "options": {"requested-chassis": "n1"},
        "parent_name": None,
        "tag": None,
    }


@pytest.mark.parametrize(
    ("written", "secured"),
    [
        ("10.0.0.9/24", "10.0.0.9/24"),
        ("10.0.0.9/8", "10.0.0.9/8"),
        ("10.0.1.0/16", "10.0.1.0"),
        ("10.0.0.0/24", "10.0.0.0"),
        ("10.0.0.8/29", "10.0.0.8"),
        ("10.0.0.9/29", "10.0.0.9/29"),
        ("10.0.0.4/30", "10.0.0.4"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("10.0.0.5", "10.0.0.5"),
        ("fd00::/64", "fd00::"),
    ],
)
def test_no_address_is_ever_taken_for_its_block(written: str, secured: str) -> None:
    assert security(written) == [secured]


def test_allowed_addresses_are_allowed_besides_its_own() -> None:
    allowed = ("10.0.0.60", "fd00::7", "10.0.0.9", "10.0.0.50")
    assert security("10.0.0.9/24", allowed_addresses=allowed) == ["10.0.0.9/24", "10.0.0.50", "10.0.0.60", "fd00::7"]


def test_dhcp_is_that_of_the_subnet_the_address_is_of() -> None:
    dhcp = ", dhcp: {}"
    subnets = [subnet("a", "10.0.0.0/24", dhcp), subnet("b", "10.0.1.0/24", dhcp), subnet("c", "fd00::/64", dhcp)]
    row = columns(BLUE, *subnets, ips=("10.0.1.9/24", "10.0.0.9/24", "fd00::9/64"))
    assert row["dhcpv4_options"] == Ref("DHCP_Options", "default/b")
    assert row["dhcpv6_options"] == Ref("DHCP_Options", "default/c")
    assert columns(BLUE, *subnets, ips=("10.0.0.9/24",))["dhcpv6_options"] is None
    assert columns(BLUE, subnet("a", "10.0.0.0/24"), ips=("10.0.0.9/24",))["dhcpv4_options"] is None


def test_an_address_outside_the_subnets_is_not_programmed() -> None:
    blocks = (subnet("a", "10.0.0.0/24"), subnet("c", "fd00::/64"))
    row = columns(BLUE, *blocks, ips=("10.0.0.9/24", "192.0.2.1/24", "fd00::9/64", "fd01::9/64"))
    assert row["addresses"] == {"02:00:00:00:00:09 10.0.0.9 fd00::9"}
    assert row["port_security"] == {"02:00:00:00:00:09 10.0.0.9/24 fd00::9"}
    planner = planned(BLUE, *blocks)
    planner.put(Port("default", "web", "n1", "blue", ("192.0.2.1/24",), "02:00:00:00:00:09"))
    planner.flush()
    assert port("default", "web") not in planner.desired.rows


@pytest.mark.parametrize(
    "of",
    [{"ips": ()}, {"mac": ""}, {"network": "red"}, {"network": "far"}],
    ids=["no address", "no MAC", "no Network", "another fabric"],
)
def test_what_cannot_be_planned_yet_is_no_problem(of: dict[str, Any]) -> None:
    planner = planned(BLUE, "{kind: Network, metadata: {name: far}, spec: {fabric: linux}}")
    given = {"node": "n1", "network": "blue", "ips": ("10.0.0.9/24",), "mac": "02:00:00:00:00:09"} | of
    planner.put(Port(namespace="default", name="web", **given))
    planner.flush()
    assert port("default", "web") not in planner.desired.rows
    assert not planner.desired.problems


def test_a_provider_network_has_a_port_to_the_physical_network() -> None:
    text = "{kind: Network, metadata: {name: blue}, spec: {provider: {physicalNetwork: physnet1%s}}}"
    planner = planned(text % ", vlan: 100")
    localnet = Ref("Logical_Switch_Port", "default/blue:localnet")
    assert planner.desired.members(switch("default", "blue"))["ports"].keys() == {localnet}
    assert planner.desired.rows[localnet].columns == {
        "name": "default/blue:localnet",
        "type": "localnet",
        "addresses": frozenset({"unknown"}),
        "options": {"network_name": "physnet1"},
        "tag": 100,
    }
    planner.put(resources(text % "")[0])
    assert planner.flush().rows == {localnet}
    assert planner.desired.rows[localnet].columns["tag"] is None
    planner.put(resources(BLUE)[0])
    planner.flush()
    assert localnet not in planner.desired.rows


def test_an_attachment_where_its_physical_network_is_not_is_told_so() -> None:
    text = (
        "{kind: Network, metadata: {name: blue}, spec: {provider: {physicalNetwork: p, nodes: {matchLabels: {a: b}}}}}"
    )
    node = "{kind: Node, metadata: {name: n1, labels: {a: %s}}, spec: {underlayIP: 172.31.0.1}}"
    planner = planned(text, node % "c")
    planner.put(Port("default", "web", "n1", "blue", ("10.0.0.9/24",), "02:00:00:00:00:09"))
    planner.flush()
    ((reason, message),) = planner.desired.problems[WEB]
    assert (reason, "physical network p" in message) == ("NodeWithoutNetwork", True)
    planner.put(resources(node % "b")[0])
    assert planner.flush().problems == {WEB}
    assert planner.desired.problems == {}
    planner.remove(Unit("Node", "", "n1"))
    planner.flush()
    assert planner.desired.problems == {}


@pytest.mark.ovn
def test_the_vni_and_the_vlan_are_what_ovn_puts_on_the_wire_and_takes_off_again(tmp_path: Path) -> None:
    spec = "{provider: {physicalNetwork: physnet1, vlan: 100}}"
    text = f"{{kind: Network, metadata: {{name: blue}}, spec: {spec}, status: {{vni: 4711}}}}"

    def seen(table: str, column: str, *record: str) -> str:
        return central.sbctl("--bare", f"--columns={column}", "find", table, *record).strip()

    with ovn_central(tmp_path) as central:
        write(central, planned(text).desired)
        assert seen("Datapath_Binding", "tunnel_key") == "4711"
        assert seen("Port_Binding", "tag", "type=localnet") == "100"
        central.nbctl("--wait=sb", "clear", "logical_switch_port", "default/blue:localnet", "tag")
        assert seen("Port_Binding", "tag", "type=localnet") == ""


def test_a_port_that_vxlan_carries_is_told_which_profile_is_missing_and_has_no_rows() -> None:
    planner = planned("{kind: Network, metadata: {name: far}, spec: {fabric: vxlan}, status: {vni: 5}}")
    planner.put(Port("default", "a", "n1", "far", ("10.0.0.1/24",), "02:00:00:00:00:01", 5, {}, ("gone",)))
    planner.flush()
    (problem,) = planner.desired.problems[Unit("NetworkAttachment", "default", "a")]
    assert (problem.reason, "gone" in problem.message) == ("ProfileMissing", True)
    assert not planner.desired.rows


OUTSIDE = """
{kind: Network, metadata: {name: outside}, spec: {provider: {physicalNetwork: p, vlan: 7}}, status: {vni: 9}}
---
{kind: Subnet, metadata: {name: out4}, spec: {network: outside, cidr: 192.0.2.0/24, dhcp: {enabled: true}},
 status: {validated: true}}
---
{kind: NetworkAttachment, metadata: {name: web, labels: {a: b}},
 spec: {node: n1, network: outside, securityProfiles: [fw]},
 status: {ips: [192.0.2.9/24], mac: "02:00:00:00:00:09"}}
---
{kind: LoadBalancer, metadata: {name: lb},
 spec: {networks: [outside], vips: [{ip: 198.51.100.1, port: 80}], endpoints: [{ip: 192.0.2.9, port: 80}]}}
---
{kind: Shaping, metadata: {name: slow}, spec: {from: {network: outside}, rate: 1mbit}}
---
{kind: Router, metadata: {name: r},
 spec: {networks: [{network: blue}], gateway: {network: outside, ips: [192.0.2.2/24]}}}
---
{kind: SecurityProfile, metadata: {name: fw}, spec: {ingress: []}}
---
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 8}}
---
{kind: Subnet, metadata: {name: blue4}, spec: {network: blue, cidr: 10.0.0.0/24}, status: {validated: true}}
---
{apiVersion: netloom.dev/v1alpha1, kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}
"""


def test_nothing_is_planned_of_a_network_whose_namespace_is_not_granted_its_physical_network() -> None:
    granted = Planner(provider_grants(["default=p:7"]).refusal)
    refused = Planner(provider_grants(["other=p", "default=p:8"]).refusal)
    for planner in (granted, refused):
        for resource in resources(OUTSIDE):
            planner.put(resource)
        planner.flush()
    of_it = {ref for ref in granted.desired.rows if "outside" in ref.key or "web" in ref.key or "out4" in ref.key}
    assert len(of_it) >= 8, of_it  # Switch, localnet, port, DHCP, QoS, the router's port and its gateway.
    assert not of_it & refused.desired.rows.keys()
    assert "Logical_Router default/r" in {" ".join(ref) for ref in refused.desired.rows}
    problems = {unit.name: [one.reason for one in some] for unit, some in refused.desired.problems.items()}
    assert problems == {name: ["NotGranted"] for name in ("outside", "web", "lb", "r")}
    (said,) = refused.desired.problems[Unit("Network", "default", "outside")]
    assert "setting providerGrants: default=p:7" in said.message


def test_a_port_that_forwards_is_held_to_its_mac_only() -> None:
    found = columns(BLUE, subnet("v4", "10.0.0.0/24"), forwarding=True, allowed_addresses=("10.0.0.7",))
    assert found["port_security"] == frozenset({"02:00:00:00:00:09"})
    assert found["addresses"] == frozenset({"02:00:00:00:00:09 10.0.0.9"})


def test_a_port_of_a_vxlan_network_cannot_forward() -> None:
    network = "{kind: Network, metadata: {name: blue}, spec: {fabric: vxlan}, status: {vni: 4096}}"
    planner = planned(network)
    planner.put(
        Port(
            namespace="default",
            name="web",
            node="n1",
            network="blue",
            ips=("10.0.0.9/24",),
            mac="02:00:00:00:00:09",
            vni=4096,
            forwarding=True,
        )
    )
    planner.flush()
    [problem] = planner.desired.problems[WEB]
    assert (problem.reason, problem.message.partition(":")[0]) == ("Unsupported", "spec.forwarding")
