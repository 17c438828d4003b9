"""A cache of answers from a remote server, kept for some seconds; concurrent callers share one request.

It is bounded in number and in bytes: the oldest entries are evicted first, and expired ones as soon as they are
noticed. An error goes to all callers that waited for the answer, and is not cached.
"""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from netloom.errors import NetloomError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _small(key: object, value: object) -> int:
    """Return the weight of keys and values that are always small."""
    return 512


class ExpiringCache(Generic[K, V]):
    """Cached answers by key."""

    def __init__(
        self,
        seconds: Callable[[V], float],
        *,
        size: int = 4096,
        most_bytes: int = 4 << 20,
        weigh: Callable[[K, V], int] = _small,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep each answer for `seconds(answer)`, and at most `size` answers.

        `weigh` returns about how many bytes a key and its answer take; all together take at most `most_bytes`.
        """
        self._seconds = seconds
        self._size = size
        self._most_bytes = most_bytes
        self._weigh = weigh
        self._clock = clock
        self._kept: dict[K, tuple[float, V, int]] = {}
        self._asking: dict[K, asyncio.Future[V]] = {}
        """The requests in flight."""
        self.bytes = 0
        """About how many bytes the cached answers take."""

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the cached answer, or the answer of a request in flight, or else ask."""
        while True:
            self._expire()
            kept = self._kept.get(key)
            if kept is not None and kept[0] > self._clock():
                return kept[1]
            asking = self._asking.get(key)
            if asking is None:
                return await self._ask(key, ask)
            await asyncio.wait((asking,))
            if not asking.cancelled():  # Otherwise ask again: the caller that asked was cancelled.
                if (error := asking.exception()) is not None:
                    raise copy.copy(error)
                return asking.result()

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        asking = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            value = await ask()
            asking.set_result(value)
        except NetloomError as error:
            asking.set_exception(error)
            asking.exception()  # It is no error if no other caller waits for it.
            raise
        finally:
            del self._asking[key]
            asking.cancel()
        self._keep(key, value)
        return value

    def _keep(self, key: K, value: V) -> None:
        weight = self._weigh(key, value)
        if key in self._kept:
            self._forget(key)
        if weight > self._most_bytes:
            return
        while self._kept and (len(self._kept) >= self._size or self.bytes + weight > self._most_bytes):
            self._forget(next(iter(self._kept)))
        self._kept[key] = (self._clock() + self._seconds(value), value, weight)
        self.bytes += weight

    def _expire(self) -> None:
        """Remove the oldest entries, as long as they are expired."""
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest][0] > now:
                return
            self._forget(oldest)

    def _forget(self, key: K) -> None:
        self.bytes -= self._kept.pop(key)[2]
