"""PortPools in simulated time, on a store in memory: they fill, follow what is taken, and end without leftovers."""

import asyncio
from typing import Any

from netloom.errors import Conflict, NotFound
from netloom.model.document import Document
from netloom.model.registry import NETWORK_ATTACHMENT, PORT_POOL
from netloom.plan.pools import HOLD, LABEL
from netloom.store.base import Store
from tests.control.helpers import controlled, document, until

PARTS = ("pools", "garbage")
SPEC: dict[str, Any] = {"node": "n1", "network": "blue", "size": 3, "subnets": ["slice"]}


async def create(store: Store, name: str = "pool", **more: Any) -> None:
    await store.create(PORT_POOL, document(PORT_POOL, name, {**SPEC, **more}))


async def ports(store: Store) -> dict[str, Document]:
    return {one.name: one.document() for one in (await store.list(NETWORK_ATTACHMENT)).items}


async def free(store: Store) -> set[str]:
    return {name for name, one in (await ports(store)).items() if one["metadata"].get("ownerReferences")}


async def plug(store: Store) -> None:
    """Do what IPAM and the agents do for every port."""
    for one in (await ports(store)).values():
        if not one.get("status", {}).get("conditions"):
            one["status"] = {"conditions": [{"type": "Plugged", "status": "True"}]}
            await store.update(NETWORK_ATTACHMENT, one, subresource="status")


async def take(store: Store, name: str) -> None:
    """Take a port, as its user does."""
    while True:
        one = (await ports(store))[name]
        one["metadata"]["ownerReferences"] = []
        try:
            await store.update(NETWORK_ATTACHMENT, one)
        except Conflict:
            continue
        return


async def have(store: Store, number: int) -> None:
    async def same() -> bool:
        return len(await free(store)) == number

    await until(same)
    await asyncio.sleep(30)
    assert len(await free(store)) == number


async def edit(store: Store, **spec: Any) -> None:
    while True:
        pool = (await store.get(PORT_POOL, "ns1", "pool")).document()
        pool["spec"] |= spec
        try:
            await store.update(PORT_POOL, pool)
        except Conflict:
            continue
        return


async def status(store: Store) -> tuple[int, int, str, str]:
    found = (await store.get(PORT_POOL, "ns1", "pool")).document()["status"]
    ready = next(one for one in found["conditions"] if one["type"] == "Ready")
    return found.get("free", 0), found.get("used", 0), ready["status"], ready["reason"]


def test_a_pool_fills_and_replaces_what_is_taken() -> None:
    async def main(store: Store) -> None:
        await create(store, securityProfiles=["web"], defaultRoute=True)
        await have(store, 3)
        assert await status(store) == (0, 0, "False", "Empty")
        one = (await ports(store))["pool.0"]
        assert one["spec"] | {"port": {}} == {
            "node": "n1", "network": "blue", "subnets": ["slice"], "securityProfiles": ["web"], "defaultRoute": True,
            "port": {},
        }  # fmt: skip
        await plug(store)
        await asyncio.sleep(10)
        assert await status(store) == (3, 0, "True", "Filled")
        await take(store, "pool.1")
        await have(store, 3)
        assert await free(store) == {"pool.0", "pool.2", "pool.3"}
        assert await status(store) == (2, 1, "True", "Filling")
        await plug(store)
        await asyncio.sleep(10)
        assert await status(store) == (3, 1, "True", "Filled")
        revision = await store.revision()
        await asyncio.sleep(7200)
        assert await store.revision() == revision

    controlled(main, parts=PARTS)


def test_a_pool_that_is_deleted_takes_its_free_ports_and_no_others() -> None:
    async def main(store: Store) -> None:
        await create(store)
        await have(store, 3)
        await take(store, "pool.1")
        await have(store, 3)
        await store.delete(PORT_POOL, "ns1", "pool")
        await have(store, 0)
        assert set(await ports(store)) == {"pool.1"}
        await create(store)
        await have(store, 3)
        assert set(await ports(store)) == {"pool.0", "pool.1", "pool.2", "pool.3"}

    controlled(main, parts=PARTS)


def test_a_port_that_is_taken_while_the_pool_shrinks_or_ends_stays() -> None:
    async def main(store: Store) -> None:
        for last in (0, None):
            await create(store, size=9)
            await have(store, 9)
            names = sorted(await free(store))
            if last is None:
                await store.delete(PORT_POOL, "ns1", "pool")
            else:
                await edit(store, size=last)
            taken = set()
            for name in names:
                try:
                    await take(store, name)
                except (NotFound, KeyError):
                    continue
                taken.add(name)
                await asyncio.sleep(0)
            assert taken
            await have(store, 0)
            assert set(await ports(store)) == taken
            for name in taken:
                await store.delete(NETWORK_ATTACHMENT, "ns1", name)
            if last is not None:
                await store.delete(PORT_POOL, "ns1", "pool")

    controlled(main, parts=PARTS)


def test_ports_follow_the_spec_of_their_pool_and_those_taken_do_not() -> None:
    async def main(store: Store) -> None:
        await create(store)
        await have(store, 3)
        await take(store, "pool.0")
        await have(store, 3)
        await edit(store, securityProfiles=["web"])
        await have(store, 3)
        found = await ports(store)
        profiles = {name: one["spec"].get("securityProfiles") for name, one in found.items()}
        assert not profiles.pop("pool.0")
        assert set(map(str, profiles.values())) == {"['web']"}

    controlled(main, parts=PARTS)


def test_a_pool_follows_the_rate_within_its_bounds_and_writes_little() -> None:
    async def main(store: Store) -> None:
        await create(store, maxSize=12)
        await have(store, 3)
        for name in sorted(await free(store)):
            await take(store, name)
        # Where the pool has none left, what is made for pods counts as well.
        spec = {"node": "n1", "network": "blue", "port": {"type": "pod"}}
        for number in range(7):
            await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, f"cold-{number}", spec))
        await have(store, 10)
        for number in range(7, 20):
            await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, f"cold-{number}", spec))
        await have(store, 12)
        revision = await store.revision()
        await asyncio.sleep(HOLD / 2)
        assert await store.revision() == revision
        await asyncio.sleep(HOLD)
        assert len(await free(store)) == 3
        assert await store.revision() <= revision + 9 + 2

    controlled(main, parts=PARTS)


def test_names_that_others_have_are_left_out() -> None:
    async def main(store: Store) -> None:
        spec = {"node": "n1", "network": "blue"}
        await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, "pool.1", spec))
        await create(store)
        await have(store, 3)
        assert await free(store) == {"pool.0", "pool.2", "pool.3"}
        assert LABEL not in (await ports(store))["pool.1"]["metadata"].get("labels", {})

    controlled(main, parts=PARTS)
