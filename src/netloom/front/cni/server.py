"""The socket of the plugin, in the agent: reads requests, and notices when a runtime gives up.

A client costs itself alone: its request has a limited size and must arrive within seconds, and its answer waits for
nobody else. Only the owner of the socket file may connect. The file is put in its place when it can be used, and stays
when the agent ends: until the next one replaces it, the plugin finds nobody there and says so.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from netloom.front.cni.request import MOST_BYTES

log = logging.getLogger(__name__)

MOST_CLIENTS = 1024
"""Those beyond are disconnected at once, which the plugin reports as an agent that is away: it is tried again."""
BACKLOG = 1024
PATIENCE = 10.0
"""Seconds for a request to arrive, and for an answer to be taken."""
DIGITS = 8
RETRY = 5.0

Answer = Callable[[bytes], Awaitable[bytes]]


class CniServer:
    """Answers the calls of the plugin."""

    def __init__(self, path: str, answer: Answer) -> None:
        self.clients = 0
        self._path = Path(path)
        self._answer = answer

    async def run(self) -> NoReturn:
        """Serve until cancelled; a socket that cannot be made is tried again, and does not end the agent."""
        async with asyncio.TaskGroup() as group:

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                group.create_task(self._client(reader, writer))

            while True:
                try:
                    server = await self._listen(connected)
                except OSError as error:
                    log.error("cannot serve CNI at %s: %s: see the setting cni", self._path, error.strerror or error)
                    await asyncio.sleep(RETRY)
                    continue
                log.info("serving CNI", extra={"socket": str(self._path)})
                try:
                    await server.serve_forever()
                finally:
                    server.close()  # Not as a context manager, which would wait for clients that end after it.
        raise AssertionError  # The group ends only by being cancelled.

    async def _listen(self, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]) -> asyncio.Server:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        made = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            made.unlink()
        server = await asyncio.start_unix_server(connected, made, backlog=BACKLOG, start_serving=False)
        # Nobody knows the name yet, and nobody is listening before the mode is right.
        made.chmod(0o600)
        made.rename(self._path)
        await server.start_serving()
        return server

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.clients >= MOST_CLIENTS:
            writer.transport.abort()
            return
        self.clients += 1
        try:
            data = await _request(reader)
            if data is not None and (answer := await self._until_hung_up(reader, data)) is not None:
                writer.write(answer)
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError) as error:
            log.info("a CNI client is gone: %s", str(error) or "it does not take its answer")
        finally:
            self.clients -= 1
            writer.transport.abort()

    async def _until_hung_up(self, reader: asyncio.StreamReader, data: bytes) -> bytes | None:
        """Return the answer to a request; None: the client hung up first, or the call was taken back."""
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(_hung_up(reader))
            work = group.create_task(_awaited(self._answer(data)))
            await asyncio.wait((gone, work), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                log.info("a CNI client hung up: what was made for it is removed")
            work.cancel()
            gone.cancel()
        return None if work.cancelled() else work.result()


async def _awaited(answer: Awaitable[bytes]) -> bytes:
    return await answer


async def _hung_up(reader: asyncio.StreamReader) -> None:
    """Wait until the client is gone; one that goes on sending has lost its way, and counts as gone."""
    with contextlib.suppress(OSError):
        await reader.read(1)


async def _request(reader: asyncio.StreamReader) -> bytes | None:
    """Return a request; None: it is not one, or does not arrive in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            line = await reader.readuntil(b"\n")
            length = line[:-1]
            if not length.isdigit() or len(length) > DIGITS or int(length) > MOST_BYTES:
                return None
            return await reader.readexactly(int(length))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
        return None
