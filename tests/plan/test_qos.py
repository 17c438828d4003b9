"""Shapings: who is metered, by how much, and which rule counts."""

from typing import Any

import msgspec
import pytest

from netloom.model.kinds.paths import Quality, Shaping, ShapingSpec
from netloom.plan.ovn.planner import Planner
from netloom.plan.policy.shaping import verdict
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from netloom.plan.world.world import Port
from tests.plan.planning import planned

WORLD = """
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 4096}}
---
{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}
"""
A = Port("default", "a", "n1", "blue", ("10.10.0.9/24",), "02:00:00:00:00:09", 4096, {"app": "web"})
A_LABELS = {"matchLabels": {"app": "web"}}
B = msgspec.structs.replace(A, name="b", ips=("10.10.0.10/24",), labels={})


def shaping(name: str, **spec: Any) -> Shaping:
    metadata = {"name": name, "namespace": "default"}
    whole = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Shaping", "metadata": metadata, "spec": spec}
    return msgspec.convert(whole, Shaping)


def spec(**fields: str) -> ShapingSpec:
    return shaping("s", **{"from": {"attachment": "a"}, **fields}).spec


def world(*specs: Shaping) -> Planner:
    planner = planned(WORLD, *specs)
    planner.put(A)
    planner.put(B)
    planner.flush()
    return planner


def priority(planner: Planner, key: str) -> int:
    found = planner.desired.rows[Ref("QoS", f"default/{key}")].columns["priority"]
    assert isinstance(found, int)
    return found


def test_each_attachment_of_a_network_has_a_meter_of_its_own() -> None:
    planner = world(shaping("s", **{"from": {"network": "blue"}, "rate": "10mbit"}))
    planner.put(msgspec.structs.replace(A, name="elsewhere", network="red"))
    planner.flush()
    keys = sorted(ref.key for ref in planner.desired.rows if ref.table == "QoS")
    assert keys == ["default/s:a:back", "default/s:a:forward", "default/s:b:back", "default/s:b:forward"]


def test_an_attachment_that_has_no_address_yet_is_metered_when_it_has() -> None:
    planner = world(shaping("s", **{"from": {"attachment": "new"}, "rate": "10mbit", "direction": "forward"}))
    unit = Unit("Shaping", "default", "s")
    assert [one.reason for one in planner.desired.problems[unit]] == ["AttachmentMissing"]
    planner.put(msgspec.structs.replace(A, name="new", ips=()))
    planner.flush()
    assert unit not in planner.desired.problems
    assert not any(ref.table == "QoS" for ref in planner.desired.rows)
    planner.put(msgspec.structs.replace(A, name="new", ips=("10.10.0.11/24",)))
    planner.flush()
    assert Ref("QoS", "default/s:new:forward") in planner.desired.rows


def test_who_says_it_more_closely_counts_and_of_equals_the_slower() -> None:
    places: dict[str, Any] = {
        "node": {"node": "n1"},
        "network": {"network": "blue"},
        "selector": {"selector": {}},
        "attachment": {"attachment": "a"},
    }
    specs = [shaping(name, **{"from": place, "rate": "10mbit"}) for name, place in places.items()]
    specs += [
        shaping(f"{w.metadata.name}-b", **{"from": places[w.metadata.name], "to": {"attachment": "b"}, "rate": "1tbit"})
        for w in specs
    ]
    specs.append(shaping("slower", **{"from": {"attachment": "a"}, "rate": "5mbit"}))
    planner = world(*specs)
    order = ["node", "node-b", "network", "network-b", "selector", "selector-b", "attachment", "slower", "attachment-b"]
    found = [priority(planner, f"{name}:a:forward") for name in order]
    assert found == sorted(set(found))


def test_one_more_of_many_others_changes_no_rule() -> None:
    planner = world(shaping("s", **{"from": {"attachment": "a"}, "to": {"selector": {}}, "rate": "10mbit"}))
    planner.put(msgspec.structs.replace(B, name="c", ips=("10.10.0.11/24", "fd00::11/64")))
    delta = planner.flush()
    assert {ref.table for ref in delta.rows} == {"Logical_Switch_Port"}
    assert {(one.row.key, one.value) for one in delta.joined if one.row.table == "Address_Set"} == {
        ("shaping/default/s:v4", "10.10.0.11"),
        ("shaping/default/s:v6", "fd00::11"),
    }


def test_one_more_in_a_shaped_network_plans_no_other_again() -> None:
    planner = world(
        shaping("s", **{"from": {"network": "blue"}, "rate": "10mbit"}),
        shaping("t", **{"from": {"network": "blue"}, "to": {"node": "n1"}, "rate": "1mbit"}),
    )
    planner.put(msgspec.structs.replace(B, name="c", ips=("10.10.0.11/24",)))
    assert planner.world.drain() == {Unit("NetworkAttachment", "default", "c")}


def test_a_shaping_of_one_attachment_plans_no_other_again() -> None:
    planner = world()
    planner.put(shaping("s", **{"from": {"attachment": "a"}, "rate": "10mbit"}))
    assert planner.world.drain() == {Unit("Shaping", "default", "s")}


def test_the_sets_at_the_other_end_are_those_of_the_node_or_the_labels() -> None:
    planner = world(
        shaping("labels", **{"from": {"attachment": "b"}, "to": {"selector": A_LABELS}, "rate": "10mbit"}),
        shaping("node", **{"from": {"attachment": "b"}, "to": {"node": "n1"}, "rate": "10mbit"}),
    )
    found = [
        sorted(planner.desired.members(Ref("Address_Set", f"shaping/default/{name}:v4"))["addresses"])
        for name in ("labels", "node")
    ]
    assert found == [["10.10.0.9"], ["10.10.0.10", "10.10.0.9"]]


@pytest.mark.parametrize(
    ("rate", "burst", "bandwidth"),
    [
        ("10mbit", "", (10_000, 3_000)),
        ("10mbit", "64kb", (10_000, 3_000)),
        ("10mbit", "1mb", (10_000, 8_388)),
        ("1bit", "", (1, 120)),
        ("100tbit", "", (2**32 - 1, 2**32 - 1)),
    ],
)
def test_a_meter_saves_up_what_tcp_needs(rate: str, burst: str, bandwidth: tuple[int, int]) -> None:
    planner = world(shaping("s", **{"from": {"attachment": "a"}, "rate": rate, "burst": burst}))
    row = planner.desired.rows[Ref("QoS", "default/s:a:back")]
    assert row.columns["bandwidth"] == {"rate": bandwidth[0], "burst": bandwidth[1]}


def test_the_verdict_says_what_is_applied_and_what_cannot_be() -> None:
    applied, unsupported = verdict(spec(rate="10mbit", burst="64kb", delay="20ms", jitter="2ms", loss="0.5%"))
    assert applied == Quality(rate="10mbit", burst="375000b")
    assert [one.field for one in unsupported] == ["delay", "jitter", "loss", "burst"]
    assert all(one.reason for one in unsupported)
    assert verdict(spec(rate="10mbit", burst="1mb"))[1] == ()
    assert verdict(spec(rate="10mbit"))[1] == ()
    assert verdict(spec(delay="20ms"))[0] is None
    assert verdict(spec(rate="100tbit"))[0] == Quality(rate="4294967295kbit", burst="536870911875b")
