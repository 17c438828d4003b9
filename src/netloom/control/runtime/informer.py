"""Keeps a `Cache` like the store: list, watch, and when the watch is lost, watch or list again.

        ┌────────── Expired: the revision is gone ─────────┐
        ▼                                                  │
      list ──► watch since the list's revision ──► events ─┤
                 ▲                                         │
                 └── Unreachable: from the last revision ──┘   after a wait that grows, with jitter

Handlers are told of each change as a hint, to queue a key; they read nothing into the order or the number of hints.
`synced` is set once the first list is in. The memory is that of the values: what a handler does not keep is gone.

While nobody needs it `wanted` can be cleared: it goes on as long as its watch does, and does not ask for another one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Generic, NoReturn, TypeVar, cast

from msgspec import structs

from netloom.control.runtime.cache import Cache, Change, Indexer
from netloom.control.runtime.queue import Pace
from netloom.errors import Expired, NetloomError
from netloom.model.document import Resource
from netloom.model.kind import Kind, Registry
from netloom.model.registry import KINDS
from netloom.model.selectors import EVERYTHING, Selector
from netloom.store.base import Store, Stored, Watch

V = TypeVar("V")
R = TypeVar("R", bound=Resource)
Handler = Callable[[Change[V]], None]
PAGE = 500
PACE = Pace(0.1, 30.0)

logger = logging.getLogger(__name__)


class Informer(Generic[V]):
    """Follows the objects of one kind, of one namespace or all, selected or all."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        decode: Callable[[Stored], V],
        *,
        random: Random,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        indexes: Mapping[str, Indexer[V]] | None = None,
        page: int = PAGE,
    ) -> None:
        self.kind = kind
        self.cache: Cache[V] = Cache(decode, indexes)
        self.synced = asyncio.Event()
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.following = False
        """Whether it has a watch: what is in the cache is as new as can be."""
        self.lists = 0
        self.watches = 0
        self._store = store
        self._page = page
        self._random = random
        self._namespace = namespace
        self._selector = selector
        self._handlers: list[Handler[V]] = []
        self._listed = False
        self._paged = True
        self._failures = 0

    def on_change(self, handler: Handler[V]) -> None:
        """Have `handler` called for each change from now on; it is called at once for what is there already."""
        self._handlers.append(handler)
        for key, value in self.cache.items():
            handler(Change(key, None, value))

    async def run(self) -> NoReturn:
        """Follow the store until cancelled."""
        while True:
            await self.wanted.wait()
            try:
                if not self._listed:
                    await self._list()
                await self._follow()
            except Expired:
                # A page's token can expire as well; a list in one piece cannot, so that it ends some time.
                self._paged = self._listed
                self._listed = False
                await self._rest()
            except NetloomError as error:
                if not error.retry:
                    # The right to follow it may end before it is known here that nobody needs it.
                    level = logging.WARNING if self.wanted.is_set() else logging.DEBUG
                    logger.log(level, "cannot follow %s: %s", self.kind.qualified, error)
                    self._listed = False
                await self._rest()

    async def _list(self) -> None:
        listing = self.cache.listing()
        token = ""
        while True:
            page = await self._store.list(
                self.kind,
                self._namespace,
                selector=self._selector,
                limit=self._page if self._paged else None,
                token=token,
            )
            listing.add(page.items)
            token = page.token
            if not token:
                break
        self.lists += 1
        self._listed = self._paged = True
        self._tell(self.cache.finish(listing, page.revision))
        self.synced.set()

    async def _follow(self) -> NoReturn:
        watch: Watch = await self._store.watch(
            self.kind, self._namespace, selector=self._selector, since=self.cache.revision
        )
        self.watches += 1
        self.following = True
        began = asyncio.get_running_loop().time()
        try:
            while True:
                events = await watch.next()
                self._failures = 0
                self._tell(self.cache.apply(events, watch.revision))
        finally:
            self.following = False
            if asyncio.get_running_loop().time() - began > PACE.longest:
                self._failures = 0  # Servers end watches now and then; where nothing happens that is no trouble.
            await watch.close()

    def _tell(self, changes: list[Change[V]]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change)

    async def _rest(self) -> None:
        self._failures += 1
        await asyncio.sleep(PACE.delay(self._failures, self._random))


def informer(
    store: Store,
    of: type[R],
    *,
    random: Random,
    namespace: str = "",
    selector: Selector = EVERYTHING,
    indexes: Mapping[str, Indexer[R]] | None = None,
    registry: Registry = KINDS,
    page: int = PAGE,
) -> Informer[R]:
    """Return an informer of a kind's typed values, less their managedFields."""
    return Informer(
        store,
        registry.of(of),
        lambda stored: cast("R", lean(stored.value())),
        random=random,
        namespace=namespace,
        selector=selector,
        indexes=indexes,
        page=page,
    )


def lean(value: Resource) -> Resource:
    """Return a value without its managedFields: they are often most of an object, and no controller reads them."""
    if not value.metadata.managed_fields:
        return value
    return structs.replace(value, metadata=structs.replace(value.metadata, managed_fields=()))
