"""Real plans on a database that executes: what is planned can be written, in any order, and is there afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.northbound.driver import DATABASE, TABLES, Northbound
from netloom.errors import NetloomError
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.memory.serving import Pipe, dial
from netloom.ovsdb.monitor import Change
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.sim import loop as sim
from tests.control.ovn_world import schema
from tests.plan.planning import resources, unit_of

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "resources.yaml").exists())


class World:
    """A server in memory, and drivers that come, go and are cut off."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.database = Database(schema("nb"), Random(seed))
        self.servers = {"memory:1": Server([self.database])}
        self.pipes: list[Pipe] = []

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Northbound]:
        def connect(changed: Callable[[Sequence[Change]], None]) -> OvsdbClient:
            where = dial(self.servers, self.pipes)
            return OvsdbClient(["memory:1"], DATABASE, tables=TABLES, random=self.random, changed=changed, dial=where)

        north = Northbound(connect, random=self.random)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_run(north))
            await north.client.synced.wait()
            try:
                yield north
            finally:
                task.cancel()

    def cut(self) -> None:
        pipes, self.pipes[:] = list(self.pipes), []
        for pipe in pipes:
            pipe.cut()


async def _run(north: Northbound) -> None:
    await north.client.run()


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_written_whole_and_once_and_goes_whole(case: str) -> None:
    async def main() -> None:
        world, planner = World(1), Planner()
        for resource in resources((GOLDEN / case / "resources.yaml").read_text()):
            planner.put(resource)
        delta = planner.flush()
        async with world.driver() as north:
            await north.apply(planner.desired, delta)
            assert north.problems == {}
            assert north.seen() == planner.desired.rows.keys()
            assert (await north.apply(planner.desired)).transactions == 0
        async with world.driver() as north:
            assert (await north.apply(planner.desired)).transactions == 0
            await north.apply(DesiredRows())
        assert not any(world.database.tables.values())

    sim.run(main(), seed=1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_plans_a_change_at_a_time_come_to_the_same(case: str, seed: int) -> None:
    async def main() -> None:
        world, planner = World(seed), Planner()
        specs = resources((GOLDEN / case / "resources.yaml").read_text())
        async with world.driver() as north:
            for _ in range(2):
                world.random.shuffle(specs)
                for resource in specs:
                    planner.put(resource)
                    await north.apply(planner.desired, planner.flush())
                for resource in world.random.sample(specs, len(specs) // 2):
                    planner.remove(unit_of(resource))
                    if world.random.random() < 0.7:
                        await north.apply(planner.desired, planner.flush())
                await north.apply(planner.desired, planner.flush())
                assert north.problems == {}
                assert (await north.apply(planner.desired)).transactions == 0, "something was left"

    sim.run(main(), seed=seed)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "apply", "cut", "restart"]), st.integers(0, 99)), max_size=30
)


@given(case=st.sampled_from(CASES), seed=st.integers(0, 1 << 30), steps=STEPS)
def test_cut_off_or_killed_at_any_point_it_converges(case: str, seed: int, steps: list[tuple[str, int]]) -> None:
    specs = resources((GOLDEN / case / "resources.yaml").read_text())

    async def main() -> None:
        world, planner = World(seed), Planner()
        left = list(steps)
        while left:
            async with world.driver() as north:
                await _play(left, world, planner, specs, north)
        async with world.driver() as north:
            planner.flush()
            await north.apply(planner.desired)
            assert north.seen() == planner.desired.rows.keys()
            assert (await north.apply(planner.desired)).transactions == 0

    sim.run(main(), seed=seed)


async def _play(
    steps: list[tuple[str, int]], world: World, planner: Planner, specs: list[Any], north: Northbound
) -> None:
    """Do as the steps say until a restart."""
    sure = False
    while steps:
        what, number = steps.pop(0)
        one = specs[number % len(specs)]
        if what == "put":
            planner.put(one)
        elif what == "remove":
            planner.remove(unit_of(one))
        elif what == "restart":
            return
        else:
            task = asyncio.ensure_future(_apply(planner, north, full=not sure))
            if what == "cut":
                for _ in range(number):
                    await asyncio.sleep(0)
                world.cut()
            sure = await task


async def _apply(planner: Planner, north: Northbound, *, full: bool) -> bool:
    """Apply; return whether that worked, for then the next time the delta will do."""
    await north.client.synced.wait()
    with closing(planner.slices(3)) as deltas:
        try:
            if not full:
                await north.apply_each(planner.desired, deltas)
                return True
            for _ in deltas:
                pass
            await north.apply(planner.desired)
        except NetloomError:
            return False
    return True


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_plan_in_slices_comes_to_the_same(case: str, most: int) -> None:
    async def main() -> None:
        world, planner = World(most), Planner()
        specs = resources((GOLDEN / case / "resources.yaml").read_text())
        async with world.driver() as north:
            for _ in range(2):
                world.random.shuffle(specs)
                for resource in specs:
                    planner.put(resource)
                await north.apply_each(planner.desired, planner.slices(most))
                assert not north._seen.in_flight
                assert north.seen() == planner.desired.rows.keys()
                assert (await north.apply(planner.desired)).transactions == 0
                for resource in world.random.sample(specs, len(specs) // 2):
                    planner.remove(unit_of(resource))
                await north.apply_each(planner.desired, planner.slices(most))
                assert (await north.apply(planner.desired)).transactions == 0

    sim.run(main(), seed=most)


@pytest.mark.parametrize("seed", range(40))
def test_slices_in_any_order_come_to_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world, planner = World(seed), Planner()
        drain = planner.world.drain

        def shuffled() -> list[Unit]:  # A set's order is that of this process's strings: any may come.
            units = sorted(drain())
            world.random.shuffle(units)
            return units

        monkeypatch.setattr(planner.world, "drain", shuffled)
        case = CASES[seed % len(CASES)]
        specs = resources((GOLDEN / case / "resources.yaml").read_text())
        async with world.driver() as north:
            for _ in range(4):
                for resource in specs:
                    planner.put(resource)
                await north.apply_each(planner.desired, planner.slices(world.random.choice((1, 2))))
                assert north.seen() == planner.desired.rows.keys()
                for resource in world.random.sample(specs, len(specs) // 2):
                    planner.remove(unit_of(resource))
                await north.apply_each(planner.desired, planner.slices(world.random.choice((1, 2))))
                assert (await north.apply(planner.desired)).transactions == 0

    sim.run(main(), seed=seed)


def test_two_drivers_of_one_owner_end_with_one_row_of_each() -> None:
    async def main() -> None:
        world, planner = World(3), Planner()
        for resource in resources((GOLDEN / "router-with-a-way-out" / "resources.yaml").read_text()):
            planner.put(resource)
        planner.flush()
        async with world.driver() as one, world.driver() as two:
            await asyncio.gather(one.apply(planner.desired), two.apply(planner.desired))
            await one.apply(planner.desired)
            assert one.seen() == planner.desired.rows.keys()
            assert not one._seen.doubles
            assert (await two.apply(planner.desired)).transactions == 0

    for seed in range(20):
        sim.run(main(), seed=seed)


def test_whoever_is_refused_does_not_cost_the_others() -> None:
    async def main() -> None:
        world, planner = World(4), Planner()
        for resource in resources((GOLDEN / "profiles" / "resources.yaml").read_text()):
            planner.put(resource)
        planner.flush()
        bad = [ref for ref in planner.desired.rows if ref.table == "ACL"][:2]
        units = {planner.desired.of[ref] for ref in bad}
        for ref in bad:
            planner.desired.rows[ref].columns["priority"] = 1_000_000  # type: ignore[index]
        async with world.driver() as north:
            applied = await north.apply(planner.desired)
            assert applied.units == units == north.problems.keys()
            missing = planner.desired.rows.keys() - north.seen()
            assert {planner.desired.of[ref] for ref in missing} == units

    sim.run(main(), seed=1)
