"""What the tests of the control loop share: short ways to make objects, and a simulated store."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

from netloom.control.runtime.cache import Cache, Change, Key, Listed
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.election import Election
from netloom.model.document import Document
from netloom.model.kind import Kind, Registry
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.registry import IP_LOCK, KINDS, NETWORK, SUBNET
from netloom.run import controllers
from netloom.run.controllers import ControlPlane
from netloom.sim import loop as sim
from netloom.store.base import Store, Stored
from netloom.store.memory import MemoryStore

T = TypeVar("T")
V = TypeVar("V")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def noon() -> datetime:
    return NOON


def run(main: Coroutine[Any, Any, T], seed: int = 0) -> T:
    return sim.run(main, seed=seed)


def fill(cache: Cache[V], items: Iterable[Stored], revision: int) -> list[Change[V]]:
    """Replace the content of a cache by a list, and return what changed."""
    listed: Listed[V] = {}
    cache.add_page(listed, items)
    return cache.finish(listed, revision)


def memory(kind: type[MemoryStore] = MemoryStore) -> MemoryStore:
    """Return an empty store whose time and chance are the simulation's."""
    loop = sim.current()
    return kind(clock=lambda: NOON.timestamp() + loop.time(), random=Random(loop.random.random()))


def document(kind: Kind, name: str, spec: Document, namespace: str = "ns1", **metadata: Any) -> Document:
    if kind.namespaced:
        metadata["namespace"] = namespace
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def network(name: str, vni: int | None = None, namespace: str = "ns1", **metadata: Any) -> Document:
    return document(NETWORK, name, {"vni": vni} if vni else {}, namespace, **metadata)


def subnet(name: str, cidr: str, of: str = "blue", namespace: str = "ns1", **spec: Any) -> Document:
    return document(SUBNET, name, {"network": of, "cidr": cidr, **spec}, namespace)


def lock(name: str, owners: list[Stored], namespace: str = "ns1", *, block: bool = False, **metadata: Any) -> Document:
    references = [owner_reference(owner, block=block) for owner in owners]
    spec = {"network": "blue", "vni": 1, "ip": "10.0.0.1"}
    return document(IP_LOCK, name, spec, namespace, ownerReferences=references, **metadata)


def owner_reference(owner: Stored, *, block: bool = False) -> Document:
    return {
        "apiVersion": owner.kind.api_version,
        "kind": owner.kind.name,
        "name": owner.name,
        "uid": owner.document()["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }


async def network_of(store: Store, name: str, namespace: str = "ns1") -> Network:
    value = (await store.get(NETWORK, namespace, name)).value()
    assert isinstance(value, Network)
    return value


async def subnet_of(store: Store, name: str, namespace: str = "ns1") -> Subnet:
    value = (await store.get(SUBNET, namespace, name)).value()
    assert isinstance(value, Subnet)
    return value


def key(name: str, namespace: str = "ns1") -> Key:
    return Key(namespace, name)


def assemble(
    store: Store,
    *,
    random: Random,
    clock: Clock = noon,
    election: Election | None = None,
    collect: bool = False,
    only: Iterable[Kind] = (),
    parts: Iterable[str] = ("subnets", "garbage"),
    **planted: Any,
) -> ControlPlane:
    """Wire controllers as the program does, with a clock of the test's own; `only` some kinds are collected.

    Those in `parts` work, by name; "" is all.
    """
    wanted = set(parts)
    planted.setdefault("options", controllers.Options(planning=not wanted.isdisjoint(("", "logical"))))
    manager = controllers.assemble(
        store,
        random=random,
        clock=clock,
        election=election,
        housekeeping=collect or bool(only),
        registry=Registry(only) if only else KINDS,
        **planted,
    )
    manager.controllers = tuple(one for one in manager.controllers if "" in wanted or one.name in wanted)
    return manager


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(600):  # Of simulated time.
        while not await condition():  # noqa: ASYNC110  # Nobody tells; simulated time costs nothing.
            await asyncio.sleep(0.1)


Work = Callable[[Store], Awaitable[None]]


def controlled(main: Work, before: Work | None = None, *, parts: Iterable[str]) -> None:
    """Run `main` beside controllers, in simulated time, on a store that `before` has filled."""

    async def whole() -> None:
        store = memory()
        if before is not None:
            await before(store)
        manager = assemble(store, random=Random(1), collect=True, parts=parts)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await main(store)
            running.cancel()

    run(whole())
