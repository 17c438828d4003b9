"""An informer keeps a `Cache` up to date: it lists, watches, and when the watch ends, watches or lists again.

        ┌────────── Expired: revision compacted   ─────────┐
        ▼                                                  │
      list ──► watch since the list's revision ──► events ─┤
                 ▲                                         │
                 └── Unreachable: from the last revision ──┘   after a growing delay, with jitter

Handlers are called with each change, as a hint to queue a key; they must not depend on the order or the number of
calls. `synced` is set after the first list. Only the decoded values are kept in memory.

An informer of a kind that is `optional` has no objects while the server does not serve the kind, and asks again.

While nothing needs the informer, `wanted` can be cleared: it continues until its watch ends, and then starts no other.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Generic, NoReturn, TypeVar, cast

from msgspec import structs

from netloom.control.runtime.cache import Cache, Change, Indexer, Listed
from netloom.control.runtime.queue import Pace
from netloom.errors import Expired, NetloomError, NotFound
from netloom.model.document import Resource
from netloom.model.kind import Kind, Registry
from netloom.model.registry import KINDS
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Store, Stored, Watch

V = TypeVar("V")
R = TypeVar("R", bound=Resource)
Handler = Callable[[Change[V]], None]
PAGE = 500
PACE = Pace(0.1, 30.0)
ABSENT = 10.0
"""Seconds after which a kind that is not served is asked for again."""

logger = logging.getLogger(__name__)


class Informer(Generic[V]):
    """Follows the objects of one kind: of one namespace or all, selected or all."""

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
        optional: bool = False,
    ) -> None:
        """`optional`: the server need not serve the kind, as one whose CRD others create."""
        self.kind = kind
        self.cache: Cache[V] = Cache(decode, indexes)
        self.synced = asyncio.Event()
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.following = False
        """Whether it has a watch, so that the cache is up to date."""
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
        self._optional = optional

    def on_change(self, handler: Handler[V]) -> None:
        """Call `handler` for each change from now on, and at once for each object that the cache has."""
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
                # The token of a page can expire, too; a list without pages cannot, so this ends.
                self._paged = self._listed
                self._listed = False
                await self._back_off()
            except NetloomError as error:
                if self._optional and isinstance(error, NotFound):
                    self._listed = False
                    self._notify(self.cache.finish({}, 0))
                    self.synced.set()
                    await asyncio.sleep(ABSENT)
                    continue
                if not error.retry:
                    # The permission to watch may end before this process knows that it needs the watch no more.
                    level = logging.WARNING if self.wanted.is_set() else logging.DEBUG
                    logger.log(level, "cannot watch %s: %s", self.kind.qualified, error)
                    self._listed = False
                await self._back_off()

    async def _list(self) -> None:
        listed: Listed[V] = {}
        token = ""
        while True:
            page = await self._store.list(
                self.kind,
                self._namespace,
                selector=self._selector,
                limit=self._page if self._paged else None,
                token=token,
            )
            self.cache.add_page(listed, page.items)
            token = page.token
            if not token:
                break
        self.lists += 1
        self._listed = self._paged = True
        self._notify(self.cache.finish(listed, page.revision))
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
                self._notify(self.cache.apply(events, watch.revision))
        finally:
            self.following = False
            if asyncio.get_running_loop().time() - began > PACE.longest:
                self._failures = 0  # Servers end idle watches from time to time: no failure.
            await watch.close()

    def _notify(self, changes: list[Change[V]]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change)

    async def _back_off(self) -> None:
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
    """Return an informer of the typed values of a kind, without their managedFields."""
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
    """Return a value without its managedFields, which are often most of an object, and which no controller reads."""
    if not value.metadata.managed_fields:
        return value
    return structs.replace(value, metadata=structs.replace(value.metadata, managed_fields=()))
