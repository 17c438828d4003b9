"""Objects of kinds that nothing acts on say so: in simulated time, on a store in memory."""

import asyncio
from typing import Any

from netloom.errors import NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NOT_IMPLEMENTED, SERVICE_CHAIN
from netloom.store.base import Store
from tests.control.helpers import controlled, document, until

SPECS: dict[str, Any] = {
    "ServiceChain": {
        "left": [{"network": "blue"}],
        "right": [{"network": "red"}],
        "hops": [{"selector": {"matchLabels": {"app": "fw"}}, "in": "a", "out": "b"}],
    },
}


async def ready(store: Store, kind: Kind, name: str) -> Document | None:
    try:
        status = (await store.get(kind, "ns1", name)).document().get("status", {})
    except NotFound:
        return None
    return next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)


def test_objects_that_nothing_acts_on_say_so() -> None:
    async def main(store: Store) -> None:
        for kind in NOT_IMPLEMENTED:
            await store.create(kind, document(kind, "it", SPECS[kind.name]))
        for kind in NOT_IMPLEMENTED:

            async def said(kind: Kind = kind) -> bool:
                return await ready(store, kind, "it") is not None

            await until(said)
            found = await ready(store, kind, "it")
            assert found is not None
            assert (found["status"], found["reason"], found["observedGeneration"]) == ("False", "NotImplemented", 1)
            assert f"does nothing with a {kind.name}" in found["message"]
        before = await store.revision()
        await asyncio.sleep(3600)
        assert await store.revision() == before

    controlled(main, parts=("unimplemented",))


def test_an_operator_of_somebody_may_implement_such_a_kind() -> None:
    async def main(store: Store) -> None:
        made = (await store.create(SERVICE_CHAIN, document(SERVICE_CHAIN, "it", SPECS["ServiceChain"]))).document()

        async def said() -> bool:
            return await ready(store, SERVICE_CHAIN, "it") is not None

        await until(said)
        made = (await store.get(SERVICE_CHAIN, "ns1", "it")).document()
        own = {"type": "Ready", "status": "True", "reason": "Filled"}
        await store.update(SERVICE_CHAIN, made | {"status": {"conditions": [own]}}, subresource="status")
        await asyncio.sleep(3600)
        assert await ready(store, SERVICE_CHAIN, "it") == own

    controlled(main, parts=("unimplemented",))
