"""An agent's HostDocuments on the simulated loop: applied, told of, repaired, and removed with or without an object."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from netloom.control.node import host_documents
from netloom.control.node.host_documents import HostDocumentApplier, host_documents_informer
from netloom.control.runtime.client import Client
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.manager import Manager
from netloom.drivers.remote.protocol import Result
from netloom.model.document import Document
from netloom.model.kinds.events import AGENT
from netloom.model.registry import HOST_DOCUMENT
from netloom.plan.linux.objects import FINALIZER
from netloom.plan.node.grants import NodeGrants, node_grants
from netloom.store.memory import MemoryStore
from tests.control.helpers import document, memory, noon, run, until

ONE: Document = {"version": 1, "namespaces": [{"name": "s1-fabric"}, {"name": "s1-web"}], "bridges": [{"name": "b"}]}
GRANTED = node_grants(netns_folders=("ns1=/run/netns",))


class Host:
    """A node that has what it is told to have, unless it fails."""

    def __init__(self) -> None:
        self.has: dict[str, Document] = {}
        self.runs = 0
        self.error = ""
        self.problems: tuple[str, ...] = ()

    def owners(self) -> set[str]:
        return set(self.has)

    async def apply(self, owner: str, document: bytes) -> Result:
        self.runs += 1
        await asyncio.sleep(0.2)
        if self.error:
            return Result(error=self.error)
        wanted = json.loads(document)
        changes = int(self.has.get(owner) != wanted)
        self.has[owner] = wanted
        return Result(changes=changes, problems=self.problems)

    async def remove(self, owner: str) -> Result:
        await asyncio.sleep(0.2)
        if self.error:
            return Result(error=self.error)
        self.has.pop(owner, None)
        return Result(changes=1)


Main = Callable[[MemoryStore, Host], Coroutine[Any, Any, None]]


def agent(store: MemoryStore, host: Host, grants: NodeGrants = GRANTED) -> Manager:
    random = Random(1)
    documents = host_documents_informer(store, "n1", random=random)
    time = asyncio.get_running_loop().time
    applier = HostDocumentApplier(
        Client(store), documents=documents.cache, host=host, grants=grants, clock=noon, time=time
    )
    controller = Controller("host-documents", applier.reconcile, random=random, all_keys=applier.all_keys)
    controller.watch(documents, applier.document_changed)
    return Manager(
        controllers=[controller],
        informers=[documents],
        recorder=Recorder(store, AGENT, random=random, host="n1", clock=noon),
        random=random,
        chores=[lambda: applier.tidy(controller.queue.update)],
    )


def with_agent(main: Main, *, grants: NodeGrants = GRANTED, has: dict[str, Document] | None = None) -> None:
    async def whole() -> None:
        store, host = memory(), Host()
        host.has = dict(has or {})
        async with asyncio.TaskGroup() as group:
            running = group.create_task(agent(store, host, grants).run())
            await main(store, host)
            running.cancel()

    run(whole())


async def make(store: MemoryStore, name: str = "s1-n1", node: str = "n1", content: Document = ONE) -> None:
    spec = {"node": node, "document": content}
    await store.create(HOST_DOCUMENT, document(HOST_DOCUMENT, name, spec, finalizers=[FINALIZER]))


async def status(store: MemoryStore, name: str = "s1-n1") -> Document:
    found: Document = (await store.get(HOST_DOCUMENT, "ns1", name)).document().get("status", {})
    return found


async def becomes(store: MemoryStore, reason: str, name: str = "s1-n1") -> Document:
    """Return the condition with a reason, once there is one."""
    found: list[Document] = []

    async def so() -> bool:
        found[:] = [one for one in (await status(store, name)).get("conditions", ()) if one["reason"] == reason]
        return bool(found)

    await until(so)
    return found[0]


def test_a_document_is_applied_and_its_status_says_what_the_node_has() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store)
        await make(store, "s1-n2", "n2")
        ready = await becomes(store, "Applied")
        assert (ready["type"], ready["status"], ready["observedGeneration"]) == ("Ready", "True", 1)
        assert host.has == {"ns1.s1-n1": ONE}
        found = await status(store)
        assert (found["appliedGeneration"], found["namespaces"], found["networks"]) == (1, 2, 1)
        assert len(found["digest"]) == 64
        assert await status(store, "s1-n2") == {}

    with_agent(main)


def test_a_document_that_cannot_be_applied_says_why_and_is_tried_again() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store)
        await becomes(store, "Applied")
        host.error = "namespace s1-web exists and is not of this owner; rolled back"
        changed = (await store.get(HOST_DOCUMENT, "ns1", "s1-n1")).document()
        changed["spec"]["document"] = {"version": 1}
        await store.update(HOST_DOCUMENT, changed)
        assert (await becomes(store, "ApplyFailed"))["message"] == host.error
        found = await status(store)
        assert (found["observedGeneration"], found["appliedGeneration"], found["namespaces"]) == (2, 1, 2)
        host.error = ""
        await becomes(store, "Applied")
        assert host.has == {"ns1.s1-n1": {"version": 1}}

    with_agent(main)


def test_what_a_node_cannot_do_is_told_and_tried_again() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        host.problems = tuple(f"namespace s1-{number} does not exist" for number in range(5))
        await make(store)
        ready = await becomes(store, "Incomplete")
        assert ready["message"].endswith("s1-2 does not exist; and 2 more")
        assert len((await status(store))["problems"]) == 5
        host.problems = ()
        await becomes(store, "Applied")
        assert "problems" not in await status(store)

    with_agent(main)


def test_a_deleted_document_is_removed_and_then_told_of() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store)
        await becomes(store, "Applied")
        host.error = "device is busy"
        await store.delete(HOST_DOCUMENT, "ns1", "s1-n1")
        assert (await becomes(store, "RemoveFailed"))["message"] == "device is busy"
        host.error = ""
        assert (await becomes(store, "Removed"))["status"] == "True"
        assert host.has == {}
        found = await status(store)
        assert not {"appliedGeneration", "digest", "namespaces"} & found.keys()

    with_agent(main)


def test_what_has_no_document_any_more_is_removed_and_nothing_else() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store)
        await becomes(store, "Applied")
        # Left by an agent that was away while the object went.
        assert set(host.has) == {"ns1.s1-n1"}
        host.has["ns1.later"] = ONE
        await asyncio.sleep(host_documents.TIDY + 1)
        assert set(host.has) == {"ns1.s1-n1"}

    with_agent(main, has={"ns1.before": ONE})


def test_a_node_is_compared_now_and_then_and_not_because_of_a_status() -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store)
        await becomes(store, "Applied")
        await asyncio.sleep(1)
        assert host.runs == 1
        host.has["ns1.s1-n1"] = {}
        await asyncio.sleep(host_documents.SWEEP + 10)
        assert host.has["ns1.s1-n1"] == ONE
        assert host.runs == 2
        changed = (await store.get(HOST_DOCUMENT, "ns1", "s1-n1")).document()
        changed["status"]["problems"] = ["said by somebody else"]
        await store.update(HOST_DOCUMENT, changed, subresource="status")
        await asyncio.sleep(1)
        assert host.runs == 2

    with_agent(main)


@pytest.mark.parametrize(
    ("grants", "name"),
    [(NodeGrants(), "s1-web"), (node_grants(netns_folders=("ns2=/run/netns",)), "s1-web"), (GRANTED, "../elsewhere")],
)
def test_a_namespace_that_the_node_does_not_grant_is_refused(grants: NodeGrants, name: str) -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        await make(store, content={"namespaces": [{"name": name}]})
        assert name in (await becomes(store, "NotGranted"))["message"]
        assert host.runs == 0

    with_agent(main, grants=grants)


@pytest.mark.parametrize("content", [{}, {"namespaces": 1}, {"namespaces": [1, {}, {"name": 1}]}])
def test_a_document_that_is_none_is_the_programs_to_refuse(content: Document) -> None:
    async def main(store: MemoryStore, host: Host) -> None:
        host.error = "document.version: is missing"
        await make(store, content=content)
        assert (await becomes(store, "ApplyFailed"))["message"] == host.error

    with_agent(main)
