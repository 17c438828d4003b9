"""The API on every node's loopback: bytes are forwarded, TLS stays between the agent and the server.

A cluster's API, which is elsewhere, is also forwarded to this machine's own loopback; so are OVN's databases, which
listen in their own namespaces, for the control plane.

The listening socket is made inside the node's namespace, the connection to the server outside of it: a socket belongs
to the namespace in which it was made. So one kubeconfig works everywhere, and the nodes need no route to the machine's
network.
"""

import asyncio
import logging
import socket

from netloom.lab.daemons.entering import inside

log = logging.getLogger(__name__)

CHUNK = 65536
BACKLOG = 64
CONNECT_SECONDS = 5.0


def listen(netns: str, port: int) -> socket.socket:
    """Return a listening socket on the loopback of a namespace, or of this machine without one."""

    def bound() -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        listener.setblocking(False)
        return listener

    return inside(netns, bound) if netns else bound()


async def serve(listener: socket.socket, host: str, port: int, *, netns: str = "") -> None:
    """Forward every connection to a server, which may be in a namespace, until cancelled."""

    carrying: set[asyncio.Task[None] | None] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio itself refers to the task of a connection only until the client is gone.
        carrying.add(task := asyncio.current_task())
        try:
            await _carry(reader, writer, host, port, netns)
        finally:
            carrying.discard(task)

    server = await asyncio.start_server(carry, sock=listener)
    async with server:
        await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, netns: str) -> None:
    try:
        there_reader, there_writer = await _connect(host, port, netns)
    except OSError:
        # The server is down; the client's connection ends, as it would without the relay, and the client retries.
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pipe(reader, there_writer))
            group.create_task(_pipe(there_reader, writer))
    finally:
        writer.close()
        there_writer.close()


async def _connect(host: str, port: int, netns: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not netns:
        return await asyncio.open_connection(host, port)

    def connected() -> socket.socket:
        return socket.create_connection((host, port), timeout=CONNECT_SECONDS)

    return await asyncio.open_connection(sock=await asyncio.to_thread(inside, netns, connected))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        # One side ended abruptly: so does the other.
        writer.transport.abort()
