"""An agent of a node without Open vSwitch applies its HostDocuments."""

import asyncio
import json
from pathlib import Path
from random import Random

from netloom.drivers.remote.protocol import Result
from netloom.model.kinds.sandbox import HostDocument
from netloom.model.registry import HOST_DOCUMENT, NODE
from netloom.run.config import AgentSettings
from netloom.run.node.agent import Agent
from netloom.store.memory import MemoryStore
from tests.control.helpers import document


class Host:
    """A node that has what it is told to have."""

    def __init__(self) -> None:
        self.has: dict[str, object] = {}

    def owners(self) -> set[str]:
        return set(self.has)

    async def apply(self, owner: str, document: bytes) -> Result:
        self.has[owner] = json.loads(document)
        return Result(changes=1)

    async def remove(self, owner: str) -> Result:
        del self.has[owner]
        return Result(changes=1)


def test_an_agent_without_a_switch_applies_documents_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        store, host = MemoryStore(), Host()
        settings = AgentSettings(
            node="n1",
            underlay_ip="192.0.2.1",
            ovs=f"unix:{tmp_path}/no.sock",
            netns_folders=("ns1=/run/netns",),
        )
        agent = Agent(settings, store, random=Random(1), linux=host)
        running = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(60):
                spec = {"node": "n1", "document": {"namespaces": [{"name": "s1-web"}]}}
                await store.create(HOST_DOCUMENT, document(HOST_DOCUMENT, "s1-n1", spec))
                while not await _is_ready(store):  # noqa: ASYNC110  # the store tells nobody
                    await asyncio.sleep(0.05)
                assert host.has == {"ns1.s1-n1": spec["document"]}
                node = (await store.get(NODE, "", "n1")).document()
                assert [one["reason"] for one in node["status"]["conditions"]] == ["SwitchUnreachable"]
                assert agent.numbers()["documents_applied"] == 1
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())


async def _is_ready(store: MemoryStore) -> bool:
    found = (await store.get(HOST_DOCUMENT, "ns1", "s1-n1")).value()
    assert isinstance(found, HostDocument)
    ready = found.status.condition("Ready")
    return ready is not None and ready.status == "True"
