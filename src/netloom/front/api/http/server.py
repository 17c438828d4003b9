"""The listening side: TLS, limits on connections, and their deadlines.

uvicorn is used as a library: its protocol (connection.py) and its configuration, without its process management, its
signal handlers and its accept loop. The accept loop is ours because a limit on connections must apply before the TLS
handshake, which is the expensive part. `serve` runs until it is cancelled, then lets requests in progress finish.
"""

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from netloom.front.api.http.connection import Protocol
from netloom.front.api.http.exchange import Receive, Scope, Send
from netloom.front.api.http.fair_queue import Turns
from netloom.front.api.http.limits import Limits

log = logging.getLogger(__name__)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

TLS_BUFFER = 16 * 1024
_SWEEP_SECONDS = 1.0
_HANDSHAKE_SECONDS = 0.002
"""The approximate cost of a TLS handshake: it runs in callbacks whose time is not measured."""
_ACCEPT_PAUSE = 0.5
_SHUTDOWN_SECONDS = 5.0
_BACKLOG = 1024


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free port."""
    ipv6 = ":" in host
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=ipv6)
    listener.setblocking(False)
    return listener


def tls_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context: 1.2 and newer; clients may present a certificate, which `client_ca` must have signed.

    Use `load_cert_chain` on the returned context to switch to a renewed certificate; open connections continue.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # No resumption: every handshake presents its certificate.
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def shrink_tls_buffers(size: int = TLS_BUFFER) -> None:
    """Make all TLS connections of this process read through a buffer of `size` bytes.

    asyncio gives each one 256 KiB, zeroed and so resident, and allocates as much again for each read: 128 MB for 500
    watchers that send nothing. A TLS record holds at most 16 KiB, so a buffer of that size loses little. asyncio has no
    parameter for it; the class attribute is the same in every version from 3.11 on.
    """
    sslproto.SSLProtocol.max_size = size


class Server:
    """Serves an ASGI application on one listening socket."""

    def __init__(
        self,
        app: Application,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        *,
        limits: Limits | None = None,
        turns: Turns,
    ) -> None:
        """`turns` are the application's: new connections wait for their turn as requests do, by address.

        Without `tls` the server speaks plain HTTP.
        """
        self._turns = turns
        self._listener = listener
        self._tls = tls
        self._limits = limits or Limits()
        self._config = Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._state = ServerState()
        self._clients: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port it listens on."""
        number: int = self._listener.getsockname()[1]
        return number

    @property
    def connections(self) -> int:
        """How many connections there are, including those in a handshake."""
        return self._clients.total()

    async def serve(self) -> None:
        """Serve until cancelled, then stop gracefully."""
        shrink_tls_buffers()
        self._config.load()
        self._tick()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep())
                await self._accept(tasks)
        finally:
            self._listener.close()
            await self._stop()

    async def _accept(self, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # Most likely out of descriptors: existing connections continue, and some will end.
                log.error("cannot accept connections: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            client = address[0] if isinstance(address, tuple) else ""
            if (
                self.connections >= self._limits.connections
                or self._clients[client] >= self._limits.connections_per_client
            ):
                sock.close()
                continue
            self._clients[client] += 1
            tasks.create_task(self._handshake(sock, client))

    async def _handshake(self, sock: socket.socket, client: str) -> None:
        loop = asyncio.get_running_loop()
        connected = False

        def made() -> Protocol:
            return Protocol(self._config, self._state, limits=self._limits, on_end=lambda: self._left(client))

        try:
            flow = self._turns.flow(("handshake", client))
            flow.used += _HANDSHAKE_SECONDS
            await self._turns.take(flow)
            if self._tls is None:
                await loop.connect_accepted_socket(made, sock)
            else:
                await loop.connect_accepted_socket(
                    made,
                    sock,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._limits.handshake_seconds,
                    ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
                )
            connected = True
        except OSError as error:  # ssl.SSLError and time-outs are OSErrors too.
            log.debug("TLS handshake with %s failed: %s", client, error)
        finally:
            if not connected:
                self._left(client)
                sock.close()

    def _left(self, client: str) -> None:
        self._clients[client] -= 1
        if self._clients[client] <= 0:
            del self._clients[client]

    async def _sweep(self) -> None:
        """Once a second, close the connections that missed a deadline."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._tick()
            now = loop.time()
            for connection in list(self._connections()):
                if connection.overdue(now):
                    connection.abort()

    def _tick(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    def _connections(self) -> list[Protocol]:
        return [connection for connection in self._state.connections if isinstance(connection, Protocol)]

    async def _stop(self) -> None:
        """Close idle connections and watches, give other requests some seconds, then close them too."""
        for connection in self._connections():
            connection.shutdown()
        tasks: set[asyncio.Task[Any]] = set(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._limits.grace_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=self._limits.grace_seconds)
        for connection in self._connections():
            connection.abort()
