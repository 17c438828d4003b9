"""GET /apis/netloom.dev/v1alpha1/damaged: the objects that the store cannot read, for `netloom doctor`."""

import msgspec

from netloom.front.api.http.exchange import Exchange
from netloom.model.damaged import DamagedItem, DamagedList
from netloom.model.kind import Registry
from netloom.store.base import Store


async def reply(exchange: Exchange, store: Store, kinds: Registry) -> None:
    """Answer with the objects that `store` has set aside."""
    found = [
        DamagedItem(one.kind.name, one.namespace, one.name, one.revision, one.reason) for one in await store.damaged()
    ]
    await exchange.reply(200, msgspec.json.encode(DamagedList(len(list(kinds)), found)))
