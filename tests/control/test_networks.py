"""VNIs: each Network gets its own, whatever the order, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from netloom.errors import Invalid, NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.networks import Network
from netloom.model.registry import EVENT, IP_LOCK, NETWORK, VNI_LOCK
from netloom.plan.audit.addresses import MANAGED_BY, MANAGER
from netloom.plan.node.grants import ProviderGrants, provider_grants
from netloom.run.config import ControllerSettings, ServeSettings, load
from netloom.run.controllers import Options, options_of
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, memory, network, network_of, run


@asynccontextmanager
async def numbering(store: MemoryStore, first: int = 100, last: int = 103, *, rest: float = 0.0) -> AsyncIterator[None]:
    told = Options(vnis=(first, last), quarantine=0.0, vni_rest=rest)
    manager = assemble(store, random=Random(1), parts=["networks"], options=told)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await asyncio.sleep(1)
        yield
        task.cancel()


async def locks(store: MemoryStore) -> dict[str, str]:
    documents = [item.document() for item in (await store.list(VNI_LOCK)).items]
    return {found["metadata"]["name"]: found["spec"]["network"]["name"] for found in documents}


async def vni(store: MemoryStore, name: str, namespace: str = "ns1") -> int | None:
    return (await network_of(store, name, namespace)).status.vni


def test_a_network_gets_the_vni_it_names_and_others_one_of_the_range() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store):
            await store.create(NETWORK, network("blue", 7))
            await store.create(NETWORK, network("red"))
            await store.create(NETWORK, network("green", namespace="ns2"))
            await asyncio.sleep(1)
            assert await vni(store, "blue") == 7
            chosen = {await vni(store, "red"), await vni(store, "green", "ns2")}
            assert chosen == {100, 101}
            assert sorted(await locks(store)) == ["vni-100", "vni-101", "vni-7"]
            blue = (await network_of(store, "blue")).status
            ready = blue.condition("Ready")
            assert ready is not None
            assert (ready.status, ready.reason, blue.observed_generation) == ("True", "VNIAssigned", 1)
            reasons = {item.document()["reason"] for item in (await store.list(EVENT)).items}
            assert reasons == {"VNIAssigned"}
            before = await store.revision()
            await asyncio.sleep(2000)  # Sweeps included.
            assert await store.revision() == before

    run(main())


def test_of_two_that_name_one_vni_the_second_waits_until_the_first_goes() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(NETWORK, network("second", 7, "ns2"))
            await asyncio.sleep(1)
            second = (await network_of(store, "second", "ns2")).status
            ready = second.condition("Ready")
            assert ready is not None
            assert second.vni is None
            assert (ready.status, ready.reason) == ("False", "VNITaken")
            assert ready.message == "VNI 7 is taken by ns1/first"
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(5)
            assert await vni(store, "second", "ns2") == 7
            assert await locks(store) == {"vni-7": "second"}

    run(main())


def test_a_range_that_is_used_up_is_said_and_heals() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, 100, 101):
            for name in ("a", "b", "c"):
                await store.create(NETWORK, network(name))
                await asyncio.sleep(1)
            third = (await network_of(store, "c")).status
            ready = third.condition("Ready")
            assert ready is not None
            assert third.vni is None
            assert ready.message == "no VNI is free between 100 and 101"
            await store.delete(NETWORK, "ns1", "a")
            await asyncio.sleep(10)
            assert await vni(store, "c") == 100

    run(main())


def test_a_vni_with_addresses_of_a_network_that_is_gone_is_not_given_to_another_namespace() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(
                IP_LOCK, document(IP_LOCK, "v1-7-10-0-0-2", {"network": "first", "vni": 7, "ip": "10.0.0.2"})
            )
            await store.delete(NETWORK, "ns1", "first")
            await store.create(NETWORK, network("second", 7, "ns2"))
            await asyncio.sleep(30)
            assert await vni(store, "second", "ns2") is None
            await store.delete(IP_LOCK, "ns1", "v1-7-10-0-0-2")
            await asyncio.sleep(30)
            assert await vni(store, "second", "ns2") == 7

    run(main())


def test_a_network_made_anew_takes_its_vni_back_although_its_addresses_are_locked() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store):
            await store.create(NETWORK, network("blue", 7))
            await asyncio.sleep(1)
            await store.create(
                IP_LOCK, document(IP_LOCK, "v1-7-10-0-0-2", {"network": "blue", "vni": 7, "ip": "10.0.0.2"})
            )
            await store.delete(NETWORK, "ns1", "blue")
            await store.create(NETWORK, network("blue", 7))
            await asyncio.sleep(5)
            assert await vni(store, "blue") == 7
            lock = (await store.get(VNI_LOCK, "", "vni-7")).document()
            assert lock["spec"]["network"]["uid"] == (await network_of(store, "blue")).metadata.uid

    run(main())


async def status_of(store: MemoryStore, name: str, namespace: str) -> tuple[int | None, str]:
    status = (await network_of(store, name, namespace)).status
    ready = status.condition("Ready")
    return status.vni, ready.message if ready else ""


RESTS = "VNI 7 is in quarantine: ns1/first had it before, in another namespace"


def test_a_vni_rests_before_another_namespace_gets_it() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(NETWORK, network("second", 7, "ns2"))
            await asyncio.sleep(1)
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(28)
            assert await status_of(store, "second", "ns2") == (None, RESTS)
            await asyncio.sleep(5)
            assert await status_of(store, "second", "ns2") == (7, "")
            assert await locks(store) == {"vni-7": "second"}

    run(main())


def test_no_restart_forgets_that_a_vni_rests() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(5)
        await store.create(NETWORK, network("second", 7, "ns2"))
        async with numbering(store, rest=30.0):
            await asyncio.sleep(28)  # It starts again.
            assert await status_of(store, "second", "ns2") == (None, RESTS)
            await asyncio.sleep(5)
            assert await status_of(store, "second", "ns2") == (7, "")

    run(main())


def test_an_address_that_is_locked_late_begins_the_rest_anew() -> None:
    """As by a controller that has not heard yet that the Network is gone."""

    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.delete(NETWORK, "ns1", "first")
            await store.create(NETWORK, network("second", 7, "ns2"))
            await asyncio.sleep(10)
            spec = {"network": "first", "vni": 7, "ip": "10.0.0.2"}
            await store.create(IP_LOCK, document(IP_LOCK, "v1-7-10-0-0-2", spec))
            await asyncio.sleep(60)
            assert await status_of(store, "second", "ns2") == (None, RESTS)
            await store.delete(IP_LOCK, "ns1", "v1-7-10-0-0-2")
            await asyncio.sleep(28)
            assert await status_of(store, "second", "ns2") == (None, RESTS)
            await asyncio.sleep(7)
            assert await status_of(store, "second", "ns2") == (7, "")

    run(main())


@pytest.mark.parametrize("name", ["first", "other"])
def test_the_namespace_that_had_a_vni_has_it_back_without_a_rest(name: str) -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(NETWORK, network("waiting", 7, "ns2"))
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(3)
            await store.create(NETWORK, network(name, 7))
            await asyncio.sleep(3)
            assert await vni(store, name) == 7
            assert await locks(store) == {"vni-7": name}
            assert await vni(store, "waiting", "ns2") is None

    run(main())


def test_who_waits_in_the_namespace_that_had_a_vni_does_not_wait_for_the_rest() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(NETWORK, network("second", 7))
            await asyncio.sleep(1)
            assert await vni(store, "second") is None
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(5)
            assert await vni(store, "second") == 7

    run(main())


def test_a_network_whose_lock_somebody_deletes_gets_it_back() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("blue"))
            await asyncio.sleep(1)
            old = (await store.delete(VNI_LOCK, "", "vni-100")).document()["metadata"]
            await asyncio.sleep(5)
            new = (await store.get(VNI_LOCK, "", "vni-100")).document()["metadata"]
            assert new["uid"] != old["uid"]
            assert "deletionTimestamp" not in new
            assert await vni(store, "blue") == 100

    run(main())


class Behind(MemoryStore):
    """A store that a Network was deleted from which its watchers have not heard of."""

    gone: frozenset[str] = frozenset()

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        if kind is NETWORK and name in self.gone:
            raise NotFound(f"{name} is gone")
        return await super().get(kind, namespace, name, known=known)


@pytest.mark.parametrize("stale", ["first", "other"])
def test_no_rest_is_ended_for_a_network_that_is_gone_itself(stale: str) -> None:
    """As by a controller that has not heard of that yet, and thinks that somebody deleted its lock."""

    async def main() -> None:
        store = Behind()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(1)
            await store.create(NETWORK, network("other", 7))
            store.gone = frozenset({"first", "other"})
            old = (await store.delete(VNI_LOCK, "", "vni-7")).document()["metadata"]
            if stale == "other":
                await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(5)
            lock = (await store.get(VNI_LOCK, "", "vni-7")).document()["metadata"]
            assert lock["uid"] == old["uid"]

    run(main())


class Waking(MemoryStore):
    """A store that takes its time between letting a VNILock go and making the next."""

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        if kind is VNI_LOCK and document["spec"]["network"]["namespace"] == "ns1":
            await asyncio.sleep(0.5)
        return await super().create(kind, document, dry_run=dry_run)


def test_nobody_gets_a_vni_while_its_namespace_takes_it_back() -> None:
    async def main() -> None:
        store = Waking()
        async with numbering(store, rest=30.0):
            await store.create(NETWORK, network("first", 7))
            await asyncio.sleep(2)
            await store.create(NETWORK, network("waiting", 7, "ns2"))
            await store.delete(NETWORK, "ns1", "first")
            await asyncio.sleep(3)
            await store.create(NETWORK, network("other", 7))
            await asyncio.sleep(5)
            assert await locks(store) == {"vni-7": "other"}
            assert await vni(store, "waiting", "ns2") is None

    run(main())


def test_a_lock_without_a_finalizer_rests_too() -> None:
    """As one that an older version made."""

    async def main() -> None:
        store = memory()
        spec = {"vni": 7, "network": {"namespace": "ns1", "name": "first", "uid": "u"}}
        await store.create(VNI_LOCK, document(VNI_LOCK, "vni-7", spec, labels={MANAGED_BY: MANAGER}))
        await store.create(NETWORK, network("second", 7, "ns2"))
        async with numbering(store, rest=30.0):
            await asyncio.sleep(28)
            assert await status_of(store, "second", "ns2") == (None, RESTS)
            await asyncio.sleep(5)
            assert await status_of(store, "second", "ns2") == (7, "")

    run(main())


def test_a_lock_made_by_hand_keeps_its_vni() -> None:
    async def main() -> None:
        store = memory()
        spec = {"vni": 100, "network": {"namespace": "far", "name": "away", "uid": "u"}}
        await store.create(VNI_LOCK, document(VNI_LOCK, "vni-100", spec))
        async with numbering(store):
            await store.create(NETWORK, network("blue"))
            await store.create(NETWORK, network("red", 100))
            await asyncio.sleep(2000)
            assert await vni(store, "blue") == 101
            assert await vni(store, "red") is None
            assert (await locks(store))["vni-100"] == "away"

    run(main())


def test_locks_of_networks_gone_while_nobody_looked_are_removed_and_lost_ones_made_anew() -> None:
    async def main() -> None:
        store = memory()
        spec = {"vni": 100, "network": {"namespace": "ns1", "name": "gone", "uid": "u"}}
        await store.create(VNI_LOCK, document(VNI_LOCK, "vni-100", spec, labels={MANAGED_BY: MANAGER}))
        await store.create(NETWORK, network("blue"))
        async with numbering(store):
            await asyncio.sleep(5)
            number = await vni(store, "blue")
            assert await locks(store) == {f"vni-{number}": "blue"}
            await store.delete(VNI_LOCK, "", f"vni-{number}")
            await asyncio.sleep(5)
            assert await locks(store) == {f"vni-{number}": "blue"}
            assert await vni(store, "blue") == number

    run(main())


def test_a_vni_named_later_replaces_the_one_that_was_chosen() -> None:
    async def main() -> None:
        store = memory()
        async with numbering(store):
            made = await store.create(NETWORK, network("blue"))
            await asyncio.sleep(1)
            assert await vni(store, "blue") == 100
            changed = (await store.get(NETWORK, "ns1", made.name)).document()
            changed["spec"]["vni"] = 7
            await store.update(NETWORK, changed)
            await asyncio.sleep(5)
            assert await vni(store, "blue") == 7
            assert await locks(store) == {"vni-7": "blue"}

    run(main())


class Crashing(MemoryStore):
    """A store whose status writes fail at first: as if the process had died between lock and status."""

    failing = 3

    async def update(self, *args: Any, **options: Any) -> Stored:
        if self.failing and options.get("subresource"):
            self.failing -= 1
            raise ConnectionResetError
        return await super().update(*args, **options)


def test_a_lock_made_before_a_crash_is_found_again() -> None:
    async def main() -> None:
        store = Crashing()
        async with numbering(store):
            await store.create(NETWORK, network("blue"))
            await asyncio.sleep(20)
            value = (await store.get(NETWORK, "ns1", "blue")).value()
            assert isinstance(value, Network)
            assert await locks(store) == {f"vni-{value.status.vni}": "blue"}

    run(main())


@pytest.mark.parametrize("text", ["", "7", "0-5", "9-5", "1-16777216", "a-b", "-5"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        options_of(ControllerSettings(vni_range=text))
    assert [cause.field for cause in caught.value.causes] == ["vniRange"]


@pytest.mark.parametrize("settings", [ServeSettings, ControllerSettings])
def test_grants_of_physical_networks_are_read_and_wrong_ones_refused(
    settings: type[ServeSettings] | type[ControllerSettings],
) -> None:
    assert options_of(settings()).providers == ProviderGrants()
    assert options_of(settings(provider_grants=("a=p",))).providers == provider_grants(["a=p"])
    with pytest.raises(Invalid) as caught:
        options_of(settings(provider_grants=("p", "a=p:5000")))
    assert [cause.field for cause in caught.value.causes] == ["providerGrants"] * 2


def test_a_range_and_a_quarantine_are_read() -> None:
    read = options_of(ControllerSettings(quarantine=0.0, vni_range="5000-6000", vni_rest=7.0))
    assert read == Options(quarantine=0.0, vnis=(5000, 6000), vni_rest=7.0)
    with pytest.raises(Invalid) as caught:
        load(ControllerSettings, flags={"quarantine": "-1", "vni_rest": "-1"}, environ={})
    assert [cause.field for cause in caught.value.causes] == ["quarantine", "vniRest"]
