"""Runs the applier on the agent's own node: one process for each run, with limits on time and output.

    apply(OWNER, document) ──► applier.py ──► lines ──► Result

The state of what is applied here is in a folder of its own, which no other user of the applier has: an owner that was
applied over SSH, or by hand, is never touched. A run ends with the agent, however that ends; the next one completes
what was begun.
"""

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from netloom.drivers.programs.programs import ENVIRONMENT
from netloom.drivers.remote.protocol import Result, TooMuchOutput, Transcript

log = logging.getLogger(__name__)

APPLIER = Path(__file__).with_name("applier.py")
SECONDS = 600.0
"""The longest run: a thousand namespaces take a minute."""
PASSED_ON = ("NETLOOM_LAB", "NETLOOM_LAB_PROCESS")
"""Variables by which a lab knows its processes: DHCP servers outlive the agent."""
_CHUNK = 65536


class LinuxHost:
    """What this node has of HostDocuments, by owner."""

    def __init__(self, folder: str, *, seconds: float = SECONDS) -> None:
        """`folder` is an absolute path."""
        self._folder = folder
        self._seconds = seconds

    def owners(self) -> set[str]:
        """Return the owners that this node has something of."""
        try:
            return {name.removesuffix(".json") for name in os.listdir(self._folder) if name.endswith(".json")}
        except OSError:
            return set()

    async def apply(self, owner: str, document: bytes) -> Result:
        """Turn this node into what a document says."""
        return await self._run("apply", owner, document)

    async def remove(self, owner: str) -> Result:
        """Remove everything of an owner."""
        return await self._run("remove", owner, b"")

    async def _run(self, verb: str, owner: str, document: bytes) -> Result:
        passed = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(APPLIER), verb, owner, self._folder,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**ENVIRONMENT, **passed, "NETLOOM_PARENT": str(os.getpid())}, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Result(error=f"the program could not be started: {error.strerror}")
        try:
            async with asyncio.timeout(self._seconds):
                return await _result(process, document, f"{verb} {owner}")
        except TimeoutError:
            return Result(error=f"it did not end within {self._seconds:g} s and was killed: it is repeated")
        except TooMuchOutput as error:
            return Result(error=str(error))
        finally:
            if process.returncode is None:
                process.kill()
                await asyncio.shield(process.wait())


async def _result(process: asyncio.subprocess.Process, document: bytes, name: str) -> Result:
    """Give a process its document, and read its lines until it ends."""
    said = Transcript()

    async def write(pipe: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # It has ended, and says why.
            pipe.write(document)
            await pipe.drain()
            pipe.close()

    async def read(pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(_CHUNK):
            for step in said.feed(data):
                log.debug("%s: %s", name, step)

    async def read_errors(pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(_CHUNK):
            said.feed_errors(data)

    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(write(process.stdin))
            group.create_task(read(process.stdout))
            group.create_task(read_errors(process.stderr))
    except* TooMuchOutput as errors:
        raise errors.exceptions[0] from None
    return said.ended(await process.wait())
