"""Child processes that cannot outlive the tests.

A `Program` is one child with its output in a file. Leaving its `with` block stops it by its pid: SIGTERM, then SIGKILL
if it does not end. When the test process itself is killed, the kernel kills the child (PR_SET_PDEATHSIG). That signal
is bound to the *thread* that started the child: start programs from the main thread, not from a worker thread.

`wait_until` is how tests wait: on a condition, with a deadline, never for a fixed time.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

T = TypeVar("T")

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # Loaded before any fork: the child may not import.

# Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes a port between choice and use.
_PORTS = range(20000, 30000)


def fail_missing(program: str, install: str) -> NoReturn:
    """Fail the test because a program is missing, and name what installs it.  Never skip."""
    pytest.fail(f"{program} is not installed: {install}", pytrace=False)


def find_program(name: str, *, install: str) -> Path:
    """Return the path of `name`, or fail the test with how to install it."""
    found = shutil.which(name)
    if found is None:
        fail_missing(name, install)
    return Path(found)


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    for _ in range(200):
        port = secrets.choice(_PORTS)  # Not `random`: pytest-randomly gives every worker the same seed.
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port on 127.0.0.1")


def wait_until(condition: Callable[[], T | None], *, what: str, timeout: float = 120.0, interval: float = 0.02) -> T:
    """Call `condition` until it returns something true, and return that; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise AssertionError(f"timed out after {timeout:g} s waiting for {what}")
        time.sleep(interval)


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Yield a temporary folder `netloom-NAME-…` and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"netloom-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Program:
    """One running child process; its standard output and error are in `log`, or its output alone in `out`."""

    def __init__(
        self, argv: Sequence[str | Path], *, log: Path, out: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Start `argv`, with `env` as its whole environment (this process's when None)."""
        self.argv = [str(word) for word in argv]
        self.log = log
        self.out = out if out is not None else log
        with contextlib.ExitStack() as files:
            stderr = files.enter_context(log.open("ab"))
            stdout = stderr if out is None else files.enter_context(out.open("ab"))
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=None if env is None else dict(env),
                process_group=0,  # Ctrl-C is for pytest, which then stops its programs in order.
                preexec_fn=_die_with(os.getpid()),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._child.poll()

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for the program to exit and return its exit status."""
        return self._child.wait(timeout)

    def kill(self) -> None:
        """Stop it like a crash: SIGKILL."""
        self._child.kill()
        self._child.wait()

    def stop(self, grace: float = 60.0) -> int:
        """Stop it by its pid, with SIGTERM and then SIGKILL, and return its exit status."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            return self._child.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.wait()

    def output(self) -> str:
        """Return its standard output so far."""
        return self.out.read_text(errors="replace")

    def wait_for(self, text: str, *, timeout: float = 120.0) -> str:
        """Wait until `text` is in its standard output, and return all of that output."""

        def seen() -> str | None:
            printed = self.output()
            if text in printed:
                return printed
            if self.returncode is not None:
                raise AssertionError(f"{self.describe()} before it printed {text!r}")
            return None

        return wait_until(seen, what=f"{text!r} from {self.argv[0]}", timeout=timeout)

    def wait_ready(self, ready: Callable[[], bool], *, timeout: float = 120.0) -> None:
        """Wait until `ready()`; fail at once, with the end of the log, if the program exits before that."""

        def check() -> bool:
            if self.returncode is not None:
                raise AssertionError(self.describe())
            return ready()

        try:
            wait_until(check, what=f"{self.argv[0]} to be ready", timeout=timeout, interval=0.05)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.tail()}") from None

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def describe(self) -> str:
        """Return a sentence with its exit status, and the end of its log."""
        return f"{self.argv[0]} ended with status {self.returncode}\n{self.tail()}"

    def __enter__(self) -> "Program":
        """Return the running program."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()


def _die_with(parent: int) -> Callable[[], None]:
    def in_child() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # A shell makes background processes ignore it.
        if os.getppid() != parent:  # The parent died before the line above, so the signal would never be sent.
            os._exit(127)

    return in_child
