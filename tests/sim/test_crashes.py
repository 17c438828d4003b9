import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from netloom.errors import NotFound, Unreachable
from netloom.model.registry import EVENT, NETWORK
from netloom.sim import loop as sim
from netloom.sim.crashes import Crashes, count, points
from netloom.sim.links import Moment
from netloom.sim.world import Process, World
from tests.control.helpers import document, memory, network, run

Body = Callable[[Process], Coroutine[Any, Any, None]]


async def _three_writes(crashes: Crashes) -> tuple[list[str], int]:
    """Create, change and delete a Network in one process, which does what is missing when it is started again."""

    async def body(process: Process) -> None:
        store = process.store
        await store.create(EVENT, document(EVENT, "", {}, generateName="told"))
        try:
            made = (await store.get(NETWORK, "ns1", "blue")).document()
        except NotFound:
            made = (await store.create(NETWORK, network("blue"))).document()
        made["spec"] = {"mtu": 1400}
        await store.update(NETWORK, made)
        await store.delete(NETWORK, "ns1", "blue")

    async with World(memory()) as world:
        watch = await world.store.watch(NETWORK, since=await world.store.revision())
        process = world.process("a", _surviving(body))
        crashes.attach(world, process)
        process.start()
        await asyncio.sleep(20)
        return [event.type.value for event in await watch.next()], process.incarnation


def _surviving(body: Body) -> Body:
    async def main(process: Process) -> None:
        try:
            await body(process)
        except Unreachable:
            assert not process.alive

    return main


def test_writes_are_counted_and_telling_people_is_none() -> None:
    crashes = Crashes()
    assert run(_three_writes(crashes)) == (["ADDED", "MODIFIED", "DELETED"], 1)
    assert [str(write) for write in crashes.writes] == [
        f"{verb} Network ns1/blue" for verb in ("create", "update", "delete")
    ]
    assert not crashes.crashed
    assert count(_three_writes, seed=0) == 3


def test_a_crash_before_a_write_prevents_it_and_after_it_does_not() -> None:
    ends: list[tuple[str, list[str]]] = []
    for point in points(3):
        crashes = Crashes(point)
        seen, incarnations = run(_three_writes(crashes))
        assert crashes.crashed
        assert incarnations == 2
        ends.append((str(point), seen))
    added, modified, deleted = "ADDED", "MODIFIED", "DELETED"
    assert ends == [
        ("before write 1", [added, modified, deleted]),
        ("after write 1", [added, modified, deleted]),
        ("before write 2", [added, modified, deleted]),
        ("after write 2", [added, modified, deleted]),
        ("before write 3", [added, modified, deleted]),
        ("after write 3", [added, modified, deleted, added, modified, deleted]),
    ]


def test_the_same_seed_is_the_same_history_up_to_the_crash() -> None:
    whole, cut = Crashes(), Crashes(next(points(1)))
    sim.run(_three_writes(whole), seed=7)
    sim.run(_three_writes(cut), seed=7)
    assert cut.at is not None
    assert cut.at.moment is Moment.BEFORE
    assert cut.writes[0] == whole.writes[0]


def test_there_are_two_points_to_each_write() -> None:
    assert [str(point) for point in points(2)] == ["before write 1", "after write 1", "before write 2", "after write 2"]
    with pytest.raises(StopIteration):
        next(points(0))
