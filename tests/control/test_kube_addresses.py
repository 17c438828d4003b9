"""Addresses of Services of type LoadBalancer on the simulated loop: written, kept over restarts, and freed."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from msgspec import structs

from netloom.model.document import Document
from netloom.model.kubernetes import CLUSTER_NODE, SERVICE
from netloom.model.registry import EVENT, LOAD_BALANCER
from netloom.plan.kube import names
from netloom.plan.kube.services.pools import parse
from netloom.run.controllers import Options
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, memory, run, until
from tests.plan.kube_objects import FOUR, node_document, service_document

Main = Callable[[MemoryStore], Coroutine[Any, Any, None]]
POOL = "192.0.2.8/31"


def with_controller(*phases: Main, pools: tuple[str, ...] = (POOL,)) -> None:
    """Run each phase beside a controller that was started for it."""

    async def whole() -> None:
        store = memory()
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        kube = structs.replace(FOUR, load_balancer_pools=tuple(parse(one) for one in pools))
        for phase in phases:
            options = Options(planning=False, kube=kube)
            manager = assemble(store, random=Random(1), parts=("kube",), options=options, collect=True)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run())
                await phase(store)
                running.cancel()

    run(whole())


async def create(store: MemoryStore, name: str, **spec: Any) -> None:
    document = service_document(name, f"10.96.0.{ord(name[0])}")
    document["spec"].update({"type": "LoadBalancer", **spec})
    await store.create(SERVICE, document)


async def change(store: MemoryStore, name: str, subresource: str = "", **fields: Any) -> None:
    document = (await store.get(SERVICE, "default", name)).document()
    document[subresource or "spec"] = {**document.get(subresource or "spec", {}), **fields}
    await store.update(SERVICE, document, subresource=subresource)


async def addressed(store: MemoryStore) -> dict[str, list[str]]:
    """Return the addresses of all Services, once nothing changes any more."""
    await asyncio.sleep(5)
    found = {one.name: one.document() for one in (await store.list(SERVICE)).items}
    return {name: [one["ip"] for one in _ingress(document)] for name, document in found.items()}


def _ingress(document: Document) -> list[dict[str, str]]:
    found: list[dict[str, str]] = document.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    return found


async def reasons(store: MemoryStore) -> set[tuple[str, str]]:
    await asyncio.sleep(5)
    events = [one.document() for one in (await store.list(EVENT)).items]
    return {(one["involvedObject"]["name"], one["reason"]) for one in events}


def test_an_address_is_written_and_nodes_are_told() -> None:
    async def main(store: MemoryStore) -> None:
        await create(store, "a", allocateLoadBalancerNodePorts=False)
        assert await addressed(store) == {"a": ["192.0.2.8"]}
        spec = (await store.get(LOAD_BALANCER, names.NAMESPACE, "service-v4.default.a")).document()["spec"]
        assert [one["ip"] for one in spec["externalAddresses"]] == ["192.0.2.8"]
        assert spec["externalTrafficPolicy"] == "cluster"
        assert all("nodePort" not in one for one in spec["vips"])

    with_controller(main)


def test_an_empty_pool_is_an_event_until_a_service_is_deleted_or_changed() -> None:
    async def main(store: MemoryStore) -> None:
        for name in "abcd":
            await create(store, name)
            await asyncio.sleep(1)
        assert await addressed(store) == {"a": ["192.0.2.8"], "b": ["192.0.2.9"], "c": [], "d": []}
        assert {name for name, reason in await reasons(store) if reason == "NoAddressFree"} == {"c", "d"}
        await store.delete(SERVICE, "default", "a")
        found = await addressed(store)
        assert sorted(found.values()) == [[], ["192.0.2.8"], ["192.0.2.9"]]
        await change(store, "b", type="ClusterIP")
        found = await addressed(store)
        assert (found["b"], {*found["c"], *found["d"]}) == ([], {"192.0.2.8", "192.0.2.9"})

    with_controller(main)


def test_services_keep_their_addresses_over_a_restart_in_any_order() -> None:
    async def first(store: MemoryStore) -> None:
        await create(store, "z")
        await asyncio.sleep(1)
        await create(store, "y")
        assert await addressed(store) == {"z": ["192.0.2.8"], "y": ["192.0.2.9"]}
        await store.delete(SERVICE, "default", "z")
        await asyncio.sleep(1)

    async def second(store: MemoryStore) -> None:
        await create(store, "a")
        assert await addressed(store) == {"y": ["192.0.2.9"], "a": ["192.0.2.8"]}
        revisions = {one.name: one.revision for one in (await store.list(SERVICE)).items}
        await asyncio.sleep(3600)  # With sweeps.
        assert {one.name: one.revision for one in (await store.list(SERVICE)).items} == revisions

    with_controller(first, second)


def test_what_somebody_writes_into_a_status_is_corrected_unless_it_is_another_program_s() -> None:
    async def main(store: MemoryStore) -> None:
        await create(store, "a")
        await create(store, "b")
        await create(store, "c", loadBalancerClass="cloud.example/lb")
        before = await addressed(store)
        given = {"ingress": [{"ip": before["a"][0]}]}
        await change(store, "b", "status", loadBalancer=given, conditions=[])
        after = await addressed(store)
        assert sorted(after["a"] + after["b"]) == ["192.0.2.8", "192.0.2.9"]
        assert after["c"] == []
        await change(store, "b", "status", loadBalancer={"ingress": [{"ip": "203.0.113.9"}]})
        assert (await addressed(store))["b"] == ["203.0.113.9"]
        assert ("b", "AddressNotInPool") in await reasons(store)

    with_controller(main)


def test_without_a_pool_statuses_are_left_alone() -> None:
    async def main(store: MemoryStore) -> None:
        await create(store, "a")
        await create(store, "b", type="ClusterIP")
        for name in "ab":
            await change(store, name, "status", loadBalancer={"ingress": [{"ip": "192.0.2.8"}]})
        assert await addressed(store) == {"a": ["192.0.2.8"], "b": ["192.0.2.8"]}
        assert await reasons(store) == set()

    with_controller(main, pools=())


def test_nothing_is_allocated_while_a_service_cannot_be_decoded() -> None:
    async def main(store: MemoryStore) -> None:
        await create(store, "a")
        await change(store, "a", ports="none")
        await create(store, "b")
        assert (await addressed(store))["b"] == []
        await change(store, "a", ports=[{"name": "http", "port": 80}])
        await until(lambda: _has(store, "b"))

    async def _has(store: MemoryStore, name: str) -> bool:
        return bool(_ingress((await store.get(SERVICE, "default", name)).document()))

    with_controller(main)
