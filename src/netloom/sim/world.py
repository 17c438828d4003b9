"""A simulated world: one store, processes that may die, freeze and restart, and the unreliable network between them.

Each process reaches the store through its own `Link` (`links`), with the world's `NetworkFaults`. A killed process does
not run any further: its link is dead at once, so the requests of its `finally` blocks reach nothing. To kill at the
worst moments, `on_write` is called for each write, just before it is sent and just after it acted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from netloom.signals import Signal
from netloom.sim import loop as sim
from netloom.sim.links import NO_FAULTS, FaultyStore, Link, Moment, NetworkFaults, Write
from netloom.store.base import Store

T = TypeVar("T")
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Process:
    """One simulated process, which can be started, stopped, killed and frozen."""

    def __init__(self, world: "World", name: str, main: Callable[["Process"], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self.skew = sim.current().random.uniform(-60, 60)
        self._world = world
        self._main = main
        self._task: asyncio.Task[None] | None = None
        self.incarnation = 0
        self.on_write: Signal[[Process, Write, Moment]] = Signal()
        """Sent before and after each write; a listener may kill this process."""
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
        """Return this process's time of day, which may be wrong."""
        return EPOCH + timedelta(seconds=sim.current().time() + self.skew)

    def start(self) -> None:
        """Start it, or start it again."""
        self.link = self._new_link()
        self.incarnation += 1
        context = copy_context()
        context.run(sim.PROCESS.set, self.name)
        self._task = self._world.spawn(self._main(self), context=context)

    def kill(self) -> None:
        """End it like SIGKILL: what it sent may still arrive, nothing else happens."""
        self.link.kill()
        if self._task:
            self._task.cancel()
        self._task = None

    async def stop(self) -> None:
        """End it like SIGTERM, and wait until it has ended."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait([task])

    def _new_link(self) -> Link:
        link = Link(self._world.spawn, self._world.faults, lambda write, moment: self._wrote(link, write, moment))
        return link

    def _wrote(self, link: Link, write: Write, moment: Moment) -> None:
        # A request of the process before its restart may still arrive; this one did not send it.
        if link is self.link:
            self.on_write(self, write, moment)

    def freeze(self) -> None:
        """Stop it until it is thawed."""
        sim.current().freeze(self.name)

    def thaw(self) -> None:
        """Continue it; it does not know that it was stopped."""
        sim.current().thaw(self.name)


class World:
    """The simulated world.  Leaving it ends everything in it; the first error of any part is raised."""

    def __init__(self, store: Store, *, faults: NetworkFaults = NO_FAULTS) -> None:
        self.store = store
        self.faults = faults
        self._processes: list[Process] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._errors: list[BaseException] = []

    def process(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Process:
        """Return a new process, not yet started."""
        self._processes.append(Process(self, name, main))
        return self._processes[-1]

    def spawn(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> "asyncio.Task[T]":
        """Run a coroutine that belongs to the world, not to the caller."""
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

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
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
