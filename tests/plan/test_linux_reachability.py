"""What documents let pass: the same as the objects of the backend `ovn`, and every difference from what is declared."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.model.kinds.sandbox import Sandbox
from netloom.plan.linux.documents import plan_documents
from netloom.plan.linux.placements import observed, placements
from netloom.plan.linux.reachability import verify_documents
from netloom.plan.sandbox.objects import plan_sandbox
from netloom.plan.sandbox.reachability import Kind, cut_pairs, verify
from tests.plan.test_linux import APART, NODES
from tests.plan.test_reachability import topologies
from tests.plan.test_sandbox import SMALL, edited, sandbox

OPEN: dict[str, Any] = edited(networks=[{**one, "accessible_by_user": True} for one in SMALL["networks"]])


def documents(value: Sandbox) -> dict[str, Any]:
    return deepcopy(plan_documents(value, NODES).documents)


def lines(value: Sandbox, found: dict[str, Any]) -> list[str]:
    return [str(one) for one in verify_documents(value, found).differences]


@settings(max_examples=150)
@given(topologies(), st.sampled_from([{"n1": "192.0.2.1"}, NODES, {**NODES, "n3": "192.0.2.3"}]))
def test_any_topology_reaches_the_same_on_both_backends(topology: dict[str, Any], nodes: dict[str, str]) -> None:
    value = sandbox(topology, run=True)
    found = verify_documents(value, plan_documents(value, nodes).documents)
    assert found.differences == ()
    other = verify(value, plan_sandbox(value, frozenset(nodes)).objects)
    # A kernel also answers for an address of another interface, which OVN drops: some more pairs reach that may.
    assert {source: set(row) for source, row in found.matrix.items()} == {
        source: set(row) for source, row in other.matrix.items()
    }
    assert all(found.matrix[source][to] for source, row in other.matrix.items() for to in row if row[to])


def test_a_closed_network_is_reached_by_nobody_through_man() -> None:
    value = sandbox(SMALL, run=True, placement=APART)
    found = verify_documents(value, documents(value))
    assert found.differences == ()
    assert found.matrix["home"] == {"server 10.10.20.5": False}
    assert found.matrix["users"] == {"home 10.10.30.5": True, "server 10.10.20.5": False}


def test_without_its_filter_the_path_of_the_leak_is_shown() -> None:
    value = sandbox(SMALL, run=True, placement=APART)
    wanted = documents(value)
    for one in wanted["n1"]["namespaces"]:
        one["filter"] = None
    path = "home 10.10.30.5 -> router home-router -> man -> router server-router -> server 10.10.20.5"
    assert f"leak: {path}" in lines(value, wanted)


def test_a_leak_that_needs_a_route_of_the_host_itself_is_found() -> None:
    topology = deepcopy(SMALL)
    topology["router_mappings"].append({"router": "server-router", "network": "home-switch", "ip": "10.10.30.9"})
    topology["networks"].append({"name": "far", "cidr": "10.10.40.0/24", "accessible_by_user": False})
    value = sandbox(topology, run=True, placement={"default": "n1"})
    wanted = documents(value)
    assert lines(value, wanted) == []
    declared = edited()
    apart = sandbox(declared, run=True, placement={"default": "n1"})
    found = [one for one in verify_documents(apart, wanted).differences if one.kind is Kind.LEAK]
    assert any(str(one).startswith("leak: home 10.10.30.5 -> router server-router -> server") for one in found)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("macs", [], "100.100.100.1 does not answer to home-router"),
        ("remotes", ["192.0.2.9"], "100.100.100.1 does not answer to home-router"),
        ("vni", 77, "100.100.100.1 does not answer to home-router"),
    ],
)
def test_a_tunnel_that_does_not_fit_is_a_gap(field: str, value: Any, reason: str) -> None:
    one = sandbox(OPEN, run=True, placement=APART)
    wanted = documents(one)
    assert lines(one, wanted) == []
    wanted["n2"]["tunnels"][0][field] = value
    assert any(reason in line for line in lines(one, wanted))


def test_a_route_a_forwarding_or_a_machine_that_is_missing_is_a_gap() -> None:
    one = sandbox(OPEN, run=True, placement=APART)
    for change, reason in (
        (lambda found: found["n2"]["routes"].clear(), "home has no route to 10.10.20.5"),
        (lambda found: [space.update(forward=False) for space in found["n2"]["namespaces"]], "forwards nothing"),
        (lambda found: found.pop("n2"), "home is on no host"),
    ):
        wanted = documents(one)
        change(wanted)
        assert any(reason in line for line in lines(one, wanted)), reason


def test_routes_in_a_circle_end() -> None:
    one = sandbox(OPEN, run=True, placement=APART)
    wanted = documents(one)
    for document in wanted.values():
        for route in document["routes"]:
            if route["namespace"] == "s1-man" and route["to"] == "10.10.20.0/24":
                route["via"] = "100.100.100.3"
    assert any("it goes in a circle" in line for line in lines(one, wanted))


def test_pairs_that_a_fault_has_cut_are_counted_and_are_no_difference() -> None:
    faults = [{"name": "cut", "partition": {"members": ["home"], "from": ["server"]}}]
    one, healthy = (sandbox(OPEN, run=True, placement=APART, faults=some) for some in (faults, []))
    whole, broken = (verify_documents(value, documents(value)) for value in (healthy, one))
    assert next(str(one) for one in broken.differences).endswith("a partition keeps home from 10.10.20.5")
    found = verify_documents(one, documents(one), cut=cut_pairs(whole, broken))
    assert (found.differences, found.cut) == ((), 2)
    down = sandbox(OPEN, run=True, placement=APART, faults=[{"name": "down", "linkDown": {"host": "home"}}])
    assert any("does not answer to home" in line for line in lines(down, documents(down)))


def test_machines_stay_where_documents_or_the_tunnels_of_others_say_they_are() -> None:
    value = sandbox(OPEN, run=True, placement={"hosts": {"server": "n2", "home": "n1", "home-router": "n2"}})
    wanted = documents(value)
    seen = {node: observed(json.dumps(document).encode()) for node, document in wanted.items()}
    free = sandbox(OPEN, run=True)
    every = {node: one for node, one in seen.items() if one is not None}
    assert placements(free, every, NODES) == {
        "server": "n2", "home": "n1", "server-router": "n2", "home-router": "n2", "man": "n2",
    }  # fmt: skip
    # n1 does not answer, and n2 has a tunnel to home.
    assert placements(free, {"n2": every["n2"]}, NODES)["home"] == "n1"


@given(st.binary(max_size=100) | st.sampled_from([b"null", b"{}", b'{"mtu": 1, "members": [{}], "tunnels": []}']))
def test_what_is_not_a_document_places_nothing(data: bytes) -> None:
    assert observed(data) is None
