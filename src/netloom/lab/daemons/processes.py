"""The processes of a lab, identified by their environment and namespace and not by pid files.

Every process of a lab has the lab's id in its environment and passes it to its children; and every process in one of
the lab's namespaces blocks its removal. Both are read from /proc, so nothing is missed however the lab ended, and a pid
that was reused is never taken for ours.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from msgspec import Struct

from netloom.lab.daemons.entering import NETNS
from netloom.lab.layout import MARK, MARK_NAME

PROC = Path("/proc")
GRACE_SECONDS = 5.0
FINAL_SECONDS = 60.0
_MARK = f"{MARK}=".encode()
_MARK_NAME = f"{MARK_NAME}=".encode()


class LabProcess(Struct, frozen=True):
    """A running process of a lab; its name is "" if it has none."""

    pid: int
    name: str
    started: int
    """The start time, in the kernel's ticks since boot: a later process with the same pid differs."""


def of_lab(lab_id: str, namespaces: Iterable[str]) -> list[LabProcess]:
    """Return the processes of a lab, without this one and its parents."""
    inodes = {os.stat(NETNS / name).st_ino for name in namespaces if (NETNS / name).exists()}
    spared = _ancestors()
    # Even if a namespace file has a name of ours: the machine's own namespace, that of our first parent, is never a
    # lab's.
    inodes.discard(next(filter(None, (_namespace(PROC / str(pid)) for pid in reversed(spared))), 0))
    entries = (entry for entry in PROC.iterdir() if entry.name.isdecimal() and int(entry.name) not in spared)
    return [found for entry in entries if (found := _found(entry, lab_id, inodes)) is not None]


def _found(entry: Path, lab_id: str, inodes: Collection[int]) -> LabProcess | None:
    def is_ours() -> bool:
        return _marks(entry)[0] == lab_id or (bool(inodes) and _namespace(entry) in inodes)

    if not is_ours():
        return None
    marked, name = _marks(entry)
    since = started(int(entry.name))
    # Checked twice: a process that was ours before and after its start time was read, is the one with that start time.
    return LabProcess(int(entry.name), name if marked == lab_id else "", since) if since and is_ours() else None


def is_of(pid: int, lab_id: str, name: str) -> bool:
    """Whether a pid is currently the process `name` of a lab."""
    return _marks(PROC / str(pid)) == (lab_id, name)


def read_pid(pids: Path, name: str) -> int:
    """Return the pid in a file, 0 if there is none."""
    try:
        return int((pids / name).read_text().strip() or 0)
    except (OSError, ValueError):
        return 0


def end(find: Callable[[], list[LabProcess]], *, gently: Callable[[LabProcess], bool]) -> None:
    """End all processes that `find` returns, until none is left; ask those first for which `gently` holds."""
    asked = [found for found in find() if gently(found)]
    signal_all(asked, signal.SIGTERM)
    wait_gone(asked, GRACE_SECONDS)
    deadline = time.monotonic() + FINAL_SECONDS
    while left := find():
        # Processes that were started meanwhile are found in the next round.
        signal_all(left, signal.SIGKILL)
        wait_gone(left, 1.0)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes do not end: {', '.join(str(found.pid) for found in left)}")


def signal_all(found: Iterable[LabProcess], number: signal.Signals) -> None:
    """Send a signal to each process that still runs, and to no other process that got its pid since."""
    for one in found:
        try:
            descriptor = os.pidfd_open(one.pid)
        except ProcessLookupError:
            continue
        try:
            if started(one.pid) == one.started:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)


def wait_gone(found: Iterable[LabProcess], seconds: float) -> bool:
    """Wait until all have ended; return whether they did in time."""
    deadline = time.monotonic() + seconds
    for one in found:
        try:
            descriptor = os.pidfd_open(one.pid)
        except ProcessLookupError:
            continue
        try:
            left = max(0.0, deadline - time.monotonic())
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(left * 1000):
                return False
        finally:
            os.close(descriptor)
    return True


def _marks(entry: Path) -> tuple[str, str]:
    """Return the lab's id and the process's name from its environment; both are "" for an ended process."""
    try:
        variables = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return "", ""
    lab_id = next((v[len(_MARK) :].decode(errors="replace") for v in variables if v.startswith(_MARK)), "")
    name = next((v[len(_MARK_NAME) :].decode(errors="replace") for v in variables if v.startswith(_MARK_NAME)), "")
    return lab_id, name


def _namespace(entry: Path) -> int:
    try:
        return (entry / "ns" / "net").stat().st_ino
    except OSError:
        return 0


def _ancestors() -> list[int]:
    """Return this process and its parents: a caller from inside a lab must survive the end of the lab."""
    found: list[int] = []
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _stat(pid, _PARENT)
    return found


_PARENT, _START = 1, 19
"""Indexes of numbers in /proc/PID/stat, from the state on: see proc(5)."""


def started(pid: int) -> int:
    """Return when a process started, in the kernel's ticks since boot; 0 if there is none."""
    return _stat(pid, _START)


def _stat(pid: int, which: int) -> int:
    """Return one of the numbers about a process, 0 if there is none."""
    try:
        # The name, in parentheses, may contain anything; the state and the numbers follow the last parenthesis.
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[which])
    except (OSError, ValueError, IndexError):
        return 0
