"""Sandboxes on the simulated loop: their objects come, change one by one, and go; those of others stay."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from netloom.errors import Conflict, Invalid, NotFound
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.admission.in_use import InUse
from netloom.front.api.auth.identity import Identity
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, NETWORK, NETWORK_ATTACHMENT, NODE, ROUTER, SANDBOX, SUBNET
from netloom.plan.sandbox.objects import KINDS
from netloom.store.base import Propagation, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, memory, run, until
from tests.plan.test_sandbox import SMALL

Main = Callable[[MemoryStore], Coroutine[Any, Any, None]]


def with_controllers(
    main: Main, *, parts: tuple[str, ...] = ("sandboxes", "garbage"), store: type[MemoryStore] = MemoryStore
) -> None:
    kind = store

    async def whole() -> None:
        store = memory(kind)
        for name in ("n1", "n2"):
            await store.create(NODE, document(NODE, name, {"underlayIP": "172.31.0.1"}))
        manager = assemble(store, random=Random(1), collect=True, parts=parts)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await main(store)
            running.cancel()

    run(whole())


async def deploy(store: MemoryStore, name: str = "s1", topology: Document = SMALL, **spec: Any) -> None:
    await store.create(SANDBOX, document(SANDBOX, name, {"topology": topology, **spec}))


async def edit(store: MemoryStore, change: Callable[[Document], None], name: str = "s1") -> None:
    found = (await store.get(SANDBOX, "ns1", name)).document()
    change(found["spec"])
    await store.update(SANDBOX, found)


async def objects(store: MemoryStore) -> dict[tuple[str, str], Document]:
    """Return all objects of the kinds that Sandboxes have."""
    return {(kind.name, one.name): one.document() for kind in KINDS for one in (await store.list(kind)).items}


async def revisions(store: MemoryStore) -> dict[tuple[str, str], str]:
    return {key: one["metadata"]["resourceVersion"] for key, one in (await objects(store)).items()}


async def condition(store: MemoryStore, name: str = "s1", wanted: str = "Ready") -> dict[str, Any]:
    found = (await store.get(SANDBOX, "ns1", name)).document()
    conditions = found.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == wanted), {})


async def mark_ready(store: MemoryStore, status: str = "True", *, only: Kind | None = None) -> None:
    """Write `Ready` of all objects, as their controllers do."""
    for kind in KINDS:
        if only in (None, kind):
            for one in (await store.list(kind)).items:
                found = one.document()
                generation = found["metadata"]["generation"]
                ready = {"type": "Ready", "status": status, "observedGeneration": generation, "message": "not yet"}
                found["status"] = {"conditions": [ready]}
                await store.update(kind, found, subresource="status")


async def deployed(store: MemoryStore, number: int = 11) -> None:
    async def there() -> bool:
        return len(await objects(store)) == number

    await until(there)
    await asyncio.sleep(1)


def test_a_sandbox_is_deployed_and_ready_when_all_its_objects_are() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        waiting = await condition(store)
        assert (waiting["status"], waiting["reason"]) == ("False", "Waiting")
        assert waiting["message"].startswith("Network s1-home-switch: it is not processed yet; ")
        assert (await condition(store, wanted="Accepted"))["status"] == "True"
        await mark_ready(store)
        await until(lambda: is_ready(store))
        status = (await store.get(SANDBOX, "ns1", "s1")).document()["status"]
        assert (status["networks"], status["routers"], status["hosts"]) == (3, 3, 2)
        await mark_ready(store, "False", only=NETWORK_ATTACHMENT)
        await asyncio.sleep(1)
        found = (await store.get(SANDBOX, "ns1", "s1")).document()["status"]
        assert "hosts" not in found or found["hosts"] == 0
        assert "NetworkAttachment s1-home-home-switch: not yet" in (await condition(store))["message"]
        reasons = {one.document()["reason"] for one in (await store.list(EVENT)).items}
        assert {"Deployed", "Ready"} <= reasons

    async def is_ready(store: MemoryStore) -> bool:
        return (await condition(store)).get("status") == "True"

    with_controllers(main)


def test_an_edit_writes_only_what_differs() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        before = await revisions(store)

        def add_host(spec: Document) -> None:
            topology = spec["topology"]
            topology["hosts"].append({"name": "more"})
            topology["net_mappings"].append({"host": "more", "network": "home-switch", "ip": "10.10.30.7"})

        await edit(store, add_host)
        await deployed(store, 12)
        after = await revisions(store)
        assert after.pop(("NetworkAttachment", "s1-more-home-switch"))
        assert after == before

        def move(spec: Document) -> None:
            spec["placement"] = {"hosts": {"home": "n2", "server": "n2", "more": "n1"}}

        nodes = {name: one["spec"]["node"] for (kind, name), one in (await objects(store)).items()
                 if kind == "NetworkAttachment"}  # fmt: skip
        await edit(store, move)
        await asyncio.sleep(2)
        found = await objects(store)
        for name, node in nodes.items():
            wanted = "n1" if name.startswith("s1-more") else "n2"
            key = ("NetworkAttachment", name)
            assert found[key]["spec"]["node"] == wanted
            if node == wanted and key in before:
                assert found[key]["metadata"]["resourceVersion"] == before[key]

        def remove(spec: Document) -> None:
            spec["topology"]["net_mappings"].pop()

        await edit(store, remove)
        await deployed(store)

    with_controllers(main)


def test_a_block_that_changes_makes_its_subnet_again() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        before = (await objects(store))["Subnet", "s1-home-switch"]["metadata"]["uid"]
        network = (await objects(store))["Network", "s1-home-switch"]["metadata"]["uid"]

        def widen(spec: Document) -> None:
            spec["topology"]["networks"][1]["cidr"] = "10.10.30.0/25"

        await edit(store, widen)
        await asyncio.sleep(2)
        found = await objects(store)
        assert found["Subnet", "s1-home-switch"]["spec"]["cidr"] == "10.10.30.0/25"
        assert found["Subnet", "s1-home-switch"]["metadata"]["uid"] != before
        assert found["Network", "s1-home-switch"]["metadata"]["uid"] == network

    with_controllers(main)


def test_what_others_change_or_delete_is_restored() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        await store.delete(ROUTER, "ns1", "s1-man")
        found = (await store.get(SUBNET, "ns1", "s1-wan")).document()
        found["spec"]["gateway"] = "100.100.100.9"
        found["metadata"]["labels"]["team"] = "red"
        await store.update(SUBNET, found)
        found = (await store.get(NETWORK, "ns1", "s1-wan")).document()
        del found["metadata"]["labels"]
        await store.update(NETWORK, found)
        await asyncio.sleep(2)
        assert (await store.get(ROUTER, "ns1", "s1-man")).document()["spec"]["routes"]
        subnet = (await store.get(SUBNET, "ns1", "s1-wan")).document()
        assert subnet["spec"]["gateway"] == "100.100.100.1"
        assert subnet["metadata"]["labels"]["team"] == "red"
        labels = (await store.get(NETWORK, "ns1", "s1-wan")).document()["metadata"]["labels"]
        assert labels == {"netloom.dev/sandbox": "s1"}

    with_controllers(main)


def test_an_object_of_another_owner_is_not_touched_and_named() -> None:
    async def main(store: MemoryStore) -> None:
        await store.create(NETWORK, document(NETWORK, "s1-wan", {"mtu": 1300}))
        before = (await store.get(NETWORK, "ns1", "s1-wan")).document()
        await deploy(store)
        await deployed(store)
        accepted = await condition(store, wanted="Accepted")
        assert (accepted["status"], accepted["reason"]) == ("False", "NameTaken")
        assert accepted["message"] == (
            "Network s1-wan exists and is not of this Sandbox: delete or rename one of the two"
        )
        assert (await store.get(NETWORK, "ns1", "s1-wan")).document() == before
        await store.delete(NETWORK, "ns1", "s1-wan")
        await asyncio.sleep(40)
        assert (await condition(store, wanted="Accepted"))["status"] == "True"
        await store.delete(SANDBOX, "ns1", "s1")
        await deployed(store, 0)

    with_controllers(main)


def test_a_deleted_sandbox_takes_its_objects_along_and_nothing_else() -> None:
    async def main(store: MemoryStore) -> None:
        await store.create(NETWORK, document(NETWORK, "mine", {}))
        await deploy(store)
        await deploy(store, "s2")
        await deployed(store, 23)
        await store.delete(SANDBOX, "ns1", "s1")

        async def gone() -> bool:
            try:
                await store.get(SANDBOX, "ns1", "s1")
            except NotFound:
                return True
            return False

        await until(gone)
        # Nothing of it is left when the Sandbox is gone.
        assert {name[:3] for _, name in await objects(store)} == {"s2-", "min"}
        assert len(await objects(store)) == 12

    with_controllers(main)


def test_a_sandbox_that_is_made_again_gets_objects_of_its_own() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        before = {key: one["metadata"]["uid"] for key, one in (await objects(store)).items()}
        await store.delete(SANDBOX, "ns1", "s1")
        await deployed(store, 0)
        await deploy(store)
        await deployed(store)
        after = {key: one["metadata"]["uid"] for key, one in (await objects(store)).items()}
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values())

    with_controllers(main)


def test_orphaned_objects_stay() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        await store.delete(SANDBOX, "ns1", "s1", propagation=Propagation.ORPHAN)

        async def gone() -> bool:
            return not (await store.list(SANDBOX)).items

        await until(gone)
        await asyncio.sleep(5)
        found = await objects(store)
        assert len(found) == 11
        assert not any(one["metadata"].get("ownerReferences") for one in found.values())

    with_controllers(main)


@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND])
def test_every_policy_deletes_all(propagation: Propagation) -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        await store.delete(SANDBOX, "ns1", "s1", propagation=propagation)
        await deployed(store, 0)
        assert not (await store.list(SANDBOX)).items

    with_controllers(main)


def test_a_topology_that_is_wrong_in_part_is_deployed_in_part() -> None:
    async def main(store: MemoryStore) -> None:
        broken = {**SMALL, "net_mappings": [SMALL["net_mappings"][0], {**SMALL["net_mappings"][1], "ip": "1.2.3.4"}]}
        await deploy(store, topology=broken)
        await deployed(store, 10)
        accepted = await condition(store, wanted="Accepted")
        assert accepted["reason"] == "TopologyInvalid"
        assert 'IP address "1.2.3.4" is not valid host address of "10.10.30.0/24".' in accepted["message"]
        await mark_ready(store)
        await asyncio.sleep(1)
        assert (await condition(store))["status"] == "False"

    with_controllers(main)


def test_hosts_stay_where_they_are_when_a_node_joins() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        before = await revisions(store)
        await store.create(NODE, document(NODE, "n0", {"underlayIP": "172.31.0.1"}))
        await asyncio.sleep(2)
        assert await revisions(store) == before

    with_controllers(main)


class Protecting(MemoryStore):
    """A store that refuses to delete objects in use, as the API does."""

    refusals = 0

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Any) -> Stored:
        write = Write(
            operation=WriteOperation.DELETE,
            kind=kind,
            namespace=namespace,
            name=name,
            who=Identity(name="controller"),
            old=await self.get(kind, namespace, name),
        )
        try:
            await InUse().review(write, self)
        except Conflict:
            self.refusals += 1
            raise
        return await super().delete(kind, namespace, name, **options)


def test_what_is_in_use_is_waited_for() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store, placement={"default": "n1"})

        async def addressed(ip: str) -> bool:
            found = [one.document() for one in (await store.list(NETWORK_ATTACHMENT)).items]
            return any(ip in one.get("status", {}).get("ips", ()) for one in found)

        await until(lambda: addressed("10.10.30.5/24"))
        spec = {"node": "n1", "network": "s1-home-switch", "ips": ["10.10.30.50"]}
        await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, "theirs", spec))
        await until(lambda: addressed("10.10.30.50/24"))

        def renumber(spec: Document) -> None:
            topology = spec["topology"]
            topology["networks"][1]["cidr"] = "10.99.30.0/24"
            topology["net_mappings"][1]["ip"] = "10.99.30.5"
            topology["router_mappings"][1]["ip"] = "10.99.30.1"

        await edit(store, renumber)
        await asyncio.sleep(20)
        assert isinstance(store, Protecting)
        assert store.refusals, "the Subnet was in use"
        assert await addressed("10.10.30.50/24")
        accepted = await condition(store, wanted="Accepted")
        assert accepted["reason"] == "InUse"
        assert accepted["message"].endswith("it is used by NetworkAttachment ns1/theirs")
        await store.delete(NETWORK_ATTACHMENT, "ns1", "theirs")
        await until(lambda: addressed("10.99.30.5/24"))
        assert (await condition(store, wanted="Accepted"))["status"] == "True"
        await store.delete(SANDBOX, "ns1", "s1")
        await deployed(store, 0)
        assert not (await store.list(SANDBOX)).items

    with_controllers(main, parts=("",), store=Protecting)


class Refusing(MemoryStore):
    """A store that refuses one object."""

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        if document["metadata"]["name"] == "s1-man":
            raise Invalid("no routers of this name today")
        return await super().create(kind, document, dry_run=dry_run)


def test_an_object_that_is_refused_costs_itself_alone() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store, 10)
        accepted = await condition(store, wanted="Accepted")
        assert (accepted["reason"], accepted["message"]) == ("Refused", "Router s1-man: no routers of this name today")

    with_controllers(main, store=Refusing)


def test_a_deleted_sandbox_waits_for_objects_that_others_keep() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        kept = (await store.get(ROUTER, "ns1", "s1-man")).document()
        kept["metadata"]["finalizers"] = ["example.com/keep"]
        await store.update(ROUTER, kept)
        await store.delete(SANDBOX, "ns1", "s1")
        await deployed(store, 1)
        assert (await store.list(SANDBOX)).items
        kept = (await store.get(ROUTER, "ns1", "s1-man")).document()
        del kept["metadata"]["finalizers"]
        await store.update(ROUTER, kept)
        await deployed(store, 0)
        assert not (await store.list(SANDBOX)).items

    with_controllers(main)


def test_a_block_that_changes_twice_is_compared_again() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        for prefix in (25, 26, 27):

            def narrow(spec: Document, prefix: int = prefix) -> None:
                spec["topology"]["networks"][1]["cidr"] = f"10.10.30.0/{prefix}"

            await edit(store, narrow)

        async def narrowed() -> bool:
            found = (await objects(store)).get(("Subnet", "s1-home-switch"))
            return found is not None and found["spec"]["cidr"] == "10.10.30.0/27"

        await until(narrowed)
        assert (await condition(store, wanted="Accepted"))["status"] == "True"

    with_controllers(main)


def test_faults_are_applied_named_by_the_status_and_removed() -> None:
    async def main(store: MemoryStore) -> None:
        await deploy(store)
        await deployed(store)
        await mark_ready(store)
        await asyncio.sleep(1)
        assert (await condition(store, wanted="Faulty"))["status"] == "False"
        before = await revisions(store)
        cut = {"name": "cut", "linkDown": {"host": "home", "network": "home-switch"}}
        apart = {"name": "apart", "partition": {"members": ["home"], "from": ["server"]}}
        await edit(store, lambda spec: spec.update(faults=[cut, apart]))
        await deployed(store, 12)
        changed = {key for key, revision in (await revisions(store)).items() if before.get(key) != revision}
        assert changed == {("NetworkAttachment", "s1-home-home-switch"), ("SecurityProfile", "s1-partition-apart")}
        await mark_ready(store)
        await asyncio.sleep(1)
        text = "apart: home and server cannot reach each other; cut: the link of home to home-switch is down"
        faulty, ready = await condition(store, wanted="Faulty"), await condition(store)
        assert (faulty["status"], faulty["message"]) == ("True", text)
        assert (ready["status"], ready["message"]) == ("True", f"with deliberate faults: {text}")
        await edit(store, lambda spec: spec.pop("faults"))
        await deployed(store)
        assert "linkDown" not in (await objects(store))["NetworkAttachment", "s1-home-home-switch"]["spec"]
        labels = (await objects(store))["NetworkAttachment", "s1-home-home-switch"]["metadata"]["labels"]
        assert not any(key.startswith("fault.") for key in labels)
        assert (await condition(store, wanted="Faulty"))["status"] == "False"

    with_controllers(main)
