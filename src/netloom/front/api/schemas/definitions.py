"""The CustomResourceDefinitions of our own kinds, for clients that look for them.

They are the output of `netloom crds`, stored like all other objects, so that list, get and watch work as usual and
several API servers show the same objects. The API server writes them when it starts, if they are missing or another
version of Netloom wrote them. They are read-only in the API.
"""

import asyncio
import logging
import time
from contextlib import suppress

from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.registry import CUSTOM_RESOURCE_DEFINITION
from netloom.model.schemas.crds import crds, established
from netloom.store.base import Store
from netloom.store.semantics import timestamp

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
MOST_SECONDS = 60.0


async def publish(store: Store) -> None:
    """Write the definitions, retry if the store refuses them, and return when they are stored."""
    wait = RETRY_SECONDS
    while True:
        try:
            return await write(store)
        except NetloomError as error:
            log.warning("cannot write the CustomResourceDefinitions yet: %s", error)
        await asyncio.sleep(wait)
        wait = min(2 * wait, MOST_SECONDS)


async def write(store: Store) -> None:
    """Write the definitions of this version to `store`."""
    now = timestamp(time.time())
    wanted = {definition["metadata"]["name"]: definition for definition in crds()}
    found = {one.name: one.document() for one in (await store.list(CUSTOM_RESOURCE_DEFINITION)).items}
    for name, definition in wanted.items():
        new, old = {**definition, "status": established(definition, now)}, found.get(name)
        with suppress(AlreadyExists, Conflict, NotFound):  # Another API server that starts now writes the same.
            if old is None:
                await store.create(CUSTOM_RESOURCE_DEFINITION, new)
            elif old["spec"] != definition["spec"]:
                await store.update(CUSTOM_RESOURCE_DEFINITION, {**new, "metadata": old["metadata"]})
    for name in found.keys() - wanted.keys():
        with suppress(NotFound):
            await store.delete(CUSTOM_RESOURCE_DEFINITION, "", name)
