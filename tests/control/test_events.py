import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any

from netloom.control.runtime.client import Client
from netloom.control.runtime.events import (
    BUFFERED,
    BURST,
    GROUP,
    LONGEST_MESSAGE,
    REMEMBERED,
    Bucket,
    Recorder,
    reference,
)
from netloom.control.runtime.sweep import expire_events, expire_events_once
from netloom.errors import NetloomError, Unreachable
from netloom.model.document import Document
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import EVENT, NETWORK
from netloom.sim import loop as sim
from netloom.store.base import Store, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import NOON, memory, network, network_of, run

NODE = ObjectReference(kind="Node", name="n1", uid="u1", api_version="netloom.dev/v1alpha1")


class Failing:
    """A store whose next writes raise what is queued for them."""

    def __init__(self, inner: MemoryStore, *errors: NetloomError) -> None:
        self.inner = inner
        self.errors = list(errors)

    async def create(self, *args: Any, **options: Any) -> Stored:
        if self.errors:
            raise self.errors.pop(0)
        return await self.inner.create(*args, **options)

    async def update(self, *args: Any, **options: Any) -> Stored:
        if self.errors:
            raise self.errors.pop(0)
        return await self.inner.update(*args, **options)


def virtual() -> datetime:
    return NOON + timedelta(seconds=sim.current().time())


@asynccontextmanager
async def recording(store: Any) -> AsyncIterator[Recorder]:
    typed: Store = store
    recorder = Recorder(typed, "tester", random=Random(1), host="h1", clock=virtual)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        yield recorder
        await recorder.flush()
        task.cancel()


async def documents(store: MemoryStore) -> list[Document]:
    return [stored.document() for stored in (await store.list(EVENT)).items]


def test_an_event_says_what_happened_to_whom() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue"))
        blue = await network_of(store, "blue")
        async with recording(store) as recorder:
            recorder.normal(blue, "Done", "it is done")
        [event] = await documents(store)
        metadata = event.pop("metadata")
        assert metadata["namespace"] == "ns1"
        assert metadata["name"].startswith("blue.")
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {
                "apiVersion": "netloom.dev/v1alpha1",
                "kind": "Network",
                "namespace": "ns1",
                "name": "blue",
                "uid": blue.metadata.uid,
            },
            "type": "Normal",
            "reason": "Done",
            "message": "it is done",
            "source": {"component": "tester", "host": "h1"},
            "firstTimestamp": "2030-01-01T12:00:00.000000Z",
            "lastTimestamp": "2030-01-01T12:00:00.000000Z",
            "count": 1,
            "reportingComponent": "tester",
            "reportingInstance": "h1",
        }
        assert reference(blue).resource_version == blue.metadata.resource_version

    run(main())


def test_the_same_thing_said_again_is_counted() -> None:
    async def main() -> None:
        store = memory()
        async with recording(store) as recorder:
            recorder.warning(NODE, "Gone", "no heartbeat")
            recorder.warning(NODE, "Gone", "no heartbeat")
            await recorder.flush()
            await asyncio.sleep(60)
            recorder.warning(NODE, "Gone", "no heartbeat")
            recorder.warning(NODE, "Gone", "another reason")
        first, second = sorted(await documents(store), key=lambda event: str(event["message"]))[::-1]
        assert (first["count"], first["type"]) == (3, "Warning")
        assert first["metadata"]["namespace"] == "default"
        assert first["firstTimestamp"] == "2030-01-01T12:00:00.000000Z"
        assert first["lastTimestamp"] == "2030-01-01T12:01:00.000000Z"
        assert second["count"] == 1

    run(main())


def test_an_event_that_was_deleted_meanwhile_is_made_anew() -> None:
    async def main() -> None:
        store = memory()
        async with recording(store) as recorder:
            recorder.normal(NODE, "Up", "")
            await recorder.flush()
            [event] = await documents(store)
            await store.delete(EVENT, "default", event["metadata"]["name"])
            recorder.normal(NODE, "Up", "")
        [event] = await documents(store)
        assert event["count"] == 1

    run(main())


def test_a_store_that_is_away_for_a_moment_loses_nothing_and_one_that_stays_away_harms_nobody() -> None:
    async def main() -> None:
        store = memory()
        failing = Failing(store, Unreachable("away"))
        async with recording(failing) as recorder:
            recorder.normal(NODE, "Up", "")
            await recorder.flush()
            assert len(await documents(store)) == 1
            failing.errors = [Unreachable("away"), Unreachable("away")]
            recorder.normal(NODE, "Down", "")
            await recorder.flush()
            assert recorder.counters.failed == 1
            assert recorder.counters.written == 1

    run(main())


def test_one_object_cannot_fill_the_store() -> None:
    async def main() -> None:
        store = memory()
        async with recording(store) as recorder:
            for number in range(100):
                recorder.normal(NODE, "Flapping", f"for the {number}. time")
            await recorder.flush()
            assert len(await documents(store)) == BURST
            assert recorder.counters.dropped == 100 - BURST
            await asyncio.sleep(600)
            for number in range(100):
                recorder.normal(NODE, "Flapping", f"again for the {number}. time")
        assert len(await documents(store)) == BURST + 2

    run(main())


def test_the_buffer_and_the_memory_are_bounded_and_messages_are_cut() -> None:
    async def main() -> None:
        store = memory()
        async with recording(store) as recorder:
            for number in range(BUFFERED + 5):
                recorder.normal(ObjectReference(kind="Node", name=f"n{number}"), "Up", "x" * 5000)
            assert recorder.counters.dropped == 5
            assert len(recorder._buckets) == REMEMBERED
        assert {len(event["message"]) for event in await documents(store)} == {LONGEST_MESSAGE}
        async with recording(store) as recorder:
            for batch in range(0, REMEMBERED + 10, 512):
                for number in range(batch, batch + 512):
                    recorder.normal(ObjectReference(kind="Node", name=f"n{number}"), "Up", "")
                await recorder.flush()
            assert len(recorder._events) == REMEMBERED

    run(main())


class Slow(MemoryStore):
    """A store whose writes take a second, and which counts how many are under way."""

    now = most = 0

    async def create(self, *args: Any, **options: Any) -> Stored:
        async with self._taking():
            return await super().create(*args, **options)

    async def update(self, *args: Any, **options: Any) -> Stored:
        async with self._taking():
            return await super().update(*args, **options)

    @asynccontextmanager
    async def _taking(self) -> AsyncIterator[None]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        yield


def about(number: int) -> ObjectReference:
    return ObjectReference(kind="Node", name=f"n{number}")


def test_events_are_written_together_and_never_more_than_a_group() -> None:
    async def main() -> None:
        store = Slow()
        async with recording(store) as recorder:
            for number in range(4093):
                recorder.normal(about(number), "Up", "")
            assert recorder.waiting == 4093
            began = sim.current().time()
            await recorder.flush()
            assert sim.current().time() - began < 4093 / GROUP + 2
        assert store.most == GROUP
        assert recorder.counters.written == len(await documents(store)) == 4093

    run(main())


def test_what_is_said_again_while_it_is_written_is_counted() -> None:
    async def main() -> None:
        store = Slow()
        async with recording(store) as recorder:
            recorder.normal(NODE, "Up", "")
            await asyncio.sleep(0.5)
            recorder.normal(NODE, "Up", "")
            recorder.normal(NODE, "Down", "")
        counts = {event["reason"]: event["count"] for event in await documents(store)}
        assert counts == {"Up": 2, "Down": 1}
        assert len(await documents(store)) == 2

    run(main())


def test_where_there_is_no_room_the_least_important_goes_and_warnings_are_written_first() -> None:
    async def main() -> None:
        store = Slow()
        async with recording(store) as recorder:
            for number in range(BUFFERED):
                recorder.normal(about(number), "Up", "")
            for number in range(5):
                recorder.warning(about(number), "Gone", "")
            recorder.normal(about(BUFFERED), "Up", "")
            assert recorder.counters.dropped == 6
            assert recorder.waiting == BUFFERED
            await asyncio.sleep(1.5)
            first = [event["reason"] for event in await documents(store)]
            assert first.count("Gone") == 5
            await recorder.flush()
        names = {event["involvedObject"]["name"] for event in await documents(store) if event["reason"] == "Up"}
        assert names == {f"n{number}" for number in range(5, BUFFERED)}

    run(main())


def test_warnings_alone_are_bounded_too() -> None:
    async def main() -> None:
        async with recording(memory()) as recorder:
            for number in range(BUFFERED + 5):
                recorder.warning(about(number), "Gone", "")
            assert recorder.waiting == BUFFERED
            assert recorder.counters.dropped == 5

    run(main())


def test_a_bucket_refills_slowly_and_never_over_its_rim() -> None:
    bucket = Bucket()
    assert [bucket.take(0) for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert bucket.take(300)
    assert not bucket.take(300)
    assert [bucket.take(10**9) for _ in range(BURST + 1)] == [True] * BURST + [False]


async def _event(store: MemoryStore, name: str, **fields: Any) -> None:
    document = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "ns1"}, **fields}
    await store.create(EVENT, document | {"involvedObject": {"kind": "Node", "name": "n1"}})


def test_events_are_kept_for_an_hour_after_they_were_made_whatever_times_they_name() -> None:
    async def main() -> None:
        store = memory()
        await _event(store, "future", lastTimestamp="2099-01-01T00:00:00Z", eventTime="2099-01-01T00:00:00.000000Z")
        await _event(store, "series", series={"count": 2, "lastObservedTime": "2099-01-01T00:00:00.000000Z"})
        await _event(store, "plain")
        await _event(store, "past", lastTimestamp="2000-01-01T00:00:00Z")
        assert await expire_events_once(Client(store), clock=lambda: NOON + timedelta(hours=1)) == 0
        assert len(await documents(store)) == 4
        assert await expire_events_once(Client(store), clock=lambda: NOON + timedelta(hours=1, seconds=1)) == 4
        assert await documents(store) == []

    run(main())


def test_an_event_that_is_counted_up_again_and_again_expires_too() -> None:
    class Racing(MemoryStore):
        async def delete(self, *args: Any, **options: Any) -> Stored:
            document = (await self.get(EVENT, "ns1", "old")).document()
            await self.update(EVENT, document | {"count": 2})
            return await super().delete(*args, **options)

    async def main() -> None:
        store = Racing(clock=lambda: NOON.timestamp())
        await _event(store, "old")
        assert await expire_events_once(Client(store), clock=lambda: NOON + timedelta(hours=2)) == 1
        assert await documents(store) == []

    run(main())


def test_expiring_goes_on_after_the_store_was_away() -> None:
    async def main() -> None:
        store = memory()
        await _event(store, "old")
        certain = [False, True]
        client = Client(store, fence=lambda: certain.pop(0))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(expire_events(client, random=Random(1), clock=lambda: NOON + timedelta(hours=2)))
            await asyncio.sleep(380)
            assert len(await documents(store)) == 1
            await asyncio.sleep(380)
            assert await documents(store) == []
            task.cancel()

    run(main())
