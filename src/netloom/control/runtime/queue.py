"""Keys to look at: each at most once in the queue, and by one worker at a time.

    add(key) ──► ready ──► get() ──► being worked on ──► done(key)
                   ▲                      │ add(key) meanwhile: dirty
                   └──────────────────────┘ and ready again at done, once
    retry(key, error) ──► waits, as long as the error's class says ──► add(key)

A key means "look again", so adding it twice is adding it once, and a key added while it is worked on is worked on once
more, because the worker may have read the old state. How long a failed key waits depends on what went wrong: a conflict
is gone as soon as the cache caught up, a store that does not answer needs rest, a wrong object will stay wrong until
somebody edits it (and editing it adds its key anyway).

Time is the event loop's; chance is the `random.Random` that was given.
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


class Closed(Exception):
    """The queue is closed and empty: the worker may go."""


class Pace(Struct, frozen=True):
    """The first and the longest wait, in seconds; each failure in a row doubles it."""

    first: float
    longest: float

    def delay(self, failures: int, random: Random) -> float:
        """Return how long to wait after so many failures, the last included, with jitter downwards."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)


class Backoff(Struct, frozen=True, kw_only=True):
    """How long a failed key waits, by what went wrong."""

    conflict: Pace = Pace(0.02, 1.0)
    unreachable: Pace = Pace(0.2, 30.0)
    refused: Pace = Pace(30.0, 900.0)
    """The store said no and will say no again: Invalid, Forbidden, …"""
    unknown: Pace = Pace(0.2, 300.0)
    """Anything else, which is to say a bug."""

    def pace(self, error: BaseException) -> Pace:
        """Return the pace for an error."""
        match error:
            case Conflict() | Expired():
                return self.conflict
            case NotFound() | AlreadyExists() | NetloomError(retry=True):
                # Something went, or came, between reading and writing: also that passes.
                return self.unreachable
            case NetloomError(http_status=status) if status < 500:
                return self.refused
            case _:
                return self.unknown

    def delay(self, error: BaseException, failures: int, random: Random) -> float:
        """Return how long to wait; never less than the other side asked for."""
        asked = (error.retry_after or 0.0) if isinstance(error, NetloomError) else 0.0
        return max(asked, self.pace(error).delay(failures, random))


@dataclass(slots=True)
class QueueCounters:
    """What happened in a queue."""

    adds: int = 0
    retries: int = 0
    latency: Histogram = field(default_factory=Histogram)
    """From becoming ready to being taken."""
    work: Histogram = field(default_factory=Histogram)
    """From being taken to done."""


class Queue(Generic[K]):
    """The keys of one controller."""

    def __init__(self, *, random: Random, backoff: Backoff | None = None) -> None:
        self.counters = QueueCounters()
        self._random = random
        self._backoff = backoff or Backoff()
        self._ready: asyncio.Queue[K | None] = asyncio.Queue()
        self._since: dict[K, float] = {}
        """Ready keys, and since when."""
        self._working: dict[K, float] = {}
        """Keys being worked on, and since when."""
        self._dirty: set[K] = set()
        """Keys being worked on that were added again."""
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        """Keys that wait, and until when."""
        self._waiting: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Return how many keys are ready."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many keys wait for their time."""
        return len(self._due)

    @property
    def working(self) -> int:
        """How many keys are being worked on."""
        return len(self._working)

    @property
    def longest_running(self) -> float:
        """For how many seconds the slowest worker has been at its key."""
        return self._time() - min(self._working.values()) if self._working else 0.0

    @property
    def unfinished(self) -> float:
        """For how many seconds the workers have been at their keys, all together."""
        return self._time() * len(self._working) - sum(self._working.values()) if self._working else 0.0

    def add(self, key: K) -> None:
        """Have `key` looked at, soon."""
        if self._closed or key in self._since or key in self._dirty:
            return
        self.counters.adds += 1
        if key in self._working:
            self._dirty.add(key)
            return
        self._since[key] = self._time()
        self._ready.put_nowait(key)

    def update(self, keys: Iterable[K]) -> None:
        """Have all of `keys` looked at, soon."""
        for key in keys:
            self.add(key)

    def add_after(self, key: K, delay: float) -> None:
        """Have `key` looked at after `delay` seconds, or earlier if it waits for an earlier time already."""
        if self._closed:
            return
        due = self._time() + delay
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._waiting, (due, self._sequence, key))
        self._set_timer()

    def retry(self, key: K, error: BaseException) -> float:
        """Have `key` looked at again after what `error` calls for; return how long that is."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self.counters.retries += 1
        delay = self._backoff.delay(error, failures, self._random)
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """Return how often in a row `key` has failed."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Let the next failure of `key` be its first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it; call `done` when done with it.  Raises `Closed` when there will be none."""
        key = await self._ready.get()
        if key is None:
            self._ready.put_nowait(None)  # For the next worker.
            raise Closed
        now = self._time()
        self.counters.latency.observe(now - self._since.pop(key))
        self._working[key] = now
        self._idle.clear()
        return key

    def done(self, key: K) -> None:
        """Say that the work on `key` ended; it is ready again at once if it was added meanwhile."""
        self.counters.work.observe(self._time() - self._working.pop(key))
        if not self._working:
            self._idle.set()
        if key in self._dirty:
            self._dirty.remove(key)
            self._since[key] = self._time()
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Take no more keys, drop those that wait for their time; workers go once the ready ones are done."""
        if self._closed:
            return
        self._closed = True
        self._due.clear()
        self._waiting.clear()
        self._set_timer()
        self._ready.put_nowait(None)

    async def idle(self) -> None:
        """Wait until no key is being worked on."""
        await self._idle.wait()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._release)

    def _release(self) -> None:
        """Make ready all keys whose time has come."""
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
