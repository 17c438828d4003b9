import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.gc import FOREGROUND, ORPHAN, Collector, Item, ItemKey, ItemMeta, collected_informers
from netloom.control.runtime.manager import Manager
from netloom.errors import NotFound, Unreachable
from netloom.model.document import Document, OwnerReference
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, EVPN_NETWORK, IP_LOCK, LEASE, NETWORK, NODE, REMOTE_VTEP
from netloom.store.base import Propagation, Store, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, fill, lock, memory, network, owner_reference, run


@asynccontextmanager
async def collecting(store: Store) -> AsyncIterator[Manager]:
    manager = assemble(store, random=Random(1), collect=True)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await asyncio.sleep(1)
        yield manager
        await asyncio.sleep(1)
        task.cancel()


async def there(store: Store, kind: Kind = IP_LOCK) -> list[str]:
    return [item.name for item in (await store.list(kind)).items]


async def events(store: Store) -> list[tuple[str, str]]:
    documents = [item.document() for item in (await store.list(EVENT)).items]
    return sorted((found["involvedObject"]["name"], found["reason"]) for found in documents)


async def metadata(store: Store, kind: Kind, name: str) -> Document:
    found: Document = (await store.get(kind, "ns1", name)).document()["metadata"]
    return found


def test_what_is_owned_goes_with_its_owner_and_what_is_owned_by_that_too() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        middle = await store.create(NETWORK, network("middle", ownerReferences=[owner_reference(owner)]))
        await store.create(IP_LOCK, lock("a", [owner]))
        await store.create(IP_LOCK, lock("deep", [middle]))
        await store.create(IP_LOCK, lock("free", []))
        async with collecting(store):
            assert await there(store) == ["a", "deep", "free"]
            await store.delete(NETWORK, "ns1", "owner")
        assert await there(store) == ["free"]
        assert await there(store, NETWORK) == []

    run(main())


def test_what_a_speaker_has_learned_goes_with_the_evpn_network() -> None:
    async def main() -> None:
        store = memory()
        owners = [
            await store.create(EVPN_NETWORK, document(EVPN_NETWORK, name, {"network": "blue", "speaker": "main"}))
            for name in ("one", "other")
        ]
        for owner in owners:
            learned = document(REMOTE_VTEP, f"{owner.name}.192-0-2-7.10.0", {"evpnNetwork": owner.name})
            learned["metadata"]["ownerReferences"] = [owner_reference(owner)]
            await store.create(REMOTE_VTEP, learned)
        async with collecting(store):
            await store.delete(EVPN_NETWORK, "ns1", "one")
        assert await there(store, REMOTE_VTEP) == ["other.192-0-2-7.10.0"]

    run(main())


def test_what_lost_its_owner_while_nobody_looked_goes_too() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        await store.create(IP_LOCK, lock("a", [owner]))
        await store.delete(NETWORK, "ns1", "owner")
        async with collecting(store):
            pass
        assert await there(store) == []

    run(main())


def test_an_owner_of_the_same_name_with_another_uid_counts_as_gone() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        await store.create(IP_LOCK, lock("a", [owner]))
        await store.delete(NETWORK, "ns1", "owner")
        await store.create(NETWORK, network("owner"))
        async with collecting(store):
            pass
        assert await there(store) == []

    run(main())


def test_one_living_owner_suffices_and_the_dead_ones_are_taken_away() -> None:
    async def main() -> None:
        store = memory()
        one = await store.create(NETWORK, network("one"))
        two = await store.create(NETWORK, network("two"))
        await store.create(IP_LOCK, lock("a", [one, two]))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "one")
            await asyncio.sleep(2)
            assert [o["name"] for o in (await metadata(store, IP_LOCK, "a"))["ownerReferences"]] == ["two"]
            await store.delete(NETWORK, "ns1", "two")
        assert await there(store) == []

    run(main())


def test_an_object_of_another_namespace_does_not_hold_up_a_foreground_deletion() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        await store.create(IP_LOCK, lock("far", [owner], "ns2", block=True, finalizers=["netloom.dev/test"]))
        near = await store.create(NETWORK, network("near", ownerReferences=[owner_reference(owner, block=True)]))
        await store.create(IP_LOCK, lock("far-too", [near], "ns2", block=True, finalizers=["netloom.dev/test"]))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "owner", propagation=Propagation.FOREGROUND)
            await asyncio.sleep(5)
            assert await there(store, NETWORK) == []

    run(main())


def test_foreground_deletion_waits_for_those_that_block_and_goes_depth_first() -> None:
    async def main() -> None:
        store = memory()
        order: list[str] = []
        owner = await store.create(NETWORK, network("owner"))
        reference = owner_reference(owner, block=True)
        middle = await store.create(NETWORK, network("middle", ownerReferences=[reference]))
        await store.create(IP_LOCK, lock("deep", [middle], block=True, finalizers=["netloom.dev/test"]))
        await store.create(IP_LOCK, lock("lax", [owner], block=False))
        revision = await store.revision()
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "owner", propagation=Propagation.FOREGROUND)
            await asyncio.sleep(5)
            assert await there(store) == ["deep"]
            assert await there(store, NETWORK) == ["middle", "owner"]
            assert (await metadata(store, NETWORK, "middle"))["finalizers"] == [FOREGROUND]
            held = (await store.get(IP_LOCK, "ns1", "deep")).document()
            held["metadata"]["finalizers"] = []
            await store.update(IP_LOCK, held)
        assert await there(store, NETWORK) == []
        for kind in (IP_LOCK, NETWORK):
            watch = await store.watch(kind, since=revision)
            order += [f"{e.object.revision:05} {e.object.name}" for e in await watch.next() if e.type == "DELETED"]
        assert [line.split()[1] for line in sorted(order)] == ["lax", "deep", "middle", "owner"]

    run(main())


def test_a_circle_of_owners_is_broken() -> None:
    async def main() -> None:
        store = memory()
        one = await store.create(NETWORK, network("one"))
        two = await store.create(NETWORK, network("two", ownerReferences=[owner_reference(one, block=True)]))
        circle = one.document()
        circle["metadata"]["ownerReferences"] = [owner_reference(two, block=True)]
        await store.update(NETWORK, circle)
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "one", propagation=Propagation.FOREGROUND)
            await asyncio.sleep(5)
        assert await there(store, NETWORK) == []

    run(main())


def test_a_dependent_that_another_owner_keeps_does_not_block() -> None:
    async def main() -> None:
        store = memory()
        going = await store.create(NETWORK, network("going"))
        staying = await store.create(NETWORK, network("staying"))
        await store.create(IP_LOCK, lock("a", [going, staying], block=True))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "going", propagation=Propagation.FOREGROUND)
            await asyncio.sleep(5)
        assert await there(store, NETWORK) == ["staying"]
        assert [o["name"] for o in (await metadata(store, IP_LOCK, "a"))["ownerReferences"]] == ["staying"]

    run(main())


def test_orphans_stay_and_forget_their_owner() -> None:
    async def main() -> None:
        store = memory()
        going = await store.create(NETWORK, network("going"))
        staying = await store.create(NETWORK, network("staying"))
        await store.create(IP_LOCK, lock("a", [going]))
        await store.create(IP_LOCK, lock("b", [going, staying]))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "going", propagation=Propagation.ORPHAN)
            await asyncio.sleep(5)
        assert await there(store, NETWORK) == ["staying"]
        assert await there(store) == ["a", "b"]
        assert "ownerReferences" not in await metadata(store, IP_LOCK, "a")
        assert [o["name"] for o in (await metadata(store, IP_LOCK, "b"))["ownerReferences"]] == ["staying"]

    run(main())


def test_finalizers_of_others_are_respected() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("owner", finalizers=["netloom.dev/test"]))
        owner = await store.get(NETWORK, "ns1", "owner")
        await store.create(IP_LOCK, lock("a", [owner]))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "owner")
            await asyncio.sleep(5)
            assert await there(store) == ["a"]
            assert (await metadata(store, NETWORK, "owner"))["finalizers"] == ["netloom.dev/test"]

    run(main())


def test_a_cluster_scoped_owner_may_own_in_every_namespace() -> None:
    async def main() -> None:
        store = memory()
        node = await store.create(NODE, document(NODE, "n1", {"underlayIP": "10.0.0.1"}))
        await store.create(IP_LOCK, lock("a", [node], "ns1", block=True))
        await store.create(IP_LOCK, lock("b", [node], "ns2", block=True))
        async with collecting(store):
            await store.delete(NODE, "", "n1", propagation=Propagation.FOREGROUND)
            await asyncio.sleep(5)
        assert await there(store) == []
        assert await there(store, NODE) == []

    run(main())


def test_an_owner_living_in_another_namespace_is_no_owner_but_no_reason_to_delete_either() -> None:
    async def main() -> None:
        store = memory()
        far = await store.create(NETWORK, network("far", namespace="ns2"))
        await store.create(IP_LOCK, lock("a", [far]))
        async with collecting(store) as manager:
            await asyncio.sleep(5)
            assert await there(store) == ["a"]
            await manager.recorder.flush()
            assert await events(store) == [("a", "OwnerRefInvalidNamespace")]
            await store.delete(NETWORK, "ns2", "far")
        assert await there(store) == []

    run(main())


def test_a_cluster_scoped_object_cannot_be_owned_by_a_namespaced_one() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        spec = {"underlayIP": "10.0.0.1"}
        await store.create(NODE, document(NODE, "n1", spec, ownerReferences=[owner_reference(owner)]))
        await store.delete(NETWORK, "ns1", "owner")
        async with collecting(store) as manager:
            await asyncio.sleep(2)
            await manager.recorder.flush()
        assert await there(store, NODE) == ["n1"]
        assert await events(store) == [("n1", "OwnerRefInvalidNamespace")]

    run(main())


def test_what_is_owned_by_a_kind_nobody_here_knows_is_left_alone() -> None:
    async def main() -> None:
        store = memory()
        pod = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1"}
        spec = {"network": "blue", "vni": 1, "ip": "10.0.0.1"}
        await store.create(IP_LOCK, document(IP_LOCK, "a", spec, ownerReferences=[pod]))
        async with collecting(store) as manager:
            await asyncio.sleep(2)
            await manager.recorder.flush()
        assert await there(store) == ["a"]
        assert await events(store) == [("a", "OwnerRefUnknownKind")]

    run(main())


def test_what_cannot_be_verified_is_left_alone() -> None:
    class Mute(MemoryStore):
        mute = False

        async def get(self, *args: Any, **options: Any) -> Stored:
            if self.mute and args[0] is NETWORK:
                raise Unreachable("no answer")
            return await super().get(*args, **options)

    async def main() -> None:
        store = Mute()
        owner = await store.create(NETWORK, network("owner"))
        await store.create(IP_LOCK, lock("a", [owner]))
        async with collecting(store):
            store.mute = True
            await store.delete(NETWORK, "ns1", "owner")
            await asyncio.sleep(120)
            assert await there(store) == ["a"]
            store.mute = False
            await asyncio.sleep(120)
        assert await there(store) == []

    run(main())


def test_a_dependent_that_got_another_owner_meanwhile_is_judged_again() -> None:
    class Late(MemoryStore):
        """Between judging and deleting, somebody gives the object a living owner."""

        def __init__(self) -> None:
            super().__init__()
            self.adopters: list[Stored] = []

        async def delete(self, kind: Kind, *args: Any, **options: Any) -> Stored:
            if self.adopters and kind is IP_LOCK:
                adopted = (await self.get(IP_LOCK, "ns1", "a")).document()
                adopted["metadata"]["ownerReferences"].append(owner_reference(self.adopters.pop()))
                await self.update(IP_LOCK, adopted)
            return await super().delete(kind, *args, **options)

    async def main() -> None:
        store = Late()
        owner = await store.create(NETWORK, network("owner"))
        store.adopters.append(await store.create(NETWORK, network("adopter")))
        await store.create(IP_LOCK, lock("a", [owner]))
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "owner")
            await asyncio.sleep(5)
        assert not store.adopters
        assert await there(store) == ["a"]

    run(main())


def test_leases_and_other_kinds_are_collected_alike() -> None:
    async def main() -> None:
        store = memory()
        owner = await store.create(NETWORK, network("owner"))
        lease = document(LEASE, "l", {"holderIdentity": "x"}, ownerReferences=[owner_reference(owner)])
        await store.create(LEASE, lease)
        async with collecting(store):
            await store.delete(NETWORK, "ns1", "owner")
        assert await there(store, LEASE) == []

    run(main())


def test_what_is_gone_by_the_time_of_looking_needs_nothing() -> None:
    async def main() -> None:
        store = memory()
        informers = collected_informers(store, random=Random(1))
        collector = Collector(Client(store), informers, Recorder(store, "test", random=Random(1)))
        key = ItemKey(IP_LOCK.api_version, "IPLock", "ns1", "a")
        assert str(key) == "IPLock ns1/a"
        assert await collector.reconcile(key) is None
        owner = await store.create(NETWORK, network("owner"))
        made = await store.create(IP_LOCK, lock("a", [owner]))
        [locks] = [one for one in informers if one.kind is IP_LOCK]
        fill(locks.cache, [made], made.revision)
        await store.delete(IP_LOCK, "ns1", "a")
        assert await collector.reconcile(key) is None
        with pytest.raises(NotFound):
            await store.get(IP_LOCK, "ns1", "a")
        assert await collector.reconcile(ItemKey("v1", "Pod", "ns1", "a")) is None

    run(main())


def test_an_uid_that_the_cache_has_elsewhere_is_read_before_it_is_believed() -> None:
    async def main() -> None:
        store = memory()
        informers = collected_informers(store, random=Random(1))
        collector = Collector(Client(store), informers, Recorder(store, "test", random=Random(1)))
        far = await store.create(NETWORK, network("far", namespace="ns2"))
        made = await store.create(IP_LOCK, lock("a", [far]))
        for one in informers:
            fill(one.cache, [found for found in (far, made) if found.kind is one.kind], made.revision)
        await store.delete(NETWORK, "ns2", "far")
        await collector.reconcile(ItemKey(IP_LOCK.api_version, "IPLock", "ns1", "a"))
        assert await there(store) == []

    run(main())


def test_changes_concern_only_who_owns_or_is_owned() -> None:
    async def main() -> None:
        store = memory()
        informers = collected_informers(store, random=Random(1))
        collector = Collector(Client(store), informers, Recorder(store, "test", random=Random(1)))
        plain = Item(metadata=ItemMeta(name="a", namespace="ns1", uid="u"))
        assert list(collector.changed(NETWORK, Change(Key("ns1", "a"), None, plain))) == []
        assert list(collector.changed(NETWORK, Change(Key("ns1", "a"), plain, plain))) == []
        orphaning = Item(metadata=ItemMeta(name="a", uid="u", deletion_timestamp="t", finalizers=(ORPHAN,)))
        assert [key.name for key in collector.changed(NETWORK, Change(Key("ns1", "a"), plain, orphaning))] == ["a"]
        stranger = OwnerReference(api_version="v1", kind="Pod", name="x", uid="u9")
        owned = Item(metadata=ItemMeta(name="b", namespace="ns1", uid="v", owner_references=(stranger,)))
        assert list(collector.changed(NETWORK, Change(Key("ns1", "b"), owned, None))) == []

    run(main())


def test_a_blocking_dependent_that_the_cache_does_not_know_is_waited_for() -> None:
    async def main() -> None:
        store = memory()
        informers = collected_informers(store, random=Random(1))
        collector = Collector(Client(store), informers, Recorder(store, "test", random=Random(1)))
        owner = await store.create(NETWORK, network("owner"))
        await store.create(IP_LOCK, lock("unknown", [owner], block=True))
        going = await store.delete(NETWORK, "ns1", "owner", propagation=Propagation.FOREGROUND)
        [networks] = [one for one in informers if one.kind is NETWORK]
        fill(networks.cache, [going], going.revision)
        key = ItemKey(NETWORK.api_version, "Network", "ns1", "owner")
        assert await collector.reconcile(key) is not None
        assert await there(store, NETWORK) == ["owner"]
        await store.delete(IP_LOCK, "ns1", "unknown")
        assert await collector.reconcile(key) is None
        assert await there(store, NETWORK) == []

    run(main())
