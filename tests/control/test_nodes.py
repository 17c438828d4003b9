"""Nodes: one whose agent is silent is not known to be ready, until it is heard again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from netloom.model.document import Document
from netloom.model.kinds.cluster import AGENT_SILENT_SECONDS
from netloom.model.registry import EVENT, NODE
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, memory, run


def node(name: str) -> Document:
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.name,
        "metadata": {"name": name},
        "spec": {"underlayIP": "172.31.0.1"},
    }


@asynccontextmanager
async def watching(store: MemoryStore) -> AsyncIterator[None]:
    manager = assemble(store, random=Random(1), parts=["nodes"])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await asyncio.sleep(1)
        yield
        task.cancel()


async def beat(store: MemoryStore, name: str, number: int) -> None:
    found = (await store.get(NODE, "", name)).document()
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    # A clock that is years behind ours: only whether it moves counts.
    found["status"] = {"lastHeartbeat": f"2020-01-01T00:{number:02}:00Z", "conditions": [ready]}
    await store.update(NODE, found, subresource="status")


async def said(store: MemoryStore, name: str) -> tuple[str, str]:
    condition = (await store.get(NODE, "", name)).document()["status"]["conditions"][0]
    return condition["status"], condition["reason"]


def test_a_node_whose_agent_is_silent_is_not_known_to_be_ready() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NODE, node("n1"))
        await store.create(NODE, node("n2"))
        async with watching(store):
            for number in range(8):
                await beat(store, "n1", number)
                if number < 2:
                    await beat(store, "n2", number)
                await asyncio.sleep(10)
            assert await said(store, "n1") == ("True", "Ready")
            assert await said(store, "n2") == ("Unknown", "AgentSilent")
            events = [item.document() for item in (await store.list(EVENT)).items]
            assert [(one["involvedObject"]["name"], one["reason"]) for one in events] == [("n2", "AgentSilent")]
            await beat(store, "n2", 30)
            await asyncio.sleep(AGENT_SILENT_SECONDS / 2)
            assert await said(store, "n2") == ("True", "Ready")
            revision = (await store.get(NODE, "", "n1")).revision
            await asyncio.sleep(3 * AGENT_SILENT_SECONDS)
            assert await said(store, "n1") == ("Unknown", "AgentSilent")
            assert (await store.get(NODE, "", "n1")).revision > revision

    run(main())


def test_a_node_that_goes_and_one_that_never_said_anything_are_left_alone() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NODE, node("n1"))
        await store.create(NODE, node("n2"))
        async with watching(store):
            await beat(store, "n2", 1)
            await asyncio.sleep(AGENT_SILENT_SECONDS / 2)
            await store.delete(NODE, "", "n2")
            await asyncio.sleep(3 * AGENT_SILENT_SECONDS)
            found = (await store.get(NODE, "", "n1")).document()
            assert not found.get("status", {}).get("conditions")
            assert [item.name for item in (await store.list(NODE)).items] == ["n1"]

    run(main())


def test_a_controller_that_starts_gives_everybody_time_to_be_heard() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NODE, node("n1"))
        await beat(store, "n1", 1)
        async with watching(store):
            await asyncio.sleep(AGENT_SILENT_SECONDS - 5)
            assert await said(store, "n1") == ("True", "Ready")
            await asyncio.sleep(10)
            assert await said(store, "n1") == ("Unknown", "AgentSilent")

    run(main())
