"""The links of a Sandbox that are measured: between whom, what must be found, and which results are as asked for."""

from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.diagnose.links import (
    PEERS,
    PLAIN,
    Endpoint,
    Leg,
    Pair,
    ShapedLink,
    combined,
    is_loss,
    is_rate,
    is_round_trip,
    shaped_links,
)
from netloom.model.kinds.paths import Shaping
from netloom.plan.sandbox.objects import plan_sandbox
from tests.plan.test_sandbox import NODES, sandbox

HALLS: dict[str, Any] = {
    "name": "halls",
    "hosts": [{"name": name} for name in ("alice", "bob", "carol", "dave")],
    "routers": [{"name": "hall"}, {"name": "gate"}],
    "networks": [
        {"name": "left", "cidr": "10.1.0.0/24"},
        {"name": "right", "cidr": "10.2.0.0/24"},
        {"name": "far", "cidr": "10.3.0.0/24"},
    ],
    "net_mappings": [
        {"host": "alice", "network": "left", "ip": "10.1.0.5"},
        {"host": "bob", "network": "left", "ip": "10.1.0.6"},
        {"host": "carol", "network": "right", "ip": "10.2.0.5"},
        {"host": "dave", "network": "far", "ip": "10.3.0.5"},
        {"host": "dave", "network": "left", "ip": "10.1.0.7"},
    ],
    "router_mappings": [
        {"router": "hall", "network": "left", "ip": "10.1.0.1"},
        {"router": "hall", "network": "right", "ip": "10.2.0.1"},
        {"router": "gate", "network": "far", "ip": "10.3.0.1"},
    ],
}


def found(*links: dict[str, Any], more: tuple[Shaping, ...] = ()) -> dict[tuple[str, str], ShapedLink]:
    made = sandbox(HALLS, links=list(links))
    shapings = [one for one in plan_sandbox(made, frozenset(NODES)).objects if isinstance(one, Shaping)]
    return {(one.host, one.network): one for one in shaped_links(made, [*shapings, *more])}


def hosts(link: ShapedLink) -> list[tuple[str, str]]:
    return [(pair.near.host, pair.far.host) for pair in link.pairs]


def test_a_link_is_measured_with_a_plain_one_of_its_network_first() -> None:
    links = found(
        {"host": "alice", "network": "left", "rate": "10mbit", "delay": "50ms"},
        {"host": "bob", "network": "left", "rate": "4mbit", "delay": "5ms", "jitter": "1ms", "loss": "10%"},
    )
    alice = links["alice", "left"]
    assert hosts(alice) == [("alice", "dave"), ("alice", "bob"), ("alice", "carol"), ("alice", "dave")]
    assert alice.pairs[0].near == Endpoint(host="alice", network="left", ip="10.1.0.5", netns="s1-alice")
    assert alice.pairs[0].far.ip == "10.1.0.7"
    assert (alice.pairs[0].sent.rate, alice.pairs[0].sent.delay) == (10e6, 0.05)
    assert alice.pairs[0].sent == alice.pairs[0].received
    with_bob = alice.pairs[1].sent
    assert with_bob.rate == 4e6
    assert (with_bob.delay, with_bob.jitter, with_bob.loss) == pytest.approx((0.055, 0.001, 0.1))
    assert alice.pairs[1].loss == pytest.approx(0.19)
    assert hosts(links["bob", "left"])[:2] == [("bob", "dave"), ("bob", "alice")]


def test_a_routers_link_is_measured_over_it_in_the_direction_of_the_packets() -> None:
    links = found(
        {"host": "gate", "network": "far", "rate": "1mbit"}, {"host": "hall", "network": "wan", "rate": "2mbit"}
    )
    gate = links["gate", "far"]
    assert hosts(gate) == [("dave", "alice"), ("dave", "carol")]
    assert (gate.pairs[0].sent.rate, gate.pairs[0].received.rate) == (1e6, 1e6)
    assert all("dave" in pair for pair in hosts(links["hall", "wan"]))
    one_way = found(more=(forward({"router": "s1-gate", "network": "s1-far"}),))["gate", "far"]
    # What the router sends into the network is what its hosts receive.
    assert (one_way.pairs[0].sent.rate, one_way.pairs[0].received.rate) == (inf, 1e6)


def forward(start: dict[str, str]) -> Shaping:
    spec = {"from": start, "rate": "1mbit", "direction": "forward"}
    document = {"apiVersion": "v", "kind": "Shaping", "metadata": {"name": "one", "namespace": "ns1"}, "spec": spec}
    return msgspec.convert(document, Shaping)


def test_shapings_that_were_made_at_run_time_count_and_the_slower_applies() -> None:
    links = found(
        {"host": "alice", "network": "left", "rate": "10mbit"}, more=(forward({"attachment": "s1-alice-left"}),)
    )
    pair = links["alice", "left"].pairs[0]
    assert (pair.sent.rate, pair.received.rate) == (1e6, 10e6)
    assert found(more=(forward({"attachment": "other"}), forward({"network": "s1-left"}))) == {}


def test_many_hosts_cost_no_more_pairs() -> None:
    many = {
        **HALLS,
        "hosts": [{"name": f"h{i}"} for i in range(200)],
        "net_mappings": [{"host": f"h{i}", "network": "left", "ip": f"10.1.0.{i + 10}"} for i in range(200)],
    }
    links = [{"host": f"h{i}", "network": "left", "rate": "1mbit"} for i in range(200)]
    made = sandbox(many, links=links)
    shapings = [one for one in plan_sandbox(made, frozenset(NODES)).objects if isinstance(one, Shaping)]
    assert [len(one.pairs) for one in shaped_links(made, shapings)] == [PEERS] * 200


quality = st.builds(
    Leg,
    rate=st.floats(1e3, 1e9),
    delay=st.floats(0, 10),
    jitter=st.floats(0, 1),
    loss=st.floats(0, 1),
)


@given(st.lists(quality, max_size=5))
def test_links_one_after_the_other_are_at_least_as_bad_as_each(legs: list[Leg]) -> None:
    whole = combined(legs)
    assert all(whole.rate <= one.rate and whole.delay >= one.delay for one in legs)
    assert all(whole.loss >= one.loss - 1e-9 for one in legs)
    assert 0 <= whole.loss <= 1
    assert combined([]) == PLAIN


def pair(**leg: float) -> Pair:
    end = Endpoint(host="h", network="n", ip="10.0.0.1", netns="s")
    return Pair(near=end, far=end, sent=Leg(**leg), received=Leg(**leg))


def test_results_within_the_tolerance_are_as_asked_for() -> None:
    leg = Leg(rate=10e6, loss=0.1)
    assert [is_rate(one * 1e6, leg, 0.15) for one in (7.6, 7.7, 11.4, 11.6)] == [False, True, True, False]
    asked = pair(delay=0.05)
    assert [is_round_trip(one, asked, 0.15) for one in (0.08, 0.09, 0.119, 0.13)] == [False, True, True, False]
    jittered = pair(delay=0.05, jitter=0.02)
    assert is_round_trip(0.13, jittered, 0.15)
    lossy = pair(loss=0.5)
    assert [is_loss(one, 1000, lossy, 0.15) for one in (0.55, 0.75, 0.95)] == [False, True, False]
    assert is_loss(0.6, 10, lossy, 0.15), "ten packets are no proof"
    assert is_loss(1.0, 10, pair(loss=1.0), 0.15)
