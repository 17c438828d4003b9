"""The work queue of a controller: a key is in it at most once, and one worker at a time processes it.

    add(key) ──► ready ──► get() ──► in progress ──► done(key)
                   ▲                      │ add(key) meanwhile: dirty
                   └──────────────────────┘ and ready again at done, once
    retry(key, error) ──► waits for a delay that depends on the error ──► add(key)

A key means "reconcile this object", so adding it twice is the same as adding it once. A key that is added while it is
in progress is processed once more, because the worker may have read the old state. How long a failed key waits depends
on the error: a conflict ends as soon as the cache has caught up, an unreachable store needs a longer pause, an invalid
object stays invalid until a user edits it (and the edit adds its key anyway).

Time is that of the event loop; jitter comes from the `random.Random` that is passed in.
"""

import asyncio
import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from msgspec import Struct

from netloom.control.runtime.counters import Histogram
from netloom.errors import AlreadyExists, Conflict, Expired, NetloomError, NotFound

K = TypeVar("K", bound=Hashable)


class Pace(Struct, frozen=True):
    """An exponential backoff: the first and the longest delay, in seconds; each failure in a row doubles the delay."""

    first: float
    longest: float

    def delay(self, failures: int, random: Random) -> float:
        """Return the delay after this many failures in a row, less a random part of up to a half."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)


class Backoff(Struct, frozen=True, kw_only=True):
    """The delays of failed keys, by error."""

    conflict: Pace = Pace(0.02, 1.0)
    unreachable: Pace = Pace(0.2, 30.0)
    refused: Pace = Pace(30.0, 900.0)
    """The store refuses, and will refuse again: Invalid, Forbidden, …"""
    unknown: Pace = Pace(0.2, 300.0)
    """Any other error, which is a bug."""

    def pace(self, error: BaseException) -> Pace:
        """Return the delays for an error."""
        match error:
            case Conflict() | Expired():
                return self.conflict
            case NotFound() | AlreadyExists() | NetloomError(retry=True):
                # An object was created or deleted between reading and writing: this passes, too.
                return self.unreachable
            case NetloomError(http_status=status) if status < 500:
                return self.refused
            case _:
                return self.unknown

    def delay(self, error: BaseException, failures: int, random: Random) -> float:
        """Return the delay; never less than the server asked for with Retry-After."""
        requested = (error.retry_after or 0.0) if isinstance(error, NetloomError) else 0.0
        return max(requested, self.pace(error).delay(failures, random))


@dataclass(slots=True)
class QueueCounters:
    """Counters of a queue."""

    adds: int = 0
    retries: int = 0
    latency: Histogram = field(default_factory=Histogram)
    """From ready to in progress."""
    work: Histogram = field(default_factory=Histogram)
    """From in progress to done."""


class Queue(Generic[K]):
    """The keys of one controller."""

    def __init__(self, *, random: Random, backoff: Backoff | None = None) -> None:
        self.counters = QueueCounters()
        self._random = random
        self._backoff = backoff or Backoff()
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._since: dict[K, float] = {}
        """Ready keys, and the times since when."""
        self._working: dict[K, float] = {}
        """Keys in progress, and the times since when."""
        self._dirty: set[K] = set()
        """Keys in progress that were added again."""
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        """Delayed keys, and the times until when."""
        self._waiting: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Return how many keys are ready."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many keys are delayed."""
        return len(self._due)

    @property
    def working(self) -> int:
        """How many keys are in progress."""
        return len(self._working)

    @property
    def longest_running(self) -> float:
        """For how many seconds the slowest worker has processed its key."""
        return self._time() - min(self._working.values()) if self._working else 0.0

    @property
    def unfinished(self) -> float:
        """For how many seconds the workers have processed their current keys, in total."""
        return self._time() * len(self._working) - sum(self._working.values()) if self._working else 0.0

    def add(self, key: K) -> None:
        """Add `key`."""
        if key in self._since or key in self._dirty:
            return
        self.counters.adds += 1
        if key in self._working:
            self._dirty.add(key)
            return
        self._since[key] = self._time()
        self._ready.put_nowait(key)

    def update(self, keys: Iterable[K]) -> None:
        """Add all of `keys`."""
        for key in keys:
            self.add(key)

    def add_after(self, key: K, delay: float) -> None:
        """Add `key` after `delay` seconds, or earlier if an earlier time is set already."""
        due = self._time() + delay
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._waiting, (due, self._sequence, key))
        self._set_timer()

    def retry(self, key: K, error: BaseException) -> float:
        """Add `key` after the delay for `error`; return the delay."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self.counters.retries += 1
        delay = self._backoff.delay(error, failures, self._random)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the failures of `key`."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it; the caller calls `done` afterwards."""
        key = await self._ready.get()
        now = self._time()
        self.counters.latency.observe(now - self._since.pop(key))
        self._working[key] = now
        self._idle.clear()
        return key

    def done(self, key: K) -> None:
        """End the processing of `key`; it is ready again at once if it was added meanwhile."""
        self.counters.work.observe(self._time() - self._working.pop(key))
        if not self._working:
            self._idle.set()
        if key in self._dirty:
            self._dirty.remove(key)
            self._since[key] = self._time()
            self._ready.put_nowait(key)

    async def idle(self) -> None:
        """Wait until no key is in progress."""
        await self._idle.wait()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._release)

    def _release(self) -> None:
        """Add the delayed keys that are due."""
        now = self._time()
        while self._waiting and self._waiting[0][0] <= now:
            due, _, key = heapq.heappop(self._waiting)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._timer = None
        self._set_timer()

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
