"""Things that are followed for as long as somebody needs them: begun, and ended, each by itself."""

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
    """One thing that is followed, while somebody needs it."""

    informers: tuple[Informer[Any], ...]
    known: Callable[[], None]
    """Called when all of it is known: a list that is empty is no change, and still news."""
    on_end: Signal[[]] = field(default_factory=Signal)
    """Sent when it is followed no longer."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    ended: bool = False

    @property
    def synced(self) -> bool:
        """Whether all of it is known."""
        return all(one.synced.is_set() for one in self.informers)

    @property
    def following(self) -> bool:
        """Whether all of it is known, and as new as can be."""
        return all(one.following for one in self.informers)

    def want(self, wanted: bool) -> None:
        """Say whether somebody needs it: nothing is asked for anew while nobody does."""
        for one in self.informers:
            if wanted:
                one.wanted.set()
            else:
                one.wanted.clear()

    async def announce(self) -> None:
        """Tell when all of it is known."""
        for one in self.informers:
            await one.synced.wait()
        self.known()

    def end(self) -> None:
        """Follow it no longer."""
        self.ended = True
        for task in self.tasks:
            task.cancel()
        self.on_end()


def follow(parts: dict[K, Followed], wanted: set[K], begin: Callable[[K], Followed]) -> None:
    """Have exactly these followed; those that are stay as they are."""
    for key in sorted(parts.keys() - wanted):
        parts.pop(key).end()
    for key in sorted(wanted - parts.keys()):
        parts[key] = begin(key)


def pass_on(followed: Followed, source: Informer[V], tell: Callable[[Change[V]], None]) -> None:
    """Tell of changes while this is followed, and in the end that all of it is gone."""

    def changed(change: Change[V]) -> None:
        if not followed.ended:
            tell(change)

    def gone() -> None:
        for key, value in source.cache.items():
            tell(Change(key, value, None))

    followed.on_end.connect(gone)
    source.on_change(changed)
