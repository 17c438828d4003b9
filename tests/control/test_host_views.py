"""What an agent follows: the Networks its attachments are in, and no others."""

import asyncio
from random import Random

from netloom.control.cache import Change, Key
from netloom.control.host_views import Neighbourhood, View, attachment_informer
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT
from netloom.store.base import Store
from tests.control.helpers import document, memory, run


async def view(store: Store, network: str) -> View:
    """Make an attachment, and return what an agent sees of it."""
    await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, "a", {"node": "n1", "network": network}))
    stored = await store.get(NETWORK_ATTACHMENT, "ns1", "a")
    return View(stored.value(), stored)  # type: ignore[arg-type]  # of this kind it is


def test_an_attachment_that_was_made_again_in_another_network_while_nobody_listened_is_followed_there() -> None:
    async def main() -> None:
        store = memory()
        for name in ("blue", "red"):
            await store.create(NETWORK, document(NETWORK, name, {}))
        attachments = attachment_informer(store, "n1", random=Random(0))
        neighbours = Neighbourhood(store, attachments, random=Random(0))
        tell = neighbours._attachment_changed
        task = asyncio.create_task(neighbours.run())
        old = await view(store, "blue")
        tell(Change(Key("ns1", "a"), None, old))
        await asyncio.sleep(5)
        assert neighbours.network(Key("ns1", "blue")) is not None
        await store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        new = await view(store, "red")
        tell(Change(Key("ns1", "a"), old, new))
        await asyncio.sleep(5)
        assert neighbours.network(Key("ns1", "blue")) is None
        assert neighbours.network(Key("ns1", "red")) is not None
        tell(Change(Key("ns1", "a"), new, None))
        await asyncio.sleep(5)
        assert neighbours.namespaces() == []
        task.cancel()

    run(main())
