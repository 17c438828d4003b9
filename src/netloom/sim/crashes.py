"""Crashes at the worst moments: before and after each write of a process.

A scenario runs once with `Crashes()`, which counts the writes. It then runs again, from the same seed, once for each
side of each write: up to that write it is identical, and there the process dies. Some time later it is restarted, and
the system must recover.

Events and Leases are not counted: reporting and leader election are not part of what must be atomic.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from msgspec import Struct

from netloom.model.registry import EVENT, LEASE
from netloom.sim import loop as sim
from netloom.sim.links import Moment, Write
from netloom.sim.world import Process, World

REST = 3.0


class Point(Struct, frozen=True):
    """One side of one write: where to crash."""

    number: int
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment.name.lower()} write {self.number}"


class Crashes:
    """Counts the writes of some processes, and kills the one that makes the chosen write."""

    def __init__(self, at: Point | None = None) -> None:
        self.at = at
        self.writes: list[Write] = []
        self.crashed = False
        self._world: World | None = None

    def attach(self, world: World, *processes: Process) -> None:
        """Watch these processes."""
        self._world = world
        for process in processes:
            process.on_write.connect(self._on_write)

    def _on_write(self, process: Process, write: Write, moment: Moment) -> None:
        if write.kind in (EVENT, LEASE):
            return
        if moment is Moment.BEFORE:
            self.writes.append(write)
        if self.crashed or self.at is None or self.at.moment is not moment:
            return
        if len(self.writes) < self.at.number or self.writes[self.at.number - 1] is not write:
            return
        self.crashed = True
        process.kill()
        assert self._world is not None
        self._world.spawn(_restart(process))


async def _restart(process: Process) -> None:
    await asyncio.sleep(sim.current().random.uniform(0, REST))
    process.start()


def points(count: int) -> Iterator[Point]:
    """Yield every point to crash in a scenario with so many writes."""
    for number in range(1, count + 1):
        yield Point(number, Moment.BEFORE)
        yield Point(number, Moment.AFTER)


def count(scenario: Callable[[Crashes], Coroutine[Any, Any, object]], *, seed: int) -> int:
    """Run a scenario without a crash and return the number of its writes."""
    crashes = Crashes()
    sim.run(scenario(crashes), seed=seed)
    return len(crashes.writes)
