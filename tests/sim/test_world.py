import asyncio

import pytest

from netloom.errors import AlreadyExists, Expired, NotFound, Unreachable
from netloom.model.registry import NETWORK
from netloom.sim import loop as sim
from netloom.sim.links import NO_FAULTS, NetworkFaults
from netloom.sim.world import Process, World, eventually
from netloom.store.base import Propagation
from tests.control.helpers import memory, network, run


async def nothing(_: Process) -> None:
    """Be a process that does nothing by itself."""


def test_a_process_reaches_the_store_through_its_link() -> None:
    async def main() -> None:
        async with World(memory()) as world:
            store = world.process("a", nothing).store
            made = await store.create(NETWORK, network("blue"))
            watch = await store.watch(NETWORK, since=await store.revision())
            assert watch.revision == made.revision
            document = (await store.get(NETWORK, "ns1", "blue")).document()
            document["spec"] = {"mtu": 1400}
            await store.update(NETWORK, document)
            [event] = await watch.next()
            assert watch.revision == event.object.revision
            await watch.close()
            assert len((await store.list(NETWORK)).items) == 1
            await store.delete(NETWORK, "ns1", "blue", propagation=Propagation.BACKGROUND)
            with pytest.raises(NotFound):
                await store.get(NETWORK, "ns1", "blue")
            await store.close()
            assert await world.store.revision() > made.revision

    run(main())


def test_a_lost_request_did_nothing_and_a_lost_answer_did_something_and_the_caller_cannot_tell() -> None:
    async def main() -> None:
        for faults, there in ((NetworkFaults(lose_request=1.0), False), (NetworkFaults(lose_answer=1.0), True)):
            async with World(memory(), faults=faults) as world:
                with pytest.raises(Unreachable, match="no answer"):
                    await world.process("a", nothing).store.create(NETWORK, network("blue"))
                assert bool((await world.store.list(NETWORK)).items) is there

    run(main())


def test_refusals_travel_back() -> None:
    async def main() -> None:
        async with World(memory()) as world:
            store = world.process("a", nothing).store
            await store.create(NETWORK, network("blue"))
            with pytest.raises(AlreadyExists):
                await store.create(NETWORK, network("blue"))

    run(main())


def test_watches_break_and_expire() -> None:
    async def main() -> None:
        for faults, error in (
            (NetworkFaults(break_watch=1.0), Unreachable),
            (NetworkFaults(expire_watch=1.0), Expired),
        ):
            async with World(memory(), faults=faults) as world:
                watch = await world.process("a", nothing).store.watch(NETWORK, since=await world.store.revision())
                await world.store.create(NETWORK, network("blue"))
                with pytest.raises(error):
                    await watch.next()

    run(main())


def test_a_partition_stops_everything_and_ends() -> None:
    async def main() -> None:
        async with World(memory()) as world:
            process = world.process("a", nothing)
            watch = await process.store.watch(NETWORK, since=await world.store.revision())
            process.link.cut()
            await world.store.create(NETWORK, network("blue"))
            with pytest.raises(Unreachable):
                await process.store.get(NETWORK, "ns1", "blue")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10):
                    await watch.next()
            process.link.heal()
            assert (await process.store.get(NETWORK, "ns1", "blue")).name == "blue"

    run(main())


def test_a_watch_held_up_by_a_partition_goes_on_after_it() -> None:
    async def main() -> None:
        async with World(memory()) as world:
            process = world.process("a", nothing)
            watch = await process.store.watch(NETWORK, since=await world.store.revision())
            process.link.cut()
            await world.store.create(NETWORK, network("blue"))
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(watch.next())
                await asyncio.sleep(10)
                assert not waiting.done()
                process.link.heal()
            assert len(waiting.result()) == 1

    run(main())


def test_a_killed_process_does_nothing_more_but_what_it_sent_may_arrive() -> None:
    async def one(arrives: bool) -> None:
        tidied: list[str] = []

        async def main(process: Process) -> None:
            try:
                await process.store.create(NETWORK, network("sent"))
                await asyncio.Event().wait()
            finally:
                try:
                    await process.store.create(NETWORK, network("tidied"))
                except Unreachable as error:
                    tidied.append(str(error))

        async with World(memory()) as world:
            process = world.process("a", main)
            alive = [process.alive]
            process.start()
            alive.append(process.alive)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if arrives:
                await asyncio.sleep(0.1)
            process.kill()
            assert [*alive, process.alive] == [False, True, False]
            await asyncio.sleep(5)
            names = [item.name for item in (await world.store.list(NETWORK)).items]
            assert names in ([], ["sent"])
            assert tidied in ([], ["this process is dead"])
            process.kill()
            await process.stop()
            process.start()
            assert process.incarnation == 2

    for seed in range(10):
        run(one(arrives=bool(seed % 2)), seed)


def test_a_stopped_process_ends_in_its_own_time() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def body(process: Process) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await process.store.create(NETWORK, network("tidied"))
                ended.append(process.name)

        async with World(memory()) as world:
            process = world.process("a", body)
            process.start()
            await asyncio.sleep(1)
            await process.stop()
            assert ended == ["a"]
            assert len((await world.store.list(NETWORK)).items) == 1

    run(main())


def test_a_frozen_process_stands_still_and_thaws_late() -> None:
    async def main() -> None:
        ticks: list[float] = []

        async def body(_: Process) -> None:
            while True:
                ticks.append(sim.current().time())
                await asyncio.sleep(1)

        async with World(memory()) as world:
            process, other = world.process("a", body), world.process("b", nothing)
            process.start()
            await asyncio.sleep(2.5)
            process.freeze()
            process.freeze()
            other.thaw()
            await asyncio.sleep(10)
            assert len(ticks) == 3
            process.thaw()
            await asyncio.sleep(0.1)
            assert ticks[-1] == 12.5

    run(main())


def test_everybodys_clock_is_wrong_in_its_own_way() -> None:
    async def main() -> None:
        world = World(memory())
        one, two = world.process("a", nothing), world.process("b", nothing)
        before = one.clock()
        assert one.clock() != two.clock()
        await asyncio.sleep(5)
        assert (one.clock() - before).total_seconds() == 5

    run(main())


def test_an_error_in_any_part_is_raised_on_leaving_the_world() -> None:
    async def broken(_: Process) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with World(memory(), faults=NO_FAULTS) as world:
            world.process("a", broken).start()
            await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_what_never_holds_is_an_error() -> None:
    async def main() -> None:
        await eventually(lambda: False, within=5)

    with pytest.raises(AssertionError, match="not within 5 virtual seconds"):
        run(main())


def test_an_invariant_is_looked_at_after_every_step() -> None:
    async def main() -> None:
        state = {"broken": False}

        def holds() -> None:
            assert not state["broken"]

        sim.current().invariants.append(holds)
        state["broken"] = True
        await asyncio.sleep(0)
        state["broken"] = False

    with pytest.raises(AssertionError):
        run(main())


def test_events_lag_and_are_said_again_and_lists_are_old_when_they_arrive() -> None:
    async def main() -> None:
        faults = NetworkFaults(latency=0.0, lag=5.0, repeat_watch=1.0)
        async with World(memory(), faults=faults) as world:
            store = world.process("a", nothing).store
            watch = await store.watch(NETWORK, since=await world.store.revision())
            await world.store.create(NETWORK, network("blue"))
            [first] = await watch.next()
            assert sim.current().time() > 0
            await world.store.create(NETWORK, network("red"))
            again, second = await watch.next()
            assert again is first
            assert watch.revision == second.object.revision
            async with asyncio.TaskGroup() as group:
                listing = group.create_task(store.list(NETWORK))
                await asyncio.sleep(0.001)
                await world.store.create(NETWORK, network("late"))
            page = listing.result()
            assert [item.name for item in page.items] == ["blue", "red"]
            assert page.revision == second.object.revision

    run(main())
