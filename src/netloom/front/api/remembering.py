"""Answers of somebody far away, kept for some seconds: asked once for however many want to know at the same time.

Bounded: what was kept first goes first. What fails is told to all who waited for it, and is not kept.
"""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from netloom.errors import NetloomError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Asking(Generic[V]):
    """A question that is on its way."""

    __slots__ = ("answer", "error", "over")

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.answer: list[V] = []
        self.error: NetloomError | None = None


class Remembered(Generic[K, V]):
    """Answers by question."""

    def __init__(
        self, seconds: Callable[[V], float], *, size: int = 4096, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep each answer as long as `seconds` says of it, and at most `size` of them."""
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._kept: dict[K, tuple[float, V]] = {}
        self._asking: dict[K, _Asking[V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the answer that is kept, or that is on its way, or else ask."""
        while True:
            until, value = self._kept.get(key, (0.0, None))
            if until > self._clock():
                return value  # type: ignore[return-value]  # only the default is None, and that is past
            asking = self._asking.get(key)
            if asking is None:
                return await self._ask(key, ask)
            await asking.over.wait()
            if asking.error is not None:
                raise copy.copy(asking.error)
            if asking.answer:
                return asking.answer[0]
            # Whoever asked went away before the answer came.

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        asking = self._asking[key] = _Asking[V]()
        try:
            value = await ask()
            asking.answer.append(value)
        except NetloomError as error:
            asking.error = error
            raise
        finally:
            del self._asking[key]
            asking.over.set()
        self._keep(key, value)
        return value

    def _keep(self, key: K, value: V) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= self._size:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (self._clock() + self._seconds(value), value)
