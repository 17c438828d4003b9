"""Ways over networks that only routers are in."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from netloom.model.kinds.networks import Router
from netloom.plan.linux.documents import plan_documents
from netloom.plan.sandbox.reachability import verify
from netloom.plan.sandbox.transit import next_hops
from tests.plan.test_sandbox import of, planned, sandbox

CHAIN: dict[str, Any] = {
    "name": "chain",
    "hosts": [{"name": "a"}, {"name": "b"}],
    "routers": [{"name": name} for name in ("left", "middle", "right")],
    "networks": [
        {"name": "near", "cidr": "10.0.1.0/24", "accessible_by_user": False},
        {"name": "far", "cidr": "10.0.2.0/24", "accessible_by_user": False},
        {"name": "one", "cidr": "10.9.0.0/30"},
        {"name": "two", "cidr": "10.9.0.4/30"},
        {"name": "six", "cidr": "fd00:9::/64"},
    ],
    "net_mappings": [
        {"host": "a", "network": "near", "ip": "10.0.1.5"},
        {"host": "b", "network": "far", "ip": "10.0.2.5"},
    ],
    "router_mappings": [
        {"router": "left", "network": "near", "ip": "10.0.1.1"},
        {"router": "left", "network": "one", "ip": "10.9.0.1"},
        {"router": "middle", "network": "one", "ip": "10.9.0.2"},
        {"router": "middle", "network": "two", "ip": "10.9.0.5"},
        {"router": "right", "network": "two", "ip": "10.9.0.6"},
        {"router": "right", "network": "far", "ip": "10.0.2.1"},
        # It is shorter, but of another address family.
        {"router": "left", "network": "six", "ip": "fd00:9::1"},
        {"router": "right", "network": "six", "ip": "fd00:9::2"},
    ],
}


def test_routers_send_each_other_packets_over_networks_without_hosts() -> None:
    plan = planned(CHAIN)
    routes = {name: [(one.to, one.via) for one in router.spec.routes] for name, router in of(plan, Router).items()}
    default = ("0.0.0.0/0", "100.100.100.1")
    assert routes["s1-left"] == [("10.0.2.0/24", "10.9.0.2"), default]
    assert routes["s1-middle"] == [("10.0.1.0/24", "10.9.0.1"), ("10.0.2.0/24", "10.9.0.6"), default]
    found = verify(sandbox(CHAIN), plan.objects)
    assert found.differences == ()
    assert found.matrix["a"]["b 10.0.2.5"], "the networks are not accessible by users, so not through man"


def test_a_host_in_a_network_of_routers_makes_it_one_of_hosts() -> None:
    guest = {"host": "a", "network": "six", "ip": "fd00:9::5"}
    four = {"host": "a", "network": "two", "ip": "10.9.0.5"}
    taken = {**CHAIN, "router_mappings": [one for one in CHAIN["router_mappings"] if one["ip"] != "10.9.0.5"]}
    plan = planned({**taken, "net_mappings": [*CHAIN["net_mappings"], guest, four]})
    assert [(one.to, one.via) for one in of(plan, Router)["s1-left"].spec.routes] == [("0.0.0.0/0", "100.100.100.1")]


def test_next_hops_of_equal_length_have_metrics_of_their_own() -> None:
    """The kernel has one route for one block and metric."""
    extra = [
        {"router": "middle", "network": "six", "ip": "fd00:9::3"},
        {"router": "right", "network": "one4", "ip": "10.9.0.10"},
        {"router": "left", "network": "one4", "ip": "10.9.0.9"},
        {"router": "right", "network": "two4", "ip": "10.9.0.14"},
        {"router": "left", "network": "two4", "ip": "10.9.0.13"},
    ]
    networks = [*CHAIN["networks"], {"name": "one4", "cidr": "10.9.0.8/30"}, {"name": "two4", "cidr": "10.9.0.12/30"}]
    wide = {**CHAIN, "networks": networks, "router_mappings": [*CHAIN["router_mappings"], *extra]}
    plan = plan_documents(sandbox(wide, backend="linux"), {"n1": "192.0.2.1"})
    found = [one for one in plan.documents["n1"]["routes"] if one["to"] == "10.0.2.0/24"]
    left = [(one["metric"], one["via"]) for one in found if one["namespace"] == "s1-left"]
    assert left == [(100, "10.9.0.10"), (200, "10.9.0.2")], "one way for each next router"
    keys = [(one["namespace"], one["to"], one["metric"]) for one in plan.documents["n1"]["routes"]]
    assert len(keys) == len(set(keys))


GRAPHS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda one: one[0] != one[1]), max_size=12)


@given(GRAPHS, st.sets(st.integers(0, 5), min_size=1, max_size=2))
def test_next_hops_are_those_of_all_simple_ways(edges: list[tuple[int, int]], ends: set[int]) -> None:
    graph: dict[int, set[int]] = {node: set() for node in range(6)}
    for one, other in edges:
        graph[one].add(other)
        graph[other].add(one)
    expected: dict[int, dict[int, int]] = {}
    for node in set(graph) - ends:
        for way in simple_ways(graph, [node], ends):
            mine = expected.setdefault(node, {})
            mine[way[1]] = min(len(way) - 1, mine.get(way[1], 99))
    assert next_hops(graph, sorted(ends), {}) == expected


def simple_ways(graph: dict[int, set[int]], way: list[int], ends: set[int]) -> Iterator[list[int]]:
    """Yield the ways to an end that pass no node twice."""
    for other in graph[way[-1]] - set(way):
        if other in ends:
            yield [*way, other]
        else:
            yield from simple_ways(graph, [*way, other], ends)
