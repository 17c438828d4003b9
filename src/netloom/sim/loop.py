"""A seeded event loop in virtual time: the same seed gives the same run, and an hour takes no time.

Each step picks one ready callback at random, so every order that asyncio permits, including some that it never produces
in practice, occurs for some seed. Time advances only when nothing is ready, and then to the next timer. If there is no
timer and the main coroutine still waits, that is a deadlock, and the error says which task waits where.

There is no IO here: no selector, no sockets, no threads. A simulated part gets its environment as objects that live on
this loop. `SimulatedLoop.trace` is a number that depends on every choice and every `note`: two runs with the same trace
did the same things in the same order.

Tasks hash by their number, not by their address: a TaskGroup keeps its tasks in a set and cancels them in its order.

Everything that a simulated process starts carries its name (`PROCESS`), so a whole process can be frozen, like a
stopped or swapped-out one, and thawed later, when everything that it missed is ready at once.
"""

import asyncio
import heapq
import random
import zlib
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""The simulated process the running code belongs to; "" is the world itself."""


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and the main coroutine is not done."""


class Livelock(Exception):
    """A scenario exceeds its limit of steps."""


class SimulatedTask(asyncio.Task[T]):
    """A task with a number."""

    number = 0

    def __hash__(self) -> int:
        return self.number

    def set_name(self, value: object) -> None:
        """Keep the name: for a task without one, Python 3.12 and 3.13 set None after it is made."""
        if value is not None:
            super().set_name(value)


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose only input is a seed."""

    def __init__(self, seed: int, *, max_steps: int = 2_000_000) -> None:
        super().__init__()
        self.random = random.Random(seed)  # noqa: S311 - it must be replayable.
        self.trace = 0
        self.steps = 0
        self.invariants: list[Callable[[], None]] = []
        """Called after every step to check an invariant; it raises if the invariant does not hold."""
        self._max_steps = max_steps
        self._now = 0.0
        self._runnable: list[tuple[asyncio.Handle, str]] = []
        self._frozen: dict[str, list[tuple[asyncio.Handle, str]]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle, str]] = []
        self._numbers = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the virtual time in seconds; it starts at 0."""
        return self._now

    def note(self, text: str) -> None:
        """Add `text` to the trace."""
        self.trace = zlib.crc32(f"{self._now:.9f} {text}".encode(), self.trace)

    def freeze(self, process: str) -> None:
        """Stop `process` until it is thawed."""
        if process in self._frozen:
            return
        self._frozen[process] = [entry for entry in self._runnable if entry[1] == process]
        self._runnable = [entry for entry in self._runnable if entry[1] != process]

    def thaw(self, process: str) -> None:
        """Continue `process`; what became due meanwhile is ready now."""
        self._runnable += self._frozen.pop(process, [])

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Make `callback` ready.  Ready callbacks run in no particular order."""
        context = context or copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._make_ready(handle, context.get(PROCESS, ""))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make `callback` ready at virtual time `when`."""
        context = context or copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._number(), timer, context.get(PROCESS, "")))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make `callback` ready after `delay` virtual seconds."""
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def call_soon_threadsafe(self, *_: object, **__: object) -> NoReturn:
        """Refuse: threads are not replayable."""
        raise RuntimeError("no threads in a simulation")

    def run_in_executor(self, *_: object, **__: object) -> NoReturn:
        """Refuse: threads are not replayable."""
        raise RuntimeError("no threads in a simulation")

    def _run_once(self) -> None:
        """Run one callback.  BaseEventLoop.run_forever calls this until the loop is stopped."""
        if not self._runnable:
            self._advance()
        if self.steps >= self._max_steps:
            raise Livelock(f"{self.steps} steps and not done at {self._now:.3f} s; {_waiting(self)}")
        self.steps += 1
        ready = self._runnable
        chosen = self.random.randrange(len(ready)) if len(ready) > 1 else 0
        self.trace = zlib.crc32(b"%d/%d" % (chosen, len(ready)), self.trace)
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        handle, _ = ready.pop()
        if not handle.cancelled():
            handle._run()  # As an event loop runs a handle; there is no public method.
        for invariant in self.invariants:
            invariant()

    def _advance(self) -> None:
        """Advance the time, timer by timer, until something is ready."""
        timers = self._timers
        while not self._runnable:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(f"nothing is scheduled after {self._now:.3f} s; {_waiting(self)}")
            self._now = max(self._now, timers[0][0])
            while timers and timers[0][0] <= self._now:
                _, _, timer, process = heapq.heappop(timers)
                if not timer.cancelled():
                    self._make_ready(timer, process)

    def _make_ready(self, handle: asyncio.Handle, process: str) -> None:
        self._frozen.get(process, self._runnable).append((handle, process))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _make_task(
        self,
        _: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        context: Context | None = None,
        name: str | None = None,  # Newer Pythons pass it here, not afterwards.
    ) -> "SimulatedTask[Any]":
        task = SimulatedTask[Any](coro, loop=self, name="", context=context)
        task.number = self._number()
        task.set_name(name or f"task-{task.number}")
        return task

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""


def run(main: Coroutine[Any, Any, T], *, seed: int, max_steps: int = 2_000_000) -> T:
    """Run `main` in virtual time and return its result, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed, max_steps=max_steps)) as runner:
        return runner.run(main)


def traced(main: Coroutine[Any, Any, object], *, seed: int) -> int:
    """Run `main` and return the trace of the run."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        return loop.trace


def current() -> SimulatedLoop:
    """Return the loop the caller runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop), "only available in a simulation"
    return loop


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "waiting: " + "; ".join(f"{task.get_name()} in {_place(task)}" for task in tasks)


def _place(task: asyncio.Task[Any]) -> str:
    """Return the place at which the innermost coroutine of a task waits."""
    inner: Any = task.get_coro()
    while getattr(inner, "cr_await", None) is not None and hasattr(inner.cr_await, "cr_frame"):
        inner = inner.cr_await
    frame = getattr(inner, "cr_frame", None)
    return f"{inner.__qualname__}:{frame.f_lineno}" if frame else repr(inner)
