"""A store in one file: the memory store's engine, with a commit between deciding and applying.

*Group commit.* Writes are queued until the event loop's next iteration; then all are decided, in order, against the
committed state and each other, written in ONE transaction (a sync costs more than ten inserts), applied, published
to watchers, and only then acknowledged. No reader sees what is not on disk; when the commit fails, nothing happened.

*A full disk.* When a commit finds no room, the reserve (`store/sqlite/reserve.py`) is used to empty the journal and to
give up the history. If that is not enough, creates and updates are refused until there is room again, and the reserve
is for what frees space: deletions, updates of objects that are being deleted (removing a finalizer), and renewals of
Leases, without which no controller would finish deletions. The reserve is larger than the journal ever is.

A few writes are committed on the loop itself: a thread costs more, as measured. For many, the last step, the wait for
the disk, runs in a thread; meanwhile the loop serves reads, and further writes wait.

*Opening.* The log (`store/sqlite/log.py`) is read once: it gives the present state and the recent past, so that
watchers resume across a restart as if there had been none.
"""

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import NamedTuple, Unpack

from netloom.errors import NetloomError, Unreachable
from netloom.model.kind import Kind
from netloom.model.registry import KINDS
from netloom.store.base import Stored
from netloom.store.engine import FIRST_REVISION, Decision, LocalStore, Minter, Write, pretended
from netloom.store.hub import Change, Hub, Limits
from netloom.store.sqlite.log import Contents, Log
from netloom.store.sqlite.reserve import NoRoom, Reserve, makes_room

ASIDE = 16
"""From how many writes on a commit runs in a thread."""
BATCH = 256
"""Writes in one transaction: more would block the loop, and so all reads, for too long."""
NARROW = 16
"""Writes in one transaction while the disk is full: there is little space."""


class _Waiting(NamedTuple):
    write: Write
    future: asyncio.Future[Stored]
    dry_run: bool


_Decided = list[tuple[_Waiting, Decision]]
_Changes = list[Change]


class SqliteStore(LocalStore):
    """A `Store` in one SQLite file, which this process alone may open."""

    def __init__(self, log: Log, contents: Contents, hub: Hub, minter: Minter, kinds: frozenset[Kind]) -> None:
        super().__init__(hub, minter, kinds, contents.objects, contents.damaged)
        self._log = log
        self._reserve = Reserve(log.path)
        log.bound_journal(self._reserve.size // 2)
        self._retrying = self._retried = False
        """Whether the next or the current batch is a retry after it found no space."""
        self._queue: deque[_Waiting] = deque()
        self._scheduled = False
        self._committing: asyncio.Future[None] | None = None
        self._aside: ThreadPoolExecutor | None = None
        self._closing = False
        self._broken: NetloomError | None = None

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        kinds: Iterable[Kind] = KINDS,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        **limits: Unpack[Limits],
    ) -> "SqliteStore":
        """Open the file at `path`, making it if it is not there.

        Raises `Unreachable` when another process has it open or it cannot be read, `Internal` when it is damaged, not
        ours, or of a newer version.
        """
        known = frozenset(kinds)
        log = Log.open(os.fspath(path))
        try:
            contents = log.read(known)
            hub = Hub(revision=max(contents.compacted, FIRST_REVISION), **limits)
            log.discard(hub.restore(contents.changes))
            hub.advance(contents.revision)
        except BaseException:
            log.close()
            raise
        return cls(log, contents, hub, Minter(clock, random or SystemRandom()), known)

    async def check_disk(self) -> None:
        """Raise `NoRoom` while the disk is full."""
        if not self._reserve.recover():
            raise self._reserve.no_room()

    async def close(self) -> None:
        """Write what is still queued and close the file."""
        self._closing = True
        while self._committing is not None:
            await asyncio.wait([self._committing])
        if self._closed:
            return
        while self._queue:
            self._flush()
        if self._aside is not None:
            self._aside.shutdown()
        self._log.close()
        self._closed = True
        self._reserve.release()
        self._hub.fail(Unreachable("the store is closed"))

    def _submit(self, write: Write, *, dry_run: bool) -> asyncio.Future[Stored]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Stored] = loop.create_future()
        self._queue.append(_Waiting(write, future, dry_run))
        self._schedule()
        return future

    def _schedule(self) -> None:
        if self._queue and not self._scheduled and self._committing is None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Decide, commit and apply queued writes, at most `BATCH`."""
        self._scheduled = False
        if not self._queue or self._committing is not None:
            return
        self._retried, self._retrying = self._retrying, False
        if not self._retried:
            self._reserve.recover()
        most = NARROW if self._reserve.full else BATCH
        batch = deque(self._queue.popleft() for _ in range(min(most, len(self._queue))))
        decided, changes = self._decide(batch)
        self._queue.extendleft(reversed(batch))
        error = self._tried(lambda: self._log.stage(changes)) if changes else None
        if changes and error is None:
            if len(changes) >= ASIDE and not self._closing:
                self._commit_aside(decided, changes)
                return
            error = self._tried(self._log.commit)
        self._finish(decided, changes, error)

    def _commit_aside(self, decided: _Decided, changes: _Changes) -> None:
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "sqlite")

        def committed(done: asyncio.Future[None]) -> None:
            self._committing = None
            self._finish(decided, changes, self._tried(done.result))

        self._committing = asyncio.get_running_loop().run_in_executor(self._aside, self._log.commit)
        self._committing.add_done_callback(committed)

    def _finish(self, decided: _Decided, changes: _Changes, error: NetloomError | None) -> None:
        """Apply and acknowledge a committed batch, or fail its writes."""
        if changes and error is None:
            for change in changes:
                if self._damaged.pop((change.kind, change.key), None):
                    self._log.supersede(change.kind, change.key)
            self._log.settle()
            self._log.discard(self._apply(changes))
            if self._reserve.full:
                self._make_room()
        if isinstance(error, NoRoom) and not self._reserve.full:
            self._reserve.release()
            self._make_room()
            if self._retried or not self._reserve.regain():
                self._reserve.run_out()
            # Retry: all of it if there is space now, otherwise what may use the reserve.
            self._retrying = True
            self._queue.extendleft(waiting for waiting, _ in reversed(decided))
            decided = []
        for waiting, decision in decided:
            _answer(waiting.future, decision.result if error is None or decision.change is None else error)
        self._schedule()

    def _decide(self, batch: deque[_Waiting]) -> tuple[_Decided, _Changes]:
        """Decide each write on top of those before it; fail at once those that are refused.

        What would make the transaction too large is left in `batch`.
        """
        overlay: dict[tuple[Kind, str], Stored | None] = {}

        def lookup(kind: Kind, key: str) -> Stored | None:
            if (kind, key) in overlay:
                return overlay[kind, key]
            self._check_readable(kind, key)
            return self._lookup(kind, key)

        decided: _Decided = []
        changes = self._deciding = []
        room = self._reserve.size // 4
        while batch and room > 0:
            waiting = batch.popleft()
            if waiting.future.cancelled():
                continue  # The caller was cancelled, and nothing has been done yet.
            try:
                decision = waiting.write(lookup, self._hub.revision + len(changes) + 1)
            except Exception as error:  # noqa: BLE001 - the edge between one writer and the others of its batch.
                _answer(waiting.future, error)
                continue
            if waiting.dry_run:
                _answer(waiting.future, pretended(decision))
                continue
            if self._reserve.full and decision.change is not None and not makes_room(decision.change):
                _answer(waiting.future, self._reserve.no_room())
                continue
            if decision.change is not None:
                overlay[decision.change.kind, decision.change.key] = decision.change.new
                changes.append(decision.change)
                room -= 0 if decision.change.new is None else len(decision.change.new.raw)
            decided.append((waiting, decision))
        return decided, changes

    def _tried(self, step: Callable[[], None]) -> NetloomError | None:
        """Run a step of a commit, and return its error."""
        if self._broken is not None:
            return self._broken
        try:
            step()
        except sqlite3.IntegrityError as error:
            # The file has unknown revisions: an earlier commit succeeded but reported an error. Reopening it helps.
            self._broken = Unreachable(f"{self._log.path} is no longer what was written to it ({error}): open it again")
            return self._broken
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                return self._reserve.no_room()
            return Unreachable(f"{self._log.path} could not be written: {error}")
        return None

    def _make_room(self) -> None:
        """Drop the history and the rows it kept on the disk."""
        self._log.discard(self._hub.forget())
        self._log.relieve()


def _answer(future: asyncio.Future[Stored], result: Stored | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
