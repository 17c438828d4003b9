"""Giving addresses and taking them back: quarantine, coming back, waiting in line, crashes between any two steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from netloom.control.ipam.views import DECIDED, QUARANTINE
from netloom.control.runtime.client import Client
from netloom.errors import Unreachable
from netloom.model.document import Document
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet, VNILock
from netloom.model.registry import EVENT, IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.plan.audit.addresses import audit
from netloom.run.controllers import ControlPlane, Options
from netloom.sim.world import eventually
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, memory, network, owner_reference, run, subnet, subnet_of


@asynccontextmanager
async def giving(store: MemoryStore, quarantine: float = 5.0) -> AsyncIterator[ControlPlane]:
    manager = assemble(store, random=Random(1), collect=True, parts=[""], options=Options(quarantine=quarantine))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await asyncio.sleep(1)
        yield manager
        task.cancel()


async def blue(store: MemoryStore, cidr: str = "10.0.0.0/24", **spec: Any) -> None:
    await store.create(NETWORK, network("blue", 7))
    await store.create(SUBNET, subnet("s", cidr, **spec))


async def attach(store: MemoryStore, *names: str, **spec: Any) -> None:
    for name in names:
        await store.create(
            NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, {"node": "n1", "network": "blue", **spec})
        )


async def detach(store: MemoryStore, *names: str) -> None:
    for name in names:
        await store.delete(NETWORK_ATTACHMENT, "ns1", name)


async def seen(store: MemoryStore, name: str) -> NetworkAttachment:
    value = (await store.get(NETWORK_ATTACHMENT, "ns1", name)).value()
    assert isinstance(value, NetworkAttachment)
    return value


async def ips(store: MemoryStore, *names: str) -> list[str]:
    return [ip.partition("/")[0] for name in names for ip in (await seen(store, name)).status.ips]


async def clean(store: MemoryStore) -> bool:
    client = Client(store)
    kinds = (Network, Subnet, NetworkAttachment, IPLock, VNILock)
    everything: list[list[Any]] = [await client.list(kind) for kind in kinds]
    return audit(*everything) == []


async def events(store: MemoryStore, name: str) -> list[tuple[str, str]]:
    documents = [item.document() for item in (await store.list(EVENT)).items]
    return [(e["reason"], e["message"]) for e in documents if e["involvedObject"]["name"] == name]


def test_an_attachment_gets_address_mac_and_a_story() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        await store.create(SUBNET, subnet("six", "fd00::/64"))
        async with giving(store) as manager:
            await attach(store, "a")
            await asyncio.sleep(3)
            status = (await seen(store, "a")).status
            assert status.ips == ("10.0.0.2/24", "fd00::2/64")
            assert (status.mac, status.vni, status.observed_generation) == ("06:00:00:02:00:07", 7, 1)
            assert [lock.ip for lock in status.locks] == ["10.0.0.2", "fd00::2"]
            conditions = [(one.type, one.status, one.reason) for one in status.conditions]
            assert conditions == [("Addressed", "True", "Addressed"), ("Ready", "Unknown", "NotPlugged")]
            await manager.recorder.flush()
            told = "Assigned 10.0.0.2/24, fd00::2/64 with MAC 06:00:00:02:00:07"
            assert await events(store, "a") == [("AddressAssigned", told)]
            used = [(await subnet_of(store, name)).status.used for name in ("s", "six")]
            assert used == [1, 1]
            assert manager.ipam is not None
            assert manager.ipam.counters.to_address.count == manager.ipam.counters.to_lock.count == 1
            assert manager.ipam.locks == 2
            before = await store.revision()
            await asyncio.sleep(2000)
            assert await store.revision() == before
            assert await clean(store)

    run(main())


@pytest.mark.parametrize("restart", [False, True])
def test_a_freed_address_rests_for_the_quarantine_also_across_a_restart(restart: bool) -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/30", exclude=["10.0.0.2", "10.0.0.3"])
        async with giving(store):
            await attach(store, "a")
            await asyncio.sleep(2)
            assert await ips(store, "a") == ["10.0.0.0"]
            await attach(store, "b")
            await asyncio.sleep(2)
            await detach(store, "a")
            await asyncio.sleep(1)
            if not restart:
                await asyncio.sleep(3)
                assert await ips(store, "b") == []
                await asyncio.sleep(3)
                assert await ips(store, "b") == ["10.0.0.0"]
                return
        async with giving(store):
            await asyncio.sleep(3)
            assert await ips(store, "b") == []
            await asyncio.sleep(3)
            assert await ips(store, "b") == ["10.0.0.0"]

    run(main())


def test_without_a_quarantine_an_address_is_free_at_once() -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/30", exclude=["10.0.0.2", "10.0.0.3"])
        async with giving(store, quarantine=0.0):
            await attach(store, "a")
            await asyncio.sleep(1)
            assert "finalizers" not in (await store.get(IP_LOCK, "ns1", "v1-7-10-0-0-0")).document()["metadata"]
            await attach(store, "b")
            await asyncio.sleep(1)
            await detach(store, "a")
            await asyncio.sleep(0.5)
            assert await ips(store, "b") == ["10.0.0.0"]

    run(main())


@pytest.mark.parametrize("pause", [0.0, 0.5, 3.0])
def test_who_comes_back_under_the_same_name_gets_its_address_back(pause: float) -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", "b", "c")
            await asyncio.sleep(2)
            before = await ips(store, "b")
            await detach(store, "b")
            await asyncio.sleep(pause)
            await attach(store, "d", "b")
            await asyncio.sleep(2)
            assert await ips(store, "b") == before
            await asyncio.sleep(20)
            assert await clean(store)

    run(main())


def test_waiters_are_served_in_the_order_of_their_age() -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/29")
        async with giving(store, quarantine=1.0) as manager:
            await attach(store, "a", "b", "c", "d", "e")
            await asyncio.sleep(2)
            for name in ("w1", "w2", "w3"):
                await attach(store, name)
                await asyncio.sleep(1.5)
            assert manager.ipam is not None
            assert len(manager.ipam.allocator.queue) == 3
            assert await ips(store, "w1", "w2", "w3") == []
            await detach(store, "c")
            await asyncio.sleep(4)
            assert len(await ips(store, "w1")) == 1
            assert await ips(store, "w2", "w3") == []
            await detach(store, "a", "w2")
            await asyncio.sleep(4)
            assert len(await ips(store, "w3")) == 1
            assert len(manager.ipam.allocator.queue) == 0
            await manager.recorder.flush()
            reasons = [reason for reason, _ in await events(store, "w1")]
            assert sorted(reasons) == ["AddressAssigned", "AddressWaiting"]
            assert await clean(store)

    run(main())


def test_filling_a_subnet_writes_its_status_now_and_then_only() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            before = (await store.get(SUBNET, "ns1", "s")).revision
            watch = await store.watch(SUBNET, since=before)
            await attach(store, *(f"a{number}" for number in range(253)))
            await asyncio.sleep(5)
            assert (await subnet_of(store, "s")).status.used == 253
            assert len(await watch.next()) <= 3
            assert len(set(await ips(store, *(f"a{number}" for number in range(253))))) == 253
            await detach(store, *(f"a{number}" for number in range(253)))
            await asyncio.sleep(20)
            assert (await subnet_of(store, "s")).status.used == 0
            assert (await store.list(IP_LOCK)).items == []

    run(main())


async def _spare(store: MemoryStore, name: str, ip: str, decided: str) -> Document:
    """Make a lock as somebody does who dies before naming it."""
    owner = await store.get(NETWORK_ATTACHMENT, "ns1", name)
    made = document(
        IP_LOCK,
        f"v1-7-{ip.replace('.', '-')}",
        {"network": "blue", "vni": 7, "ip": ip},
        ownerReferences=[owner_reference(owner)],
        annotations={DECIDED: decided or str(owner.revision)},
        finalizers=[QUARANTINE],
    )
    return (await store.create(IP_LOCK, made)).document()


@pytest.mark.parametrize("decided", ["1", ""])
def test_a_lock_made_before_a_crash_is_used(decided: str) -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        await attach(store, "a")
        await _spare(store, "a", "10.0.0.77", decided)
        async with giving(store):
            await asyncio.sleep(3)
            assert await ips(store, "a") == ["10.0.0.77"]
            assert await clean(store)

    run(main())


@pytest.mark.parametrize("decided", ["1", ""])
def test_a_lock_too_many_is_given_back_and_the_one_in_use_stays(decided: str) -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a")
            await asyncio.sleep(3)
            await _spare(store, "a", "10.0.0.77", decided)
            await asyncio.sleep(20)
            assert await ips(store, "a") == ["10.0.0.2"]
            assert [item.name for item in (await store.list(IP_LOCK)).items] == ["v1-7-10-0-0-2"]
            addressed = (await seen(store, "a")).status.condition("Addressed")
            assert addressed is not None
            assert addressed.message == ""
            assert await clean(store)

    run(main())


@pytest.mark.parametrize("decided", ["1", ""])
def test_a_lock_too_many_is_given_back_though_something_else_cannot_be_had(decided: str) -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", ips=["fd00::2"])
            await asyncio.sleep(3)
            before = (await seen(store, "a")).status
            assert before.errors.ipam
            await _spare(store, "a", "10.0.0.77", decided)
            await asyncio.sleep(20)
            assert await ips(store, "a") == ["10.0.0.2"]
            assert [item.name for item in (await store.list(IP_LOCK)).items] == ["v1-7-10-0-0-2"]
            after = (await seen(store, "a")).status
            assert (after.errors, after.condition("Addressed")) == (before.errors, before.condition("Addressed"))
            assert await clean(store)

    run(main())


def test_an_attachment_whose_lock_is_lost_gets_the_same_address_again() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", "b")
            await asyncio.sleep(3)
            before = await ips(store, "a", "b")
            for item in (await store.list(IP_LOCK)).items:
                await store.delete(IP_LOCK, "ns1", item.name)
            await asyncio.sleep(20)
            assert await ips(store, "a", "b") == before
            assert await clean(store)

    run(main())


def test_what_the_agent_wrote_stays() -> None:
    async def main() -> None:
        store = memory()
        await attach(store, "a")
        found = (await store.get(NETWORK_ATTACHMENT, "ns1", "a")).document()
        found["status"] = {"hostIP": "172.31.0.1", "errors": {"host": ["no such device"]}}
        await store.update(NETWORK_ATTACHMENT, found, subresource="status")
        async with giving(store):
            await blue(store)
            await asyncio.sleep(5)
            status = (await seen(store, "a")).status
            assert (status.host_ip, status.errors.host) == ("172.31.0.1", ("no such device",))
            assert status.ips == ("10.0.0.2/24",)

    run(main())


@pytest.mark.parametrize(
    "claimed",
    [
        {"ips": ["10.0.0.3/24"]},
        {"ips": ["10.0.0.3/24"], "mac": "06:00:00:03:00:07"},
        {"ips": ["10.0.0.1/24"]},
        {"ips": ["192.0.2.1/24"]},
        {"ips": ["10.0.0.2/24", "10.0.0.3/24"]},
        {"ips": ["10.0.0.2/16"]},
        {"ips": []},
        {"mac": "06:00:00:03:00:07"},
        {"mac": "06:ff:ff:ff:ff:ff"},
        {"vni": 8},
        {"locks": []},
        {"observedGeneration": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("spec", [{}, {"ips": ["10.0.0.2"]}], ids=["any", "asked"])
def test_what_a_status_says_besides_its_locks_is_put_back(claimed: Document, spec: Document) -> None:
    """The victim has 10.0.0.3 and its MAC, the gateway 10.0.0.1."""

    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", **spec)
            await asyncio.sleep(2)
            await attach(store, "victim")
            await asyncio.sleep(2)
            before = [(await store.get(NETWORK_ATTACHMENT, "ns1", name)).document() for name in ("a", "victim")]
            assert [one["status"]["ips"] for one in before] == [["10.0.0.2/24"], ["10.0.0.3/24"]]
            await store.update(
                NETWORK_ATTACHMENT, before[0] | {"status": before[0]["status"] | claimed}, subresource="status"
            )
            await asyncio.sleep(5)
            after = [(await store.get(NETWORK_ATTACHMENT, "ns1", name)).document() for name in ("a", "victim")]
            assert [one["status"] for one in after] == [one["status"] for one in before]
            assert await clean(store)

    run(main())


def test_an_address_moves_when_the_wish_does_and_with_the_networks_vni() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue"))
        await store.create(SUBNET, subnet("s", "10.0.0.0/24"))
        async with giving(store):
            await attach(store, "a")
            await asyncio.sleep(3)
            found = (await store.get(NETWORK_ATTACHMENT, "ns1", "a")).document()
            found["spec"]["ips"] = ["10.0.0.9"]
            await store.update(NETWORK_ATTACHMENT, found)
            await asyncio.sleep(10)
            assert await ips(store, "a") == ["10.0.0.9"]
            found = (await store.get(NETWORK, "ns1", "blue")).document()
            found["spec"]["vni"] = 9
            await store.update(NETWORK, found)
            await asyncio.sleep(20)
            status = (await seen(store, "a")).status
            assert (status.vni, status.ips) == (9, ("10.0.0.9/24",))
            assert [item.name for item in (await store.list(IP_LOCK)).items] == ["v1-9-10-0-0-9"]
            assert await clean(store)

    run(main())


class Flaky(MemoryStore):
    """A store that does what it is told, and often does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = Random(5)

    async def create(self, *args: Any, **options: Any) -> Stored:
        made = await super().create(*args, **options)
        if made.kind is IP_LOCK and self.chance.random() < 0.5:
            raise Unreachable("no answer")
        return made

    async def update(self, *args: Any, **options: Any) -> Stored:
        made = await super().update(*args, **options)
        if made.kind is NETWORK_ATTACHMENT and self.chance.random() < 0.5:
            raise Unreachable("no answer")
        return made


def test_answers_that_are_lost_cost_neither_an_address_nor_a_lock() -> None:
    async def main() -> None:
        store = Flaky()
        await blue(store, "10.0.0.0/28")
        async with giving(store):
            await attach(store, *(f"a{number}" for number in range(13)))

            async def served() -> bool:
                return len(set(await ips(store, *(f"a{number}" for number in range(13))))) == 13 and await clean(store)

            await eventually(served, within=300, every=5)

    run(main())


def test_two_who_ask_for_one_mac_do_not_both_get_it_and_a_chosen_one_gives_way() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", "b", mac="02:00:00:00:00:01")
            await attach(store, "asks", mac="06:00:00:05:00:07")
            await asyncio.sleep(3)
            given = sorted([(await seen(store, name)).status.mac for name in ("a", "b")])
            assert given == ["", "02:00:00:00:00:01"]
            await attach(store, "chance", ips=["10.0.0.5"])
            await asyncio.sleep(3)
            assert (await seen(store, "asks")).status.mac == "06:00:00:05:00:07"
            other = (await seen(store, "chance")).status.mac
            assert other not in ("", "06:00:00:05:00:07")
            assert int(other[:2], 16) & 3 == 2

    run(main())
