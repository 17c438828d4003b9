"""Disk space kept in reserve, so that objects can be deleted when the disk is full: a deletion is a write, too.

    room ──(a write finds none, and tidying up makes none)──► full: what the reserve held is for deletions
     ▲                                                         │
     └──(there is room for it, and for half as much again)─────┘

The reserve is a file beside the database, of blocks that are really allocated. It is removed when the store is closed.
"""

import logging
import os
from contextlib import suppress

from netloom.errors import Unreachable
from netloom.model.registry import LEASE
from netloom.store.hub import Change

SIZE = 8 << 20
"""Enough for many deletions, the largest included, and for compaction after them."""
_SHARE = 8
"""On a small file system the reserve is at most this part of it."""

_GROWTH = 1024
"""By how many bytes an object may grow while the disk is full: what it takes to mark it deleted."""
_RETRY_SECONDS = 10.0

log = logging.getLogger(__name__)


class NoRoom(Unreachable):
    """The disk is full; nothing was written."""


def makes_room(change: Change) -> bool:
    """Return whether a write may use the reserve."""
    if change.new is None:
        return True
    if change.old is None or len(change.new.raw) > len(change.old.raw) + _GROWTH:
        return False
    return change.kind is LEASE or bool(change.new.document()["metadata"].get("deletionTimestamp"))


class Reserve:
    """The reserve of one database."""

    def __init__(self, database: str) -> None:
        self.full = False
        """Whether the last write found no space."""
        self._database = database
        self._path = f"{database}-reserve"
        self._folder = os.path.dirname(database) or "."
        space = os.statvfs(self._folder)
        self.size = min(SIZE, space.f_blocks * space.f_frsize // _SHARE)
        if not self._make():
            self.run_out()

    def run_out(self) -> None:
        """Release the reserve for a write that found no space.  Logged once."""
        if self.full:
            return
        self.full = True
        self.release()
        log.error(
            "the disk is full: %s takes only deletions until %d KiB are free in %s",
            self._database,
            self._wanted // 1024,
            self._folder,
        )

    def recover(self) -> bool:
        """Allocate the reserve again if there is space; return whether there is.  Logged once."""
        if not self.full:
            return True
        if not self.regain():
            return False
        self.full = False
        log.warning("the disk has space again: %s accepts all writes", self._database)
        return True

    def no_room(self) -> NoRoom:
        """Return the error for a write that is refused."""
        words = f"{self._database} could not be written: database or disk is full; only deletions are taken"
        return NoRoom(words, retry_after=_RETRY_SECONDS)

    def release(self) -> None:
        """Release the reserve."""
        with suppress(OSError):
            os.unlink(self._path)

    def regain(self) -> bool:
        """Allocate the reserve if there is space for it and more; return whether there is."""
        space = os.statvfs(self._folder)
        return space.f_bavail * space.f_frsize >= self._wanted and self._make()

    @property
    def _wanted(self) -> int:
        return self.size + self.size // 2

    def _make(self) -> bool:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, max(self.size, 1))
            finally:
                os.close(file)
        except OSError:
            self.release()
            return False
        return True
