"""Runs a program on the node: no shell, for a limited time, with a limited output, and with nothing left of it.

Each program has a small process of its own beside it (`runner.py`) that sees to all that. It ends the program
and everything the program started as soon as our end of its connection closes: when a run is cancelled, and, because
the kernel closes it, when this process is killed.

A program gets its arguments as they are; a short environment, in which there is nothing of ours; nothing to read; `/`
as its directory, a session of its own, and no file of ours. It is in the network namespace this process is in.
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
"""How many bytes are kept of each of a program's outputs."""
PROCESSES = 256
"""How many processes a program may have at a time, itself among them."""
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/",
}
RUNNER = Path(__file__).with_name("runner.py")
LONGEST_ANSWER = 1 << 20
ENDING = 10.0
"""How many seconds a runner may take to end what it runs."""


class Ended(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    exit_status: int
    """Of the program; 128 + N if signal N ended it; negative: see `plan/node/hooks.py`."""
    stdout: str = ""
    stderr: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """What a runner says."""

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
        """Run a program to its end, or to the end of its time; all it started is gone when this returns, or raises."""
        try:
            return self._ended(await self._answer(command))
        except OSError as error:
            return Ended(exit_status=NOT_STARTED, stderr=f"[could not be run: {error.strerror}]")

    async def _answer(self, command: Sequence[str]) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            runner = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(RUNNER), stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/", start_new_session=True,
            )  # fmt: skip
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_ANSWER)
            try:
                writer.write(self._request(command))
                answer = await reader.readline()
            except (OSError, ValueError):
                answer = b""
            finally:
                writer.close()  # Whatever still runs is to end.
                await _gone(runner)
        return answer

    def _request(self, command: Sequence[str]) -> bytes:
        return msgspec.json.encode(
            {
                "command": command,
                "environment": ENVIRONMENT,
                "timeout": self._timeout,
                "limit": OUTPUT,
                "most": self._processes,
            }
        ) + b"\n"  # fmt: skip

    def _ended(self, line: bytes) -> Ended:
        if not line.endswith(b"\n"):
            return Ended(exit_status=INTERRUPTED, stderr="[interrupted: the process that watched over it was killed]")
        answer = msgspec.json.decode(line, type=Answer)
        status = answer.exit if answer.exit >= 0 else 128 - answer.exit
        notes = [answer.err] if answer.err else []
        if answer.failure:
            status = NOT_STARTED
            notes.append(f"[could not be run: {answer.failure}]")
        if answer.overdue:
            status = OVERDUE
            notes.append(f"[ended after {self._timeout:g} s: see --exec-timeout]")
        if answer.crowded:
            status = CROWDED
            notes.append(f"[ended: it had become more than {self._processes} processes]")
        if answer.remaining:
            notes.append(f"[{answer.remaining} of its processes could not be ended]")
        return Ended(exit_status=status, stdout=answer.out, stderr="\n".join(notes))


async def _gone(runner: asyncio.subprocess.Process) -> None:
    """Wait until a runner has ended everything and gone, also while this run is being cancelled."""
    ending = asyncio.ensure_future(runner.wait())
    try:
        await asyncio.wait_for(asyncio.shield(ending), ENDING)
    except TimeoutError:
        runner.kill()
    except asyncio.CancelledError:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending, ENDING)
        raise
