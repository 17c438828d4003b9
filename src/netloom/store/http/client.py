"""A small HTTP client for servers of the Kubernetes API: whole answers, and streams (a watch) read as they arrive.

Over TLS the server chooses HTTP/2 or HTTP/1.1 (ALPN). With HTTP/2, as kube-apiserver speaks it, requests and streams
share a connection, and another is made when the server allows no more streams on it. With HTTP/1.1 there is a bounded
pool of kept-alive connections, and each stream has a connection of its own. `http2.py` and `http1.py` have the
connections. HEAD, redirects, cookies, proxies and compression are left out.

Errors are classified by what the caller may do next: `Refused`, no server took the request, so it may be sent to
another server; `Unreachable` and `TimedOut`, it is unknown whether the server acted.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from netloom.errors import BadRequest, TimedOut, TooLarge, Unreachable
from netloom.store.http import http1, http2
from netloom.store.http.connect import Meter, Opening, Refused, Server
from netloom.store.http.hpack import Header, encode
from netloom.store.http.http1 import Answer, Head

S = TypeVar("S", bound="Stream")
_CRLF = "\r\n"
WINDOW = 1 << 20
"""How many bytes of one answer an HTTP/2 server may send before they are read."""
KEEPALIVE = 15.0
"""Seconds of silence before an HTTP/2 server is asked for a sign of life: with its answer, 30 as for TCP keep-alive."""


class Response(Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Login(Protocol):
    """Credentials that expire and are replaced while the program runs."""

    generation: int
    """The number of the current credential; each new one has the next number."""

    async def refresh(self) -> None:
        """Get a new credential if there is none or it has expired."""

    def refused(self, generation: int) -> bool:
        """Record that the server refused a credential; return whether there is, or may be, another."""


class Exchange(Answer):
    """One request and its answer on an HTTP/2 connection; it is read as an `http1.Connection` is."""

    __slots__ = ("_connection", "_stream")

    def __init__(self, connection: http2.Connection) -> None:
        super().__init__()
        self.used = connection.used
        self._connection = connection
        self._stream: http2.Stream | None = None

    def begin(self, headers: list[Header], body: bytes) -> None:
        """Send the request."""
        self._stream = self._connection.begin(self, encode(headers), body, paced=True)

    def _on_read(self) -> None:
        if self._stream is not None:
            self._connection.acknowledge(self._stream)

    def abort(self) -> None:
        """Reset the stream; the connection stays."""
        if self._stream is not None:
            self._connection.cancel(self._stream)
        self.on_end(Unreachable("the request was cancelled by the client"))

    def on_headers(self, headers: list[Header]) -> None:
        """Take the head of the answer; those of informational answers, and trailers, are dropped."""
        fields = dict(headers)
        status = fields.get(":status", "")
        if self._head is not None or status.startswith("1"):
            return
        if len(status) != 3 or not status.isdecimal():
            raise Unreachable("an answer has no status")
        self._connection.used = True
        self._head = Head(int(status), fields)
        self._wake()

    def on_data(self, data: bytes) -> None:
        """Keep a part of the body; an empty one is not the end."""
        if data:
            self._parts.append(data)
            self._wake()

    def on_end(self, error: Exception | None) -> None:
        """End the answer."""
        if self._ended or self._error is not None:
            return
        if error is None and self._head is None:
            error = Unreachable("the answer ended before it began")
        self._ended, self._error = error is None, error
        self._wake()


class _Negotiation(Opening):
    """A connection whose protocol the server chooses in the TLS handshake (ALPN)."""

    chosen: http1.Connection | http2.Connection

    def __init__(self, meter: Meter, generation: int) -> None:
        self._meter = meter
        self._generation = generation

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Continue with the protocol that was chosen."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self.chosen = http2.Connection(keepalive=KEEPALIVE, window=WINDOW, meter=self._meter)
        else:
            self.chosen = http1.Connection(self._meter, self._generation)
        transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)

    async def ready(self) -> None:
        """Wait until requests can be sent."""
        if isinstance(self.chosen, http2.Connection):
            await self.chosen.ready()

    def abort(self) -> None:
        """Drop the connection."""
        self.chosen.abort()


class Stream:
    """An answer that is read as it arrives.  Closing it drops its connection, or resets its stream of HTTP/2."""

    def __init__(self, connection: http1.Connection | Exchange, status: int, release: Callable[[], None]) -> None:
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


class Duplex(Stream):
    """A request and its answer that both last: parts are sent at once, and the answer is read as it arrives."""

    def send(self, data: bytes) -> None:
        """Send a part of the request; a part that cannot be sent shows as an error or the end in `read`."""
        if isinstance(self._connection, http1.Connection):
            self._connection.send_chunk(data)


class Client:
    """All connections to one server.  A TLS context that is passed is set to offer HTTP/2 and HTTP/1.1."""

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
        self._server = Server(url, tls=tls, alpn=["h2", "http/1.1"], name=server_name, timeout=connect_timeout)
        self.multiplexed = self._server.tls is not None
        """Whether the server speaks HTTP/2, as far as is known: without TLS it does not."""
        self._headers = headers
        self._login = login
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._max_body = max_body
        self._idle: deque[http1.Connection] = deque()
        self._pool = http2.Pool(self._negotiate)
        self._pool_generation = 0
        """The login whose client certificate the connections of the pool were opened with."""
        self._streams: dict[Stream, None] = {}
        # Bounds the requests under way. Streams last, and the number of watches bounds them.
        self._slots = asyncio.Semaphore(connections)
        self._closed = False
        self.meter = Meter()

    async def request(self, method: str, path: str, *, body: bytes = b"") -> Response:
        """Send a request and return the whole answer."""
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                return await self._exchange(method, path, body)
        except TimeoutError as error:
            raise TimedOut(f"{self._server.authority} did not answer within {self._timeout:g} s") from error

    async def stream(self, method: str, path: str) -> Stream:
        """Send a request and return its answer as a stream, once its headers are there."""
        return await self._streamed(Stream, method, path, b"", self._timeout)

    async def duplex(self, method: str, path: str) -> Duplex:
        """Send the head of a request whose body follows in parts; return both once the answer begins."""
        return await self._streamed(Duplex, method, path, None, self._connect_timeout)

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        while self._idle:
            await self._idle.pop().close()
        await self._pool.close()

    async def _streamed(self, kind: type[S], method: str, path: str, body: bytes | None, seconds: float) -> S:
        try:
            async with asyncio.timeout(seconds):
                connection, head = await self._opened(method, path, body)
        except TimeoutError as error:
            raise TimedOut(f"{self._server.authority} did not answer within {seconds:g} s") from error
        stream = kind(connection, head.status, lambda: self._streams.pop(stream, None))
        self._streams[stream] = None
        return stream

    async def _exchange(self, method: str, path: str, body: bytes) -> Response:
        connection, head = await self._opened(method, path, body, reuse=True)
        try:
            data = await Stream(connection, head.status, lambda: None).read_all(self._max_body)
        except BaseException:
            connection.abort()
            raise
        if isinstance(connection, http1.Connection):
            if self._closed or not connection.renew():
                connection.abort()
            else:
                self._idle.append(connection)
            self._prune()
        return Response(head.status, head.headers, data)

    async def _opened(
        self, method: str, path: str, body: bytes | None, *, reuse: bool = False
    ) -> tuple[http1.Connection | Exchange, Head]:
        """Send a request and return the head of its answer; replace a credential that is refused, once."""
        if self._login is None:
            return await self._attempt(method, path, body, reuse=reuse)
        await self._login.refresh()
        generation = self._login.generation
        connection, head = await self._attempt(method, path, body, reuse=reuse)
        if head.status == 401 and self._login.refused(generation):
            # A request that was not authenticated has not been acted on.
            connection.abort()
            await self._login.refresh()
            connection, head = await self._attempt(method, path, body, reuse=False)
        return connection, head

    async def _attempt(
        self, method: str, path: str, body: bytes | None, *, reuse: bool
    ) -> tuple[http1.Connection | Exchange, Head]:
        """Send a request; send it again, once, if the server certainly did not act on it or it is safe to repeat."""
        again = False
        while True:
            connection = await self._take(reuse=reuse and not again)
            exchange = connection if isinstance(connection, http1.Connection) else Exchange(connection)
            try:
                return exchange, await self._begin(exchange, method, path, body)
            except BaseException as error:
                exchange.abort()
                # The server may have closed a kept connection during the write. A GET is safe to repeat.
                lost = isinstance(error, Unreachable) and exchange.used and method == "GET"
                if again or not (lost or isinstance(error, Refused)):
                    raise
            again = True

    async def _take(self, *, reuse: bool) -> http1.Connection | http2.Connection:
        """Return a connection for one request; with `reuse`, it may be a kept one of HTTP/1.1."""
        if self._closed:
            raise Unreachable("the client is closed")
        if self._pool_generation != self._generation():
            self._pool_generation = self._generation()
            self._pool.retire()
        shared = await self._pool.take() if self.multiplexed else None
        return shared or self._reusable(reuse=reuse) or await self._connect()

    async def _negotiate(self) -> http2.Connection | None:
        """Connect for all requests that wait; keep the connection if the server chose HTTP/1.1."""
        connection = await self._connect()
        if isinstance(connection, http2.Connection):
            return connection
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        return None

    async def _connect(self) -> http1.Connection | http2.Connection:
        generation = self._generation()
        made = await self._server.connect(lambda: _Negotiation(self.meter, generation))
        self.multiplexed = isinstance(made.chosen, http2.Connection)
        return made.chosen

    def _generation(self) -> int:
        return self._login.generation if self._login is not None else 0

    def _reusable(self, *, reuse: bool) -> http1.Connection | None:
        """Return an idle connection, or one that was made for this request among others."""
        while self._idle and (reuse or not self._idle[-1].used):
            connection = self._idle.pop()
            if not connection.stale and connection.generation == self._generation():
                return connection
            connection.abort()
        return None

    def _prune(self) -> None:
        """Drop connections that were idle for too long: those of a burst would otherwise be kept for ever."""
        while self._idle and self._idle[0].stale:
            self._idle.popleft().abort()

    async def _begin(self, exchange: http1.Connection | Exchange, method: str, path: str, body: bytes | None) -> Head:
        """Send the request and return the head of the answer.  `body` None: it follows in chunks."""
        target = self._server.path + path
        fields = [("accept", "application/json"), *((name.lower(), value) for name, value in self._headers().items())]
        if body:
            fields.append(("content-type", "application/json"))
        texts = [target, *(text for field in fields for text in field)]
        if " " in target or not all(text.isascii() and text.isprintable() for text in texts):
            raise BadRequest("the path or a header of the request has characters that HTTP does not allow there")
        try:
            if isinstance(exchange, http1.Connection):
                fields.append(("transfer-encoding", "chunked") if body is None else ("content-length", str(len(body))))
                lines = _CRLF.join(f"{name}: {value}" for name, value in (("host", self._server.authority), *fields))
                await exchange.send(f"{method} {target} HTTP/1.1\r\n{lines}\r\n\r\n".encode() + (body or b""))
            elif body is None:
                raise Unreachable("the server speaks HTTP/2 now, which needs no shared request for watches")
            else:
                pseudo = ((":method", method), (":scheme", self._server.scheme), (":authority", self._server.authority))
                exchange.begin([*pseudo, (":path", target), *fields], body)
            return await exchange.head()
        except ConnectionError as error:
            raise Unreachable(f"{self._server.authority}: {error}") from error
