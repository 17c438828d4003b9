"""A controller: informers report changes, keys are queued, workers reconcile.

    informer ──change──► keys_of(change) ──► queue ──key──► reconcile(key) ──► done, again after a delay, or an error

`reconcile` gets a key, not a change: it reads the current state and does what is missing. It returns None, or the
seconds after which to reconcile the key again although nothing changed. An error that it raises concerns that key only:
the key is retried after a delay that depends on the class of the error. An error that does not pass by itself (not a
conflict, not an unreachable store) is reported in an Event, if `event_target` returns an object for the key.

No reconcile starts unless `fence` confirms that this process leads. A cancelled reconcile puts its key back, for the
next time this process leads.
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
from netloom.control.runtime.queue import Backoff, Queue
from netloom.errors import NetloomError
from netloom.model.document import Resource
from netloom.model.kinds.events import ObjectReference

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

logger = logging.getLogger(__name__)

UNCERTAIN_DELAY = 0.1


class Controller(Generic[K]):
    """Reconciles keys of one type."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        random: Random,
        all_keys: Callable[[], Iterable[K]] | None = None,
        workers: int = 4,
        fence: Callable[[], bool] = always,
        backoff: Backoff | None = None,
        queue: Queue[K] | None = None,
        recorder: Recorder | None = None,
        event_target: Callable[[K], Resource | ObjectReference | None] | None = None,
    ) -> None:
        """`queue` is for a reconciler that enqueues keys itself, and so needs the queue first."""
        self.name = name
        self.queue: Queue[K] = Queue(random=random, backoff=backoff) if queue is None else queue
        self.all_keys = all_keys or tuple
        self._partial = all_keys is None
        self.succeeded = 0
        self.failed = 0
        self._paused = False
        self._running = False
        self._reconcile = reconcile
        self.workers = workers
        self._fence = fence
        self._recorder = recorder
        self._event_target = event_target

    def watch(self, informer: Informer[V], keys_of: Callable[[Change[V]], Iterable[K]]) -> None:
        """Enqueue the keys that `keys_of` returns for each change that the informer reports.

        `run` starts with all keys, if `all_keys` is given. Until then `keys_of` is called, but its keys are dropped.
        """

        def enqueue(change: Change[V]) -> None:
            try:
                for key in keys_of(change):
                    if self._running or self._partial:
                        self.queue.add(key)
            except Exception:  # The edge: one unexpected object must not stop the informer.
                logger.exception("%s: cannot find the keys affected by a change of %s", self.name, change.key)

        informer.on_change(enqueue)

    def pause(self) -> None:
        """Start no further reconcile until `run` is called again."""
        self._paused = True

    async def run(self) -> None:
        """Enqueue all keys, then work until cancelled or paused."""
        self._paused = False
        self._running = True
        self.queue.update(self.all_keys())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.workers):
                    group.create_task(self._work())
        finally:
            self._running = False

    async def _work(self) -> None:
        while not self._paused:
            key = await self.queue.get()
            try:
                await self._process(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)

    async def _process(self, key: K) -> None:
        if self._paused:
            self.queue.add(key)
            return
        if not self._fence():
            self.queue.add(key)
            await asyncio.sleep(UNCERTAIN_DELAY)
            return
        try:
            again = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - the edge of the task: one bad object affects only itself.
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
        logger.log(level, "%s: reconciling %s failed, retry in %.1f s: %s", self.name, key, delay, error, exc_info=bug)
        if expected or not self._recorder or not self._event_target:
            return
        if (target := self._event_target(key)) is not None:
            text = error.message if isinstance(error, NetloomError) else f"internal error: {type(error).__name__}"
            self._recorder.warning(target, "ReconcileFailed", text)
