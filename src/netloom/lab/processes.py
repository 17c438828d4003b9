"""The processes of a lab, found by what they carry and not by what somebody wrote down.

Every process of a lab has the lab's id in its environment and hands it to its children; and whatever runs in one of
the lab's namespaces is in the way of removing it. Both are read from /proc, so nothing is missed however the lab came
to its end, and a pid that now belongs to somebody else is never taken for ours.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
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


def of_lab(lab_id: str, namespaces: Iterable[str]) -> list[Found]:
    """Return the processes of a lab, this one and those that wait for it left out."""
    inodes = {os.stat(NETNS / name).st_ino for name in namespaces if (NETNS / name).exists()}
    spared = _ancestors()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) in spared:
            continue
        marked, name = _marks(entry)
        if marked == lab_id or (inodes and _namespace(entry) in inodes):
            found.append(Found(int(entry.name), name if marked == lab_id else ""))
    return found


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
    """Send a signal to each that still runs."""
    for one in found:
        try:
            os.kill(one.pid, number)
        except ProcessLookupError:
            pass


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


def _ancestors() -> set[int]:
    """Return this process and its parents: who calls us from inside a lab lives to see the end."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            # The name, in parentheses, may hold anything; after the last one come the state and the parent.
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found
