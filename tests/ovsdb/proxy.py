"""A relay of unix sockets that counts what goes through, and can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class Proxy:
    """Bytes from the server, by connection."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        self.received: list[int] = []

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            writer.close()
            return
        there, back = await asyncio.open_unix_connection(str(self._server))
        self._writers += [writer, back]
        number = len(self.received)
        self.received.append(0)
        for source, sink, counted in ((reader, back, None), (there, writer, number)):
            task = asyncio.create_task(self._pump(source, sink, counted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if number is not None:
                    self.received[number] += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@contextlib.asynccontextmanager
async def proxy(server: Path, at: Path) -> AsyncIterator[Proxy]:
    """Relay connections made to `at`."""
    one = Proxy(server)
    listening = await asyncio.start_unix_server(one.relay, at)
    try:
        yield one
    finally:
        one.cut()
        listening.close()
        await asyncio.gather(*one._tasks, return_exceptions=True)
