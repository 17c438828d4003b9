"""Shaping by rate on the vxlan fabric: which packets pass which meter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.openflow import packets
from netloom.openflow.flows import MeterSpec
from netloom.openflow.pipeline import Tables, run
from netloom.plan.vxlan import meters as vxlan_rates
from netloom.plan.vxlan.meters import MeterKey, numbered
from tests.plan.vxlan_nodes import VTEP, Nodes, mac, nodes, number, profile, shaping

WEB: dict[str, Any] = {"matchLabels": {"app": "web"}}


def world(*shapings: dict[str, Any]) -> Nodes:
    at = nodes("n1", "n2")
    at.plug("a", "n1", "10.0.0.1", "fd00::1", labels={"app": "lb"})
    at.plug("b", "n1", "10.0.0.2", "fd00::2", labels={"app": "web"})
    at.plug("c", "n2", "10.0.0.3", "fd00::3", labels={"app": "web"})
    at.put(*(shaping(f"s{position}", **spec) for position, spec in enumerate(shapings)))
    return at


def rates(at: Nodes, sender: str, receiver: str, version: int = 4) -> list[int]:
    """Return the rates, in kbit/s, of the meters that a packet passes on the node n1."""
    node = at.nodes["n1"]
    node.plan.flush()
    mine, yours = at.ports[sender], at.ports[receiver]
    packet = packets.echo(
        src=number(mine.ips[version // 5]),
        dst=number(yours.ips[version // 5]),
        version=version,
        dl_src=mac(mine.mac),
        dl_dst=mac(yours.mac),
        tun_id=mine.vni,
    )
    in_port = mine.ofport if mine.node == "n1" else VTEP
    (sent,) = run(Tables(node.plan.claims.flows.values()), packet, in_port)
    return [node.plan.claims.meters[number].rate_kbps for number in sent.meters]


@pytest.mark.parametrize("version", [4, 6])
def test_what_an_attachment_sends_and_gets_passes_meters_of_its_own(version: int) -> None:
    at = world({"from": {"attachment": "a"}, "rate": "10mbit"})
    assert rates(at, "a", "c", version) == [10000]
    assert rates(at, "c", "a", version) == [10000]
    assert rates(at, "b", "c", version) == []
    assert len(at.nodes["n1"].plan.claims.meters) == 2
    assert len(at.nodes["n2"].plan.claims.meters) == 0


def test_forward_is_what_is_sent_only() -> None:
    at = world({"from": {"attachment": "a"}, "rate": "10mbit", "direction": "forward"})
    assert (rates(at, "a", "c"), rates(at, "c", "a")) == ([10000], [])


def test_a_rate_on_many_is_what_each_has() -> None:
    at = world({"from": {"network": "n42"}, "rate": "10mbit", "direction": "forward"})
    assert (rates(at, "a", "c"), rates(at, "b", "c")) == ([10000], [10000])
    assert len(at.nodes["n1"].plan.claims.meters) == 2


@pytest.mark.parametrize(
    ("to", "metered"),
    [
        ({"selector": WEB}, {"b", "c"}),
        ({"attachment": "c"}, {"c"}),
        ({"node": "n2"}, {"c"}),
        ({"network": "n42"}, {"b", "c"}),
        ({"network": "n43"}, set()),
        ({"attachment": "gone"}, set()),
    ],
)
def test_a_way_to_somebody_is_metered_to_him_alone(to: dict[str, Any], metered: set[str]) -> None:
    at = world({"from": {"attachment": "a"}, "to": to, "rate": "10mbit"})
    assert {name for name in "bc" if rates(at, "a", name)} == metered
    assert {name for name in "bc" if rates(at, name, "a")} == metered


def test_the_closest_shaping_counts_and_of_two_equally_close_the_slower() -> None:
    at = world(
        {"from": {"node": "n1"}, "rate": "1mbit"},
        {"from": {"network": "n42"}, "rate": "2mbit"},
        {"from": {"selector": {"matchLabels": {"app": "lb"}}}, "rate": "4mbit"},
        {"from": {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, "rate": "40mbit"},
        {"from": {"attachment": "a"}, "to": {"attachment": "c"}, "rate": "8mbit"},
    )
    assert rates(at, "a", "c") == [8000]
    assert rates(at, "c", "b") == [40000]
    at.nodes["n1"].plan.drop_shaping("default", "s4")
    assert rates(at, "a", "c") == [4000]


def test_arp_is_never_lost_to_a_meter() -> None:
    at = world({"from": {"network": "n42"}, "rate": "1mbit"})
    node = at.nodes["n1"]
    node.plan.flush()
    request = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number("10.0.0.3"))
    (sent,) = run(node.plan.claims.flows.values(), request, at.ports["a"].ofport)
    assert sent.meters == ()


def test_a_shaped_port_is_not_tracked_and_one_with_a_profile_is_both() -> None:
    at = world({"from": {"network": "n42"}, "to": {"selector": WEB}, "rate": "1mbit"})
    assert rates(at, "a", "c") == [1000]
    at.plug("d", "n1", "10.0.0.4", profiles=("p",), labels={"app": "web"})
    at.put(profile("p", ingress=[{"from": [{"selector": {"matchLabels": {"app": "lb"}}}]}]))
    assert rates(at, "a", "d") == [1000]
    assert rates(at, "d", "c") == [1000]


def test_a_meter_has_the_rate_and_burst_that_ovn_gives_it() -> None:
    at = world({"from": {"attachment": "a"}, "rate": "10mbit", "burst": "1mb", "direction": "forward"})
    at.nodes["n1"].plan.flush()
    assert list(at.nodes["n1"].plan.claims.meters.values()) == [MeterSpec(10000, 8388)]


def test_without_a_rate_there_is_no_meter() -> None:
    at = world({"from": {"attachment": "a"}, "delay": "10ms"})
    assert rates(at, "a", "c") == []


@given(st.lists(st.builds(MeterKey, st.sampled_from("abcd"), st.sampled_from("st"), st.booleans()), unique=True))
def test_meters_have_numbers_of_their_own_whoever_came_first(wanted: list[MeterKey]) -> None:
    found = numbered(wanted)
    assert found == numbered(reversed(wanted))
    assert len(set(found.values())) == len(wanted)


def test_meters_whose_places_are_taken_get_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vxlan_rates, "METERS", range(1, 17))
    wanted = [MeterKey(owner, shaping, True) for owner in "abcdefgh" for shaping in "st"]
    assert set(numbered(wanted).values()) == set(range(1, 17))
