"""Runs one program, and ends it with everything it started. A process beside the agent; uses only the standard library.

    agent ──request──► runner ──fork──► the program, in a session of its own ──► its processes
          ◄──answer───         ◄─orphans────────────────────────────────────────┘

The runner is a "child subreaper": every process that the program starts stays a descendant of the runner, even if it
forks twice, makes a session of its own or ignores SIGTERM, because orphans become children of the runner. So all these
processes are the tree below the runner in /proc. They are ended when the program's time is over, when the program
itself has ended, when there are too many of them, and when the agent closes the connection.

Ending has to win against programs that start processes faster than they can be killed. So after SIGTERM, and some time
for the processes that end by themselves, all of them are stopped before any is killed. Each process is stopped first,
and its children are listed then: a stopped process starts no more, so a pass costs only the processes that are new
since the last one; passes are repeated, up to a limit, until one finds nothing new. The kernel stops a process group at
once, whichever of its processes fork. And the number of processes is limited: they are counted while the program runs,
and while they are being ended.

Not covered are processes that another process starts on the program's behalf (a service manager, cron, a container
runtime); what is left when root kills the runner itself (then the kernel kills the program, and not its children); and
a process that hangs in the kernel, which is reported and left.

Output beyond a limit is read and discarded: the agent gets its beginning and its end. One line of JSON comes in and one
goes out, both on standard input, which is a socket.
"""

import contextlib
import ctypes
import errno
import json
import os
import re
import resource
import selectors
import signal
import time
from collections import deque
from collections.abc import Container, Iterator
from itertools import islice
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTROL = 0
GRACE = 1.0
"""Seconds that processes have to end after SIGTERM."""
STUBBORN = 5.0
"""Seconds after which a killed process that still exists is left."""
COUNT = 0.1
"""Seconds between two counts of the processes."""
CHILDREN = "/proc/thread-self/children"
DESCRIPTORS = 1024
LONGEST_REQUEST = 1 << 20
CHUNK = 65536
PASSES = 50
_CONTROLS = re.compile(r"[^\n\t -~\xa0-\U0010ffff]")
"""Control characters that a terminal might act on."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class Kept:
    """The beginning and the end of an output."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = b""
        self._tail = b""
        self._total = 0

    def add(self, data: bytes) -> None:
        """Add to the output."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-self._half :]

    def text(self) -> str:
        """Return the output as text that is safe for a terminal and for JSON."""
        missing = self._total - len(self._head) - len(self._tail)
        if not missing:
            return _plain(self._head + self._tail)
        return f"{_plain(self._head)}\n[{missing} bytes are left out]\n{_plain(self._tail)}"


def _plain(data: bytes) -> str:
    text = data.decode(errors="replace")
    return _CONTROLS.sub("\ufffd", text)


class Running:
    """One running program."""

    def __init__(self, command: list[str], environment: dict[str, str], limit: int) -> None:
        self.status: int | None = None
        """The program's status by waitpid."""
        self.out, self.err = Kept(limit), Kept(limit)
        self.alone = False
        """Whether no process is left."""
        self._selector = selectors.DefaultSelector()
        self.pid, self.failure = self._start(command, environment)
        wake, waker = os.pipe()
        for one in (wake, waker):
            os.set_blocking(one, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._selector.register(CONTROL, selectors.EVENT_READ, None)
        self.left = False
        """Whether the agent is gone."""

    def _start(self, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """Start the program; return its pid, or why it could not be started."""
        ends = [os.pipe(), os.pipe(), os.pipe()]
        runner = os.getpid()
        pid = os.fork()
        if not pid:
            _become(command, environment, [write for _, write in ends], runner)
        for _, write in ends:
            os.close(write)
        for (read, _), kept in zip(ends, (self.out, self.err), strict=False):
            os.set_blocking(read, False)
            self._selector.register(read, selectors.EVENT_READ, kept)
        with open(ends[2][0], "rb") as error:  # Ends when the program was executed, or could not be.
            return pid, error.read().decode()

    def wait(self, until: float) -> None:
        """Wait until something happens, or for some time."""
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if isinstance(key.data, Kept):
                self._read(key.fd, key.data)
            elif key.fd == CONTROL:
                self.left = True
                self._selector.unregister(CONTROL)
            else:
                os.read(key.fd, CHUNK)
        self._reap()

    def rest(self) -> None:
        """Read the rest of the pipes."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Kept):
                while self._read(key.fd, key.data):
                    pass

    def _read(self, file: int, kept: Kept) -> bool:
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return False
        kept.add(data)
        if not data:
            self._selector.unregister(file)
        return bool(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.alone = True
                return
            if not pid:
                return
            if pid == self.pid:
                self.status = status

    def end(self, most: int) -> int:
        """End all processes; return how many could not be ended."""
        self._reap()
        for pid, parent in islice(descendants(os.getpid()), most):
            _signal(pid, parent, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while not self.alone and time.monotonic() < deadline and not is_crowded(most):
            self.wait(min(deadline, time.monotonic() + COUNT))
        _go_first()
        deadline = time.monotonic() + STUBBORN
        while not self.alone and time.monotonic() < deadline:
            for pid, parent in freeze(deadline).items():
                _signal(pid, parent, signal.SIGKILL)
            self.wait(time.monotonic() + 0.05)
        return 0 if self.alone else sum(1 for _ in islice(descendants(os.getpid()), most))


def _become(command: list[str], environment: dict[str, str], ends: list[int], runner: int) -> NoReturn:
    """Execute the program, in the child."""
    try:
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != runner:
            os._exit(127)
        null = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((null, *ends[:2])):
            os.dup2(file, number)  # All others have close-on-exec.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
        os.umask(0o022)
        if not os.path.exists(CHILDREN):
            raise OSError(errno.ENOSYS, "the kernel does not say which processes it would start")
        os.execve(command[0], command, environment)  # noqa: S606  # that is the point
    except (OSError, ValueError) as error:
        os.write(ends[2], (getattr(error, "strerror", None) or str(error)).encode())
    finally:
        os._exit(127)


def descendants(root: int, known: Container[int] = ()) -> Iterator[tuple[int, int]]:
    """Yield all processes below one with their parents, parents first; not the `known`, nor the processes below them.

    The children of a process are listed after it was yielded, and so after what the caller did to it.
    """
    waiting = deque([root])
    while waiting:
        parent = waiting.popleft()
        for pid in _children(parent):
            if pid not in known:
                yield pid, parent
                waiting.append(pid)


def is_crowded(most: int) -> bool:
    """Whether there are more processes below us than allowed."""
    return sum(1 for _ in islice(descendants(os.getpid()), most + 1)) > most


def freeze(deadline: float) -> dict[int, int]:
    """Stop all processes below us; return them, with their parents, parents first."""
    frozen: dict[int, int] = {}
    for _ in range(PASSES):
        before = len(frozen)
        for pid, parent in descendants(os.getpid(), frozen):
            frozen[pid] = parent
            if _signal(pid, parent, signal.SIGSTOP):
                _stop_group(pid)
            if time.monotonic() > deadline:
                return frozen
        if len(frozen) == before:
            break  # No process is left that could start another.
    return frozen


def _stop_group(pid: int) -> None:
    """Stop the process group of a stopped process, which is still in the group, so that its number cannot be reused.

    A group that begins outside of our namespace of processes has no number here, and 1 would mean all processes.
    """
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group > 1 and group != os.getpgrp():
            os.killpg(group, signal.SIGSTOP)


def _go_first() -> None:
    """Run with priority over the processes that are to be ended, where that is permitted."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _signal(pid: int, parent: int, number: signal.Signals) -> bool:
    """Send a signal to a process below us, if it is still the one that was found; return whether it was."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _parent(pid) not in (parent, os.getpid()):
            return False  # The number belongs to another process; from the line above on it cannot change.
        signal.pidfd_send_signal(handle, number)
    except (OSError, IndexError):
        return False
    finally:
        os.close(handle)
    return True


def _request() -> dict[str, Any] | None:
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(CONTROL, CHUNK)
        data += more
        if not more or len(data) > LONGEST_REQUEST:
            return None
    request: dict[str, Any] = json.loads(data)
    return request


def main() -> None:
    """Run the requested program, and reply."""
    request = _request()
    if request is None:
        return
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The end of the connection ends the run.
    running = Running(request["command"], request["environment"], request["limit"])
    deadline = time.monotonic() + request["timeout"]
    most = request["most"]
    crowded = False
    while running.status is None and not running.left and not crowded and time.monotonic() < deadline:
        running.wait(min(deadline, time.monotonic() + COUNT))
        crowded = is_crowded(most)
    overdue = running.status is None and not running.left and not crowded
    remaining = running.end(most)
    running.rest()
    answer = {
        "exit": 0 if running.status is None else os.waitstatus_to_exitcode(running.status),
        "failure": running.failure,
        "overdue": overdue,
        "crowded": crowded,
        "remaining": remaining,
        "out": running.out.text(),
        "err": running.err.text(),
    }
    if not running.left:
        with open(CONTROL, "wb", closefd=False) as file:
            file.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
