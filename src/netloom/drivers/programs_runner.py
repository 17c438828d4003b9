"""Runs one program and ends it with all it started.  A process of its own, beside the agent; only the standard library.

    agent ──request──► runner ──fork──► the program, in a session of its own ──► whatever it starts
          ◄──answer───         ◄─orphans─────────────────────────────────────────┘

The runner is a "child subreaper": whatever the program starts stays a descendant of the runner, also what forks twice,
makes a session of its own or ignores SIGTERM, because orphans become the runner's children and nobody else's. So all it
started is the tree below the runner in /proc. It is ended (SIGTERM, a while, SIGSTOP so that nobody forks on, SIGKILL)
when the program is overdue, when the program itself has ended, and when the agent goes, of which the connection tells.

What cannot be caught: what another process starts on its behalf (a service manager, cron, a container runtime); what is
left when root kills the runner itself (then the kernel kills the program, and not its children); and a process that
hangs in the kernel, which is reported and left.

Output is read here and thrown away beyond a limit: the agent gets the beginning and the end of it. One line of JSON
comes in and one goes out, both on standard input, which is a socket.
"""

import ctypes
import json
import os
import re
import resource
import selectors
import signal
import time
from collections.abc import Iterator
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTROL = 0
GRACE = 1.0
"""How many seconds what is ended by SIGTERM has to go by itself."""
STUBBORN = 5.0
"""How many seconds after SIGKILL a process must be gone, or is left."""
DESCRIPTORS = 1024
LONGEST_REQUEST = 1 << 20
CHUNK = 65536
ROUNDS = 50
_CONTROLS = re.compile(r"[^\n\t -~\xa0-\U0010ffff]")
"""What a terminal might act on."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class Kept:
    """The beginning and the end of what is printed."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = b""
        self._tail = b""
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take what was printed."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-self._half :]

    def text(self) -> str:
        """Return it as text that a terminal and JSON can take."""
        missing = self._total - len(self._head) - len(self._tail)
        if not missing:
            return _plain(self._head + self._tail)
        return f"{_plain(self._head)}\n[{missing} bytes are left out]\n{_plain(self._tail)}"


def _plain(data: bytes) -> str:
    text = data.decode(errors="replace")
    return _CONTROLS.sub("\ufffd", text)


class Running:
    """One program that runs."""

    def __init__(self, command: list[str], environment: dict[str, str], limit: int) -> None:
        self.status: int | None = None
        """How the program ended, as waitpid has it."""
        self.out, self.err = Kept(limit), Kept(limit)
        self._selector = selectors.DefaultSelector()
        self._childless = False
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
        with open(ends[2][0], "rb") as told:  # Ends when the program has taken the child's place, or could not.
            return pid, told.read().decode()

    def wait(self, until: float) -> None:
        """Let time pass, until something happens."""
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if isinstance(key.data, Kept):
                self._read(key.fd, key.data)
            elif key.fd == CONTROL:
                self.left = True
                self._selector.unregister(CONTROL)
            else:
                os.read(key.fd, CHUNK)
        self._reap()

    @property
    def alone(self) -> bool:
        """Whether nothing runs any more."""
        return self._childless

    def rest(self) -> None:
        """Read what is left in the pipes."""
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
                self._childless = True
                return
            if not pid:
                return
            if pid == self.pid:
                self.status = status

    def end(self) -> int:
        """End everything; return how many processes did not go."""
        self._reap()
        _signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while not self.alone and time.monotonic() < deadline:
            self.wait(deadline)
        deadline = time.monotonic() + STUBBORN
        while not self.alone and time.monotonic() < deadline:
            for _ in range(ROUNDS):
                if not _signal(signal.SIGSTOP):
                    break  # Nobody is left who could start another.
            _signal(signal.SIGKILL)
            self.wait(time.monotonic() + 0.05)
        return 0 if self.alone else len(list(descendants(os.getpid())))


def _become(command: list[str], environment: dict[str, str], ends: list[int], runner: int) -> NoReturn:
    """Be the program, in the child."""
    try:
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != runner:
            os._exit(127)
        null = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((null, *ends[:2])):
            os.dup2(file, number)  # All others close by themselves.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
        os.umask(0o022)
        os.execve(command[0], command, environment)  # noqa: S606  # that is the point
    except (OSError, ValueError) as error:
        os.write(ends[2], (getattr(error, "strerror", None) or str(error)).encode())
    finally:
        os._exit(127)


def descendants(root: int) -> Iterator[tuple[int, int, str]]:
    """Yield pid, parent and state of all processes below one, parents first."""
    below: dict[int, list[tuple[int, int, str]]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (found := _stat(int(name))) is not None:
            below.setdefault(found[0], []).append((int(name), *found))
    waiting = list(below.get(root, ()))
    while waiting:
        one = waiting.pop(0)
        yield one
        waiting += below.get(one[0], ())


def _stat(pid: int) -> tuple[int, str] | None:
    """Return a process's parent and state."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), fields[0].decode()
    except (OSError, IndexError):
        return None


def _signal(number: signal.Signals) -> bool:
    """Send a signal to all below us; whether SIGSTOP found any that was not stopped."""
    met = False
    for pid, parent, state in list(descendants(os.getpid())):
        if state == "Z" or (number is signal.SIGSTOP and state in "Tt"):
            continue
        met = True
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            now = _stat(pid)  # The number may have become another's; from here on it cannot.
            if now is not None and now[0] in (parent, os.getpid()):
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass
        finally:
            os.close(handle)
    return met


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
    """Run what is asked for, and answer."""
    request = _request()
    if request is None:
        return
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The connection says when it is over.
    running = Running(request["command"], request["environment"], request["limit"])
    deadline = time.monotonic() + request["timeout"]
    while running.status is None and not running.left and time.monotonic() < deadline:
        running.wait(deadline)
    overdue = running.status is None and not running.left
    remaining = running.end()
    running.rest()
    answer = {
        "exit": 0 if running.status is None else os.waitstatus_to_exitcode(running.status),
        "failure": running.failure,
        "overdue": overdue,
        "remaining": remaining,
        "out": running.out.text(),
        "err": running.err.text(),
    }
    if not running.left:
        with open(CONTROL, "wb", closefd=False) as file:
            file.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
