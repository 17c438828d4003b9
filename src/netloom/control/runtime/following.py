"""Sets of informers that run only while something needs them: each is started and ended separately."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netloom.control.runtime.cache import Change, Key
from netloom.control.runtime.informer import Informer
from netloom.signals import Signal

K = TypeVar("K", Key, str)
V = TypeVar("V")


@dataclass(slots=True)
class Followed:
    """Informers that belong together, while something needs them."""

    informers: tuple[Informer[Any], ...]
    known: Callable[[], None]
    """Called when all caches are filled: an empty list is no change, and matters all the same."""
    on_end: Signal[[]] = field(default_factory=Signal)
    """Sent when it ends."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    ended: bool = False

    @property
    def synced(self) -> bool:
        """Whether all caches are filled."""
        return all(one.synced.is_set() for one in self.informers)

    @property
    def following(self) -> bool:
        """Whether all caches are filled and up to date."""
        return all(one.following for one in self.informers)

    def want(self, wanted: bool) -> None:
        """Set whether something needs it: while nothing does, no new watch is started."""
        for one in self.informers:
            if wanted:
                one.wanted.set()
            else:
                one.wanted.clear()

    async def announce(self) -> None:
        """Call `known` when all caches are filled."""
        for one in self.informers:
            await one.synced.wait()
        self.known()

    def end(self) -> None:
        """End it."""
        self.ended = True
        for task in self.tasks:
            task.cancel()
        self.on_end()


def follow(parts: dict[K, Followed], wanted: set[K], begin: Callable[[K], Followed]) -> None:
    """Start what is missing and end what is not wanted, so that exactly `wanted` is followed."""
    for key in sorted(parts.keys() - wanted):
        parts.pop(key).end()
    for key in sorted(wanted - parts.keys()):
        parts[key] = begin(key)


def pass_on(followed: Followed, source: Informer[V], tell: Callable[[Change[V]], None]) -> None:
    """Call `tell` with each change while this is followed, and with a deletion of every object when it ends."""

    def changed(change: Change[V]) -> None:
        if not followed.ended:
            tell(change)

    def end() -> None:
        for key, value in source.cache.items():
            tell(Change(key, value, None))

    followed.on_end.connect(end)
    source.on_change(changed)
