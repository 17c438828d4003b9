"""Attachments that are a VLAN of another's port: what is planned of them, in OVN and on the node."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.networks import Network
from netloom.plan.node.grants import EVERYTHING
from netloom.plan.node.ports import Host, PortPlan, plan_ports
from netloom.plan.ovn.layer2.switches import port, switch
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.world.world import Port
from tests.plan.planning import planned, resources

BLUE = "{kind: Network, metadata: {name: blue}, spec: {}}"
GREEN = "{kind: Network, metadata: {name: green}, spec: {}}"
FAR = "{kind: Network, metadata: {name: far}, spec: {fabric: vxlan}}"
VM = Port("default", "vm", "n1", "blue", ("10.0.0.9/24",), "02:00:00:00:00:09", 10)
CHILD = Port("default", "c", "n1", "green", ("10.1.0.9/24",), "02:00:00:00:01:09", 11, parent="vm", vlan=7)


def reasons(planner: Planner, name: str = "c") -> list[str]:
    planner.flush()
    return [one.reason for one in planner.desired.problems.get(Unit("NetworkAttachment", "default", name), ())]


def row(planner: Planner, name: str = "c") -> Any:
    found = planner.desired.rows.get(port("default", name))
    return None if found is None else (found.columns["parent_name"], found.columns["tag"])


def test_a_child_is_a_port_of_its_own_network_with_its_parents_name_and_a_tag() -> None:
    planner = planned(BLUE, GREEN, VM, CHILD)
    assert planner.desired.members(switch("default", "green"))["ports"].keys() == {port("default", "c")}
    columns = planner.desired.rows[port("default", "c")].columns
    assert columns == {
        "name": "default/c",
        "addresses": frozenset({"02:00:00:00:01:09 10.1.0.9"}),
        "port_security": frozenset({"02:00:00:00:01:09 10.1.0.9/24"}),
        "enabled": True,
        "dhcpv4_options": None,
        "dhcpv6_options": None,
        "options": {"requested-chassis": "n1"},
        "parent_name": "default/vm",
        "tag": 7,
    }
    assert row(planner, "vm") == (None, None)


def test_a_child_waits_for_its_parent_and_goes_with_it() -> None:
    planner = planned(BLUE, GREEN, CHILD)
    assert (reasons(planner), row(planner)) == (["ParentMissing"], None)
    planner.put(VM)
    assert (reasons(planner), row(planner)) == ([], ("default/vm", 7))
    planner.remove(Unit("NetworkAttachment", "default", "vm"))
    assert (reasons(planner), row(planner)) == (["ParentMissing"], None)


def test_a_parent_of_another_namespace_is_none() -> None:
    planner = planned(BLUE, GREEN, replace(VM, namespace="other"), CHILD)
    assert reasons(planner) == ["ParentMissing"]


@pytest.mark.parametrize(
    ("vm", "child", "reason"),
    [
        ({"node": "n2"}, {}, "ParentElsewhere"),
        ({"parent": "base", "vlan": 3}, {}, "ParentIsChild"),
        ({}, {"parent": "c"}, "ParentIsChild"),
        ({"network": "far"}, {}, "WrongFabric"),
        ({}, {"network": "far"}, "WrongFabric"),
    ],
    ids=["elsewhere", "grandchild", "its own parent", "the parent's fabric", "its own fabric"],
)
def test_what_cannot_be_is_said_of_the_child_and_heals(vm: dict[str, Any], child: dict[str, Any], reason: str) -> None:
    planner = planned(BLUE, GREEN, FAR, replace(VM, **vm), replace(CHILD, **child))
    assert (reasons(planner), row(planner)) == ([reason], None)
    assert Unit("NetworkAttachment", "default", "vm") not in planner.desired.problems or "parent" in vm
    planner.put(VM)
    planner.put(CHILD)
    assert (reasons(planner), row(planner)) == ([], ("default/vm", 7))


def test_of_two_of_one_vlan_the_first_by_name_has_it_whoever_came_first() -> None:
    others = [
        CHILD,
        replace(CHILD, name="b"),
        replace(CHILD, name="d", network="blue"),
        replace(CHILD, name="e", vlan=8),
    ]
    for some in itertools.permutations([VM, *others]):
        planner = planned(BLUE, GREEN, *some)
        assert [row(planner, name) is not None for name in "bcde"] == [True, False, False, True]
        assert [reasons(planner, name) for name in "bcde"] == [[], ["VlanTaken"], ["VlanTaken"], []]
    planner.remove(Unit("NetworkAttachment", "default", "b"))
    assert (reasons(planner, "c"), reasons(planner, "d")) == ([], ["VlanTaken"])
    planner.put(replace(CHILD, vlan=9))
    assert (reasons(planner, "c"), reasons(planner, "d")) == ([], [])


def test_who_is_on_another_node_than_the_parent_takes_no_vlan() -> None:
    planner = planned(BLUE, GREEN, VM, CHILD, replace(CHILD, name="a", node="n2"))
    assert (reasons(planner, "a"), reasons(planner, "c")) == (["ParentElsewhere"], [])


def test_one_that_becomes_a_port_of_its_own_has_no_parent_and_no_tag_any_more() -> None:
    planner = planned(BLUE, GREEN, VM, CHILD)
    planner.put(replace(CHILD, parent="", vlan=None))
    planner.flush()
    assert row(planner) == (None, None)


def test_a_change_concerns_nobody_but_who_is_the_same_vlan() -> None:
    planner = planned(BLUE, GREEN, VM, *(replace(CHILD, name=f"c{n}", vlan=n) for n in range(1, 30)))
    planner.put(replace(CHILD, name="c7", vlan=8))
    assert planner.flush().rows == {port("default", "c7"), port("default", "c8")}
    assert reasons(planner, "c8") == ["VlanTaken"]


# On the node.

SPECS = """
{kind: Network, metadata: {name: blue}, spec: {}}
---
{kind: Network, metadata: {name: green}, spec: {}}
---
{kind: Network, metadata: {name: far}, spec: {fabric: vxlan}}
---
kind: NetworkAttachment
metadata: {name: vm, uid: uid-vm}
spec: {node: n1, network: blue, port: {type: existing, device: tap0}}
status: {ips: [10.0.0.9/24], mac: "02:00:00:00:00:09", vni: 10, conditions: [{type: Addressed, status: "True"}]}
---
kind: NetworkAttachment
metadata: {name: c, uid: uid-c}
spec:
  node: n1
  network: green
  port: {type: child, parent: vm, vlan: 7}
  defaultRoute: true
  postCreateExec: [/bin/x, "${ifname}", "${mac}"]
status: {ips: [10.1.0.9/24], mac: "02:00:00:00:01:09", vni: 11, conditions: [{type: Addressed, status: "True"}]}
"""


def on_node(text: str) -> Any:
    return plan_ports(resources(text), Host(grants=EVERYTHING))["default", "c"]


def test_on_the_node_nothing_is_made_and_the_parents_device_is_its_own() -> None:
    plan = on_node(SPECS)
    assert isinstance(plan, PortPlan)
    assert (plan.type, plan.device, plan.netns) == (PortType.CHILD, "tap0", "")
    assert (plan.addresses, plan.routes, plan.four_only) == ((), (), False)
    assert (plan.parent, plan.parent_uid, plan.vlan) == ("vm", "uid-vm", 7)
    assert plan.runs.create == ("/bin/x", "tap0", "02:00:00:00:01:09")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("{name: vm,", "{name: other,", "ParentMissing"),
        ("{node: n1, network: blue,", "{node: n2, network: blue,", "ParentMissing"),
        ("uid: uid-vm}", "uid: uid-vm, deletionTimestamp: '2026-11-15T12:00:00Z'}", "ParentMissing"),
        ("{type: existing, device: tap0}", "{type: child, parent: base, vlan: 7}", "ParentIsChild"),
        ("network: blue,", "network: far,", "WrongFabric"),
        ("network: green", "network: far", "WrongFabric"),
        ("{type: existing, device: tap0}", "{type: internal, name: br-int}", "ParentNotPlugged"),
    ],
)
def test_on_the_node_it_is_said_what_stands_in_the_way(old: str, new: str, reason: str) -> None:
    assert old in SPECS
    plan = on_node(SPECS.replace(old, new))
    assert isinstance(plan, Problem)
    assert (plan.reason, plan.message[:5]) == (reason, "spec.")


@pytest.mark.parametrize(
    "status", ['ips: [10.0.0.9/24], mac: "02:00:00:00:00:09"', 'ips: [10.1.0.9/24], mac: "02:00:00:00:01:09"']
)
def test_on_the_node_it_waits_for_addresses_its_own_and_its_parents(status: str) -> None:
    assert on_node(SPECS.replace(status, "ips: []")) is None


NAMES = ("a", "b", "c")
ADDRESSED = '{type: Addressed, status: "True"}'


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.sampled_from(["n1", "n2"]), st.sampled_from(["blue", "far"]),
            st.sampled_from(["", *NAMES]), st.sampled_from([7, 8]),
        ),
        unique_by=lambda one: one[0],
    )
)  # fmt: skip
def test_the_node_and_ovn_agree_on_who_is_a_child_of_whom(some: list[tuple[str, str, str, str, int]]) -> None:
    world = [*resources(BLUE), *resources(FAR)]
    for number, (name, node, network, parent, vlan) in enumerate(some, 10):
        kind = f"port: {{type: child, parent: {parent}, vlan: {vlan}}}" if parent else "port: {}"
        world += resources(f"""
kind: NetworkAttachment
metadata: {{name: {name}, uid: uid-{name}}}
spec: {{node: {node}, network: {network}, {kind}}}
status: {{ips: [10.0.0.{number}/24], mac: "02:00:00:00:00:{number}", vni: 9, conditions: [{ADDRESSED}]}}
""")
    planner = planned(*world)
    there = plan_ports(world, Host(grants=EVERYTHING))
    for one in world:
        if isinstance(one, Network):
            continue
        assert isinstance(one, NetworkAttachment)
        name = one.metadata.name
        if one.spec.port.parent:
            is_there = isinstance(there["default", name], PortPlan)
            assert is_there is (port("default", name) in planner.desired.rows)
            assert is_there is (not reasons(planner, name))
