"""How watchers are told: what the suite cannot see from outside."""

import asyncio

import pytest

from netloom.errors import Expired, Unreachable
from netloom.model.values.selectors import EVERYTHING, Selector, selector
from netloom.store.base import Event, EventType, Stored
from netloom.store.hub import Change, Hub, HubWatch
from netloom.store.memory import MemoryStore
from netloom.store.semantics import encode, stamp
from tests.store.kinds import GADGET, WIDGET, widget


def at(revision: int, name: str = "a", **spec: str) -> Stored:
    return stamp(WIDGET, "ns", name, revision, encode(WIDGET, widget("ns", name, None, **spec)))


def change(new: Stored | None, old: Stored | None = None, revision: int = 0) -> Change:
    some = new or old
    assert some is not None
    return Change(revision or some.revision, WIDGET, f"ns/{some.name}", "ns", new, old)


def on_node(node: str) -> Selector:
    return selector("", f"spec.node={node}", selectable=WIDGET.selectable)


def ready(watch: HubWatch) -> list[str]:
    return [f"{event.type} {event.object.revision}" for event in watch._queue]


def test_all_who_see_a_change_alike_get_the_same_event() -> None:
    hub = Hub(revision=1)
    watches = [hub.watch(WIDGET, "", EVERYTHING, 1) for _ in range(3)]
    watches.append(hub.watch(WIDGET, "ns", on_node("n1"), 1))
    hub.publish([change(at(2, node="n1"))])
    events = {id(watch._queue[0]) for watch in watches}
    assert len(events) == 1


def test_an_anchored_watcher_is_found_by_the_value_before_and_after() -> None:
    hub = Hub(revision=1)
    n1, n2, n3 = (hub.watch(WIDGET, "", on_node(node), 1) for node in ("n1", "n2", "n3"))
    first, second = at(2, node="n1"), at(3, node="n2")
    hub.publish([change(first), change(second, first)])
    assert (ready(n1), ready(n2), ready(n3)) == (["ADDED 2", "DELETED 3"], ["ADDED 3"], [])


def test_a_change_to_one_node_is_not_even_offered_to_the_watchers_of_others() -> None:
    hub = Hub(revision=1)
    for number in range(100):
        hub.watch(WIDGET, "", on_node(f"n{number}"), 1)
    (audience,) = hub._audiences.values()
    assert len(list(audience.concerned(change(at(2, node="n7"))))) == 1
    assert len(list(audience)) == 100


def test_the_last_to_leave_takes_the_channel_away() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watches = [hub.watch(WIDGET, "", on_node("n1"), 1), hub.watch(WIDGET, "", EVERYTHING, 1)]
        for watch in watches:
            await watch.close()
            await watch.close()
        (audience,) = hub._audiences.values()
        assert list(audience) == []
        assert list(audience.concerned(change(at(2, node="n1")))) == []
        hub.publish([change(at(2, node="n1"))])
        assert [ready(watch) for watch in watches] == [[], []]

    asyncio.run(go())


def test_a_watch_from_ahead_sees_nothing_twice() -> None:
    """Where the list comes from a server and the changes from a feed that is behind it."""
    hub = Hub(revision=1)
    watch = hub.watch(WIDGET, "", EVERYTHING, 3)
    hub.publish([change(at(2)), change(at(3, "b")), change(at(4, "c"))])
    assert ready(watch) == ["ADDED 4"]
    assert watch.revision == 3


def test_a_watch_without_news_knows_how_far_it_is() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watch = hub.watch(GADGET, "", EVERYTHING, 1)
        hub.publish([change(at(2))])
        assert watch.revision == 2
        hub.advance(7)
        hub.advance(3)
        assert watch.revision == 7

    asyncio.run(go())


def test_a_watcher_that_does_not_read_is_told_to_list_again() -> None:
    async def go() -> None:
        hub = Hub(revision=1, queue_length=5)
        slow, quick = hub.watch(WIDGET, "", EVERYTHING, 1), hub.watch(WIDGET, "", EVERYTHING, 1)
        for revision in range(2, 10):
            hub.publish([change(at(revision, f"w{revision}"))])
            await quick.next()
        assert ready(slow) == []
        with pytest.raises(Expired, match="fell too far behind"):
            await slow.next()
        assert slow.revision == 1
        hub.publish([change(at(10))])
        assert [event.object.revision for event in await quick.next()] == [10]

    asyncio.run(go())


def test_what_was_missed_before_the_beginning_does_not_count_against_a_watcher() -> None:
    async def go() -> None:
        hub = Hub(revision=1, queue_length=2)
        hub.publish([change(at(revision, f"w{revision}")) for revision in range(2, 10)])
        watch = hub.watch(WIDGET, "", EVERYTHING, 1)
        hub.publish([change(at(10))])
        assert len(await watch.next()) == 9

    asyncio.run(go())


def test_the_window_is_bounded_by_number_and_by_bytes() -> None:
    hub = Hub(revision=1, window_changes=10, window_bytes=1 << 30)
    left = hub.publish([change(at(revision, f"w{revision}")) for revision in range(2, 33)])
    assert [gone.revision for gone in left] == list(range(2, 23))
    assert hub.oldest == 22
    assert len(hub.after(22)) == 10
    with pytest.raises(Expired, match=r"too old resource version: 21 \(22\)"):
        hub.after(21)
    with pytest.raises(Expired):
        hub.watch(WIDGET, "", EVERYTHING, 21)
    small = Hub(revision=1, window_bytes=10_000)
    for revision in range(2, 100):
        small.publish([change(at(revision, pad="x" * 1000))])
        assert sum(kept.size for kept in small._window) < 13_000, "what left the window is let go soon"
    assert 0 < len(small.after(small.oldest)) < 10


def test_memory_does_not_grow_with_watchers_that_do_not_read() -> None:
    """A watcher may not keep alive what has left the window, however long its own queue may be."""
    hub = Hub(revision=1, window_changes=500, queue_length=1_000_000)
    slow = hub.watch(WIDGET, "", EVERYTHING, 1)
    for revision in range(2, 5_000):
        hub.publish([change(at(revision, "w"))])
    assert ready(slow) == []
    assert len(hub._window) < 1_000


def test_who_waits_is_told_once_for_a_whole_batch() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watch = hub.watch(WIDGET, "", EVERYTHING, 1)
        task = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        hub.publish([change(at(2)), change(at(3, "b"))])
        assert len(await task) == 2

    asyncio.run(go())


def test_a_cancelled_next_loses_nothing() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watch = hub.watch(WIDGET, "", EVERYTHING, 1)
        task = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        hub.publish([change(at(2))])
        task.cancel()
        await asyncio.wait([task])
        assert [event.object.revision for event in await watch.next()] == [2]

    asyncio.run(go())


def test_a_hub_that_lost_its_past_tells_everybody_to_list_again() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watch = hub.watch(WIDGET, "", EVERYTHING, 1)
        hub.publish([change(at(2))])
        hub.restart(50)
        with pytest.raises(Expired, match="too old resource version"):
            await watch.next()
        with pytest.raises(Expired):
            hub.watch(WIDGET, "", EVERYTHING, 2)
        assert ready(hub.watch(WIDGET, "", EVERYTHING, 50)) == []

    asyncio.run(go())


def test_what_is_queued_is_delivered_before_the_end() -> None:
    async def go() -> None:
        store = MemoryStore()
        watch = await store.watch(WIDGET, since=await store.revision())
        await store.create(WIDGET, widget("ns", "a"))
        await store.close()
        (event,) = await watch.next()
        assert event.type is EventType.ADDED
        with pytest.raises(Unreachable):
            await watch.next()

    asyncio.run(go())


def test_a_sink_takes_events_at_once_and_the_rest_comes_by_next_in_order() -> None:
    async def go() -> None:
        hub = Hub(revision=1)
        watch = hub.watch(WIDGET, "", EVERYTHING, 1)
        taken: list[int] = []
        full = False

        def sink(event: Event) -> bool:
            if not full:
                taken.append(event.object.revision)
            return not full

        watch.direct(sink)
        hub.publish([change(at(2))])
        assert (taken, ready(watch), watch.revision) == ([2], [], 2)
        full = True
        hub.publish([change(at(3), at(2))])
        full = False
        hub.publish([change(at(4), at(3))])  # Behind what waits already: not out of turn.
        assert (taken, ready(watch), watch.revision) == ([2], ["MODIFIED 3", "MODIFIED 4"], 2)
        assert [event.object.revision for event in await watch.next()] == [3, 4]
        hub.publish([change(at(5), at(4))])
        watch.direct(None)
        hub.publish([change(at(6), at(5))])
        assert (taken, ready(watch)) == ([2, 5], ["MODIFIED 6"])

    asyncio.run(go())
