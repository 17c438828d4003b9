"""The manager of a process's controllers: informers run always, workers while leading; all end gracefully.

    run ─┬─ informers          always, so that the next leader has full caches
         ├─ connections        always: to the databases of OVN
         ├─ recorder           always
         └─ election ── lead ─┬─ wait for the caches
                              ├─ controllers' workers
                              └─ resync, and other tasks of a leader

Cancellation of `run` is the only way to stop it. Running reconciles get `grace` seconds to finish, unless the lease was
lost: then they are cancelled at once, because another process is about to start. The lease is released only after all
of them have ended.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from netloom.control.runtime.controller import Controller
from netloom.control.runtime.election import Candidate
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.control.runtime.sweep import sweep

GRACE = 10.0
FLUSH = 1.0
"""Seconds for writing the last Events."""


class Manager:
    """All controllers of one process."""

    def __init__(
        self,
        *,
        controllers: Sequence[Controller[Any]],
        informers: Sequence[Informer[Any]],
        recorder: Recorder,
        random: Random,
        election: Candidate | None = None,
        chores: Sequence[Callable[[], Coroutine[Any, Any, Any]]] = (),
        connections: Sequence[Callable[[], Coroutine[Any, Any, Any]]] = (),
        grace: float = GRACE,
    ) -> None:
        """`chores` run while leading, `connections` always."""
        self.controllers: tuple[Controller[Hashable], ...] = tuple(controllers)
        self.informers: tuple[Informer[Any], ...] = tuple(informers)
        self.recorder = recorder
        self.election = election
        self._random = random
        self._chores = tuple(chores)
        self._connections = tuple(connections)
        self._grace = grace
        self.working = False
        """Whether the controllers of this process run."""

    @property
    def synced(self) -> bool:
        """Whether all caches are filled."""
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def leading(self) -> bool:
        """Whether this process is certain to lead now."""
        return self.working and (self.election is None or self.election.certain())

    @property
    def ready(self) -> bool:
        """Whether this process leads, or stands by with full caches."""
        return self.synced and (self.working or self.election is not None)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(informer.run()) for informer in self.informers]
            background.append(group.create_task(self.recorder.run()))
            background += [group.create_task(connection()) for connection in self._connections]
            try:
                await (self.election.run(self._lead) if self.election else self._lead())
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH):
                        await self.recorder.flush()
                for task in background:
                    task.cancel()

    async def _lead(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()
        self.working = True
        try:
            async with asyncio.TaskGroup() as group:
                # This task stops the others, because it waits for running reconciles; the group would not.
                tasks = [group.create_task(controller.run()) for controller in self.controllers]
                tasks += [group.create_task(chore()) for chore in self._chores]
                tasks.append(group.create_task(sweep(self.controllers, random=self._random)))
                try:
                    await asyncio.Event().wait()
                finally:
                    await self._finish()
                    for task in tasks:
                        task.cancel()
        finally:
            self.working = False

    async def _finish(self) -> None:
        """Wait for running reconciles to end; start no new ones."""
        for controller in self.controllers:
            controller.pause()
        if self.election is not None and not self.election.certain():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                for controller in self.controllers:
                    await controller.queue.idle()
