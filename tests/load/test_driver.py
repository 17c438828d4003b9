"""A whole run in virtual time: the real controllers, simulated agents, and a store in memory."""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from netloom.control.runtime.conditions import TRUE
from netloom.errors import Conflict, TimedOut
from netloom.load import informing, objects, plan
from netloom.load.agents import Receipts, SimulatedAgent
from netloom.load.crowd import Report
from netloom.load.driver import Driver
from netloom.load.plan import Load, Phase, Slot
from netloom.load.records import RunResult
from netloom.load.sizes import Shape
from netloom.load.testers import Trial
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.networks import Fabric
from netloom.model.registry import NETWORK_ATTACHMENT, NODE
from netloom.sim import loop as sim
from netloom.store.base import Store, Stored
from tests.control.helpers import assemble, memory, run

NODES = ["sim-0001", "sim-0002", "sim-0003"]
LOAD = Load(
    run="r1", shape=Shape(count=4, top=8), fabric=Fabric.VXLAN, alive=10, rate=4.0, cruise=10.0, test_share=0.5, seed=3
)


class Places:
    """A tester whose machines are in memory: what is plugged answers."""

    def __init__(self, *, deaf: bool = False, blind: bool = False) -> None:
        self._deaf = deaf
        self._blind = blind
        self.open = 0
        self.closed = False

    async def begin(self, slot: Slot) -> Trial | None:
        self.open += 1
        return Trial("netns", {"type": "internal"})

    async def half(self, trial: Trial, ips: Sequence[str]) -> bool:
        await asyncio.sleep(0.02)
        return not self._blind

    async def full(self, trial: Trial, ips: Sequence[str]) -> bool:
        await asyncio.sleep(0.05)
        return not self._deaf

    async def end(self, trial: Trial) -> None:
        self.open -= 1

    async def close(self) -> None:
        self.closed = True


class World:
    """A control plane and agents."""

    def __init__(self, *, agents: int = len(NODES)) -> None:
        self.store = memory()
        self.receipts = Receipts()
        self.agents = [
            SimulatedAgent(self.store, node, f"198.18.0.{number}", receipts=self.receipts, random=Random(number))
            for number, node in enumerate(NODES[:agents], 1)
        ]
        self.manager = assemble(self.store, random=Random(1), collect=True, parts=("",))

    async def during(self, work: Coroutine[Any, Any, RunResult]) -> RunResult:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.manager.run())]
            tasks += [group.create_task(agent.run()) for agent in self.agents]
            try:
                return await work
            finally:
                for task in tasks:
                    task.cancel()

    def reports(self) -> list[Report]:
        return [
            Report(agents=1, synced=agent.synced, times=self.receipts.times, informed=self.receipts.last,
                   knows={agent.node: agent.knows()}, written=agent.written, received=0, resident=0, cpu=0,
                   connections=0)
            for agent in self.agents
        ]  # fmt: skip


def driver(store: Store, load: Load = LOAD, **options: Any) -> Driver:
    planned = plan.networks(load)
    slots = plan.slots(load, planned, NODES)
    steps = list(plan.steps(load, len(slots)))
    return Driver(store, load, namespace="ns1", networks=planned, slots=slots, steps=steps, **options)


async def left(store: Store) -> list[str]:
    return [one.name for kind in objects.KINDS[:-1] for one in await objects.every(store, kind, objects.of_run("r1"))]


@pytest.mark.parametrize("seed", range(3))
def test_a_run_measures_every_attachment_and_leaves_nothing(seed: int) -> None:
    async def main() -> None:
        world, tester = World(), Places()
        made = driver(world.store, tester=tester)
        outcome = await world.during(made.run())
        assert not outcome.errors, outcome.examples
        assert len(outcome.lives) == sum(step.doing is plan.Doing.CREATE for step in plan.steps(LOAD, 16))
        for life in outcome.lives:
            assert life.due <= life.asked <= life.answered
            assert life.asked <= life.addressed <= life.ready <= life.ending <= life.ended
            assert not math.isnan(life.gone)
        found = outcome.summaries()
        assert 0 < found["tested"].count <= found["half tested"].count < len(outcome.lives)
        assert (tester.open, tester.closed, made.now.alive) == (0, True, 0)
        assert await left(world.store) == []
        assert {life.phase for life in outcome.lives} == {Phase.WARM_UP, Phase.CRUISE}

    run(main(), seed)


@pytest.mark.parametrize("cool_down", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_all_agents_know_what_concerns_them_before_each_phase(seed: int, cool_down: bool) -> None:
    async def main() -> None:
        world = World()
        made = driver(world.store, replace(LOAD, cool_down=cool_down))
        phases: list[Phase] = []

        async def look(phase: Phase) -> None:
            wanted = informing.expected("ns1", made.alive)
            assert sum(len(networks) for networks in wanted.values()) > len(NODES)
            while informing.differences(wanted, world.reports()):  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.01)
            phases.append(phase)

        outcome = await world.during(made.run(before_phase=look))
        informing.note(outcome, world.reports())
        assert phases == [Phase.CRUISE, Phase.COOL_DOWN]
        assert outcome.summaries()["informed"].count > 5
        assert world.receipts.times >= outcome.summaries()["informed"].count
        assert informing.differences({}, world.reports()) == []
        assert await left(world.store) == []

    run(main(), seed)


def test_without_a_cool_down_the_last_are_measured_too() -> None:
    async def main() -> None:
        world = World()
        outcome = await world.during(driver(world.store, replace(LOAD, cool_down=False, test_share=0.0)).run())
        assert not any(math.isnan(life.ready) for life in outcome.lives)
        assert await left(world.store) == []

    run(main())


def test_what_is_not_known_is_said_by_agent_and_network() -> None:
    async def main() -> None:
        world = World()
        made = driver(world.store)

        async def look(phase: Phase) -> None:
            life = made.alive[0]
            wanted = informing.expected("ns1", [one for one in made.alive if one is not life])
            told = informing.differences(wanted, world.reports())
            if told:
                raise TimedOut(told[0])

        with pytest.raises(ExceptionGroup) as caught:
            await world.during(made.run(before_phase=look))
        assert "knows" in repr(caught.value)
        assert await left(world.store) == []

    run(main())


@pytest.mark.parametrize(
    ("options", "kind"), [({"deaf": True}, "ping failed"), ({"blind": True}, "half test failed")], ids=["deaf", "blind"]
)
def test_a_test_that_fails_is_counted_and_the_run_goes_on(options: dict[str, bool], kind: str) -> None:
    async def main() -> None:
        world = World()
        outcome = await world.during(driver(world.store, tester=Places(**options)).run())
        assert set(outcome.errors) == {kind}
        assert any(kind in life.errors for life in outcome.lives)
        assert await left(world.store) == []

    run(main())


def test_a_run_that_is_to_stop_at_the_first_trouble_stops_and_cleans_up() -> None:
    async def main() -> None:
        world = World()
        made = driver(world.store, tester=Places(blind=True), stop_on_error=True)
        outcome = await world.during(made.run())
        assert outcome.errors["half test failed"] >= 1
        assert made.now.done < made.now.steps
        assert await left(world.store) == []

    run(main())


def test_attachments_that_never_become_ready_are_said_so() -> None:
    async def main() -> None:
        world = World(agents=0)
        outcome = await world.during(driver(world.store, pending=2.0).run())
        assert set(outcome.errors) == {"never Ready"}
        assert len(outcome.lives) == outcome.errors["never Ready"]
        assert await left(world.store) == []

    run(main())


def test_without_a_controller_nothing_is_begun() -> None:
    async def main() -> None:
        store = memory()
        with pytest.raises(TimedOut, match="is a controller running"):
            await driver(store, pending=2.0).run()
        assert await left(store) == []

    run(main())


def test_who_interrupts_a_run_finds_nothing_of_it() -> None:
    async def main() -> None:
        world = World()

        async def interrupted() -> RunResult:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(driver(world.store).run())
                await asyncio.sleep(3)
                assert await left(world.store)
                task.cancel()
            return RunResult("r1")

        await world.during(interrupted())
        assert await left(world.store) == []

    run(main())


class Refusing:
    """A store that does not take every third attachment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        if kind is NETWORK_ATTACHMENT:
            self._asked += 1
            if self._asked % 3 == 0:
                raise Conflict("not today")
        return await self._store.create(kind, document, dry_run=dry_run)


def test_what_the_server_does_not_take_is_counted_by_kind() -> None:
    async def main() -> None:
        world = World()
        outcome = await world.during(driver(Refusing(world.store)).run())
        assert set(outcome.errors) == {"create failed: Conflict"}
        assert 0 < outcome.errors.total() < len(outcome.lives)
        assert outcome.examples["create failed: Conflict"].endswith(": not today")

    run(main())


def test_only_nodes_that_are_ready_and_meant_are_used() -> None:
    async def main() -> None:
        world = World()

        async def look() -> RunResult:
            await asyncio.sleep(1)
            silent = objects.document(NODE, "r2", "", "silent", {"underlayIP": "198.18.9.9"})
            await world.store.create(NODE, silent)
            assert await objects.ready_nodes(world.store) == NODES
            assert await objects.ready_nodes(world.store, only="silent") == ["silent"]
            with pytest.raises(Exception, match="no Node with the labels a=b is Ready"):
                await objects.ready_nodes(world.store, "a=b")
            return RunResult("r1")

        await world.during(look())
        node: Any = (await world.store.get(NODE, "", NODES[0])).value()
        assert node.status.condition("Ready").status == TRUE

    run(main())


def test_the_same_seed_gives_the_same_run() -> None:
    async def main() -> list[tuple[str, float]]:
        world = World()
        outcome = await world.during(driver(world.store).run())
        return [(life.name, life.ready) for life in outcome.lives]

    assert sim.run(main(), seed=5) == sim.run(main(), seed=5)
