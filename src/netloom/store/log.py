"""The sqlite store's file: one row for each change, newest wins; the only place that speaks SQL.

    log(revision, resource, key, raw)     raw is the object, NULL where it was deleted
    about(compacted)                      history up to this revision may be missing rows

The present state is the newest row of each key. Rows that a later row replaced are kept while they are within the
history window, so that watchers can resume and lists can go on; after that they are removed, a few with each commit,
and the pages they leave are used again. As in etcd: of each key, what was newest at `compacted` is kept, unless that is
a deletion.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from netloom.errors import Internal, Unreachable
from netloom.model.kind import Kind
from netloom.store.base import Stored
from netloom.store.hub import Change

APPLICATION = 0x4E4C4F4D  # "NLOM", in the file's header: how we know that a file is ours.
SCHEMA = 1
_SWEEP = 64  # How many rows without a use one commit removes at most, beyond those it makes useless itself.
_VACUUM_PAGES = 64

_TABLES = """
CREATE TABLE log (revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, raw BLOB) STRICT;
CREATE TABLE about (compacted INTEGER NOT NULL) STRICT;
INSERT INTO about VALUES (0);
"""


class Contents(NamedTuple):
    """What a file says."""

    objects: list[Stored]
    changes: list[Change]
    """The history since `compacted`."""
    compacted: int
    revision: int


class Log:
    """An open file."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.closed = False
        self._db = connection
        self._useless: list[int] = []
        self._sweeping = 0
        self._compacted = 0
        self._noted = 0

    @classmethod
    def open(cls, path: str) -> "Log":
        """Open or make the file, and keep everybody else out of it."""
        try:
            _make_private(path)
            connection = sqlite3.connect(
                path, isolation_level=None, timeout=0, cached_statements=32, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise Unreachable(f"cannot open {path}: {getattr(error, 'strerror', None) or error}") from error
        try:
            _prepare(path, connection)
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise Unreachable(f"{path} is in use by another process") from error
            raise Unreachable(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _damaged(path, error) from error
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    def read(self, kinds: Collection[Kind]) -> Contents:
        """Return everything that concerns these kinds.  Rows of others stay where they are, untouched."""
        known = {_resource(kind): kind for kind in kinds}
        current: dict[tuple[str, str], Stored] = {}
        changes: list[Change] = []
        try:
            (self._compacted,) = self._db.execute("SELECT compacted FROM about").fetchone()
            revision = self._noted = self._compacted
            for revision, resource, key, raw in self._db.execute("SELECT * FROM log ORDER BY revision"):
                kind = known.get(resource)
                if kind is None:
                    continue
                namespace, _, name = key.partition("/")
                new = None if raw is None else Stored(kind, namespace, name, revision, raw)
                old = current.pop((resource, key), None)
                if new is not None:
                    current[resource, key] = new
                change = Change(revision, kind, key, namespace, new, old)
                if revision > self._compacted:
                    changes.append(change)
                else:
                    self._useless += _replaced(change)
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, error) from error
        return Contents(list(current.values()), changes, self._compacted, revision)

    def append(self, changes: Iterable[Change]) -> None:
        """Write changes in one transaction: all of them are on disk when this returns, or none."""
        self.stage(changes)
        self.commit()
        self.settle()

    def stage(self, changes: Iterable[Change]) -> None:
        """Write changes, all but the last step: `commit` must follow, then, if that succeeds, `settle`."""
        rows = [(c.revision, _resource(c.kind), c.key, None if c.new is None else c.new.raw) for c in changes]
        sweep = self._useless[: 2 * len(rows) + _SWEEP]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
            if sweep:
                self._db.execute("UPDATE about SET compacted = ?", (self._compacted,))
                self._db.executemany("DELETE FROM log WHERE revision = ?", [(revision,) for revision in sweep])
        except sqlite3.Error:
            self._roll_back()
            raise
        self._sweeping = len(sweep)

    def commit(self) -> None:
        """Make durable what is staged.  The one step that waits for the disk; a thread may do it meanwhile."""
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise

    def settle(self) -> None:
        """Tidy up after a commit."""
        if self._sweeping:
            del self._useless[: self._sweeping]
            self._shrink()

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors.
            self._db.execute("ROLLBACK")

    def discard(self, changes: list[Change]) -> None:
        """Note that these changes, the oldest there are, left the history: what they replaced can go."""
        for change in changes:
            self._compacted = change.revision
            self._useless += _replaced(change)

    def close(self) -> None:
        """Let go of the file."""
        if self.closed:
            return
        self.closed = True
        self._db.close()

    def _shrink(self) -> None:
        """Give pages back to the file system when a good part of the file is empty."""
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        if free > _VACUUM_PAGES and free * 4 > pages:
            # Only tidying: when it fails (a full disk), the next commit tries again.
            with suppress(sqlite3.Error):
                self._db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()


def _replaced(change: Change) -> list[int]:
    """Return the rows that nobody needs once `change` is the past."""
    rows = [] if change.old is None else [change.old.revision]
    return rows if change.new is not None else [*rows, change.revision]


def _resource(kind: Kind) -> str:
    return f"{kind.group}/{kind.plural}"


def _make_private(path: str) -> None:
    """Make the file, for nobody else's eyes, and see to it that its name survives a crash too."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _prepare(path: str, db: sqlite3.Connection) -> None:
    """Set up the connection, and the tables in a new file."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    # Must come before the first table; lets `_shrink` give pages back without rewriting the whole file.
    db.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = FULL").fetchall()
    db.execute("PRAGMA journal_size_limit = 16777216").fetchall()
    db.execute("PRAGMA temp_store = MEMORY").fetchall()
    db.execute("BEGIN IMMEDIATE")  # Takes the lock, which the locking mode then keeps.
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables == 0 and application == 0:
        for statement in _TABLES.strip().split("\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        application, schema = APPLICATION, SCHEMA
    db.execute("COMMIT")
    if application != APPLICATION:
        raise Internal(f"{path} is an SQLite database, but not one of Netloom's")
    if schema > SCHEMA:
        raise Internal(f"{path} was written by a newer Netloom (schema {schema}; this one knows {SCHEMA})")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Internal(f"{path} is damaged: {verdict}")


def _damaged(path: str, error: sqlite3.DatabaseError) -> Internal:
    return Internal(f"{path} is damaged or not a database: {error}")
