"""Watching, on every store alike."""

import asyncio
from collections import Counter

import pytest

from netloom.errors import Expired, Unreachable
from netloom.model.values.selectors import selector
from netloom.store.base import Event, EventType
from tests.store.backends import LOCAL, QUEUE, SHARED, World, collect, expires, scenario, seen
from tests.store.kinds import GADGET, HOLD, WIDGET, gadget, widget


@scenario
async def test_a_watch_since_a_list_sees_what_comes_after_in_order(w: World) -> None:
    await w.add("before")
    since = (await w.store.list(WIDGET, w.ns)).revision
    async with w.watching(since=since) as watch:
        made = await w.add("blue", node="n1")
        changed = await w.edit("blue", lambda d: d["spec"].update(node="n2"))
        await w.remove("blue")
        await w.add("last")
        events = await collect(watch, 4)
    assert [f"{e.type} {e.object.name}" for e in events] == [
        "ADDED blue",
        "MODIFIED blue",
        "DELETED blue",
        "ADDED last",
    ]
    revisions = [event.object.revision for event in events]
    assert revisions == sorted(set(revisions))
    assert revisions[:2] == [made.revision, changed.revision]
    assert events[0].object.document() == made.document()


@scenario
async def test_a_deleted_event_shows_the_last_state_at_the_revision_of_the_deletion(w: World) -> None:
    made = await w.add("blue", node="n1")
    async with w.watching(since=made.revision) as watch:
        await w.remove("blue")
        (event,) = await collect(watch, 1)
    assert event.type is EventType.DELETED
    assert event.object.revision > made.revision
    document = event.object.document()
    assert document["metadata"]["resourceVersion"] == str(event.object.revision)
    assert document["spec"] == {"node": "n1"}
    assert watch.revision >= event.object.revision


@scenario
async def test_a_watch_from_the_past_is_told_what_it_missed(w: World) -> None:
    since = await w.store.revision()
    await w.add("a")
    await w.add("b")
    await w.remove("a")
    async with w.watching(since=since) as watch:
        assert await seen(watch, 3) == ["ADDED a", "ADDED b", "DELETED a"]
        await w.add("c")
        assert await seen(watch, 1) == ["ADDED c"]


@scenario
async def test_a_watch_is_of_one_kind_and_one_namespace(w: World) -> None:
    since = await w.store.revision()
    async with w.watching(since=since) as one, w.watching(namespace="", since=since) as all_of_them:
        await w.store.create(WIDGET, widget(w.ns2, "other"))
        await w.store.create(GADGET, gadget(f"{w.ns}-g"))
        await w.add("mine")
        assert await seen(one, 1) == ["ADDED mine"]
        events: list[Event] = []
        while len(events) < 2:
            events += [e for e in await collect(all_of_them, 1) if e.object.namespace in (w.ns, w.ns2)]
        assert [event.object.name for event in events] == ["other", "mine"]


@scenario
async def test_an_object_that_starts_or_stops_matching_labels_is_added_or_deleted(w: World) -> None:
    since = await w.store.revision()
    async with w.watching(selector=selector("app=web"), since=since) as watch:
        await w.add("blue", {"app": "db"}, node="n1")
        in_ = await w.edit("blue", lambda d: d["metadata"].update(labels={"app": "web"}))
        await w.edit("blue", lambda d: d["spec"].update(node="n2"))
        out = await w.edit("blue", lambda d: d["metadata"].update(labels={"app": "db"}))
        await w.edit("blue", lambda d: d["spec"].update(node="n3"))
        await w.remove("blue")
        await w.add("end", {"app": "web"})
        events = await collect(watch, 4)
    words = [f"{event.type} {event.object.name}" for event in events]
    assert words == ["ADDED blue", "MODIFIED blue", "DELETED blue", "ADDED end"]
    assert events[0].object.revision == in_.revision
    assert events[2].object.revision == out.revision
    assert events[2].object.document()["metadata"]["labels"] == {"app": "web"}, "the last state that was selected"


@scenario
async def test_an_object_that_starts_or_stops_matching_fields_is_added_or_deleted(w: World) -> None:
    since = await w.store.revision()
    n1 = selector("", "spec.node=n1", selectable=WIDGET.selectable)
    not_n1 = selector("", "spec.node!=n1", selectable=WIDGET.selectable)
    async with w.watching(selector=n1, since=since) as here, w.watching(selector=not_n1, since=since) as elsewhere:
        await w.add("blue", node="n1")
        await w.edit("blue", lambda d: d["spec"].update(size=2))
        await w.edit("blue", lambda d: d["spec"].update(node="n2"))
        await w.edit("blue", lambda d: d["spec"].update(node="n1"))
        await w.remove("blue")
        assert await seen(here, 5) == ["ADDED blue", "MODIFIED blue", "DELETED blue", "ADDED blue", "DELETED blue"]
        assert await seen(elsewhere, 2) == ["ADDED blue", "DELETED blue"]


@scenario
async def test_selection_in_the_past_is_by_what_was_then(w: World) -> None:
    since = await w.store.revision()
    await w.add("blue", {"app": "web"})
    await w.edit("blue", lambda d: d["metadata"].update(labels={"app": "db"}))
    await w.edit("blue", lambda d: d["metadata"].update(labels={"app": "web"}))
    async with w.watching(selector=selector("app=web"), since=since) as watch:
        assert await seen(watch, 3) == ["ADDED blue", "DELETED blue", "ADDED blue"]


@scenario
async def test_a_finalizer_is_seen_as_a_change_and_then_a_deletion(w: World) -> None:
    document = w.widget("blue")
    document["metadata"]["finalizers"] = [HOLD]
    made = await w.store.create(WIDGET, document)
    async with w.watching(since=made.revision) as watch:
        await w.remove("blue")
        await w.edit("blue", lambda d: d["metadata"].update(finalizers=[]))
        events = await collect(watch, 2)
    assert [event.type for event in events] == [EventType.MODIFIED, EventType.DELETED]
    assert "deletionTimestamp" in events[0].object.document()["metadata"]


@scenario
async def test_what_changes_nothing_and_dry_runs_are_not_seen(w: World) -> None:
    made = await w.add("blue", node="n1")
    async with w.watching(since=made.revision) as watch:
        await w.store.update(WIDGET, made.document())
        await w.store.create(WIDGET, w.widget("ghost"), dry_run=True)
        await w.store.delete(WIDGET, w.ns, "blue", dry_run=True)
        await w.add("end")
        assert await seen(watch, 1) == ["ADDED end"]


@scenario
async def test_a_compacted_revision_cannot_be_watched(w: World) -> None:
    await w.add("blue")
    await w.backend.forget(w.store)
    assert await expires(w.store, since=1, namespace=w.ns)
    assert await expires(w.store, since=0, namespace=w.ns)
    since = (await w.store.list(WIDGET, w.ns)).revision
    async with w.watching(since=since) as watch:
        await w.add("red")
        assert await seen(watch, 1) == ["ADDED red"]


@pytest.mark.only_on(*LOCAL, because="a Kubernetes API server keeps its own bounds")
@scenario
async def test_a_watcher_that_does_not_read_is_told_to_list_again_and_others_are_not(w: World) -> None:
    since = await w.store.revision()
    async with w.watching(since=since) as slow, w.watching(since=since) as quick:
        for turn in range(QUEUE * 2):
            await w.add(f"w{turn:03}")
            assert await seen(quick, 1) == [f"ADDED w{turn:03}"]
        with pytest.raises(Expired, match="list again"):
            await slow.next()
    page = await w.store.list(WIDGET, w.ns)
    async with w.watching(since=page.revision) as again:
        await w.add("x")
        assert await seen(again, 1) == ["ADDED x"]


@pytest.mark.only_on(*LOCAL, because="a Kubernetes API server waits until that revision is reached")
@scenario
async def test_a_revision_from_another_life_cannot_be_watched(w: World) -> None:
    assert await expires(w.store, since=await w.store.revision() + 100_000, namespace=w.ns)


@scenario
async def test_who_watches_a_store_that_goes_away_is_told(w: World) -> None:
    watch = await w.store.watch(WIDGET, w.ns, since=await w.store.revision())

    async def wait() -> None:
        await watch.next()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    await w.store.close()
    with pytest.raises(Unreachable):
        await task
    await watch.close()
    await watch.close()
    with pytest.raises(Unreachable):
        await w.store.get(WIDGET, w.ns, "blue")
    with pytest.raises(Unreachable):
        await w.add("blue")
    await w.store.close()


@scenario
async def test_many_watchers_all_see_everything(w: World) -> None:
    since = await w.store.revision()
    watches = [await w.store.watch(WIDGET, w.ns, since=since) for _ in range(20)]
    await asyncio.gather(*(w.add(f"w{number}") for number in range(10)))
    for watch in watches:
        assert sorted(await seen(watch, 10)) == sorted(f"ADDED w{number}" for number in range(10))
        await watch.close()


@scenario
async def test_a_watcher_that_comes_back_again_and_again_misses_nothing_and_sees_nothing_twice(w: World) -> None:
    since = (await w.store.list(WIDGET, w.ns)).revision
    total = 60
    got: list[Event] = []

    async def write() -> None:
        for number in range(total):
            await w.add(f"w{number:02}")

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        group.create_task(write())
        while len(got) < total:
            async with w.watching(since=since) as watch:
                got += await watch.next()
                since = watch.revision
    assert max(Counter(event.object.name for event in got).values()) == 1
    revisions = [event.object.revision for event in got]
    assert revisions == sorted(revisions)


@pytest.mark.only_on(*SHARED, "sqlite", because="a restart of the memory store is another life")
@scenario
async def test_a_restart_is_not_noticed_by_who_resumes(w: World) -> None:
    await w.add("kept", node="n1")
    since = await w.store.revision()
    await w.add("a")
    await w.remove("a")
    await w.edit("kept", lambda d: d["spec"].update(node="n2"))
    await w.store.close()
    w.store = await w.backend.open()
    assert [item.name for item in (await w.store.list(WIDGET, w.ns)).items] == ["kept"]
    n1 = selector("", "spec.node=n1", selectable=WIDGET.selectable)
    async with w.watching(since=since) as watch, w.watching(selector=n1, since=since) as narrow:
        await w.add("b")
        assert await seen(watch, 4) == ["ADDED a", "DELETED a", "MODIFIED kept", "ADDED b"]
        assert await seen(narrow, 1) == ["DELETED kept"]


@pytest.mark.only_on(*SHARED, because="the other stores belong to one process")
@scenario
async def test_two_doors_to_one_store_see_each_other(w: World) -> None:
    other = await w.backend.open()
    try:
        since = (await w.store.list(WIDGET, w.ns)).revision
        async with w.watching(since=since) as watch:
            await other.create(WIDGET, w.widget("blue"))
            assert await seen(watch, 1) == ["ADDED blue"]
        assert (await w.store.get(WIDGET, w.ns, "blue")).name == "blue"
        await w.remove("blue")
        again = await other.watch(WIDGET, w.ns, since=since)
        assert await seen(again, 2) == ["ADDED blue", "DELETED blue"]
        await again.close()
    finally:
        await other.close()
