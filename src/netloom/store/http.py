"""A small HTTP/1.1 client on asyncio streams and h11, for the two stores that are somebody else's server.

It does what they need and no more: a bounded pool of kept-alive connections to one server, TLS with client
certificates, whole answers within a time and a size, and streams (a watch) that are read as they come. Redirects,
cookies, proxies and compression are left out.

What goes wrong is told apart by what the caller may do about it: `Refused`, nobody took the request, so it may be sent
to another server; `Unreachable` and `TimedOut`, it is unknown whether the other side acted.
"""

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable

Headers = list[tuple[str, str]]

_MAX_HEADERS = 64 << 10
_READ = 256 << 10
_IDLE_SECONDS = 20.0
"""How long a connection is kept for the next request: less than servers keep theirs, so that we are the first to go."""


class Refused(Unreachable):
    """Nobody took the request: it has certainly not been acted on."""


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
            # authorities, made with openssl's defaults, often have none, and whom we trust does not depend on it.
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
    """Let the kernel find out whether the other side is still there: a watch may be silent for long."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Login(Protocol):
    """Credentials that end and are replaced while we run."""

    generation: int
    """Counts them."""

    async def refresh(self) -> None:
        """Get a new one if there is none or it has expired."""

    def refused(self, generation: int) -> bool:
        """Note that the server refused one; return whether there is, or may be, another."""


class Meter:
    """What came over all connections of a client, in bytes, as they are within TLS."""

    __slots__ = ("received",)

    def __init__(self) -> None:
        self.received = 0


class _Connection:
    """One connection and where its dialogue stands."""

    __slots__ = ("generation", "h11", "idle_since", "meter", "reader", "used", "writer")

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meter: "Meter", generation: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.meter = meter
        self.generation = generation
        """Of the login whose client certificate it was opened with."""
        self.h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEADERS)
        self.idle_since = 0.0
        self.used = False

    @property
    def stale(self) -> bool:
        return self.writer.is_closing() or self.reader.at_eof() or time.monotonic() - self.idle_since > _IDLE_SECONDS

    async def send(self, events: Iterable[h11.Event]) -> None:
        for event in events:
            if data := self.h11.send(event):
                self.writer.write(data)
        await self.writer.drain()

    async def next_event(self) -> h11.Event:
        while True:
            event = self.h11.next_event()
            if event is h11.NEED_DATA:
                data = await self.reader.read(_READ)
                self.meter.received += len(data)
                self.h11.receive_data(data)
                continue
            assert isinstance(event, h11.Event)
            return event

    def ready_again(self) -> bool:
        """Get ready for another request, if that is possible."""
        if self.h11.our_state is not h11.DONE or self.h11.their_state is not h11.DONE:
            return False
        self.h11.start_next_cycle()
        self.used = True
        self.idle_since = time.monotonic()
        return True

    def abort(self) -> None:
        # Python 3.11.2, Debian 12's, forgets that it has closed a TLS connection twice, and trips over it.
        with suppress(AttributeError):
            self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


class Stream:
    """An answer that is read as it comes.  Ends its connection when it is closed."""

    def __init__(self, connection: _Connection, status: int, release: Callable[[], None]) -> None:
        self.status = status
        self._connection = connection
        self._release = release
        self._closed = False

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the orderly end; `Unreachable` when the connection is lost."""
        try:
            while True:
                event = await self._connection.next_event()
                if isinstance(event, h11.Data):
                    return bytes(event.data)
                if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return b""
        except (OSError, h11.ProtocolError) as error:
            raise Unreachable(f"the connection was lost: {error}") from error

    async def read_all(self, limit: int) -> bytes:
        """Return what is left, at most `limit` bytes."""
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
    """A request and its answer that both last: what is sent is sent at once, what comes is read as it comes."""

    def __init__(self, connection: _Connection, status: int, release: Callable[[], None]) -> None:
        self.status = status
        self._stream = Stream(connection, status, release)
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Send a part of the request; what cannot be sent is noticed by who reads."""
        with suppress(h11.LocalProtocolError):  # The answer is over: nobody listens any more.
            self._connection.writer.write(self._connection.h11.send(h11.Data(data=data)) or b"")

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the orderly end; `Unreachable` when the connection is lost."""
        return await self._stream.read()

    def close(self) -> None:
        """End it.  Idempotent."""
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
        self._idle: deque[_Connection] = deque()
        self._streams: dict[Stream | Duplex, None] = {}
        # Streams last and are bounded by whoever watches; what is bounded here is how many requests are under way.
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
        """Send a request and return its answer as a stream, once the headers are there."""
        try:
            async with asyncio.timeout(self._timeout):
                connection, head = await self._opened(method, path, body, content_type)
        except TimeoutError as error:
            raise TimedOut(f"{self._authority} did not answer within {self._timeout:g} s") from error
        stream = Stream(connection, head.status_code, lambda: self._streams.pop(stream, None))
        self._streams[stream] = None
        return stream

    async def duplex(self, method: str, path: str) -> Duplex:
        """Send the head of a request whose body is yet to come, and return both once there is an answer."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection, head = await self._opened(method, path, None, "application/json")
        except TimeoutError as error:
            raise TimedOut(f"{self._authority} did not answer within {self._connect_timeout:g} s") from error
        made = Duplex(connection, head.status_code, lambda: self._streams.pop(made, None))
        self._streams[made] = None
        return made

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        while self._idle:
            await self._idle.pop().close()

    async def _exchange(self, method: str, path: str, body: bytes, content_type: str) -> Response:
        connection, head = await self._opened(method, path, body, content_type, reuse=True)
        try:
            data = await Stream(connection, head.status_code, lambda: None).read_all(self._max_body)
        except BaseException:
            connection.abort()
            raise
        if self._closed or not connection.ready_again():
            connection.abort()
        else:
            self._idle.append(connection)
        self._prune()
        return Response(head.status_code, {k.decode().lower(): v.decode("latin-1") for k, v in head.headers}, data)

    async def _opened(
        self, method: str, path: str, body: bytes | None, content_type: str, *, reuse: bool = False
    ) -> tuple[_Connection, h11.Response]:
        """Send a request and return the head of its answer; a login that is refused is replaced, once."""
        if self._login is None:
            return await self._attempt(method, path, body, content_type, reuse=reuse)
        await self._login.refresh()
        generation = self._login.generation
        connection, head = await self._attempt(method, path, body, content_type, reuse=reuse)
        if head.status_code == 401 and self._login.refused(generation):
            # Who is not known has done nothing yet.
            connection.abort()
            await self._login.refresh()
            connection, head = await self._attempt(method, path, body, content_type, reuse=False)
        return connection, head

    async def _attempt(
        self, method: str, path: str, body: bytes | None, content_type: str, *, reuse: bool
    ) -> tuple[_Connection, h11.Response]:
        connection = (self._reusable() if reuse else None) or await self._connect()
        try:
            try:
                return connection, await self._begin(connection, method, path, body, content_type)
            except Unreachable:
                # The server may have closed a kept connection while we were writing. Reading again harms nobody.
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

    def _reusable(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.stale and connection.generation == self._generation():
                return connection
            connection.abort()
        return None

    def _prune(self) -> None:
        """End what has been idle for too long: a burst's connections would otherwise be kept as long as we live."""
        while self._idle and self._idle[0].stale:
            self._idle.popleft().abort()

    async def _connect(self) -> _Connection:
        if self._closed:
            raise Unreachable("the client is closed")
        generation = self._generation()
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls else None,
                    limit=_READ,
                )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError.
            raise Refused(f"cannot connect to {self._authority}: {str(error) or 'timed out'}") from error
        keep_alive(writer.get_extra_info("socket"))
        return _Connection(reader, writer, self.meter, generation)

    async def _begin(
        self, connection: _Connection, method: str, path: str, body: bytes | None, content_type: str
    ) -> h11.Response:
        """Send the request and return the head of the answer.  None: the body comes later, in parts."""
        headers: Headers = [("Host", self._authority), ("Accept", "application/json"), *self._headers().items()]
        if body:
            headers += [("Content-Type", content_type or "application/json")]
        length = ("Transfer-Encoding", "chunked") if body is None else ("Content-Length", str(len(body)))
        request = h11.Request(method=method, target=self._prefix + path, headers=[*headers, length])
        rest = () if body is None else (h11.Data(data=body), h11.EndOfMessage())
        try:
            await connection.send([request, *rest])
            while True:
                event = await connection.next_event()
                if isinstance(event, h11.Response):
                    return event
                if isinstance(event, h11.ConnectionClosed):
                    raise Unreachable(f"{self._authority} closed the connection without an answer")
        except (OSError, h11.ProtocolError) as error:
            raise Unreachable(f"{self._authority}: {error}") from error
