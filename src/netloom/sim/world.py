"""A simulated world: one store, processes that may die, freeze and start again, and the bad network between them.

Each process reaches the store through its own `Link`. A request travels (latency), acts at the store, and the answer
travels back; either way it may be lost, and the caller then hears `Unreachable` and cannot know whether it acted. A
request on its way is the network's, not the process's: when the process dies, it may still arrive. Watch streams lag,
break, expire and say things again; lists are old when they arrive, never wrong: what they say was so after they were
asked for. All chance is the loop's, so a seed replays it all.

A killed process runs no further: its link is dead at once, so what its `finally` blocks try reaches nobody. Whoever
wants to kill at the worst moments hears of each write, just before it is sent and just after it acted (`on_write`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from msgspec import Struct

from netloom.errors import Expired, NetloomError, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.selectors import EVERYTHING, Selector
from netloom.sim import loop as sim
from netloom.store.base import Event, Page, Propagation, Sink, Store, Stored, Unless, Watch

T = TypeVar("T")
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Weather(Struct, frozen=True, kw_only=True):
    """How bad the network is.  Chances are per request, or per batch of a watch."""

    latency: float = 0.02
    """The longest time a message travels one way, in seconds."""
    lose_request: float = 0.0
    lose_answer: float = 0.0
    break_watch: float = 0.0
    expire_watch: float = 0.0
    timeout: float = 1.0
    """How long a caller waits for an answer."""
    lag: float = 0.0
    """For how many seconds more, at most, a watch holds its events back, and a list is on its way."""
    repeat_watch: float = 0.0
    """How likely a batch of a watch begins with what the one before it said."""


FAIR = Weather()
STORMY = Weather(
    latency=0.05,
    lose_request=0.05,
    lose_answer=0.05,
    break_watch=0.1,
    expire_watch=0.05,
)


class Write(NamedTuple):
    """One attempt to change something."""

    verb: str
    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.kind.name}/{self.subresource}" if self.subresource else self.kind.name
        return f"{self.verb} {what} {self.namespace}/{self.name}"


class Moment(Enum):
    """Which side of a write."""

    BEFORE = auto()
    """It is about to be sent."""
    AFTER = auto()
    """It acted, or was refused; the answer is not on its way yet."""


OnWrite = Callable[[Write, Moment], None]


class Link:
    """One process's way to the store."""

    def __init__(self, world: "World", weather: Weather, on_write: OnWrite | None = None) -> None:
        self.weather = weather
        self._world = world
        self._on_write = on_write
        self._up = asyncio.Event()
        self._up.set()
        self._dead = False

    def cut(self) -> None:
        """Begin a partition: nothing arrives, either way, and nobody is told."""
        self._up.clear()

    def mend(self) -> None:
        """End a partition."""
        self._up.set()

    def kill(self) -> None:
        """End the process's part of this link for ever."""
        self._dead = True

    async def call(self, operation: Callable[[], Awaitable[T]], *, write: Write | None = None, lag: float = 0.0) -> T:
        """Carry one request to the store and its answer, which may take `lag` seconds more, back."""
        if not self._dead:
            self._tell(write, Moment.BEFORE)
        if self._dead:
            await asyncio.sleep(0)  # So that whoever tries again and again can be cancelled.
            raise Unreachable("this process is dead")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._world.spawn(self._carry(operation, answer, write, lag))
        try:
            async with asyncio.timeout(self.weather.timeout + lag):
                return await answer
        except TimeoutError:
            raise Unreachable("no answer") from None

    async def _carry(
        self, operation: Callable[[], Awaitable[T]], answer: "asyncio.Future[T]", write: Write | None, lag: float
    ) -> None:
        await self.travel()
        if not self._up.is_set() or self._chance(self.weather.lose_request):
            return
        result: T | None = None
        error: NetloomError | None = None
        try:
            result = await operation()
        except NetloomError as raised:
            error = raised
        self._tell(write, Moment.AFTER)
        await self.travel(lag)
        if answer.done() or not self._up.is_set() or self._chance(self.weather.lose_answer):
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    async def weather_the_stream(self) -> None:
        """Let a batch of a watch travel: late, or not at all."""
        await self.travel(self.weather.lag)
        if not self._up.is_set():
            await self._up.wait()
            await self.travel()
        if self._dead or self._chance(self.weather.break_watch):
            raise Unreachable("the stream broke")
        if self._chance(self.weather.expire_watch):
            raise Expired("too old")

    async def travel(self, lag: float = 0.0) -> None:
        """Take as long as a message takes one way, and at most `lag` seconds more."""
        await asyncio.sleep(sim.current().random.uniform(0, self.weather.latency + lag))

    def repeats(self) -> bool:
        """Whether a watch says once more what it said last."""
        return self._chance(self.weather.repeat_watch)

    def _tell(self, write: Write | None, moment: Moment) -> None:
        if write is not None and self._on_write is not None:
            self._on_write(write, moment)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and sim.current().random.random() < probability


class FaultyStore:
    """A store as one process sees it."""

    def __init__(self, inner: Store, link: Link) -> None:
        self._inner = inner
        self._link = link

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Create, at the other end of the link."""
        metadata = document.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName", "")
        return await self._link.call(
            lambda: self._inner.create(kind, document, dry_run=dry_run),
            write=None if dry_run else Write("create", kind, metadata.get("namespace", ""), name),
        )

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Get, at the other end of the link."""
        return await self._link.call(lambda: self._inner.get(kind, namespace, name, known=known))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        """List, at the other end of the link."""
        return await self._link.call(
            lambda: self._inner.list(
                kind,
                namespace,
                selector=selector,
                revision=revision,
                limit=limit,
                token=token,
            ),
            lag=self._link.weather.lag,
        )

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        since: int,
    ) -> Watch:
        """Watch, at the other end of the link."""
        inner = await self._link.call(lambda: self._inner.watch(kind, namespace, selector=selector, since=since))
        return FaultyWatch(inner, self._link)

    async def update(
        self,
        kind: Kind,
        document: Document,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Update, at the other end of the link."""
        metadata = document["metadata"]
        write = Write("update", kind, metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._link.call(
            lambda: self._inner.update(kind, document, subresource=subresource, dry_run=dry_run),
            write=None if dry_run else write,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Unless | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete, at the other end of the link."""
        return await self._link.call(
            lambda: self._inner.delete(
                kind,
                namespace,
                name,
                propagation=propagation,
                uid=uid,
                revision=revision,
                unless=unless,
                dry_run=dry_run,
            ),
            write=None if dry_run else Write("delete", kind, namespace, name),
        )

    async def revision(self) -> int:
        """Ask the other end of the link for its revision."""
        return await self._link.call(self._inner.revision)

    async def close(self) -> None:
        """Let go of this process's end; the store lives on."""


class FaultyWatch:
    """A watch as one process sees it: late, sometimes broken, and sometimes saying things again."""

    def __init__(self, inner: Watch, link: Link) -> None:
        self._inner = inner
        self._link = link
        self._revision = inner.revision
        self._last: Sequence[Event] = ()

    async def next(self) -> Sequence[Event]:
        """Return the next changes, when they have travelled here."""
        events = await self._inner.next()
        revision = self._inner.revision
        await self._link.weather_the_stream()
        self._revision = revision
        again, self._last = self._last, events
        return [*again, *events] if self._link.repeats() else events

    @property
    def revision(self) -> int:
        """The revision this end has seen."""
        return self._revision

    def direct(self, sink: Sink | None) -> None:
        """Nothing travels at once here: events come by `next`."""

    async def close(self) -> None:
        """Close both ends."""
        await self._inner.close()


class Process:
    """One simulated process, which can be started, stopped, killed and frozen."""

    def __init__(
        self,
        world: "World",
        name: str,
        main: Callable[["Process"], Coroutine[Any, Any, None]],
    ) -> None:
        self.name = name
        self.skew = sim.current().random.uniform(-60, 60)
        self._world = world
        self._main = main
        self._task: asyncio.Task[None] | None = None
        self.incarnation = 0
        self.on_write: Callable[[Process, Write, Moment], None] | None = None
        """Told of each write, and free to kill this process."""
        self.link = self._new_link()

    @property
    def store(self) -> FaultyStore:
        """The store, seen from here."""
        return FaultyStore(self._world.store, self.link)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._task is not None and not self._task.done()

    def clock(self) -> datetime:
        """Return what this process takes for the time of day, which may be wrong."""
        return EPOCH + timedelta(seconds=sim.current().time() + self.skew)

    def start(self) -> None:
        """Start it, anew if it ran before."""
        self.link = self._new_link()
        self.incarnation += 1
        context = copy_context()
        context.run(sim.PROCESS.set, self.name)
        self._task = self._world.spawn(self._main(self), context=context)

    def kill(self) -> None:
        """End it as SIGKILL does: what it sent may still arrive, nothing else will."""
        self.link.kill()
        if self._task:
            self._task.cancel()
        self._task = None

    async def stop(self) -> None:
        """End it as SIGTERM does, and wait until it ended."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait([task])

    def _new_link(self) -> Link:
        link = Link(self._world, self._world.weather, lambda write, moment: self._wrote(link, write, moment))
        return link

    def _wrote(self, link: Link, write: Write, moment: Moment) -> None:
        # What a past life sent may still arrive; that is nothing this one did.
        if self.on_write is not None and link is self.link:
            self.on_write(self, write, moment)

    def freeze(self) -> None:
        """Let it run no further, until thawed."""
        sim.current().freeze(self.name)

    def thaw(self) -> None:
        """Let it go on, not knowing that it stood."""
        sim.current().thaw(self.name)


class World:
    """All of it.  On leaving the world everything in it ends; the first error of any part is raised."""

    def __init__(self, store: Store, *, weather: Weather = FAIR) -> None:
        self.store = store
        self.weather = weather
        self._processes: list[Process] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []

    def process(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        """Return a new process, not yet started."""
        self._processes.append(Process(self, name, main))
        return self._processes[-1]

    def spawn(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> "asyncio.Task[T]":
        """Run something that belongs to the world, not to the caller."""
        if context is None:
            context = copy_context()
            context.run(sim.PROCESS.set, "")
        task = asyncio.get_running_loop().create_task(coro, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)

    def check(self) -> None:
        """Raise the first error of any part, if there is one."""
        if self._errors:
            raise self._errors[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.thaw()
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.sleep(1)
        if error is None:
            self.check()


async def eventually(
    holds: Callable[[], bool | Awaitable[bool]],
    *,
    within: float = 600,
    every: float = 0.1,
) -> None:
    """Wait until `holds`, or fail after `within` virtual seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within} virtual seconds: {getattr(holds, '__name__', holds)}")
        await asyncio.sleep(every)
