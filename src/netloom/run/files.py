"""Atomic writes of files, and locks that end with their process."""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from netloom.errors import AlreadyExists, Conflict, Invalid

PRIVATE = 0o600
_TEMPORARY = ".tmp"


def write_whole(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Write `data` to `path`: after a crash at any instant the file is the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{_TEMPORARY}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read(path: Path) -> bytes:
    """Return the contents of a file that a setting names; the error names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from None


@contextlib.contextmanager
def reserved(path: Path, *, overwrite: bool = False) -> Iterator[None]:
    """Reserve `path` for a private file before its contents exist; release it if the block fails.

    An existing file is `AlreadyExists`, unless `overwrite`: then it stays unchanged until it is written.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        taken = True
    except FileExistsError:
        if not overwrite:
            raise AlreadyExists(f"{path} exists: choose another name, or overwrite it with --force") from None
        if not path.is_file():
            raise Invalid(f"{path} is not a file") from None
        taken = False
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}") from None
    try:
        yield
    except BaseException:
        if taken:
            path.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporaries(folder: Path) -> None:
    """Remove what a crash in `write_whole` left behind.  Call it while holding the folder's lock."""
    for left in folder.glob(f".*{_TEMPORARY}"):
        left.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder for a short read and write; wait for others."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_lock(path: Path, message: str) -> Iterator[None]:
    """Lock `path` for the life of the process; `Conflict` with `message` and the holder's pid if it is locked.

    The lock is the kernel's: it ends with the process, however the process ends, so no stale lock needs removing.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            raise Conflict(f"{message} (process {holder or 'unknown'})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
