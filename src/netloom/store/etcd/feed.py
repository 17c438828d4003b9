"""The feed from etcd's watch to the hub: one stream of all changes, for all watchers of this process.

The feed begins in the past and `start` returns when it has caught up. A lost connection is made again, with the next
server, from the last revision on, so watchers notice nothing; when etcd has dropped that part of its history meanwhile,
they get `Expired` and list again.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from netloom.errors import Expired, Internal, NetloomError, TimedOut, Unreachable
from netloom.model.kind import Kind
from netloom.store.base import Damaged, Stored
from netloom.store.damage import Unreadable, flaw, report
from netloom.store.etcd.api import Etcd, prefix_end
from netloom.store.etcd.wire import KeyEvent, KeyValue, WatchResponse
from netloom.store.hub import Change, Hub
from netloom.store.semantics import key_of, stamp

log = logging.getLogger(__name__)

_CATCH_UP_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_REMEMBERED = 1000


def stored_at(kind: Kind, kv: KeyValue, cut: int) -> Stored:
    """Return the object at a key, whose first `cut` bytes name the kind; `Unreadable` if there is something else."""
    key = kv.key[cut:].decode(errors="backslashreplace")
    namespace, _, name = key.partition("/")
    if reason := flaw(kind, key, kv.value):
        raise Unreadable(Damaged(kind, namespace, name, kv.mod_revision, reason))
    return stamp(kind, namespace, name, kv.mod_revision, kv.value)


class Aside:
    """Values in etcd that are no objects of ours: each is logged once.  The newest are remembered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Kind, str, str], int] = {}

    def readable(self, kind: Kind, kv: KeyValue, cut: int) -> Stored | None:
        """Return the object at a key; None where there is something else."""
        try:
            return stored_at(kind, kv, cut)
        except Unreadable as error:
            self.note(error.damaged)
            return None

    def note(self, damaged: Damaged) -> None:
        """Log a damaged value once."""
        key = (damaged.kind, damaged.namespace, damaged.name)
        if self._seen.pop(key, None) != damaged.revision:
            report(damaged)
        self._seen[key] = damaged.revision
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]


class Feed:
    """The watch that feeds a hub, and its tasks."""

    def __init__(self, etcd: Etcd, hub: Hub, roots: Mapping[Kind, str], prefix: str) -> None:
        self.hub = hub
        self.roots = roots
        self.aside = Aside()
        self._kinds = {root: kind for kind, root in roots.items()}
        self._etcd = etcd
        self._prefix = prefix
        self._tasks: list[asyncio.Task[None]] = []
        self._target = 0
        self._caught_up = asyncio.Event()

    async def start(self, *, until: int, compact_every: float | None) -> None:
        """Start, and wait until all changes up to revision `until` are known."""
        self._target = until
        self._supervise(self._follow())
        if compact_every:
            self._supervise(self._compact(compact_every))
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._caught_up.wait()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"etcd did not send its history within {_CATCH_UP_SECONDS:g} s") from error
            raise

    async def stop(self) -> None:
        """Stop the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _supervise(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the watchers when a task ends by a bug and not by `close`: they must not wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the etcd watch failed", exc_info=error)
            self.hub.fail(Internal(f"the etcd watch failed: {error}"))

    async def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                async with self._etcd.watch(self._prefix, prefix_end(self._prefix), self.hub.revision) as messages:
                    async for response in messages:
                        await self._take(response)
                        pause = _FIRST_PAUSE
            except Expired:
                continue
            except NetloomError as error:
                log.info("the etcd watch was lost and resumes from revision %d: %s", self.hub.revision, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _take(self, response: WatchResponse) -> None:
        if response.compact_revision:
            # The history up to this revision is gone, or may lack deletions.
            self.hub.restart(max(response.compact_revision, self.hub.revision))
            raise Expired("etcd has dropped the history")
        if response.canceled:
            raise Unreachable(f"etcd ended the watch: {response.cancel_reason}")
        changes = [change for event in response.events if (change := self._change(event)) is not None]
        if changes:
            self.hub.publish(changes)
        if response.events:
            self.hub.advance(response.events[-1].kv.mod_revision)
        elif not response.created:
            self.hub.advance(response.revision)  # A progress report: there are no other changes up to here.
        if self.hub.revision >= self._target:
            self._caught_up.set()

    def _change(self, event: KeyEvent) -> Change | None:
        """Return the change an event stands for; None for a key that is no object of ours."""
        parts = event.kv.key.split(b"/")
        root = b"/".join(parts[:-2]).decode(errors="replace") + "/"
        kind = self._kinds.get(root)
        if kind is None:
            return None
        cut = len(root)
        # A damaged object counts as absent: watchers see a deletion, and a creation when it can be read again.
        old = None if event.prev_kv is None else self.aside.readable(kind, event.prev_kv, cut)
        new = None if event.type == "DELETE" else self.aside.readable(kind, event.kv, cut)
        if new is None and old is None:
            return None
        namespace, name = (part.decode() for part in parts[-2:])
        return Change(event.kv.mod_revision, kind, key_of(namespace, name), namespace, new, old)

    async def _compact(self, every: float) -> None:
        """Compact history that is older than `every` seconds, periodically."""
        while True:
            before = self.hub.revision
            await asyncio.sleep(every)
            try:
                await self._etcd.compact(before)
            except NetloomError as error:
                log.info("etcd did not compact to revision %d: %s", before, error)
