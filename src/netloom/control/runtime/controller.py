"""A controller: informers say what changed, keys are queued, workers look again.

    informer ──change──► keys_of(change) ──► queue ──key──► reconcile(key) ──► done, again after a while, or a failure

`reconcile` gets a key, not a change: it reads the present state and does what is missing. It returns None, or the
seconds after which to look again although nothing changed. What it raises is its failure, and costs that key only: it
waits according to the error's class. A failure that will not go away by itself (not a conflict, not a store that is
away) is told of in an Event, where `about` knows the object.

No reconcile starts unless `fence` says that this process leads for certain. A reconcile that is cancelled half-way puts
its key back: whoever leads next in this process looks again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from random import Random
from typing import Generic, TypeVar

from netloom.control.runtime.cache import Change
from netloom.control.runtime.client import always
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.control.runtime.queue import Backoff, Closed, Queue
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.events import ObjectReference

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

logger = logging.getLogger(__name__)

UNCERTAIN_REST = 0.1


class Controller(Generic[K]):
    """One kind of work, on keys of one type."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        random: Random,
        everything: Callable[[], Iterable[K]] | None = None,
        workers: int = 4,
        fence: Callable[[], bool] = always,
        backoff: Backoff | None = None,
        recorder: Recorder | None = None,
        about: Callable[[K], Resource | ObjectReference | None] | None = None,
    ) -> None:
        self.name = name
        self.queue: Queue[K] = Queue(random=random, backoff=backoff)
        self.everything = everything or tuple
        self._partial = everything is None
        self.succeeded = 0
        self.failed = 0
        self._paused = False
        self._running = False
        self._reconcile = reconcile
        self.workers = workers
        self._fence = fence
        self._recorder = recorder
        self._about = about

    def watch(self, informer: Informer[V], keys_of: Callable[[Change[V]], Iterable[K]]) -> None:
        """Have the keys that `keys_of` makes of each of the informer's changes looked at.

        Before `run`, which begins with everything where that is known, `keys_of` is only told.
        """

        def enqueue(change: Change[V]) -> None:
            try:
                for key in keys_of(change):
                    if self._running or self._partial:
                        self.queue.add(key)
            except Exception:  # The edge: one object nobody thought of must not stop the informer.
                logger.exception("%s: cannot tell whom %s concerns", self.name, change.key)

        informer.on_change(enqueue)

    def pause(self) -> None:
        """Begin no further reconcile, until `run` is called again."""
        self._paused = True

    async def run(self) -> None:
        """Work until cancelled, paused, or until the queue is closed and empty.  Begins with a look at everything."""
        self._paused = False
        self._running = True
        self.queue.update(self.everything())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.workers):
                    group.create_task(self._work())
        finally:
            self._running = False

    async def _work(self) -> None:
        while not self._paused:
            try:
                key = await self.queue.get()
            except Closed:
                return
            try:
                await self._look_if_allowed(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _look_if_allowed(self, key: K) -> None:
        if self._paused:
            self.queue.add(key)
        elif not self._fence():
            self.queue.add(key)
            await asyncio.sleep(UNCERTAIN_REST)
        else:
            await self._look(key)

    async def _look(self, key: K) -> None:
        try:
            again = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - the task's edge: one bad object costs that object only.
            self.failed += 1
            delay = self.queue.retry(key, error)
            self._report(key, error, delay)
            return
        self.succeeded += 1
        self.queue.forget(key)
        if again is not None:
            self.queue.add_after(key, again)

    def _report(self, key: K, error: Exception, delay: float) -> None:
        expected = isinstance(error, NetloomError) and error.retry
        level = logging.DEBUG if expected else logging.ERROR
        bug = None if isinstance(error, NetloomError) else error
        logger.log(level, "%s: %s failed, again in %.1f s: %s", self.name, key, delay, error, exc_info=bug)
        if expected or not self._recorder or not self._about:
            return
        if (about := self._about(key)) is not None:
            text = error.message if isinstance(error, NetloomError) else f"internal error: {type(error).__name__}"
            self._recorder.warning(about, "ReconcileFailed", text)
