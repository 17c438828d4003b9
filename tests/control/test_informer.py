import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.informer import PAGE, Informer, informer
from netloom.errors import Expired, Forbidden, NetloomError, Unauthorized, Unreachable
from netloom.model.kinds.networks import Network
from netloom.model.registry import NETWORK
from netloom.model.values.selectors import selector
from netloom.sim.world import eventually
from netloom.store.base import Event, Page, Sink, Store, Watch
from netloom.store.memory import MemoryStore
from tests.control.helpers import memory, network, run


class Moody:
    """A memory store that fails on request: the next lists, watches or events raise what is queued for them."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.lists: list[NetloomError] = []
        self.watches: list[NetloomError] = []
        self.batches: list[NetloomError] = []
        self.since: list[int] = []
        self.limits: list[int | None] = []
        self.closed = 0

    async def list(self, *args: Any, **options: Any) -> Page:
        self.limits.append(options["limit"])
        if self.lists:
            raise self.lists.pop(0)
        return await self.inner.list(*args, **options)

    async def watch(self, *args: Any, since: int, **options: Any) -> Watch:
        self.since.append(since)
        if self.watches:
            raise self.watches.pop(0)
        return MoodyWatch(self, await self.inner.watch(*args, since=since, **options))


class MoodyWatch:
    def __init__(self, moody: Moody, inner: Watch) -> None:
        self.moody = moody
        self.inner = inner

    async def next(self) -> Sequence[Event]:
        events = await self.inner.next()
        if self.moody.batches:
            raise self.moody.batches.pop(0)
        return events

    @property
    def revision(self) -> int:
        return self.inner.revision

    def direct(self, sink: Sink | None) -> None:
        self.inner.direct(sink)

    async def close(self) -> None:
        self.moody.closed += 1
        await self.inner.close()


def follow(store: Any, **options: Any) -> Informer[Network]:
    typed: Store = store
    return informer(typed, Network, random=Random(1), **options)


def names(following: Informer[Network]) -> list[str]:
    return sorted(value.metadata.name for value in following.cache)


def test_an_informer_has_what_was_there_and_follows_what_comes() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("a"))
        seen: list[tuple[str, bool, bool]] = []

        def note(change: Change[Network]) -> None:
            seen.append((change.key.name, change.old is not None, change.new is not None))

        following = follow(store, indexes={"vni": lambda value: [str(value.spec.vni)]})
        following.on_change(note)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            assert names(following) == ["a"]
            await store.create(NETWORK, network("b", 7))
            await eventually(lambda: len(following.cache) == 2)
            assert [value.metadata.name for value in following.cache.indexed("vni", "7")] == ["b"]
            await store.delete(NETWORK, "ns1", "a")
            await eventually(lambda: names(following) == ["b"])
            task.cancel()
        assert seen == [("a", False, True), ("b", False, True), ("a", True, False)]
        late: list[Key] = []
        following.on_change(lambda change: late.append(change.key))
        assert late == [Key("ns1", "b")]

    run(main())


def test_one_that_nobody_wants_goes_on_while_its_stream_does_and_asks_for_no_other() -> None:
    async def main() -> None:
        store = Moody(memory())
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await eventually(lambda: following.following)
            following.wanted.clear()
            await store.inner.create(NETWORK, network("a"))
            await eventually(lambda: names(following) == ["a"])
            store.batches.append(Unreachable("cut"))
            await store.inner.create(NETWORK, network("b"))
            await eventually(lambda: not following.following)
            await asyncio.sleep(60)
            assert (names(following), len(store.since), following.lists) == (["a"], 1, 1)
            following.wanted.set()
            await eventually(lambda: names(following) == ["a", "b"])
            assert (following.following, len(store.since), following.lists) == (True, 2, 1)
            task.cancel()

    run(main())


def test_a_broken_stream_is_resumed_from_the_last_revision_without_a_list() -> None:
    async def main() -> None:
        store = Moody(memory())
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            await store.inner.create(NETWORK, network("a"))
            await eventually(lambda: names(following) == ["a"])
            store.batches = [Unreachable("broken")]
            store.watches = [Unreachable("away"), Unreachable("away")]
            await store.inner.create(NETWORK, network("b"))
            await eventually(lambda: names(following) == ["a", "b"])
            assert following.lists == 1
            assert following.watches == 2
            assert store.since[1:] == [following.cache.revision - 1] * 3
            task.cancel()
        assert store.closed == 2

    run(main())


def test_an_expired_revision_means_listing_again_and_deletions_are_not_missed() -> None:
    async def main() -> None:
        store = Moody(memory())
        await store.inner.create(NETWORK, network("a"))
        gone: list[str] = []
        following = follow(store)
        following.on_change(lambda change: gone.append(change.key.name) if change.new is None else None)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            store.batches = [Expired("too old")]
            await store.inner.delete(NETWORK, "ns1", "a")
            await eventually(lambda: gone == ["a"])
            assert following.lists == 2
            task.cancel()

    run(main())


def test_a_list_whose_pages_expire_is_made_in_one_piece() -> None:
    async def main() -> None:
        store = Moody(memory())
        store.lists = [Expired("token")]
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            assert store.limits == [PAGE, None]
            task.cancel()

    run(main())


def test_long_lists_come_in_pages() -> None:
    async def main() -> None:
        store = Moody(memory())
        for number in range(5):
            await store.inner.create(NETWORK, network(f"n{number}"))
        following = follow(store, page=2)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            assert len(following.cache) == 5
            assert store.limits == [2, 2, 2]
            task.cancel()

    run(main())


def test_being_refused_is_logged_and_tried_again_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Moody(memory())
        store.lists = [Forbidden("you may not")]
        store.watches = [Forbidden("you may not")]
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await eventually(lambda: following.watches == 1)
            assert following.lists == 2
            task.cancel()

    run(main())
    assert [record.message for record in caplog.records] == ["cannot watch networks.netloom.dev: you may not"] * 2


def test_an_informer_that_has_lost_its_right_asks_seldom_and_goes_on_when_it_has_it_again() -> None:
    async def main() -> None:
        store = Moody(memory())
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await eventually(lambda: following.following)
            store.batches, store.lists = [Unauthorized("Unauthorized")], [Unauthorized("Unauthorized")] * 10_000
            await store.inner.create(NETWORK, network("one"))
            await asyncio.sleep(600)
            asked = 10_000 - len(store.lists)
            assert 10 < asked < 50
            store.lists.clear()
            await eventually(lambda: following.cache.get("ns1", "one") is not None, within=60)
            task.cancel()

    run(main())


def test_an_informer_that_nobody_needs_does_not_complain_of_a_right_it_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Moody(memory())
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await eventually(lambda: following.following)
            following.wanted.clear()
            store.batches = [Forbidden("you may not")]
            await store.inner.create(NETWORK, network("one"))
            await asyncio.sleep(60)
            assert (following.following, following.lists) == (False, 1)
            task.cancel()

    run(main())
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_an_informer_sees_only_its_namespace_and_selection() -> None:
    async def main() -> None:
        store = memory()
        chosen = selector(fields="spec.vni=7", selectable=NETWORK.selectable)
        following = follow(store, namespace="ns1", selector=chosen)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            await store.create(NETWORK, network("other", 8))
            await store.create(NETWORK, network("far", 7, "ns2"))
            await store.create(NETWORK, network("mine", 7))
            await eventually(lambda: names(following) == ["mine"])
            task.cancel()

    run(main())


def test_waits_grow_while_the_store_is_away() -> None:
    async def main() -> float:
        store = Moody(memory())
        store.lists = [Unreachable("away") for _ in range(12)]
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            task.cancel()
        return asyncio.get_running_loop().time()

    assert 60 < run(main()) < 180


def test_managed_fields_are_not_kept() -> None:
    async def main() -> None:
        store = memory()
        managed = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
        await store.create(NETWORK, network("a", 7, managedFields=managed))
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await following.synced.wait()
            [value] = following.cache
            assert value.metadata.managed_fields == ()
            assert value.spec.vni == 7
            task.cancel()

    run(main())


def test_watches_that_end_now_and_then_are_no_trouble() -> None:
    class Tired(Moody):
        """A server that ends every watch after five minutes."""

        async def watch(self, *args: Any, since: int, **options: Any) -> Watch:
            self.since.append(since)
            return TiredWatch(self, await self.inner.watch(*args, since=since, **options))

    class TiredWatch(MoodyWatch):
        async def next(self) -> Sequence[Event]:
            await asyncio.sleep(300)
            raise Unreachable("the server ended the watch")

    async def main() -> None:
        store = Tired(memory())
        following = follow(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(following.run())
            await asyncio.sleep(3600 + 10)
            assert following.watches == 13
            assert following.lists == 1
            task.cancel()

    run(main())
