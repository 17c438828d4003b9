"""A small HTTP/1.1 client for the two stores that are other programs' servers.  `http1.py` has the connection.

The client does what these stores need and no more: a bounded pool of kept-alive connections to one server, TLS with
client certificates, whole answers within a time and a size, and streams (a watch) that are read as they arrive. HEAD,
redirects, cookies, proxies and compression are left out.

Errors are classified by what the caller may do next: `Refused`, no server took the request, so it may be sent to
another server; `Unreachable` and `TimedOut`, it is unknown whether the server acted.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable
from netloom.store.http.http1 import Connection, Head, Meter

_CRLF = "\r\n"


class Refused(Unreachable):
    """No server took the request: it has certainly not been acted on."""


class Response(Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def tls_context(
    *, ca: bytes = b"", certificate: bytes = b"", key: bytes = b"", insecure: bool = False
) -> ssl.SSLContext:
    """Return a client's TLS context; all arguments are PEM.  Without `ca`, the system's authorities are trusted."""
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
        if ca:
            # Since Python 3.13 certificates without an Authority Key Identifier are refused. Those of private
            # authorities, made with openssl's defaults, often have none, and trust does not depend on it.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise BadRequest(f"the certificates cannot be used: {error}") from error
    if certificate:
        load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a client certificate (PEM) for connections from now on."""
    # OpenSSL wants a file. One in memory leaves no private key on a disk.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise BadRequest(f"the certificates cannot be used: {error}") from error
    finally:
        os.close(descriptor)


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keep-alive: a watch may be silent for long, and only the kernel then notices a lost peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Login(Protocol):
    """Credentials that expire and are replaced while the program runs."""

    generation: int
    """The number of the current credential; each new one has the next number."""

    async def refresh(self) -> None:
        """Get a new credential if there is none or it has expired."""

    def refused(self, generation: int) -> bool:
        """Record that the server refused a credential; return whether there is, or may be, another."""


class Stream:
    """An answer that is read as it arrives.  Closing it drops its connection."""

    def __init__(self, connection: Connection, status: int, release: Callable[[], None]) -> None:
        self.status = status
        self._connection = connection
        self._release = release
        self._closed = False

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the orderly end; `Unreachable` when the connection is lost."""
        try:
            return await self._connection.read()
        except ConnectionError as error:
            raise Unreachable(f"the connection was lost: {error}") from error

    async def read_all(self, limit: int) -> bytes:
        """Return the rest of the body, at most `limit` bytes."""
        parts, size = [], 0
        while part := await self.read():
            size += len(part)
            if size > limit:
                raise TooLarge(f"the answer has more than {limit} bytes")
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Stop reading.  Idempotent."""
        if not self._closed:
            self._closed = True
            self._connection.abort()
            self._release()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Duplex:
    """A request and its answer that both last: parts are sent at once, and the answer is read as it arrives."""

    def __init__(self, connection: Connection, status: int, release: Callable[[], None]) -> None:
        self.status = status
        self._stream = Stream(connection, status, release)
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Send a part of the request; a part that cannot be sent shows as an error or the end in `read`."""
        self._connection.send_chunk(data)

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the orderly end; `Unreachable` when the connection is lost."""
        return await self._stream.read()

    def close(self) -> None:
        """Stop sending and reading.  Idempotent."""
        self._stream.close()


class Client:
    """All connections to one server."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        headers: Callable[[], Mapping[str, str]] = dict,
        login: Login | None = None,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        connections: int = 64,
        max_body: int = 512 << 20,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequest(f"{url!r} is not an http:// or https:// address")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._tls = (tls or tls_context()) if parts.scheme == "https" else None
        self._server_name = server_name or self._host
        self._headers = headers
        self._login = login
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._max_body = max_body
        self._idle: deque[Connection] = deque()
        self._streams: dict[Stream | Duplex, None] = {}
        # Bounds the requests under way. Streams last, and the number of watches bounds them.
        self._slots = asyncio.Semaphore(connections)
        self._closed = False
        self.meter = Meter()

    async def request(self, method: str, path: str, *, body: bytes = b"", content_type: str = "") -> Response:
        """Send a request and return the whole answer."""
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                return await self._exchange(method, path, body, content_type)
        except TimeoutError as error:
            raise TimedOut(f"{self._authority} did not answer within {self._timeout:g} s") from error

    async def stream(self, method: str, path: str, *, body: bytes = b"", content_type: str = "") -> Stream:
        """Send a request and return its answer as a stream, once its headers are there."""
        try:
            async with asyncio.timeout(self._timeout):
                connection, head = await self._opened(method, path, body, content_type)
        except TimeoutError as error:
            raise TimedOut(f"{self._authority} did not answer within {self._timeout:g} s") from error
        stream = Stream(connection, head.status, lambda: self._streams.pop(stream, None))
        self._streams[stream] = None
        return stream

    async def duplex(self, method: str, path: str) -> Duplex:
        """Send the head of a request whose body follows in parts; return both once the answer begins."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection, head = await self._opened(method, path, None, "application/json")
        except TimeoutError as error:
            raise TimedOut(f"{self._authority} did not answer within {self._connect_timeout:g} s") from error
        made = Duplex(connection, head.status, lambda: self._streams.pop(made, None))
        self._streams[made] = None
        return made

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        while self._idle:
            await self._idle.pop().close()

    async def _exchange(self, method: str, path: str, body: bytes, content_type: str) -> Response:
        connection, head = await self._opened(method, path, body, content_type, reuse=True)
        try:
            data = await Stream(connection, head.status, _nothing).read_all(self._max_body)
        except BaseException:
            connection.abort()
            raise
        if self._closed or not connection.renew():
            connection.abort()
        else:
            self._idle.append(connection)
        self._prune()
        return Response(head.status, {k.decode("latin-1"): v.decode("latin-1") for k, v in head.headers}, data)

    async def _opened(
        self, method: str, path: str, body: bytes | None, content_type: str, *, reuse: bool = False
    ) -> tuple[Connection, Head]:
        """Send a request and return the head of its answer; replace a credential that is refused, once."""
        if self._login is None:
            return await self._attempt(method, path, body, content_type, reuse=reuse)
        await self._login.refresh()
        generation = self._login.generation
        connection, head = await self._attempt(method, path, body, content_type, reuse=reuse)
        if head.status == 401 and self._login.refused(generation):
            # A request that was not authenticated has not been acted on.
            connection.abort()
            await self._login.refresh()
            connection, head = await self._attempt(method, path, body, content_type, reuse=False)
        return connection, head

    async def _attempt(
        self, method: str, path: str, body: bytes | None, content_type: str, *, reuse: bool
    ) -> tuple[Connection, Head]:
        connection = (self._reusable() if reuse else None) or await self._connect()
        try:
            try:
                return connection, await self._begin(connection, method, path, body, content_type)
            except Unreachable:
                # The server may have closed a kept connection during the write. A GET is safe to repeat.
                if method != "GET" or not connection.used:
                    raise
            connection.abort()
            connection = await self._connect()
            return connection, await self._begin(connection, method, path, body, content_type)
        except BaseException:
            connection.abort()
            raise

    def _generation(self) -> int:
        return self._login.generation if self._login is not None else 0

    def _reusable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.stale and connection.generation == self._generation():
                return connection
            connection.abort()
        return None

    def _prune(self) -> None:
        """Drop connections that were idle for too long: those of a burst would otherwise be kept for ever."""
        while self._idle and self._idle[0].stale:
            self._idle.popleft().abort()

    async def _connect(self) -> Connection:
        if self._closed:
            raise Unreachable("the client is closed")
        generation = self._generation()
        try:
            async with asyncio.timeout(self._connect_timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self.meter, generation),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls else None,
                )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError.
            raise Refused(f"cannot connect to {self._authority}: {str(error) or 'timed out'}") from error
        keep_alive(transport.get_extra_info("socket"))
        return connection

    async def _begin(
        self, connection: Connection, method: str, path: str, body: bytes | None, content_type: str
    ) -> Head:
        """Send the request and return the head of the answer.  `body` None: it follows in chunks."""
        lines = [f"Host: {self._authority}", "Accept: application/json"]
        lines += [f"{name}: {value}" for name, value in self._headers().items()]
        if body:
            lines.append(f"Content-Type: {content_type or 'application/json'}")
        lines.append("Transfer-Encoding: chunked" if body is None else f"Content-Length: {len(body)}")
        target = self._prefix + path
        text = f"{method} {target} HTTP/1.1\r\n{_CRLF.join(lines)}\r\n\r\n"
        if " " in target or not text.isascii() or not (target.isprintable() and all(map(str.isprintable, lines))):
            raise BadRequest("the path or a header of the request has characters that HTTP does not allow there")
        try:
            await connection.send(text.encode("ascii") + (body or b""))
            return await connection.head()
        except ConnectionError as error:
            raise Unreachable(f"{self._authority}: {error}") from error


def _nothing() -> None:
    pass
