"""The processes of a lab, found by what they carry and not by what somebody wrote down.

Every process of a lab has the lab's id in its environment and hands it to its children; and whatever runs in one of
the lab's namespaces is in the way of removing it. Both are read from /proc, so nothing is missed however the lab came
to its end, and a pid that now belongs to somebody else is never taken for ours.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from msgspec import Struct

from netloom.lab.entering import NETNS
from netloom.lab.layout import MARK, MARK_NAME

PROC = Path("/proc")
GRACE_SECONDS = 5.0
FINAL_SECONDS = 20.0
_MARK = f"{MARK}=".encode()
_MARK_NAME = f"{MARK_NAME}=".encode()


class Found(Struct, frozen=True):
    """A running process of a lab; its name is "" where it is nobody's in particular."""

    pid: int
    name: str
    started: int
    """When, in the kernel's ticks since it runs: a later process of the same pid is another."""


def of_lab(lab_id: str, namespaces: Iterable[str]) -> list[Found]:
    """Return the processes of a lab, this one and those that wait for it left out."""
    inodes = {os.stat(NETNS / name).st_ino for name in namespaces if (NETNS / name).exists()}
    spared = _ancestors()
    # Whatever somebody gave a name of ours to: the machine's own namespace, that of the first of us, is never a lab's.
    inodes.discard(next(filter(None, (_namespace(PROC / str(pid)) for pid in reversed(spared))), 0))
    entries = (entry for entry in PROC.iterdir() if entry.name.isdecimal() and int(entry.name) not in spared)
    return [found for entry in entries if (found := _found(entry, lab_id, inodes)) is not None]


def _found(entry: Path, lab_id: str, inodes: Collection[int]) -> Found | None:
    def is_ours() -> bool:
        return _marks(entry)[0] == lab_id or (bool(inodes) and _namespace(entry) in inodes)

    if not is_ours():
        return None
    marked, name = _marks(entry)
    started = _started(int(entry.name))
    # Looked at twice: what was ours before its start was read, and is after, is what started then.
    return Found(int(entry.name), name if marked == lab_id else "", started) if started and is_ours() else None


def is_of(pid: int, lab_id: str, name: str) -> bool:
    """Whether a pid is, now, the process `name` of a lab."""
    return _marks(PROC / str(pid)) == (lab_id, name)


def read_pid(pids: Path, name: str) -> int:
    """Return the pid a file says, 0 where it says none."""
    try:
        return int((pids / name).read_text().strip() or 0)
    except (OSError, ValueError):
        return 0


def end(find: Callable[[], list[Found]], *, gently: Callable[[Found], bool]) -> None:
    """End all processes that `find` finds: some are asked first; until none is left."""
    asked = [found for found in find() if gently(found)]
    signal_all(asked, signal.SIGTERM)
    wait_gone(asked, GRACE_SECONDS)
    deadline = time.monotonic() + FINAL_SECONDS
    while left := find():
        # What was being started while we looked is found by the next look.
        signal_all(left, signal.SIGKILL)
        wait_gone(left, 1.0)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {', '.join(str(found.pid) for found in left)} do not end")


def signal_all(found: Iterable[Found], number: signal.Signals) -> None:
    """Send a signal to each that still runs, and to nobody who has come by its pid since."""
    for one in found:
        try:
            descriptor = os.pidfd_open(one.pid)
        except ProcessLookupError:
            continue
        try:
            if _started(one.pid) == one.started:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)


def wait_gone(found: Iterable[Found], seconds: float) -> bool:
    """Wait until all have ended; whether they have in time."""
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
    """Return the lab's id and the process's name from its environment; a process that has ended has neither."""
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
    """Return this process and its parents: who calls us from inside a lab lives to see the end."""
    found: list[int] = []
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _stat(pid, _PARENT)
    return found


_PARENT, _START = 1, 19
"""Which of the numbers in /proc/PID/stat, from the state on: see proc(5)."""


def _started(pid: int) -> int:
    return _stat(pid, _START)


def _stat(pid: int, which: int) -> int:
    """Return one of the numbers about a process, 0 where there is none."""
    try:
        # The name, in parentheses, may hold anything; after the last one come the state and the numbers.
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[which])
    except (OSError, ValueError, IndexError):
        return 0
