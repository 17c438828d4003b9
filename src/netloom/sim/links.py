"""The unreliable network between a simulated process and the store.

Each process reaches the store through its own `Link`. A request travels (latency), acts at the store, and the answer
travels back; each may be lost, and the caller then gets `Unreachable` and cannot know whether the request acted. A
request in flight belongs to the network, not to the process: when the process dies, it may still arrive. Watch streams
lag, break, expire and repeat events; lists are old when they arrive, but correct: they show a state after they were
requested. All random choices come from the loop, so a seed replays everything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, ParamSpec, TypeVar

from msgspec import Struct

from netloom.errors import Expired, NetloomError, Unreachable
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.sim import loop as sim
from netloom.store.base import Event, Sink, Store, Watch

P = ParamSpec("P")
T = TypeVar("T")


class NetworkFaults(Struct, frozen=True, kw_only=True):
    """How unreliable the network is.  Probabilities are per request, or per batch of a watch."""

    latency: float = 0.02
    """The longest one-way delay of a message, in seconds."""
    lose_request: float = 0.0
    lose_answer: float = 0.0
    break_watch: float = 0.0
    expire_watch: float = 0.0
    timeout: float = 1.0
    """How long a caller waits for an answer."""
    lag: float = 0.0
    """The longest additional delay, in seconds, of a watch's events and of a list's answer."""
    repeat_watch: float = 0.0
    """The probability that a batch of a watch begins with the events of the previous one."""


NO_FAULTS = NetworkFaults()
MANY_FAULTS = NetworkFaults(
    latency=0.05,
    lose_request=0.05,
    lose_answer=0.05,
    break_watch=0.1,
    expire_watch=0.05,
)


class Write(NamedTuple):
    """One attempt to write."""

    verb: str
    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.kind.name}/{self.subresource}" if self.subresource else self.kind.name
        return f"{self.verb} {what} {self.namespace}/{self.name}"


class Moment(Enum):
    """The side of a write."""

    BEFORE = auto()
    """It is about to be sent."""
    AFTER = auto()
    """It acted, or was refused; the answer is not sent yet."""


OnWrite = Callable[[Write, Moment], None]
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Link:
    """One process's connection to the store."""

    def __init__(self, spawn: Spawn, faults: NetworkFaults, on_write: OnWrite | None = None) -> None:
        """`spawn` runs messages in flight: they belong to the network, and outlive their sender."""
        self.faults = faults
        self._spawn = spawn
        self._on_write = on_write
        self._up = asyncio.Event()
        self._up.set()
        self._dead = False

    def cut(self) -> None:
        """Start a partition: nothing arrives in either direction, and no error is reported."""
        self._up.clear()

    def heal(self) -> None:
        """End a partition."""
        self._up.set()

    def kill(self) -> None:
        """End the process's part of this link for good."""
        self._dead = True

    async def call(self, operation: Callable[[], Awaitable[T]], *, write: Write | None = None, lag: float = 0.0) -> T:
        """Carry one request to the store and its answer, which may take `lag` seconds more, back."""
        if not self._dead:
            self._report(write, Moment.BEFORE)
        if self._dead:
            await asyncio.sleep(0)  # So that a caller in a retry loop can be cancelled.
            raise Unreachable("this process is dead")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._spawn(self._carry(operation, answer, write, lag))
        try:
            async with asyncio.timeout(self.faults.timeout + lag):
                return await answer
        except TimeoutError:
            raise Unreachable("no answer") from None

    async def _carry(
        self, operation: Callable[[], Awaitable[T]], answer: "asyncio.Future[T]", write: Write | None, lag: float
    ) -> None:
        await self.travel()
        if not self._up.is_set() or self._chance(self.faults.lose_request):
            return
        result: T | None = None
        error: NetloomError | None = None
        try:
            result = await operation()
        except NetloomError as raised:
            error = raised
        self._report(write, Moment.AFTER)
        await self.travel(lag)
        if answer.done() or not self._up.is_set() or self._chance(self.faults.lose_answer):
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    async def delay_batch(self) -> None:
        """Delay a batch of a watch, or break the stream."""
        await self.travel(self.faults.lag)
        if not self._up.is_set():
            await self._up.wait()
            await self.travel()
        if self._dead or self._chance(self.faults.break_watch):
            raise Unreachable("the stream broke")
        if self._chance(self.faults.expire_watch):
            raise Expired("too old")

    async def travel(self, lag: float = 0.0) -> None:
        """Wait for the one-way delay of a message, and at most `lag` seconds more."""
        await asyncio.sleep(sim.current().random.uniform(0, self.faults.latency + lag))

    def repeats(self) -> bool:
        """Whether a watch repeats its last events."""
        return self._chance(self.faults.repeat_watch)

    def _report(self, write: Write | None, moment: Moment) -> None:
        if write is not None and self._on_write is not None:
            self._on_write(write, moment)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and sim.current().random.random() < probability


class FaultyStore:
    """A store as one process sees it: every operation happens at the other end of the link."""

    def __init__(self, inner: Store, link: Link) -> None:
        self._inner = inner
        self._link = link
        self.create = self._write("create", inner.create)
        self.get = self._read(inner.get)
        self.list = self._read(inner.list, lag=link.faults.lag)
        self.update = self._write("update", inner.update)
        self.delete = self._write("delete", inner.delete)
        self.revision = self._read(inner.revision)
        self.damaged = self._read(inner.damaged)

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch, at the other end of the link."""
        inner = await self._link.call(lambda: self._inner.watch(kind, namespace, selector=selector, since=since))
        return FaultyWatch(inner, self._link)

    async def close(self) -> None:
        """Close this process's end; the store stays open."""

    def _read(self, method: Callable[P, Awaitable[T]], *, lag: float = 0.0) -> Callable[P, Coroutine[Any, Any, T]]:
        async def read(*args: P.args, **options: P.kwargs) -> T:
            return await self._link.call(lambda: method(*args, **options), lag=lag)

        return read

    def _write(self, verb: str, method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        async def write(*args: P.args, **options: P.kwargs) -> T:
            made = None if options.get("dry_run") else _write_of(verb, *args, options.get("subresource"))
            return await self._link.call(lambda: method(*args, **options), write=made)

        return write


def _write_of(verb: str, *args: Any) -> Write:  # noqa: ANN401  # the arguments of a store's method
    """Return what a write is about: of its kind and document, or of its kind, namespace and name."""
    kind, *about, subresource = args
    if verb == "delete":
        namespace, name = about
    else:
        metadata = about[0].get("metadata") or {}
        namespace = metadata.get("namespace", "")
        name = metadata.get("name") or metadata.get("generateName", "")
    return Write(verb, kind, namespace, name, subresource or "")


class FaultyWatch:
    """A watch as one process sees it: delayed, sometimes broken, and sometimes with repeated events."""

    def __init__(self, inner: Watch, link: Link) -> None:
        self._inner = inner
        self._link = link
        self._revision = inner.revision
        self._last: Sequence[Event] = ()

    async def next(self) -> Sequence[Event]:
        """Return the next events, after their delay."""
        events = await self._inner.next()
        revision = self._inner.revision
        await self._link.delay_batch()
        self._revision = revision
        again, self._last = self._last, events
        return [*again, *events] if self._link.repeats() else events

    @property
    def revision(self) -> int:
        """The revision that this end has reached."""
        return self._revision

    def direct(self, sink: Sink | None) -> None:
        """Do nothing: events are delayed here, and come from `next`."""

    async def close(self) -> None:
        """Close both ends."""
        await self._inner.close()
