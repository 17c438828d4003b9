import asyncio
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.controller import Controller
from netloom.control.runtime.election import Election
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import informer
from netloom.control.runtime.manager import Manager
from netloom.model.kinds.events import ObjectReference
from netloom.model.kinds.networks import Network
from netloom.model.registry import EVENT, NETWORK
from netloom.sim.world import eventually
from netloom.store.memory import MemoryStore
from tests.control.helpers import memory, network, run


def manager(store: MemoryStore, look: Any, *, identity: str = "", grace: float = 10.0, **options: Any) -> Manager:
    random = Random(identity)
    election = Election(store, name="x", namespace="default", identity=identity, random=random) if identity else None
    networks = informer(store, Network, random=random)
    recorder = Recorder(store, "test", random=random)
    controller = Controller(
        "test", look, random=random, fence=election.certain if election else lambda: True, recorder=recorder
    )
    controller.watch(networks, lambda change: [change.key])
    return Manager(
        controllers=[controller],
        informers=[networks],
        recorder=recorder,
        random=random,
        election=election,
        grace=grace,
        **options,
    )


def test_a_manager_alone_works_as_soon_as_its_caches_are_full() -> None:
    async def main() -> None:
        store, seen, chores = memory(), list[str](), list[str]()
        await store.create(NETWORK, network("a"))

        async def look(key: Any) -> None:
            seen.append(key.name)
            running.recorder.normal(ObjectReference(kind="Network", name=key.name), "Seen", "")

        async def chore() -> None:
            chores.append("done")

        running = manager(store, look, chores=[chore])
        assert (running.ready, running.leading) == (False, False)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.run())
            await eventually(lambda: seen == ["a"])
            assert (running.ready, running.leading) == (True, True)
            task.cancel()
        assert chores == ["done"]
        assert not running.leading
        assert len((await store.list(EVENT)).items) == 1  # Written although it was told at the very end.

    run(main())


def test_who_stands_by_has_full_caches_and_does_nothing_until_the_other_is_gone() -> None:
    async def main() -> None:
        store, seen = memory(), list[tuple[str, str]]()

        def looking(who: str) -> Any:
            async def look(key: Any) -> None:
                seen.append((who, key.name))

            return look

        one, two = manager(store, looking("one"), identity="one"), manager(store, looking("two"), identity="two")
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.run())
            await eventually(lambda: one.leading)
            second = group.create_task(two.run())
            await store.create(NETWORK, network("a"))
            await asyncio.sleep(10)
            assert seen == [("one", "a")]
            assert (two.ready, two.leading) == (True, False)
            first.cancel()
            await eventually(lambda: seen == [("one", "a"), ("two", "a")])
            second.cancel()

    run(main())


@pytest.mark.parametrize(("grace", "finished"), [(10.0, True), (1.0, False)])
def test_a_graceful_stop_lets_reconciles_finish_within_the_grace(grace: float, finished: bool) -> None:
    async def main() -> None:
        store, ended = memory(), list[str]()
        await store.create(NETWORK, network("a"))
        began = asyncio.Event()

        async def look(key: Any) -> None:
            began.set()
            await asyncio.sleep(5)
            ended.append(key.name)

        running = manager(store, look, identity="one", grace=grace)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.run())
            await began.wait()
            task.cancel()
        assert bool(ended) is finished
        assert running.election is not None
        assert running.election.holder == ""

    run(main())


def test_a_lost_lease_cancels_reconciles_at_once() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("a"))
        began, ended = asyncio.Event(), list[float]()
        loop = asyncio.get_running_loop()

        async def look(key: Any) -> None:
            began.set()
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(loop.time())

        running = manager(store, look, identity="one", grace=100)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.run())
            await began.wait()
            now = loop.time()
            await store.close()
            await eventually(lambda: bool(ended), within=4)
            assert ended[0] - now <= 3
            assert not running.leading
            task.cancel()

    run(main())


def test_events_that_cannot_be_written_do_not_hold_up_the_stop() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("a"))
        seen = asyncio.Event()

        async def look(key: Any) -> None:
            await store.close()
            running.recorder.normal(ObjectReference(kind="Network", name="a"), "Seen", "")
            running.recorder.normal(ObjectReference(kind="Network", name="b"), "Seen", "")
            running.recorder.normal(ObjectReference(kind="Network", name="c"), "Seen", "")
            seen.set()

        running = manager(store, look)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.run())
            await seen.wait()
            now = asyncio.get_running_loop().time()
            task.cancel()
        assert asyncio.get_running_loop().time() - now <= 1.1

    run(main())
