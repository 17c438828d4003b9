"""Runs a program on the node: without a shell, with limits on time and output, and with nothing left of it afterwards.

A small process beside each program (`runner.py`) enforces that. It ends the program and everything that the program
started as soon as our end of its connection closes: when a run is cancelled, and, because the kernel closes it, when
this process is killed.

A program gets its arguments unchanged; a short environment, with nothing of the agent's; an empty standard input; `/`
as its directory, a session of its own, and no open file of the agent's. It runs in the agent's network namespace.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from netloom.plan.node.hooks import CROWDED, INTERRUPTED, NOT_STARTED, OVERDUE

OUTPUT = 4096
"""Bytes that are kept of each of a program's outputs."""
PROCESSES = 256
"""The most processes that a program may have at a time, itself included."""
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/",
}
RUNNER = Path(__file__).with_name("runner.py")
LONGEST_ANSWER = 1 << 20
ENDING = 10.0
"""Seconds within which a runner ends its program."""


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a run."""

    exit_status: int
    """The exit status; 128 + N if signal N ended the program; negative: see `plan/node/hooks.py`."""
    stdout: str = ""
    stderr: str = ""


class RunnerReply(Struct, frozen=True, kw_only=True):
    """The reply of a runner."""

    exit: int
    failure: str
    overdue: bool
    crowded: bool
    remaining: int
    out: str
    err: str


class Programs:
    """Runs programs."""

    def __init__(self, *, timeout: float, processes: int = PROCESSES) -> None:
        self._timeout = timeout
        self._processes = processes

    async def run(self, command: Sequence[str]) -> Ended:
        """Run a program until it ends or its time is over; all it started is gone when this returns or raises."""
        try:
            return self._ended(await self._answer(command))
        except OSError as error:
            return Ended(exit_status=NOT_STARTED, stderr=f"[could not be started: {error.strerror}]")

    async def _answer(self, command: Sequence[str]) -> bytes:
        request = {
            "command": command,
            "environment": ENVIRONMENT,
            "timeout": self._timeout,
            "limit": OUTPUT,
            "most": self._processes,
        }
        ours, theirs = socket.socketpair()
        with ours, theirs:
            runner = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(RUNNER), stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/", start_new_session=True,
            )  # fmt: skip
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_ANSWER)
            try:
                writer.write(msgspec.json.encode(request) + b"\n")
                answer = await reader.readline()
            except (OSError, ValueError):
                answer = b""
            finally:
                writer.close()  # End what still runs.
                await _gone(runner)
        return answer

    def _ended(self, line: bytes) -> Ended:
        if not line.endswith(b"\n"):
            return Ended(exit_status=INTERRUPTED, stderr="[interrupted: the process that watched over it was killed]")
        answer = msgspec.json.decode(line, type=RunnerReply)
        status = answer.exit if answer.exit >= 0 else 128 - answer.exit
        notes = [answer.err] if answer.err else []
        if answer.failure:
            status = NOT_STARTED
            notes.append(f"[could not be started: {answer.failure}]")
        if answer.overdue:
            status = OVERDUE
            notes.append(f"[ended after {self._timeout:g} s: see --exec-timeout]")
        if answer.crowded:
            status = CROWDED
            notes.append(f"[ended: it had more than {self._processes} processes]")
        if answer.remaining:
            notes.append(f"[{answer.remaining} of its processes could not be ended]")
        return Ended(exit_status=status, stdout=answer.out, stderr="\n".join(notes))


async def _gone(runner: asyncio.subprocess.Process) -> None:
    """Wait until a runner has ended everything and itself, even while this run is being cancelled."""
    ending = asyncio.ensure_future(runner.wait())
    try:
        await asyncio.wait_for(asyncio.shield(ending), ENDING)
    except TimeoutError:
        runner.kill()
    except asyncio.CancelledError:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending, ENDING)
        raise
