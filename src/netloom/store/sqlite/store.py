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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import NamedTuple

from netloom.errors import AlreadyExists, Internal, NetloomError, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Page, Precondition, Propagation, Stored, Watch
from netloom.store.damage import Unreadable, placeholder
from netloom.store.engine import (
    FIRST_REVISION,
    Decision,
    Engine,
    Lookup,
    Minter,
    Write,
    check,
    creation,
    deletion,
    pretended,
    replacement,
)
from netloom.store.hub import QUEUE_LENGTH, WINDOW_BYTES, WINDOW_CHANGES, Change, Hub
from netloom.store.semantics import key_of
from netloom.store.sqlite.log import Log
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


class SqliteStore:
    """A `Store` in one SQLite file, which this process alone may open."""

    def __init__(
        self, log: Log, engine: Engine, minter: Minter, kinds: frozenset[Kind], damaged: Iterable[Damaged] = ()
    ) -> None:
        self._log = log
        self._reserve = Reserve(log.path)
        log.bound_journal(self._reserve.size // 2)
        self._retrying = self._retried = False
        """Whether the next or the current batch is a retry after it found no space."""
        self._engine = engine
        self._hub = engine.hub
        self._minter = minter
        self._kinds = kinds
        self._damaged = {(one.kind, key_of(one.namespace, one.name)): one for one in damaged}
        """The damaged objects."""
        self._queue: deque[_Waiting] = deque()
        self._deciding: _Changes = []
        """The changes of the current batch so far."""
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
        window_changes: int = WINDOW_CHANGES,
        window_bytes: int = WINDOW_BYTES,
        queue_length: int = QUEUE_LENGTH,
    ) -> "SqliteStore":
        """Open the file at `path`, making it if it is not there.

        Raises `Unreachable` when another process has it open or it cannot be read, `Internal` when it is damaged, not
        ours, or of a newer version.
        """
        known = frozenset(kinds)
        log = Log.open(os.fspath(path))
        try:
            contents = log.read(known)
            hub = Hub(
                revision=max(contents.compacted, FIRST_REVISION),
                window_changes=window_changes,
                window_bytes=window_bytes,
                queue_length=queue_length,
            )
            engine = Engine(hub)
            engine.load(contents.objects)
            log.discard(hub.restore(contents.changes))
            hub.advance(contents.revision)
        except BaseException:
            log.close()
            raise
        return cls(log, engine, Minter(clock, random or SystemRandom()), known, contents.damaged)

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        self._check(kind)
        write = creation(kind, document, self._minter)

        def decide(lookup: Lookup, revision: int) -> Decision:
            try:
                return write(lookup, revision)
            except Unreadable as error:
                raise AlreadyExists(error.message) from error

        return await self._submit(decide, dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now."""
        self._check(kind)
        self._check_readable(kind, key_of(namespace, name))
        return self._engine.get(kind, namespace, name)

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
        """Return the objects of a kind."""
        self._check(kind)
        return self._engine.page(kind, namespace, selector, revision, limit, token)

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`."""
        self._check(kind)
        return self._engine.watch(kind, namespace, selector, since)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or its status."""
        self._check(kind)
        return await self._submit(replacement(kind, document, subresource), dry_run=dry_run)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete an object and return its last state."""
        self._check(kind)
        now = self._minter.clock()
        write = deletion(kind, namespace, name, propagation=propagation, uid=uid, revision=revision, now=now)
        if not uid and revision is None:
            write = self._or_discard(write)
        return await self._submit(write if unless is None else self._unless(unless, write), dry_run=dry_run)

    async def revision(self) -> int:
        """Return the revision of the newest write."""
        self._check_open()
        return self._hub.revision

    async def damaged(self) -> Sequence[Damaged]:
        """Return the objects that are set aside."""
        return list(self._damaged.values())

    async def check_disk(self) -> None:
        """Raise `NoRoom` while the disk is full."""
        if not self._reserve.recover():
            raise self._reserve.no_room()

    async def close(self) -> None:
        """Write what is still queued and close the file."""
        self._closing = True
        while self._committing is not None:
            await asyncio.wait([self._committing])
        if self._log.closed:
            return
        while self._queue:
            self._flush()
        if self._aside is not None:
            self._aside.shutdown()
        self._log.close()
        self._reserve.release()
        self._hub.fail(Unreachable("the store is closed"))

    def _unless(self, unless: Precondition, write: Write) -> Write:
        """Return the write that is refused when something was written that `unless` forbids."""

        def decide(lookup: Lookup, revision: int) -> Decision:
            check(unless, self._hub, self._deciding)
            return write(lookup, revision)

        return decide

    def _or_discard(self, write: Write) -> Write:
        """Return the deletion that also removes a damaged object."""

        def decide(lookup: Lookup, revision: int) -> Decision:
            try:
                return write(lookup, revision)
            except Unreadable as error:
                one = error.damaged
                change = Change(revision, one.kind, key_of(one.namespace, one.name), one.namespace, None, None)
                return Decision(placeholder(one), change)

        return decide

    def _check_readable(self, kind: Kind, key: str) -> None:
        if (kind, key) in self._damaged:
            raise Unreadable(self._damaged[kind, key])

    def _check(self, kind: Kind) -> None:
        self._check_open()
        if kind not in self._kinds:
            raise Internal(f"this store was opened without {kind.qualified}")

    def _check_open(self) -> None:
        if self._log.closed:
            raise Unreachable("the store is closed")

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
            self._log.discard(self._engine.apply(changes))
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
            return self._engine.lookup(kind, key)

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
