"""The same control loop, in real time, on a real sqlite file and on a real kube-apiserver that holds our CRDs."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from netloom.control.runtime.clock import now
from netloom.control.runtime.election import Election
from netloom.control.runtime.manager import Manager
from netloom.errors import AlreadyExists
from netloom.model.registry import EVENT, LEASE, NETWORK, NODE, SANDBOX, SUBNET
from netloom.model.schemas.crds import crds
from netloom.plan.sandbox.objects import KINDS as OWNED
from netloom.sim.world import eventually
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from netloom.store.sqlite.store import SqliteStore
from tests.control.helpers import assemble, document, network, subnet, subnet_of
from tests.plan.test_sandbox import SMALL
from tests.support.kube import Kube
from tests.support.process import wait_until


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds, in real time."""
    await eventually(holds, within=30, every=0.02)


async def two_managers(store: Store, namespace: str) -> None:
    """Validate two Subnets by whichever leads; stop it; see the other go on."""

    def manager(identity: str) -> Manager:
        election = Election(store, name="test", namespace=namespace, identity=identity, random=Random(identity))
        return assemble(store, random=Random(identity), clock=now, election=election)

    async def leading() -> bool:
        return one.leading or two.leading

    async def judged(name: str, *, validated: bool) -> bool:
        status = (await subnet_of(store, name, namespace)).status
        return status.validated is validated and bool(status.conditions)

    async def told(name: str, reason: str) -> bool:
        events = [found.document() for found in (await store.list(EVENT, namespace)).items]
        return (name, reason) in {(event["involvedObject"]["name"], event["reason"]) for event in events}

    one, two = manager("one"), manager("two")
    vni = secrets.randbelow(2**24 - 1) + 1
    async with asyncio.TaskGroup() as group:
        tasks = {identity: group.create_task(m.run()) for identity, m in (("one", one), ("two", two))}
        await store.create(NETWORK, network("blue", vni, namespace))
        await store.create(SUBNET, subnet("first", "10.0.0.0/24", namespace=namespace))
        await until(lambda: judged("first", validated=True))
        await until(lambda: told("first", "SubnetValidated"))
        await until(leading)
        leader = "one" if one.leading else "two"
        tasks[leader].cancel()
        await asyncio.wait([tasks[leader]])
        await store.create(SUBNET, subnet("second", "10.0.0.128/25", namespace=namespace))
        await until(lambda: judged("second", validated=False))
        await until(lambda: told("second", "SubnetFailedValidation"))
        lease = (await store.get(LEASE, namespace, "test")).document()["spec"]
        assert lease["holderIdentity"] == ("two" if leader == "one" else "one")
        assert lease["leaseTransitions"] >= 1
        for task in tasks.values():
            task.cancel()


async def sandbox_comes_and_goes(store: Store, namespace: str) -> None:
    """Deploy a Sandbox, edit it and delete it: only what differs is written, and nothing is left."""

    async def objects() -> dict[str, str]:
        return {
            f"{kind.name}/{one.name}": one.document()["metadata"]["resourceVersion"]
            for kind in OWNED
            for one in (await store.list(kind, namespace)).items
        }

    async def has(number: int) -> bool:
        return len(await objects()) == number

    async def accepted() -> bool:
        status = (await store.get(SANDBOX, namespace, "s1")).document().get("status", {})
        return [one["status"] for one in status.get("conditions", ()) if one["type"] == "Accepted"] == ["True"]

    spec = {"topology": SMALL, "placement": {"default": "n1"}, "run": True}
    node = document(NODE, "n1", {"underlayIP": "172.31.0.1"})
    manager = assemble(store, random=Random(1), clock=now, parts=["sandboxes"])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(manager.run())
        with suppress(AlreadyExists):
            await store.create(NODE, node)
        await store.create(SANDBOX, document(SANDBOX, "s1", spec, namespace))
        await until(lambda: has(11))
        await until(accepted)
        before = await objects()
        found = (await store.get(SANDBOX, namespace, "s1")).document()
        found["spec"]["topology"]["hosts"].append({"name": "more"})
        more = {"host": "more", "network": "home-switch", "ip": "10.10.30.7"}
        found["spec"]["topology"]["net_mappings"].append(more)
        await store.update(SANDBOX, found)
        await until(lambda: has(12))
        assert {name: at for name, at in (await objects()).items() if name in before} == before
        await store.delete(SANDBOX, namespace, "s1")
        await until(lambda: has(0))

        async def gone() -> bool:
            return not (await store.list(SANDBOX, namespace)).items

        await until(gone)
        running.cancel()


def test_a_sandbox_on_sqlite(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "store.db")
        try:
            await sandbox_comes_and_goes(store, "ns1")
        finally:
            await store.close()

    asyncio.run(main())


def test_two_managers_on_sqlite(tmp_path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore.open(tmp_path / "store.db")
        try:
            await two_managers(store, "ns1")
        finally:
            await store.close()

    asyncio.run(main())


@pytest.mark.kube
@pytest.mark.parametrize("work", [two_managers, sandbox_comes_and_goes])
def test_on_a_kubernetes(kube: Kube, work: Callable[[Store, str], Awaitable[None]]) -> None:
    namespace = f"control-{secrets.token_hex(4)}"
    kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for definition in crds():
        status, answer = kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        assert status in (201, 409), answer
    for kind in (NETWORK, SUBNET, NODE, SANDBOX, *OWNED):
        wait_until(lambda k=kind: kube.request("GET", k.path())[0] == 200, what=f"{kind.plural} to be served")  # type: ignore[misc]

    async def main() -> None:
        store = await KubeStore.open(kubeconfig.load(str(kube.kubeconfig)))
        try:
            await work(store, namespace)
        finally:
            await store.close()

    asyncio.run(main())
