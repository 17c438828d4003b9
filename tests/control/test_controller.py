import asyncio
import logging
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.cache import Key
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import informer
from netloom.control.runtime.sweep import sweep
from netloom.errors import Conflict, Invalid
from netloom.model.kinds.events import ObjectReference
from netloom.model.kinds.networks import Network
from netloom.model.registry import EVENT, NETWORK
from netloom.sim.world import eventually
from tests.control.helpers import memory, network, run


def test_changes_become_keys_and_keys_are_looked_at() -> None:
    async def main() -> None:
        store, seen = memory(), list[Key]()

        async def look(key: Key) -> None:
            seen.append(key)

        networks = informer(store, Network, random=Random(1))
        controller = Controller("test", look, random=Random(1), all_keys=lambda: [Key("", "always")])
        controller.watch(networks, lambda change: [change.key])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(networks.run()), group.create_task(controller.run())]
            await store.create(NETWORK, network("a"))
            await eventually(lambda: Key("ns1", "a") in seen)
            assert Key("", "always") in seen
            for task in tasks:
                task.cancel()
        assert controller.succeeded == len(seen)

    run(main())


def test_a_mapping_that_fails_costs_that_object_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store, seen = memory(), list[Key]()

        async def look(key: Key) -> None:
            seen.append(key)

        def keys_of(change: Any) -> list[Key]:
            if change.key.name == "bad":
                raise KeyError("nobody thought of this")
            return [change.key]

        networks = informer(store, Network, random=Random(1))
        controller = Controller("test", look, random=Random(1))
        controller.watch(networks, keys_of)
        await store.create(NETWORK, network("bad"))
        await store.create(NETWORK, network("good"))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(networks.run()), group.create_task(controller.run())]
            await eventually(lambda: seen == [Key("ns1", "good")])
            for task in tasks:
                task.cancel()

    run(main())
    assert "cannot find the keys affected by a change of ns1/bad" in caplog.text


def test_a_failure_is_tried_again_and_one_bad_key_does_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        tries: dict[str, int] = {}

        async def look(key: str) -> float | None:
            tries[key] = tries.get(key, 0) + 1
            match key:
                case "conflict" if tries[key] < 4:
                    raise Conflict("somebody was faster")
                case "bug":
                    raise ZeroDivisionError
                case "again":
                    return 5
            return None

        controller = Controller("test", look, random=Random(1), workers=1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            controller.queue.update(["bug", "conflict", "again", "fine"])
            await asyncio.sleep(11)
            assert tries["conflict"] == 4
            assert tries["fine"] == 1
            assert tries["again"] == 3
            assert 3 < tries["bug"] < 10
            task.cancel()

    run(main())
    levels = {record.levelname for record in caplog.records if "conflict failed" in record.message}
    assert levels == {"DEBUG"}
    assert any(record.exc_info for record in caplog.records if "bug failed" in record.message)


def test_what_will_not_go_away_by_itself_is_told_in_an_event() -> None:
    async def main() -> None:
        store = memory()
        recorder = Recorder(store, "test", random=Random(1))
        errors = {
            "invalid": Invalid("it is wrong"),
            "bug": KeyError("secret"),
            "conflict": Conflict("x"),
            "unknown": Invalid(""),
        }

        async def look(key: str) -> None:
            raise errors[key]

        def target(key: str) -> ObjectReference | None:
            return None if key == "unknown" else ObjectReference(kind="Node", name=key)

        controller = Controller("test", look, random=Random(1), recorder=recorder, event_target=target)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(recorder.run()), group.create_task(controller.run())]
            controller.queue.update(errors)
            await asyncio.sleep(0.1)
            await recorder.flush()
            for task in tasks:
                task.cancel()
        events = [stored.document() for stored in (await store.list(EVENT)).items]
        assert sorted((event["reason"], event["message"]) for event in events) == [
            ("ReconcileFailed", "internal error: KeyError"),
            ("ReconcileFailed", "it is wrong"),
        ]

    run(main())


def test_no_reconcile_starts_without_certainty() -> None:
    async def main() -> None:
        certain, seen = [False], list[str]()

        async def look(key: str) -> None:
            seen.append(key)

        controller = Controller("test", look, random=Random(1), fence=lambda: certain[0])
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            controller.queue.add("a")
            await asyncio.sleep(10)
            assert seen == []
            certain[0] = True
            await asyncio.sleep(1)
            assert seen == ["a"]
            task.cancel()

    run(main())


def test_a_cancelled_reconcile_puts_its_key_back() -> None:
    async def main() -> None:
        began: list[str] = []

        async def look(key: str) -> None:
            began.append(key)
            await asyncio.sleep(100)

        controller = Controller("test", look, random=Random(1))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            controller.queue.add("a")
            await asyncio.sleep(1)
            task.cancel()
        assert len(controller.queue) == 1
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            await asyncio.sleep(1)
            task.cancel()
        assert began == ["a", "a"]

    run(main())


def test_a_paused_controller_finishes_what_it_began_and_begins_nothing() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def look(key: str) -> None:
            await asyncio.sleep(5)
            ended.append(key)

        controller = Controller("test", look, random=Random(1), workers=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            controller.queue.update(["a", "b"])
            await asyncio.sleep(1)
            controller.pause()
            await controller.queue.idle()
        assert len(ended) == 1
        assert len(controller.queue) == 1
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            await asyncio.sleep(6)
            task.cancel()
        assert sorted(ended) == ["a", "b"]

    run(main())


def test_a_worker_woken_after_the_pause_puts_its_key_back() -> None:
    async def main() -> None:
        async def look(key: str) -> None:
            raise AssertionError(key)

        controller = Controller("test", look, random=Random(1), workers=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            await asyncio.sleep(1)
            controller.pause()
            controller.queue.add("a")
        assert len(controller.queue) == 1

    run(main())


def test_a_sweep_looks_at_everything_now_and_then() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def look(key: str) -> None:
            seen.append(key)

        controller: Controller[Any] = Controller("test", look, random=Random(1), all_keys=lambda: ["a", "b"])
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(controller.run()),
                group.create_task(sweep([controller], random=Random(1), every=600, spread=60)),
            ]
            await asyncio.sleep(440)
            assert sorted(seen) == ["a", "b"]
            await asyncio.sleep(6000)
            assert 16 <= len(seen) <= 30
            for task in tasks:
                task.cancel()

    run(main())
