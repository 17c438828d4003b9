"""Namespaces are there while they are used, and a deleted one is emptied: in simulated time, on a store in memory."""

import asyncio

from netloom.model.document import Document
from netloom.model.registry import EVENT, IP_LOCK, LEASE, NAMESPACE, NETWORK, SECURITY_PROFILE
from netloom.store.base import Store
from tests.control.helpers import controlled, document, lock, network, until

PARTS = ("namespaces", "garbage")


async def names(store: Store) -> list[str]:
    return [one.name for one in (await store.list(NAMESPACE)).items]


def event(namespace: str) -> Document:
    about = {"kind": "Network", "name": "blue", "namespace": namespace}
    return {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": about}


async def present(store: Store, name: str) -> bool:
    return name in await names(store)


def test_what_is_stored_already_is_given_its_namespaces_at_the_start() -> None:
    async def before(store: Store) -> None:
        await store.create(NETWORK, network("blue", namespace="team-a"))
        await store.create(LEASE, {"metadata": {"name": "lead", "namespace": "team-b"}, "spec": {}})
        await store.create(EVENT, event("nowhere"))

    async def main(store: Store) -> None:
        async def all_there() -> bool:
            return await names(store) == ["default", "netloom-system", "team-a", "team-b"]

        await until(all_there)
        await asyncio.sleep(60)
        assert await all_there()  # An Event alone keeps no namespace.

    controlled(main, before, parts=PARTS)


def test_an_object_that_came_in_without_its_namespace_is_given_one() -> None:
    async def main(store: Store) -> None:
        await until(lambda: present(store, "default"))
        await store.create(NETWORK, network("blue", namespace="late"))
        await until(lambda: present(store, "late"))

    controlled(main, parts=PARTS)


def test_a_deleted_namespace_goes_with_all_that_is_in_it_and_nothing_else() -> None:
    async def main(store: Store) -> None:
        for space in ("going", "staying"):
            await store.create(NAMESPACE, {"metadata": {"name": space}})
            blue = await store.create(NETWORK, network("blue", namespace=space))
            await store.create(NETWORK, network("red", namespace=space, finalizers=["example.com/wait"]))
            await store.create(SECURITY_PROFILE, document(SECURITY_PROFILE, "web", {}, space))
            await store.create(IP_LOCK, lock("l", [blue], space))
            await store.create(EVENT, event(space))
        await store.delete(NAMESPACE, "", "going")

        async def waits() -> bool:
            status = (await store.get(NAMESPACE, "", "going")).document()["status"]
            return {one["type"] for one in status.get("conditions", ()) if one["status"] == "True"} == {
                "NamespaceContentRemaining",
                "NamespaceFinalizersRemaining",
            }

        await until(waits)
        status = (await store.get(NAMESPACE, "", "going")).document()["status"]
        assert status["phase"] == "Terminating"
        assert "networks.netloom.dev has 1 resource instances" in status["conditions"][0]["message"]
        assert "example.com/wait" in status["conditions"][1]["message"]
        held = (await store.get(NETWORK, "going", "red")).document()
        held["metadata"]["finalizers"] = []
        await store.update(NETWORK, held)

        async def gone() -> bool:
            return not await present(store, "going")

        await until(gone)
        for kind in (NETWORK, SECURITY_PROFILE, IP_LOCK, EVENT):
            found = [one.namespace for one in (await store.list(kind)).items]
            assert set(found) == {"staying"}, kind.name
        assert (await store.get(NAMESPACE, "", "staying")).document()["status"] == {"phase": "Active"}

    controlled(main, parts=PARTS)


def test_what_came_in_just_before_the_end_goes_too() -> None:
    """An API server may believe for half a second that a namespace is active."""

    async def main(store: Store) -> None:
        await store.create(NAMESPACE, {"metadata": {"name": "going"}})
        await store.create(SECURITY_PROFILE, document(SECURITY_PROFILE, "web", {}, "going"))
        await until(lambda: present(store, "default"))
        await store.delete(NAMESPACE, "", "going")
        await asyncio.sleep(0.5)
        await store.create(NETWORK, network("late", namespace="going"))

        async def gone() -> bool:
            return not await present(store, "going")

        await until(gone)
        assert not (await store.list(NETWORK, "going")).items
        await asyncio.sleep(60)
        assert await gone()

    controlled(main, parts=PARTS)


def test_a_namespace_can_be_created_again_after_its_end() -> None:
    async def main(store: Store) -> None:
        first = await store.create(NAMESPACE, {"metadata": {"name": "again"}})
        await store.delete(NAMESPACE, "", "again")

        async def gone() -> bool:
            return not await present(store, "again")

        await until(gone)
        second = await store.create(NAMESPACE, {"metadata": {"name": "again"}})
        await store.create(NETWORK, network("blue", namespace="again"))
        await asyncio.sleep(60)
        found = (await store.get(NAMESPACE, "", "again")).document()
        assert found["metadata"]["uid"] == second.document()["metadata"]["uid"]
        assert first.document()["metadata"]["uid"] != second.document()["metadata"]["uid"]
        assert (await store.get(NETWORK, "again", "blue")).name == "blue"

    controlled(main, parts=PARTS)


def test_a_namespace_whose_name_begins_alike_keeps_its_contents() -> None:
    async def main(store: Store) -> None:
        await store.create(NAMESPACE, {"metadata": {"name": "ns1"}})
        await store.create(NETWORK, network("blue"))
        await store.create(NAMESPACE, {"metadata": {"name": "ns10"}})
        await store.create(NETWORK, network("blue", namespace="ns10"))
        await store.delete(NAMESPACE, "", "ns1")

        async def gone() -> bool:
            return not await present(store, "ns1")

        await until(gone)
        assert [(one.namespace, one.name) for one in (await store.list(NETWORK)).items] == [("ns10", "blue")]

    controlled(main, parts=PARTS)
