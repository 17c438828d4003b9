"""How long creation takes, as the controllers count it: from what the uid says, or from what they saw."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from netloom.control.runtime.counters import Histograms
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.run import controllers
from netloom.run.controllers import ControlPlane
from netloom.sim import loop as sim
from netloom.store.engine import Minter
from netloom.store.memory import MemoryStore
from tests.control.helpers import NOON, document, memory, run


class OfChance(Minter):
    """Makes uids as a Kubernetes does."""

    def uid(self, now: float) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))


def counts(many: Histograms) -> dict[tuple[str, ...], int]:
    return {words: one.count for words, one in many.found.items()}


def controlled(
    scenario: Callable[[MemoryStore, ControlPlane], Coroutine[Any, Any, None]], *, exact: bool = True
) -> None:
    async def main() -> None:
        store = memory()
        if not exact:
            store._minter = OfChance(store._minter.clock, store._minter.random)
        manager = controllers.assemble(
            store,
            random=Random(1),
            clock=lambda: NOON + timedelta(seconds=sim.current().time()),
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await scenario(store, manager)
            running.cancel()

    run(main())


async def attach(store: MemoryStore, name: str) -> None:
    await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, {"node": "n1", "network": "blue"}))


async def make(store: MemoryStore, cidr: str = "10.0.0.0/30") -> None:
    await store.create(NETWORK, document(NETWORK, "blue", {"vni": 7}))
    await store.create(SUBNET, document(SUBNET, "blue", {"network": "blue", "cidr": cidr}))
    await asyncio.sleep(5)


@pytest.mark.parametrize(("exact", "since"), [(True, "created"), (False, "seen")])
def test_an_attachment_counts_from_its_uid_or_from_when_it_was_seen(exact: bool, since: str) -> None:
    async def scenario(store: MemoryStore, manager: ControlPlane) -> None:
        await make(store)
        await attach(store, "a")
        await asyncio.sleep(5)
        assert manager.ipam is not None
        assert manager.subnets is not None
        counters = manager.ipam.counters
        assert counts(counters.creation_to_lock) == counts(counters.creation_to_address) == {(since, "nothing"): 1}
        assert counters.creation_to_address.found[since, "nothing"].total < 5
        assert counts(manager.subnets.counters.creation_to_validated) == {(since,): 1}

    controlled(scenario, exact=exact)


def test_what_delayed_an_attachment_is_a_label() -> None:
    async def scenario(store: MemoryStore, manager: ControlPlane) -> None:
        await attach(store, "early")  # Before its Network.
        await asyncio.sleep(5)
        await make(store)
        for name in ("b", "c", "d", "late"):
            await attach(store, name)
            await asyncio.sleep(1)
        assert manager.ipam is not None
        counters = manager.ipam.counters
        assert counts(counters.creation_to_address)[("created", "other")] == 1
        given = counts(counters.creation_to_address)[("created", "nothing")]
        await store.delete(NETWORK_ATTACHMENT, "ns1", "b")
        await asyncio.sleep(30)
        assert counts(counters.creation_to_address)[("created", "full")] >= 1
        assert counts(counters.creation_to_address)[("created", "nothing")] == given
        assert counters.creation_to_address.found["created", "other"].total >= 5

    controlled(scenario)


def test_a_subnet_in_conflict_is_counted() -> None:
    async def scenario(store: MemoryStore, manager: ControlPlane) -> None:
        await make(store)
        await store.create(SUBNET, document(SUBNET, "rival", {"network": "blue", "cidr": "10.0.0.0/24"}))
        await asyncio.sleep(5)
        assert manager.subnets is not None
        assert manager.subnets.counters.refused == 1

    controlled(scenario)
