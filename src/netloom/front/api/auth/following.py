"""What the indexes of nodes' rights (node_networks.py, node_speakers.py) have in common.

A `Follower` lists the objects of one kind, and then processes changes as they are published, so an index is never
older than what an agent received through this server. While it does not run, or has lost its position in the watch,
its index is not `known`, and the store is asked.

`Versions` has an object for each node that is replaced when the node may have lost a right.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from netloom.errors import NetloomError
from netloom.model.kind import Kind
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.store.base import Event, EventType, Store

log = logging.getLogger(__name__)

PAGE = 1000
REST = 1.0


def selecting(fields: Mapping[str, str]) -> Selector:
    """Return a selector for objects with these fields."""
    return Selector((), tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in fields.items()))


async def together(*runs: Callable[[], Coroutine[Any, Any, NoReturn]]) -> NoReturn:
    """Run several endless functions until cancelled."""
    async with asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(run())
    raise AssertionError("they run until they are cancelled")


class Version:
    """Identifies a period in which a node lost no right.  It lives as long as something compares it."""

    __slots__ = ("__weakref__",)


class Versions:
    """The current version of each node."""

    def __init__(self) -> None:
        self._versions: WeakValueDictionary[str, Version] = WeakValueDictionary()

    def of(self, node: str) -> Version:
        """Return the same object until the node may have lost a right."""
        return self._versions.setdefault(node, Version())

    def end(self, node: str) -> None:
        """Begin another version for a node."""
        self._versions.pop(node, None)

    def clear(self) -> None:
        """Begin another version for all nodes."""
        self._versions.clear()


class Follower:
    """Maintains an index of the objects of one kind."""

    def __init__(
        self, store: Store, kind: Kind, *, take: Callable[[Event], None], clear: Callable[[], None], page: int = PAGE
    ) -> None:
        """`take` processes a change, an existing object being ADDED; `clear` empties the index."""
        self.known = asyncio.Event()
        """Set while the index is maintained."""
        self._store = store
        self._kind = kind
        self._take = take
        self._clear = clear
        self._page = page

    async def run(self) -> NoReturn:
        """Maintain the index until cancelled."""
        while True:
            try:
                await self._follow()
            except NetloomError as error:
                log.info("cannot follow the %s of nodes for now: %s", self._kind.plural, error)
                await asyncio.sleep(REST)

    async def _follow(self) -> NoReturn:
        try:
            page = await self._store.list(self._kind, limit=self._page)
            while True:
                for stored in page.items:
                    self._take(Event(EventType.ADDED, stored))
                if not page.token:
                    break
                page = await self._store.list(self._kind, limit=self._page, token=page.token)
            await self._watch(page.revision)
        finally:
            self.known.clear()
            self._clear()

    async def _watch(self, since: int) -> NoReturn:
        def take(event: Event) -> bool:
            self._take(event)
            return True

        watch = await self._store.watch(self._kind, since=since)
        try:
            watch.direct(take)
            self.known.set()
            while True:
                for event in await watch.next():
                    self._take(event)
        finally:
            watch.direct(None)
            await watch.close()
