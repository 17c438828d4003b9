"""Sandboxes on the backend `linux`, on the simulated loop: a HostDocument for each Node, and how they end."""

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from random import Random
from typing import Any

from netloom.model.document import Document
from netloom.model.kinds.sandbox import REMOVED
from netloom.model.registry import EVENT, HOST_DOCUMENT, NODE, SANDBOX
from netloom.plan.linux import objects
from netloom.store.base import Propagation
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, memory, run, until
from tests.control.test_sandbox import condition, deploy, edit, mark_ready
from tests.control.test_sandbox import objects as every
from tests.plan.test_sandbox import SMALL

Main = Callable[[MemoryStore], Coroutine[Any, Any, None]]
APART = {"hosts": {"server": "n1", "home": "n2"}}


def with_controllers(main: Main) -> None:
    async def whole() -> None:
        store = memory(MemoryStore)
        for number, name in enumerate(("n1", "n2"), 1):
            await store.create(NODE, document(NODE, name, {"underlayIP": f"172.31.0.{number}"}))
        parts = ("sandboxes", "host-documents", "garbage")
        manager = assemble(store, random=Random(1), collect=True, parts=parts)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await main(store)
            running.cancel()

    run(whole())


async def documents(store: MemoryStore) -> dict[str, Document]:
    return {one.name: one.document() for one in (await store.list(HOST_DOCUMENT)).items}


async def there(store: MemoryStore, *names: str) -> dict[str, Document]:
    async def found() -> bool:
        return set(await documents(store)) == set(names)

    await until(found)
    await asyncio.sleep(1)
    return await documents(store)


async def removed(store: MemoryStore, name: str) -> None:
    """Say that a node has nothing of a document any more, as its agent does."""
    found = (await store.get(HOST_DOCUMENT, "ns1", name)).document()
    found["status"] = {"conditions": [{"type": REMOVED, "status": "True", "reason": REMOVED}]}
    await store.update(HOST_DOCUMENT, found, subresource="status")


def spaces(one: Document) -> set[str]:
    return {space["name"] for space in one["spec"]["document"]["namespaces"]}


def vnis(some: dict[str, Document]) -> set[int]:
    return {tunnel["vni"] for one in some.values() for tunnel in one["spec"]["document"]["tunnels"]}


def test_each_node_gets_a_document_and_the_sandbox_is_ready_when_all_are_applied() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        found = await there(store, "s1-n1", "s1-n2")
        assert [one["spec"]["node"] for one in found.values()] == ["n1", "n2"]
        assert [one["spec"]["hosts"] for one in found.values()] == [{"server": "s1-server"}, {"home": "s1-home"}]
        assert all(one["metadata"]["finalizers"] == [objects.FINALIZER] for one in found.values())
        assert found["s1-n1"]["spec"]["document"]["local"] == "172.31.0.1"
        waiting = await condition(store)
        assert (waiting["status"], waiting["reason"]) == ("False", "Waiting")
        assert waiting["message"].startswith("HostDocument s1-n1: it is not processed yet; ")
        await mark_ready(store)
        await asyncio.sleep(1)
        assert (await condition(store))["status"] == "True"
        status = (await store.get(SANDBOX, "ns1", "s1")).document()["status"]
        assert (status["networks"], status["routers"], status["hosts"]) == (3, 3, 2)

    with_controllers(main)


def test_a_new_host_and_a_new_node_move_nothing_that_is_there() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux")
        before = await there(store, "s1-n1", "s1-n2")
        await store.create(NODE, document(NODE, "a-new-one", {"underlayIP": "172.31.0.9"}))

        def add(spec: Document) -> None:
            topology = spec["topology"]
            for number in range(4):
                topology["hosts"].append({"name": f"a{number}"})
                link = {"host": f"a{number}", "network": "server-switch", "ip": f"10.10.20.{50 + number}"}
                topology["net_mappings"].append(link)

        await edit(store, add)
        after = await there(store, "s1-n1", "s1-n2", "s1-a-new-one")
        for name in before:
            assert spaces(before[name]) < spaces(after[name]) or spaces(before[name]) == spaces(after[name])
        assert sum(len(one["spec"]["hosts"]) for one in after.values()) == 6

    with_controllers(main)


def test_a_deleted_sandbox_waits_until_its_nodes_have_removed_their_parts() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        await there(store, "s1-n1", "s1-n2")
        await store.delete(SANDBOX, "ns1", "s1")
        await asyncio.sleep(5)
        assert all(one["metadata"].get("deletionTimestamp") for one in (await documents(store)).values())
        await removed(store, "s1-n1")
        await there(store, "s1-n2")
        waiting = await condition(store)
        assert (waiting["status"], waiting["reason"]) == ("False", "Removing")
        assert waiting["message"].startswith("not removed yet from n2: start the agent there, or delete the Node")
        await removed(store, "s1-n2")
        await until(lambda: gone(store))

    async def gone(store: MemoryStore) -> bool:
        return not (await documents(store)) and not (await store.list(SANDBOX)).items

    with_controllers(main)


def test_the_part_of_a_node_that_is_gone_for_good_ends_with_its_node() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        await there(store, "s1-n1", "s1-n2")
        await store.delete(SANDBOX, "ns1", "s1")
        await asyncio.sleep(1)
        await removed(store, "s1-n1")
        await asyncio.sleep(60)
        assert set(await documents(store)) == {"s1-n2"}
        await store.delete(NODE, "", "n2")
        await there(store)
        assert not (await store.list(SANDBOX)).items
        events = [one.document() for one in (await store.list(EVENT)).items]
        assert [one["involvedObject"]["name"] for one in events if one["reason"] == "NodeGone"] == ["s1-n2"]

    with_controllers(main)


def test_hosts_without_a_place_of_their_own_move_when_their_node_is_deleted() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux")
        await there(store, "s1-n1", "s1-n2")
        await store.delete(NODE, "", "n2")
        found = await there(store, "s1-n1")
        assert set(found["s1-n1"]["spec"]["hosts"]) == {"server", "home"}
        assert (await condition(store, wanted="Accepted"))["status"] == "True"

    with_controllers(main)


def test_orphaned_documents_stay_and_go_when_they_are_deleted_and_removed() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        await there(store, "s1-n1", "s1-n2")
        await store.delete(SANDBOX, "ns1", "s1", propagation=Propagation.ORPHAN)
        await asyncio.sleep(5)
        assert not (await store.list(SANDBOX)).items
        await there(store, "s1-n1", "s1-n2")
        for name in ("s1-n1", "s1-n2"):
            await store.delete(HOST_DOCUMENT, "ns1", name)
            await removed(store, name)
        await there(store)

    with_controllers(main)


def test_a_node_with_another_address_has_it_in_the_documents_of_all() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        await there(store, "s1-n1", "s1-n2")
        node = (await store.get(NODE, "", "n2")).document()
        node["spec"]["underlayIP"] = "172.31.0.22"
        await store.update(NODE, node)
        await asyncio.sleep(1)
        one, two = (await documents(store)).values()
        assert two["spec"]["document"]["local"] == "172.31.0.22"
        assert {ip for tunnel in one["spec"]["document"]["tunnels"] for ip in tunnel["remotes"]} == {"172.31.0.22"}

    with_controllers(main)


def test_no_two_sandboxes_have_one_vni() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement=APART)
        first = await there(store, "s1-n1", "s1-n2")
        # By hand, as the digests of two Sandboxes that are equal: what is there keeps its number.
        copied = deepcopy(first["s1-n1"])
        copied["metadata"] = {"name": "other", "namespace": "ns1", "labels": {"netloom.dev/sandbox": "other"}}
        copied.pop("status", None)
        await store.create(HOST_DOCUMENT, copied)
        await edit(store, lambda spec: spec["topology"]["groups"].clear())
        await asyncio.sleep(1)
        after = await documents(store)
        after.pop("other")
        assert vnis(after).isdisjoint(vnis({"": copied}))

    with_controllers(main)


def test_a_document_that_is_too_large_is_a_problem_and_the_one_before_stays() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, backend="linux", placement={"default": "n1"})
        before = await there(store, "s1-n1")
        limit, objects.LARGEST = objects.LARGEST, 100
        try:
            await edit(store, lambda spec: spec.update(run=True))
            await asyncio.sleep(1)
        finally:
            objects.LARGEST = limit
        accepted = await condition(store, wanted="Accepted")
        assert accepted["reason"] == "DocumentTooLarge"
        assert "Node n1: its document has" in accepted["message"]
        assert (await documents(store))["s1-n1"]["spec"] == before["s1-n1"]["spec"]

    with_controllers(main)


def test_a_changed_backend_replaces_everything() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, topology=SMALL)
        await asyncio.sleep(2)
        await edit(store, lambda spec: spec.update(backend="linux", placement=APART))
        await there(store, "s1-n1", "s1-n2")
        assert {kind for kind, _ in await every(store)} == {"HostDocument"}

    with_controllers(main)
