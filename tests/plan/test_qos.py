"""Shapings: who is metered, by how much, and which rule counts."""

from typing import Any

import msgspec
import pytest

from netloom.model.document import ObjectMeta
from netloom.model.kinds.attachments import PortType
from netloom.model.kinds.cluster import Node, NodeSpec, NodeStatus
from netloom.model.kinds.paths import Quality, Shaping
from netloom.plan.ovn.planner import Planner
from netloom.plan.policy.impairment import NETEM, PACKET
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


def judged(*able: str, port: PortType = PortType.VETH, **fields: Any) -> tuple[Quality | None, list[str], str]:
    """Return what is applied, the fields that are not, and the problem of a Shaping of `a`, on a Node that is able."""
    made = shaping("s", **{"from": {"attachment": "a"}, **fields})
    planner = world(made)
    planner.put(msgspec.structs.replace(A, type=port))
    status = NodeStatus(capabilities={NETEM: NETEM in able, PACKET: PACKET in able})
    node = Node(
        api_version="v",
        kind="Node",
        metadata=ObjectMeta(name="n1"),
        spec=NodeSpec(underlay_ip="172.31.0.1"),
        status=status,
    )
    planner.put(node)
    planner.flush()
    applied, unsupported = verdict(planner.world, made)
    problems = planner.desired.problems.get(Unit("Shaping", "default", "s"), ())
    assert all(one.reason for one in unsupported)
    return applied, [one.field for one in unsupported], "; ".join(one.message for one in problems)


def test_the_verdict_says_what_is_applied_and_what_cannot_be() -> None:
    every: dict[str, Any] = {"rate": "10mbit", "burst": "64kb", "delay": "20ms", "jitter": "2ms", "loss": "0.5%"}
    applied, unsupported, problem = judged(**every)
    assert applied == Quality(rate="10mbit", burst="375000b")
    assert unsupported == ["delay", "jitter", "loss", "burst"]
    assert problem == (
        "spec.delay: the kernel of Node n1 has no netem: load the module sch_netem there, "
        "or set spec.impairment to userspace or auto"
    )
    impaired = Quality(rate="10mbit", burst="375000b", delay="20ms", jitter="2ms", loss="0.5%")
    assert judged(NETEM, **every) == (impaired, ["burst"], "")
    assert judged(rate="10mbit", burst="1mb")[1:] == ([], "")
    assert judged(rate="10mbit")[1:] == ([], "")
    assert judged(delay="20ms")[0] is None
    assert judged(NETEM, delay="20ms") == (Quality(delay="20ms"), [], "")
    assert judged(rate="100tbit")[0] == Quality(rate="4294967295kbit", burst="536870911875b")


@pytest.mark.parametrize(
    ("able", "impairment", "said"),
    [
        ((NETEM,), "kernel", ""),
        ((PACKET,), "kernel", "no netem"),
        ((NETEM,), "userspace", "CAP_NET_RAW"),
        ((PACKET,), "userspace", ""),
        ((NETEM,), "auto", ""),
        ((PACKET,), "auto", ""),
        ((), "auto", "CAP_NET_RAW"),
    ],
)
def test_loss_is_applied_by_what_is_asked_for_and_present(able: tuple[str, ...], impairment: str, said: str) -> None:
    _, unsupported, problem = judged(*able, loss="1%", impairment=impairment)
    assert said in problem
    assert bool(unsupported) is bool(problem) is bool(said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"to": {"attachment": "b"}}, "remove spec.to"),
        ({"from": {"network": "blue"}}, "set spec.from.attachment"),
        ({"delay": "61s"}, "more than 60 s"),
        ({"port": PortType.EXISTING}, "use type veth"),
        ({"from": {"attachment": "gone"}}, "gone does not exist"),
    ],
)
def test_what_cannot_be_impaired_on_any_node_is_said_with_the_remedy(fields: dict[str, Any], said: str) -> None:
    applied, unsupported, problem = judged(NETEM, PACKET, **{"delay": "1ms", **fields})
    assert (applied, unsupported) == (None, ["delay"])
    assert said in problem


ROUTERS = """
{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 4096}}
---
{kind: Subnet, metadata: {name: blue}, spec: {network: blue, cidr: 10.10.0.0/24}, status: {validated: true}}
---
{kind: Network, metadata: {name: red}, spec: {}, status: {vni: 4097}}
---
{kind: Router, metadata: {name: hall}, spec: {networks: [{network: blue}]}}
"""


def test_the_port_of_a_router_has_the_rate_in_both_directions() -> None:
    start = {"network": "blue", "router": "hall"}
    planner = planned(ROUTERS, shaping("s", **{"from": start, "rate": "10mbit"}))
    planner.put(A)
    planner.flush()
    rows = [one for ref, one in planner.desired.rows.items() if ref.table == "QoS"]
    assert {(one.columns["direction"], one.columns["match"]) for one in rows} == {
        ("from-lport", 'inport == "default/hall:blue:plug" && ip'),
        ("to-lport", 'outport == "default/hall:blue:plug" && ip'),
    }
    assert not planner.desired.problems


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"network": "red", "router": "hall"}, "Router hall has no port on Network red: name another"),
        ({"network": "blue", "router": "gone"}, "spec.from.router: Router gone does not exist"),
    ],
)
def test_a_router_port_that_does_not_exist_is_named(start: dict[str, str], said: str) -> None:
    planner = planned(ROUTERS, shaping("s", **{"from": start, "rate": "10mbit"}))
    planner.flush()
    (problem,) = planner.desired.problems[Unit("Shaping", "default", "s")]
    assert said in problem.message
    assert not [ref for ref in planner.desired.rows if ref.table == "QoS"]
