"""Mirrors: what stands in the way of one, and that it is gone when it is."""

from collections.abc import Callable, Collection

import msgspec

from netloom.model.kinds.paths import Mirror, MirrorStatus, MirrorTunnel
from netloom.plan import names
from netloom.plan.node.mirrors import GrePort, MirrorPlan, plan_mirrors
from netloom.plan.ovn.layer2.mirrors import rerouted, tunnels_of
from netloom.plan.problem import Unit
from netloom.plan.world.world import Port
from tests.plan.planning import planned, resources

MIRROR = "{kind: Mirror, metadata: {name: m}, spec: {source: {attachment: a}, destination: {attachment: tap}}}"
A = Port("default", "a", "n1", "blue", ("10.10.0.9/24",), "02:00:00:00:00:09", 4096)
TAP = msgspec.structs.replace(A, name="tap", ips=("10.10.0.10/24",))
UNIT = Unit("Mirror", "default", "m")
NODES = resources(
    "{kind: Node, metadata: {name: n1}, spec: {underlayIP: 192.0.2.1}}\n---\n"
    "{kind: Node, metadata: {name: n2}, spec: {underlayIP: 192.0.2.2}}"
)


def test_a_port_without_a_device_has_nothing_to_copy() -> None:
    planner = planned("{kind: Network, metadata: {name: blue}, spec: {}}", MIRROR, A)
    planner.put(msgspec.structs.replace(TAP, parent="a", vlan=7))
    planner.flush()
    [problem] = planner.desired.problems[UNIT]
    assert (problem.reason, problem.message) == (
        "NoDevice",
        "spec.destination.attachment: tap is a VLAN of a's port and has no device of its own: mirror a",
    )
    planner.put(TAP)
    planner.flush()
    assert UNIT not in planner.desired.problems


def test_a_mirror_heals_when_its_ends_are_there_and_together() -> None:
    planner = planned(MIRROR)

    def reasons() -> list[str]:
        planner.flush()
        return [one.reason for one in planner.desired.problems.get(UNIT, ())]

    assert reasons() == ["AttachmentMissing", "AttachmentMissing"]
    planner.put(A)
    assert reasons() == ["AttachmentMissing"]
    planner.put(TAP)
    assert reasons() == []
    planner.put(msgspec.structs.replace(TAP, node="n2"))
    assert reasons() == ["NodeMissing", "NodeMissing"]
    for node in NODES:
        planner.put(node)
    assert reasons() == []
    assert not any(unit == UNIT for unit in planner.desired.of.values())


def by_name(names: Collection[str] = ()) -> Callable[[str, str], str]:
    """Return the devices of the attachments of a node."""
    return lambda _, name: f"dev-{name}" if name in names else ""


def nothing(*_: str) -> Collection[str]:
    return ()


def test_between_nodes_copies_take_a_tunnel_that_both_nodes_plan_alike() -> None:
    planner = planned(MIRROR, A)
    planner.put(msgspec.structs.replace(TAP, node="n2"))
    [mirror] = [one for one in resources(MIRROR) if isinstance(one, Mirror)]
    assert tunnels_of(planner.world, mirror) == ()
    for node in NODES:
        planner.put(node)
    [way] = tunnels_of(planner.world, mirror)
    assert (way.source_ip, way.destination_ip) == ("192.0.2.1", "192.0.2.2")
    assert rerouted(planner.world, ["default"], nodes=False) == {UNIT} == rerouted(planner.world, [], nodes=True)
    mirror = msgspec.structs.replace(mirror, status=MirrorStatus(tunnels=(way,)))
    there = plan_mirrors([mirror], "192.0.2.1", by_name(["a"]), nothing)
    here = plan_mirrors([mirror], "192.0.2.2", by_name(["tap"]), nothing)
    gre, key = f"mirror_{way.key:08x}", str(way.key)
    port = GrePort(gre, {"local_ip": "192.0.2.1", "remote_ip": "192.0.2.2", "key": key})
    ends = frozenset(("dev-a",))
    assert there[UNIT] == MirrorPlan(destination=gre, sent=ends, received=ends, tunnels=(port,))
    port = GrePort(gre, {"local_ip": "192.0.2.2", "remote_ip": "192.0.2.1", "key": key})
    assert here[UNIT] == MirrorPlan(destination="dev-tap", sent=frozenset((gre,)), tunnels=(port,))
    assert plan_mirrors([mirror], "192.0.2.3", by_name(), nothing) == {}
    planner.put(TAP)
    assert tunnels_of(planner.world, mirror) == ()
    mirror = msgspec.structs.replace(mirror, status=MirrorStatus())
    both = plan_mirrors([mirror], "192.0.2.1", by_name(["a", "tap"]), nothing)
    assert both[UNIT] == MirrorPlan(destination="dev-tap", sent=ends, received=ends)


def test_a_network_is_copied_at_its_ports_on_each_node_but_the_destination() -> None:
    text = MIRROR.replace("{attachment: a}", "{network: blue}")
    planner = planned(text, TAP)
    [mirror] = [one for one in resources(text) if isinstance(one, Mirror)]
    planner.flush()
    assert [one.reason for one in planner.desired.problems[UNIT]] == ["NetworkMissing"]
    for one in resources("{kind: Network, metadata: {name: blue}, spec: {}}"):
        planner.put(one)
    for node in NODES:
        planner.put(node)
    planner.put(A)
    planner.put(msgspec.structs.replace(A, name="b", node="n2"))
    planner.put(msgspec.structs.replace(A, name="c", node="n3"))
    planner.flush()
    [problem] = planner.desired.problems[UNIT]
    assert problem.message == "spec.source.network: c is on Node n3, which does not exist: start its agent"
    [way] = tunnels_of(planner.world, mirror)
    assert (way.source_ip, way.destination_ip) == ("192.0.2.2", "192.0.2.1")
    mirror = msgspec.structs.replace(mirror, status=MirrorStatus(tunnels=(way,)))
    gre = f"mirror_{way.key:08x}"
    here = plan_mirrors([mirror], "192.0.2.1", by_name(["tap"]), lambda *_: ["dev-a", "dev-tap"])[UNIT]
    assert (here.destination, set(here.sent), set(here.received)) == ("dev-tap", {"dev-a", gre}, {"dev-a"})
    there = plan_mirrors([mirror], "192.0.2.2", by_name(), lambda *_: ["dev-b"])[UNIT]
    assert (there.destination, set(there.sent), set(there.received)) == (gre, {"dev-b"}, {"dev-b"})
    assert plan_mirrors([mirror], "192.0.2.3", by_name(), lambda *_: ["dev-c"]) == {}, "no way from there"


def test_mirrors_have_keys_of_their_own() -> None:
    keys = {names.mirror_key("default", f"m{number}", f"n{node}") for number in range(500) for node in (1, 2)}
    assert len(keys) == 1000
    assert MirrorTunnel(key=max(keys), source_ip="192.0.2.1", destination_ip="192.0.2.2").key < 1 << 32
