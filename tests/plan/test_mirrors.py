"""Mirrors: what stands in the way of one, and that it is gone when it is."""

import msgspec

from netloom.model.kinds.paths import Mirror, MirrorStatus, MirrorTunnel
from netloom.plan import names
from netloom.plan.node.mirrors import GrePort, MirrorPlan, plan_mirrors
from netloom.plan.ovn.layer2.mirrors import rerouted, tunnel_of
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


def test_between_nodes_copies_take_a_tunnel_that_both_nodes_plan_alike() -> None:
    planner = planned(MIRROR, A)
    planner.put(msgspec.structs.replace(TAP, node="n2"))
    [mirror] = [one for one in resources(MIRROR) if isinstance(one, Mirror)]
    assert tunnel_of(planner.world, mirror) is None
    for node in NODES:
        planner.put(node)
    way = tunnel_of(planner.world, mirror)
    assert way is not None
    assert (way.source_ip, way.destination_ip) == ("192.0.2.1", "192.0.2.2")
    assert rerouted(planner.world, ["default"], nodes=False) == {UNIT} == rerouted(planner.world, [], nodes=True)
    mirror = msgspec.structs.replace(mirror, status=MirrorStatus(tunnel=way))

    def planned_with(mine: str) -> dict[Unit, MirrorPlan]:
        return plan_mirrors([mirror], lambda _, name: f"dev-{name}" if name == mine else "")

    there, here = planned_with("a"), planned_with("tap")
    gre, key = f"mirror_{way.key:08x}", str(way.key)
    options = {"local_ip": "192.0.2.1", "remote_ip": "192.0.2.2", "key": key}
    assert there[UNIT] == MirrorPlan("dev-a", gre, True, True, GrePort(gre, options))
    options = {"local_ip": "192.0.2.2", "remote_ip": "192.0.2.1", "key": key}
    assert here[UNIT] == MirrorPlan(gre, "dev-tap", True, False, GrePort(gre, options))
    assert plan_mirrors([mirror], lambda *_: "") == {}
    both = plan_mirrors([mirror], lambda _, name: name)
    assert both[UNIT] == MirrorPlan("a", "tap", True, True)


def test_mirrors_have_keys_of_their_own() -> None:
    keys = {names.mirror_key("default", f"m{number}") for number in range(1000)}
    assert len(keys) == 1000
    assert MirrorTunnel(key=max(keys), source_ip="192.0.2.1", destination_ip="192.0.2.2").key < 1 << 32
