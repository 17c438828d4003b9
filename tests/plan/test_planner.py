"""The planner: whatever comes in whatever order, what is wanted is a function of what is there."""

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from netloom.model.document import Resource
from netloom.plan.ovn import planner as planning
from netloom.plan.ovn.desired import Delta
from netloom.plan.ovn.planner import BULK, UNITS, Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Outcome, Ref, Row
from netloom.plan.world.world import Port, World
from tests.plan.planning import Database, offences, planned, rendered, resources, unit_of
from tests.plan.strategies import BASE, RESOURCES


class Planning(RuleBasedStateMachine):
    """Resources come, change, come again and go, a few at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner()
        self.database = Database()
        self.there: dict[Unit, Resource] = {}

    @initialize(first=st.sampled_from([BASE, []]))
    def begin(self, first: list[Resource]) -> None:
        self.put(first)

    @rule(some=st.lists(RESOURCES, min_size=1, max_size=6))
    def put(self, some: list[Resource]) -> None:
        for resource in some:
            self.planner.put(resource)
            self.there[unit_of(resource)] = resource

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        for unit in data.draw(st.lists(st.sampled_from(sorted(self.there)), max_size=3)) if self.there else ():
            self.planner.remove(unit)
            self.there.pop(unit, None)

    @rule()
    def again(self) -> None:
        for resource in self.there.values():
            self.planner.put(resource)

    @rule()
    def flush(self) -> None:
        wanted = self.planner.desired
        self.database.apply(wanted, self.planner.flush())
        self.database.insist(wanted)
        scratch = planned(*(self.there[unit] for unit in sorted(self.there)))
        assert rendered(wanted) == rendered(scratch.desired)
        assert not self.planner.flush()

    def teardown(self) -> None:
        self.flush()
        assert not [one for some in self.planner.desired.problems.values() for one in some if one.reason == "Internal"]
        assert list(offences(self.planner.desired)) == []


TestPlanning = Planning.TestCase
TestPlanning.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(RESOURCES, max_size=30), st.randoms(use_true_random=False))
def test_order_does_not_matter(some: list[Resource], random: Any) -> None:
    there = {unit_of(resource): resource for resource in [*BASE, *some]}
    other = list(there.values())
    random.shuffle(other)
    assert rendered(planned(*there.values()).desired) == rendered(planned(*other).desired)


SPECS = """
kind: Network
metadata: {name: blue}
spec: {}
---
kind: Subnet
metadata: {name: blue}
spec: {network: blue, cidr: 10.0.0.0/24}
status: {validated: true}
---
kind: NetworkAttachment
metadata: {name: web}
spec: {node: n1, network: blue}
status: {ips: [10.0.0.9/24], mac: "02:00:00:00:00:09"}
"""


def test_an_unchanged_resource_changes_nothing() -> None:
    planner = planned(SPECS)
    for resource in resources(SPECS):
        planner.put(resource)
    assert planner.flush() == Delta()


def test_one_attachment_among_many_is_planned_alone(monkeypatch: Any) -> None:
    calls: list[str] = []
    original = UNITS["NetworkAttachment"]

    def counting(world: World, port: Port) -> Outcome:
        calls.append(port.name)
        return original(world, port)

    monkeypatch.setitem(planning.UNITS, "NetworkAttachment", counting)
    planner = planned(SPECS)
    ports = [Port("default", f"p{n}", "n1", "blue", (f"10.0.0.{n}/24",), f"02:00:00:00:01:{n:02x}") for n in range(10)]
    for port in ports:
        planner.put(port)
    planner.flush()
    calls.clear()
    planner.put(Port("default", "p3", "n2", "blue", ("10.0.0.3/24",), "02:00:00:00:01:03"))
    assert planner.flush().rows == {Ref("Logical_Switch_Port", "default/p3")}
    assert calls == ["p3"]
    planner.put(resources("{kind: Network, metadata: {name: blue, labels: {a: b}}, spec: {mtu: 1400}}")[0])
    planner.put(resources("{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}")[0])
    planner.flush()
    assert calls == ["p3"]


def test_a_unit_that_raises_costs_itself_and_heals(monkeypatch: Any) -> None:
    def failing(world: World, port: Port) -> Outcome:
        if world.ports("default", "blue")[-1].name == "web":
            raise RuntimeError("a mistake of ours")
        return Outcome(rows=[Row("DNS", port.name, {})])

    monkeypatch.setitem(planning.UNITS, "NetworkAttachment", failing)
    planner = planned(SPECS)
    unit = Unit("NetworkAttachment", "default", "web")
    assert planner.desired.problems == {
        unit: (Problem("Internal", "planning failed: RuntimeError: a mistake of ours"),)
    }
    assert Ref("Logical_Switch", "default/blue") in planner.desired.rows
    planner.put(Port("default", "xray", "n1", "blue"))
    assert planner.flush().problems == {unit}
    assert planner.desired.problems == {}
    assert Ref("DNS", "web") in planner.desired.rows


def test_removing_what_was_never_there_is_nothing() -> None:
    planner = Planner()
    planner.remove(Unit("Network", "default", "blue"))
    planner.remove(Unit("NetworkAttachment", "default", "web"))
    assert planner.flush() == Delta()


@pytest.mark.parametrize("collecting", [True, False])
def test_a_great_change_leaves_the_garbage_collector_as_it_was(collecting: bool) -> None:
    planner, was = planned(SPECS), gc.isenabled()
    for n in range(BULK):
        planner.put(Port("default", f"p{n}", "n1", "blue", (f"10.0.0.{n & 255}/24",), f"02:00:00:00:01:{n:02x}"))
    try:
        (gc.enable if collecting else gc.disable)()
        assert len(planner.flush().rows) == BULK
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if was else gc.disable)()
