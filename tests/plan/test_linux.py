"""The documents of the backend `linux`: what the program takes, the same for any order, and complete between hosts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.linux import applier
from netloom.model.document import Document
from netloom.plan.linux.documents import LinuxPlan, plan_documents
from netloom.plan.linux.names import devices, macs, owner, vnis
from tests.plan.test_sandbox import FORWARDING, SMALL, SPECS, TOPOLOGIES, edited, sandbox

NODES = {"n1": "192.0.2.1", "n2": "192.0.2.2"}
APART = {"hosts": {"server": "n1", "home": "n2"}}


def planned(topology: dict[str, Any], nodes: dict[str, str] | None = None, **spec: Any) -> LinuxPlan:
    return plan_documents(sandbox(topology, **{"run": True, **spec}), NODES if nodes is None else nodes)


def named(document: Document, kind: str, key: str = "name") -> dict[str, Document]:
    return {one[key]: one for one in document[kind]}


def routes(document: Document, space: str) -> list[tuple[str, str]]:
    return [(one["to"], one["via"]) for one in document["routes"] if one["namespace"] == space]


def test_each_host_has_the_bridges_of_its_machines_and_tunnels_to_the_others() -> None:
    plan = planned(SMALL, placement=APART)
    assert plan.problems == ()
    assert plan.owner == "ns1.s1"
    one, two = plan.documents["n1"], plan.documents["n2"]
    assert set(named(one, "bridges")) == {"b-server-switch", "b-wan"}
    assert set(named(two, "bridges")) == {"b-home-switch", "b-wan"}
    # home-router is near home, and man near most routers: of two equal ones, on the first host.
    assert set(named(one, "namespaces")) == {
        "s1-n1-fabric",
        "s1-server",
        "s1-server-router",
        "s1-man",
        "s1-server-switch-dhcp",
    }
    assert list(named(one, "tunnels")) == list(named(two, "tunnels")) == ["x-wan"]
    tunnels = [document["tunnels"][0] for document in (one, two)]
    assert tunnels[0]["vni"] == tunnels[1]["vni"]
    assert (tunnels[0]["remotes"], tunnels[1]["remotes"]) == (["192.0.2.2"], ["192.0.2.1"])
    assert (one["local"], two["local"], one["mtu"]) == ("192.0.2.1", "192.0.2.2", 1450)


def test_hops_are_those_of_the_other_backend() -> None:
    plan = planned(SMALL, placement=APART)
    one, two = plan.documents["n1"], plan.documents["n2"]
    assert routes(two, "s1-home") == [("0.0.0.0/0", "10.10.30.1")]
    assert routes(two, "s1-home-router") == [("0.0.0.0/0", "100.100.100.1")]
    assert routes(one, "s1-man") == [("10.10.20.0/24", "100.100.100.2"), ("10.10.30.0/24", "100.100.100.3")]
    forwarding = [
        name for document in (one, two) for name, space in named(document, "namespaces").items() if space["forward"]
    ]
    assert sorted(forwarding) == ["s1-home-router", "s1-man", "s1-server-router"]


def test_dhcp_serves_each_host_its_address_from_the_last_free_one() -> None:
    document = planned(SMALL, placement=APART).documents["n2"]
    (server,) = document["dhcp"]
    members = named(document, "members", "namespace")
    assert server["namespace"] == "s1-home-switch-dhcp"
    assert members["s1-home-switch-dhcp"]["addresses"] == ["10.10.30.254/24"]
    assert (server["router"], server["leases"]) == ("10.10.30.1", [[members["s1-home"]["mac"], "10.10.30.5"]])


def test_a_full_network_has_no_dhcp() -> None:
    hosts = [{"name": f"h{n}"} for n in range(1, 7)]
    links = [{"host": f"h{n}", "network": "lan", "ip": f"10.0.0.{n}"} for n in range(1, 7)]
    plan = planned(
        {"name": "t", "hosts": hosts, "networks": [{"name": "lan", "cidr": "10.0.0.0/29"}], "net_mappings": links}
    )
    assert plan.problems == ()
    assert [document["dhcp"] for document in plan.documents.values()] == [[], []]


def test_filters_are_in_routers_and_closed_networks_at_man() -> None:
    topology = edited(hosts=[{"name": "server"}, {"name": "home", "block_internet": True}])
    plan = planned(topology, placement=APART)
    one, two = (named(plan.documents[node], "namespaces") for node in ("n1", "n2"))
    inside = ["10.10.20.0/24", "10.10.30.0/24", "100.100.100.0/24"]
    closed = "10.10.20.0/24"
    assert one["s1-man"]["filter"] == {
        "closed": [closed], "leaving": [[closed, [closed]]], "blocked": ["10.10.30.5"], "inside": inside,
    }  # fmt: skip
    assert two["s1-home-router"]["filter"] == {
        "closed": [], "leaving": [], "blocked": ["10.10.30.5"], "inside": inside,
    }  # fmt: skip
    assert two["s1-home"]["filter"] is None


def test_links_of_hosts_and_routers_are_shaped() -> None:
    links = [
        {"host": "home", "network": "home-switch", "rate": "10mbit", "delay": "20ms", "loss": "0.5%"},
        {"host": "home-router", "network": "wan", "rate": "1mbit", "burst": "64kb"},
        {"host": "home", "network": "nowhere", "rate": "1mbit"},
    ]
    plan = planned(SMALL, links=links, placement={"default": "n1"})
    shapes = {one["name"]: one["shape"] for one in plan.documents["n1"]["members"] if one["shape"]}
    assert sorted(shapes.values(), key=lambda one: -one["rate"]) == [
        {"rate": 10_000_000, "burst": 25000, "delay": 20000, "jitter": 0, "loss": 0.5},
        {"rate": 1_000_000, "burst": 65536, "delay": 0, "jitter": 0, "loss": 0.0},
    ]
    assert [one.reason for one in plan.problems] == ["LinkUnsupported"]


def test_delay_by_a_process_of_agents_is_a_problem_and_the_rate_is_applied() -> None:
    link = {"host": "home", "network": "home-switch", "rate": "10mbit", "delay": "20ms", "impairment": "userspace"}
    plan = planned(SMALL, links=[link], placement={"default": "n1"})
    assert [one.reason for one in plan.problems] == ["LinkUnsupported"]
    assert "the backend linux has no impairment userspace" in plan.problems[0].message
    (shape,) = [one["shape"] for one in plan.documents["n1"]["members"] if one["shape"]]
    assert (shape["rate"], shape["delay"]) == (10_000_000, 0)
    assert planned(SMALL, links=[{**link, "impairment": "auto"}], placement={"default": "n1"}).problems == ()


@pytest.mark.parametrize(("outer", "inner"), [(1500, 1450), (9000, 8950), (1400, 1350)])
def test_the_mtu_is_what_vxlan_leaves_of_that_between_the_hosts(outer: int, inner: int) -> None:
    plan = plan_documents(sandbox(SMALL, run=True), NODES, mtu=outer)
    assert plan.problems == ()
    assert {one["mtu"] for one in plan.documents.values()} == {inner}


def test_an_mtu_that_leaves_too_little_is_a_problem() -> None:
    assert plan_documents(sandbox(SMALL, run=True), NODES, mtu=1300).problems == ()
    six = edited(networks=[*SMALL["networks"], {"name": "six", "cidr": "fd00:5::/64"}])
    (problem,) = plan_documents(sandbox(six, run=True), NODES, mtu=1300).problems
    assert problem.message.startswith("the MTU between the hosts is 1300, and VXLAN leaves 1250 of it")


def test_a_way_out_is_a_problem() -> None:
    plan = planned(SMALL, placement=APART, gateway={"network": "out", "ips": ["198.51.100.9/24"]})
    assert [one.reason for one in plan.problems] == ["GatewayUnsupported"]


def test_a_link_has_the_mac_that_is_given_on_all_hosts() -> None:
    mac = {"host": "home", "network": "home-switch", "mac": "02:00:00:AA:BB:01"}
    stray = {"host": "home", "network": "nowhere", "mac": "02:00:00:aa:bb:09"}
    topology = edited(
        net_mappings=[*SMALL["net_mappings"], {"host": "server", "network": "home-switch", "ip": "10.10.30.6"}]
    )
    plan = planned(topology, placement=APART, macs=[mac, stray])
    assert plan.problems == ()
    (member,) = [one for one in plan.documents["n2"]["members"] if one["namespace"] == "s1-home"]
    assert member["mac"] == "02:00:00:aa:bb:01"
    behind = [pair for one in plan.documents["n1"]["tunnels"] for pair in one["macs"]]
    assert ["02:00:00:aa:bb:01", "192.0.2.2"] in behind
    leases = [lease for doc in plan.documents.values() for one in doc["dhcp"] for lease in one["leases"]]
    assert [member["mac"], "10.10.30.5"] in leases


def test_a_mac_that_is_given_twice_is_a_problem_and_the_second_link_has_one_of_its_own() -> None:
    taken = [
        {"host": "home", "network": "home-switch", "mac": "02:00:00:aa:bb:01"},
        {"host": "server", "network": "server-switch", "mac": "02:00:00:aa:bb:01"},
    ]
    plan = planned(SMALL, placement=APART, macs=taken)
    assert [one.reason for one in plan.problems] == ["MACTaken"]
    check(plan, NODES)


def test_a_link_that_a_fault_has_cut_is_down() -> None:
    faults = [
        {"name": "one", "linkDown": {"host": "home"}},
        {"name": "two", "linkDown": {"host": "server-router", "network": "wan"}},
        {"name": "three", "linkDown": {"host": "nobody"}},
    ]
    plan = planned(SMALL, placement=APART, faults=faults)
    down = [
        (one["namespace"], one["bridge"]) for doc in plan.documents.values() for one in doc["members"] if one["down"]
    ]
    assert sorted(down) == [("s1-home", "b-home-switch"), ("s1-server-router", "b-wan")]
    assert [one.reason for one in plan.problems] == ["FaultInvalid"]


def test_both_sides_of_a_partition_drop_what_is_for_the_other() -> None:
    faults = [{"name": "cut", "partition": {"members": ["home"], "from": ["server"]}}]
    plan = planned(SMALL, placement=APART, faults=faults)
    assert plan.problems == ()
    ports = {one["namespace"]: one["name"] for doc in plan.documents.values() for one in doc["members"]}
    assert plan.documents["n1"]["partitions"] == [{"port": ports["s1-server"], "closed": ["10.10.30.5"]}]
    assert plan.documents["n2"]["partitions"] == [{"port": ports["s1-home"], "closed": ["10.10.20.5"]}]


def test_copies_of_frames_go_to_the_destination_on_this_host_or_another() -> None:
    together = planned(edited(network_forwarding=FORWARDING), placement={"default": "n1"})
    assert together.problems == ()
    ports = {one["namespace"]: one["name"] for one in together.documents["n1"]["members"]}
    copy = {"source": ports["s1-server"], "received": False, "sent": True, "target": ports["s1-home"]}
    assert together.documents["n1"]["copies"] == [copy]
    apart = planned(edited(network_forwarding=FORWARDING), placement=APART).documents
    assert apart["n1"]["copies"] == [{**copy, "target": "c-n1"}]
    assert apart["n2"]["copies"] == [{"source": "c-n1", "received": True, "sent": False, "target": ports["s1-home"]}]
    tunnels = [named(document, "tunnels")["c-n1"] for document in apart.values()]
    assert [one["remotes"] for one in tunnels] == [["192.0.2.2"], ["192.0.2.1"]]
    assert tunnels[0]["vni"] == tunnels[1]["vni"]


def test_copies_of_a_link_that_does_not_exist_are_a_problem() -> None:
    for field, wrong in (
        ("destination", {"host": "home", "network": "wan"}),
        ("sources", [{"host": "x", "network": "wan"}]),
    ):
        plan = planned(edited(network_forwarding={**FORWARDING, field: wrong}))
        assert [one.reason for one in plan.problems] == ["TopologyInvalid"]
        assert f"network_forwarding.{field}: " in plan.problems[0].message
        assert all(document["copies"] == [] for document in plan.documents.values())


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"n1": "192.0.2.1", "n2": "nonsense"}, "host n2: 'nonsense' is not an address: give it another address"),
        (
            {"n1": "192.0.2.1", "n2": "192.0.2.1"},
            "host n2: another host has the address 192.0.2.1 as well: give it another address",
        ),
        (
            {"n1": "192.0.2.1", "n2": "2001:db8::1"},
            "host n2: 2001:db8::1 is of another version of IP than the addresses of other hosts: "
            "give it another address",
        ),
    ],
)
def test_a_host_that_cannot_be_used_is_named_and_gets_nothing(nodes: dict[str, str], message: str) -> None:
    plan = planned(SMALL, nodes)
    assert [one.message for one in plan.problems] == [message]
    assert set(plan.documents) == {"n1"}


def test_without_run_namespaces_of_hosts_are_not_created() -> None:
    spaces = named(planned(SMALL, run=False, placement={"default": "n1"}).documents["n1"], "namespaces")
    assert not spaces["s1-home"]["create"]
    assert spaces["s1-home-router"]["create"]


def test_copies_of_a_sandbox_differ_in_all_that_they_could_share() -> None:
    first, second = (
        plan_documents(sandbox(SMALL, name=name, placement=APART), NODES).documents["n1"] for name in ("s1", "s2")
    )
    assert {one["vni"] for one in first["tunnels"]}.isdisjoint(one["vni"] for one in second["tunnels"])
    assert set(named(first, "namespaces")).isdisjoint(named(second, "namespaces"))
    taken = [one["vni"] for one in first["tunnels"]]
    avoiding = plan_documents(sandbox(SMALL, placement=APART), NODES, avoid=taken).documents["n1"]
    assert taken[0] not in [one["vni"] for one in avoiding["tunnels"]]


def check(plan: LinuxPlan, nodes: dict[str, str]) -> None:
    """Check that documents are valid, and agree with each other about who is where."""
    where = {ip: name for name, ip in nodes.items()}
    members: dict[str, dict[str, set[str]]] = {}
    for node, document in plan.documents.items():
        assert applier.parse(json.dumps(document).encode()) == document
        for one in document["members"]:
            members.setdefault(one["bridge"], {}).setdefault(node, set()).add(one["mac"])
    every = [mac for by_node in members.values() for found in by_node.values() for mac in found]
    assert len(set(every)) == len(every)
    for node, document in plan.documents.items():
        tunnels = named(document, "tunnels", "bridge")
        for bridge in named(document, "bridges"):
            others = {other: found for other, found in members.get(bridge, {}).items() if other != node}
            assert (bridge in tunnels) == bool(others)
            if others:
                remotes: dict[str, set[str]] = {}
                for mac, ip in tunnels[bridge]["macs"]:
                    remotes.setdefault(where[ip], set()).add(mac)
                assert remotes == others
                assert {where[ip] for ip in tunnels[bridge]["remotes"]} == set(others)


@given(TOPOLOGIES, SPECS, st.sampled_from([{}, {"n1": "192.0.2.1"}, NODES, {**NODES, "n3": "192.0.2.3"}]))
def test_any_topology_is_planned_and_the_program_takes_its_documents(
    topology: dict[str, Any], spec: dict[str, Any], nodes: dict[str, str]
) -> None:
    check(planned(topology, nodes, **spec), nodes)


@given(TOPOLOGIES, SPECS, st.randoms(use_true_random=False))
def test_the_order_of_lists_does_not_matter(topology: dict[str, Any], spec: dict[str, Any], random: Any) -> None:
    mixed = dict(topology)
    for field in ("hosts", "networks", "router_mappings", "groups"):
        mixed[field] = random.sample(topology[field], len(topology[field]))
    nodes = dict(reversed(NODES.items()))
    assert planned(topology, **spec) == planned(mixed, nodes, **{**spec, "links": spec.get("links", [])[::-1]})


WORDS = st.lists(st.lists(st.text("ab-. Z_é", min_size=1, max_size=20), min_size=1, max_size=4).map(tuple), max_size=30)


@given(WORDS)
def test_names_of_devices_fit_and_differ(keys: list[tuple[str, ...]]) -> None:
    found = devices("m-", keys)
    assert set(found) == set(keys)
    assert len(set(found.values())) == len(found)
    assert all(len(name) <= 15 and name.isascii() and " " not in name for name in found.values())
    assert found == devices("m-", reversed(keys))
    assert len(set(macs("s", keys).values())) == len(found)


@given(st.sets(st.text(min_size=1, max_size=5)), st.integers(0, 5))
def test_vnis_avoid_those_of_others(networks: set[str], some: int) -> None:
    taken = list(vnis("s", networks, ()).values())[:some]
    found = vnis("s", networks, taken)
    assert set(found.values()).isdisjoint(taken)
    assert len(set(found.values())) == len(networks)
    assert all(1 <= number < 2**24 for number in found.values())


def test_a_long_owner_is_shortened_and_stays_its_own() -> None:
    first, second = (owner("default", "a" * 250 + end) for end in "bc")
    assert first != second
    assert len(first) == len(second) == 120
