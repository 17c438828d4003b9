"""Mirrors: what stands in the way of one, and that it is gone when it is."""

import msgspec

from netloom.plan.problem import Unit
from netloom.plan.world.world import Port
from tests.plan.planning import planned

MIRROR = "{kind: Mirror, metadata: {name: m}, spec: {source: {attachment: a}, destination: {attachment: tap}}}"
A = Port("default", "a", "n1", "blue", ("10.10.0.9/24",), "02:00:00:00:00:09", 4096)
TAP = msgspec.structs.replace(A, name="tap", ips=("10.10.0.10/24",))
UNIT = Unit("Mirror", "default", "m")


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
    planner.put(msgspec.structs.replace(TAP, node="n2"))
    assert reasons() == ["DifferentNodes"]
    planner.put(TAP)
    assert reasons() == []
    assert not any(unit == UNIT for unit in planner.desired.of.values())
