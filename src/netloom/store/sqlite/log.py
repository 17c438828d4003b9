"""The sqlite store's file: one row for each change, newest wins; the only module with SQL.

    log(revision, resource, key, raw, sum)  raw is the object, NULL where it was deleted; sum is a checksum of the rest
    about(compacted)                        history up to this revision may be missing rows

The present state is the newest row of each key. Rows that a later row replaced are kept while they are within the
history window, so that watchers can resume and lists can go on; after that they are removed, a few with each commit,
and the pages they leave are used again. As in etcd: of each key, what was newest at `compacted` is kept, unless that is
a deletion.

A row whose checksum is wrong does not affect the others: its object is set aside (store/damage.py), and the row stays
until a newer one replaces it. Rows of schema 1 have no checksum; for those it is only checked that they are objects.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from netloom.errors import Internal, Unreachable
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, LEASE
from netloom.store.base import Damaged, Stored
from netloom.store.damage import flaw, report
from netloom.store.hub import Change
from netloom.store.semantics import key_of

APPLICATION = 0x4E4C4F4D  # "NLOM", in the file's header: it marks a file as ours.
SCHEMA = 2
_SWEEP = 64  # How many obsolete rows one commit removes at most, beyond those it makes obsolete itself.
_VACUUM_PAGES = 64
_RELIEF_STEPS = 32
_JOURNAL_PAGES = 1000  # SQLite's own: fewer would sync the disk more often.

_TABLES = """
CREATE TABLE log (revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, raw BLOB, sum INT) STRICT;
CREATE TABLE about (compacted INTEGER NOT NULL) STRICT;
INSERT INTO about VALUES (0);
"""
_FLEETING = (LEASE, EVENT)
"""Kinds whose damaged objects count as deleted: nothing of value is lost."""


class Contents(NamedTuple):
    """The contents of a file."""

    objects: list[Stored]
    changes: list[Change]
    """The history since `compacted`."""
    compacted: int
    revision: int
    damaged: list[Damaged]
    """The objects whose newest row cannot be read."""


class _Identity(Struct):
    name: str
    namespace: str = ""


class _Named(Struct, rename="camel"):
    """The identity that an object states."""

    api_version: str
    kind: str
    metadata: _Identity


class Log:
    """An open file."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.closed = False
        self._db = connection
        self._useless: list[int] = []
        self._sweeping = 0
        self._compacted = 0
        self._aside: dict[tuple[Kind, str], list[int]] = {}
        """The damaged rows, by kind and key."""

    @classmethod
    def open(cls, path: str) -> "Log":
        """Open or create the file, and lock it against other processes."""
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
        current: dict[tuple[Kind, str], Stored] = {}
        changes: list[Change] = []
        damaged: dict[tuple[Kind, str], Damaged] = {}

        def replace(kind: Kind, key: str, new: Stored | None) -> None:
            namespace = key.partition("/")[0]
            change = Change(revision, kind, key, namespace, new, current.pop((kind, key), None))
            if new is not None:
                current[kind, key] = new
            if revision > self._compacted:
                changes.append(change)
            else:
                self._useless += self._replaced(change)

        try:
            (self._compacted,) = self._db.execute("SELECT compacted FROM about").fetchone()
            revision = self._compacted
            for revision, resource, key, raw, checksum in self._db.execute(
                "SELECT revision, resource, key, raw, sum FROM log ORDER BY revision"
            ):
                kind = known.get(resource)
                if checksum is None:
                    reason = "" if kind is None or raw is None else flaw(kind, key, raw, revision=revision)
                else:
                    reason = "" if checksum == _sum(revision, resource, key, raw) else "its checksum is another"
                if reason:
                    for one, where in _subjects(known, resource, key, raw):
                        found = Damaged(one, *_parts(where), revision, reason)
                        report(found)
                        if one not in _FLEETING:
                            damaged[one, where] = found
                            self._aside.setdefault((one, where), []).append(revision)
                        replace(one, where, None)
                elif kind is not None:
                    if damaged.pop((kind, key), None):
                        self.supersede(kind, key)
                    new = None if raw is None else Stored(kind, *_parts(key), revision, raw)
                    replace(kind, key, new)
        except sqlite3.DatabaseError as error:
            raise _damaged(self.path, error) from error
        return Contents(list(current.values()), changes, self._compacted, revision, list(damaged.values()))

    def stage(self, changes: Iterable[Change]) -> None:
        """Write changes without committing them: `commit` must follow, then, if that succeeds, `settle`."""
        rows = [_row(change) for change in changes]
        sweep = self._useless[: 2 * len(rows) + _SWEEP]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
            if sweep:
                self._db.execute("UPDATE about SET compacted = ?", (self._compacted,))
                self._db.executemany("DELETE FROM log WHERE revision = ?", [(revision,) for revision in sweep])
        except sqlite3.Error:
            self._roll_back()
            raise
        self._sweeping = len(sweep)

    def commit(self) -> None:
        """Commit what is staged.  The only step that waits for the disk; it may run in a thread."""
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise

    def settle(self) -> None:
        """Update the bookkeeping after a commit."""
        if self._sweeping:
            del self._useless[: self._sweeping]
            self._shrink()

    def bound_journal(self, size: int) -> None:
        """Set after how many bytes the journal is checkpointed."""
        (page,) = self._db.execute("PRAGMA page_size").fetchone()
        self._db.execute(f"PRAGMA wal_autocheckpoint = {max(min(size // page, _JOURNAL_PAGES), 1)}").fetchall()

    def relieve(self) -> None:
        """Return as much space as possible to the file system, using as little as possible for it.

        Rows without a use go, a few at a time, and the pages they leave; the journal is emptied between the steps, so
        that it never grows by more than one of them. What fails, for want of room, is tried again the next time.
        """
        with suppress(sqlite3.Error):
            self._empty_journal()
            for _ in range(_RELIEF_STEPS):
                if self._useless:
                    self.stage(())
                    self.commit()
                    del self._useless[: self._sweeping]
                self._db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                self._empty_journal()
                if not self._useless:
                    break

    def _empty_journal(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors.
            self._db.execute("ROLLBACK")

    def discard(self, changes: Iterable[Change]) -> None:
        """Record that these changes, the oldest, left the history: the rows they replaced may be removed."""
        for change in changes:
            self._compacted = change.revision
            self._useless += self._replaced(change)

    def supersede(self, kind: Kind, key: str) -> None:
        """Record that a damaged object has a newer row: the damaged rows may be removed."""
        self._useless += self._aside.pop((kind, key), ())

    def close(self) -> None:
        """Close the file."""
        if self.closed:
            return
        self.closed = True
        self._db.close()

    def _replaced(self, change: Change) -> list[int]:
        """Return the rows that are obsolete once `change` has left the history."""
        rows = [] if change.old is None else [change.old.revision]
        if change.new is not None or change.revision in self._aside.get((change.kind, change.key), ()):
            return rows
        return [*rows, change.revision]

    def _shrink(self) -> None:
        """Return pages to the file system when a large part of the file is empty."""
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        if free > _VACUUM_PAGES and free * 4 > pages:
            # Optional: when it fails (a full disk), the next commit tries again.
            with suppress(sqlite3.Error):
                self._db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()


def _row(change: Change) -> tuple[int, str, str, bytes | None, int]:
    resource, raw = _resource(change.kind), None if change.new is None else change.new.raw
    return change.revision, resource, change.key, raw, _sum(change.revision, resource, change.key, raw)


def _sum(revision: int, resource: str, key: str, raw: bytes | None) -> int:
    return crc32(raw or b"", crc32(f"{revision} {resource} {key}".encode()))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _subjects(known: Mapping[str, Kind], resource: str, key: str, raw: bytes | None) -> list[tuple[Kind, str]]:
    """Return the objects a damaged row may belong to: by its columns, and by the object it holds.

    Both, because either may be what was changed; and an older state of an object must not pass for the newest.
    """
    found = {} if resource not in known else {(known[resource], key): None}
    with suppress(msgspec.DecodeError):
        says = msgspec.json.decode(raw or b"", type=_Named)
        for kind in known.values():
            if (kind.api_version, kind.name) == (says.api_version, says.kind):
                found[kind, key_of(says.metadata.namespace, says.metadata.name)] = None
    return list(found)


def _resource(kind: Kind) -> str:
    return f"{kind.group}/{kind.plural}"


def _make_private(path: str) -> None:
    """Create the file with mode 0600, and sync its folder so that the name survives a crash."""
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
    """Configure the connection, and create the tables in a new file."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    # Must precede the first table; `_shrink` can then release pages without rewriting the whole file.
    db.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = FULL").fetchall()
    db.execute("PRAGMA journal_size_limit = 16777216").fetchall()
    db.execute("PRAGMA temp_store = MEMORY").fetchall()
    db.text_factory = _text
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
    if (application, schema) == (APPLICATION, 1):
        db.execute("ALTER TABLE log ADD COLUMN sum INT")
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")
    if application != APPLICATION:
        raise Internal(f"{path} is an SQLite database, but not one of Netloom's")
    if schema > SCHEMA:
        raise Internal(f"{path} was written by a newer Netloom (schema {schema}; this one knows {SCHEMA})")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Internal(f"{path} is damaged: {verdict}")


def _text(data: bytes) -> str:
    """Decode a key that may not be UTF-8: the checksum then fails."""
    return data.decode(errors="backslashreplace")


def _damaged(path: str, error: sqlite3.DatabaseError) -> Internal:
    return Internal(f"{path} is damaged or not a database: {error}")
