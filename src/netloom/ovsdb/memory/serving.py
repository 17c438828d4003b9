"""Sockets for the in-memory server, and connections to it without sockets.  The only IO of `ovsdb` besides `io`.

async with serve(server, path):        clients connect to unix:PATH
OvsdbClient(..., dial=dial({"memory:1": server}))   bytes go through the event loop only, in order, in chunks
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.io import Dial
from netloom.ovsdb.memory.server import Connection, Server

CHUNK = 65536


class _Peer(asyncio.Protocol):
    """The server's end of a socket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection = self._server.connect(self._flush)

    def data_received(self, data: bytes) -> None:
        """Pass received data to the server."""
        assert self._connection is not None
        assert self._transport is not None
        try:
            self._connection.receive(data, asyncio.get_running_loop().time())
        except RemoteError:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        assert self._connection is not None
        self._server.drop(self._connection)

    def _flush(self) -> None:
        assert self._connection is not None
        assert self._transport is not None
        self._transport.write(self._connection.to_send())


@asynccontextmanager
async def serve(server: Server, path: Path) -> AsyncIterator[None]:
    """Serve on a unix socket; connections are closed at the end."""
    loop = asyncio.get_running_loop()
    peers: list[_Peer] = []

    def peer() -> _Peer:
        peers.append(_Peer(server))
        return peers[-1]

    listening = await loop.create_unix_server(peer, path)
    try:
        yield
    finally:
        listening.close()
        for one in peers:
            if one._transport is not None:
                one._transport.abort()
        await asyncio.sleep(0)


class Pipe(asyncio.Transport):
    """A client's connection to the server, through the event loop only."""

    def __init__(self, server: Server, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._protocol = protocol
        self._connection = server.connect(self._wake)
        self._closed = False
        self._written: deque[bytes] = deque()
        """Data for the server, in order: not every loop runs callbacks in the order of their calls."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data to the server."""
        self._written.append(bytes(data))
        self._loop.call_soon(self._ask)

    def _wake(self) -> None:
        self._loop.call_soon(self._answer)

    def _ask(self) -> None:
        data = self._written.popleft()
        if self._closed:
            return
        try:
            self._connection.receive(data, self._loop.time())
        except RemoteError:
            self.cut()

    def _answer(self) -> None:
        data = self._connection.to_send()
        for start in range(0, len(data), CHUNK):
            if not self._closed:
                self._protocol.data_received(data[start : start + CHUNK])

    def cut(self) -> None:
        """Break the connection; data in flight is lost."""
        if not self._closed:
            self._closed = True
            self._server.drop(self._connection)
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close = cut

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self._closed


def dial(servers: Mapping[str, Server], pipes: list[Pipe] | None = None) -> Dial:
    """Return a function that connects a client to servers by name; an unknown name is refused."""

    async def connect(remote: str, link: asyncio.Protocol, _: ssl.SSLContext | None) -> asyncio.Transport:
        if remote not in servers:
            raise ConnectionRefusedError(remote)
        pipe = Pipe(servers[remote], link)
        if pipes is not None:
            pipes.append(pipe)
        link.connection_made(pipe)
        return pipe

    return connect
