"""gRPC calls to one server: unary, or with a stream of answers.

All calls share one connection, made when it is needed and made again when it is lost. A server may allow few streams on
a connection, and a stream of messages keeps one for as long as it lasts; so these have connections of their own,
another one when the last is full, and never delay unary calls.

Errors are classified as in `client.py`: `Refused`, no server took the call; `Unreachable` and `TimedOut`, it is unknown
whether the server acted; `CallFailed`, the server answered with an error.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from urllib.parse import unquote

from netloom.errors import TimedOut, TooLarge, Unreachable
from netloom.store.http.connect import Server
from netloom.store.http.hpack import Header, encode
from netloom.store.http.http2 import Connection, Pool, Stream

AT_ONCE = 512
"""Calls under way at the same time; others wait."""


class CallFailed(Exception):
    """The server answered with an error: gRPC's code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Channel:
    """A server that speaks gRPC."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        max_message: int = 512 << 20,
        keepalive: float = 10.0,
        metadata: Sequence[Header] = (),
    ) -> None:
        self._server = Server(url, tls=tls, alpn=["h2"], timeout=connect_timeout)
        self._timeout = timeout
        self._max_message = max_message
        self._keepalive = keepalive
        self._metadata = metadata
        """Headers of every call."""
        self._headers: dict[str, bytes] = {}
        self._for_calls = Pool(self._connect)
        self._for_streams = Pool(self._connect)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._closed = False

    async def unary(self, method: str, message: bytes) -> bytes:
        """Send a message and return the one that answers it."""
        call = _Unary(self._max_message)
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                connection = await self._for_calls.take(full=True)
                assert connection is not None
                stream = connection.begin(call, self._head(method), _framed(message))
                try:
                    return await call.result
                finally:
                    connection.cancel(stream)  # If it has not ended: it timed out, or the answer is too large.
        except TimeoutError as error:
            raise TimedOut(f"{self._server.authority} did not answer within {self._timeout:g} s") from error

    async def stream(self, method: str, message: bytes) -> "Messages":
        """Send a message and return the stream of those that answer it."""
        connection = await self._for_streams.take()
        assert connection is not None
        messages = Messages(connection, self._max_message)
        messages.stream = connection.begin(messages, self._head(method), _framed(message), last=False)
        return messages

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._for_calls.close()
        await self._for_streams.close()

    def _head(self, method: str) -> bytes:
        if method not in self._headers:
            headers: list[Header] = [
                (":method", "POST"),
                (":scheme", self._server.scheme),
                (":path", method),
                (":authority", self._server.authority),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                *self._metadata,
            ]
            self._headers[method] = encode(headers)
        return self._headers[method]

    async def _connect(self) -> Connection:
        if self._closed:
            raise Unreachable("the client is closed")
        return await self._server.connect(lambda: Connection(keepalive=self._keepalive))


class _Reader:
    """Parser of an answer: its bytes become messages, its trailers a status."""

    __slots__ = ("_have", "_limit", "_need", "_parts", "_status", "_words")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 5
        self._status: int | None = None
        self._words = ""

    def on_headers(self, headers: list[Header]) -> None:
        """Record the status of the call."""
        for name, value in headers:
            if name == "grpc-status" and value.isdigit():
                self._status = int(value)
            elif name == "grpc-message":
                self._words = unquote(value)
            elif name == ":status" and value != "200":
                self._words = f"the server answered {value}"

    def messages(self, data: bytes) -> list[bytes]:
        """Return the complete messages.  A large one arrives in many parts, which are joined once."""
        self._parts.append(data)
        self._have += len(data)
        found: list[bytes] = []
        if self._have < self._need:
            return found
        data, at = b"".join(self._parts), 0
        while True:
            self._need = 5
            if len(data) - at < 5:
                break
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            if length > self._limit:
                raise TooLarge(f"the answer has more than {self._limit} bytes")
            if data[at]:
                raise Unreachable("the answer is compressed, which was not asked for")
            self._need = 5 + length
            if len(data) - at < self._need:
                break
            found.append(data[at + 5 : at + self._need])
            at += self._need
        self._parts = [data[at:]]
        self._have = len(data) - at
        return found

    def failure(self) -> Exception | None:
        """Return why the call failed, if it did; a call without a status was cut off."""
        if self._status is None:
            return Unreachable(self._words or "the answer ended early")
        return CallFailed(self._status, self._words) if self._status else None


class _Unary:
    """A call that is answered by one message."""

    __slots__ = ("_message", "_reader", "on_headers", "result")

    def __init__(self, limit: int) -> None:
        self.result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._message: bytes | None = None
        self._reader = _Reader(limit)
        self.on_headers = self._reader.on_headers

    def on_data(self, data: bytes) -> None:
        try:
            for message in self._reader.messages(data):
                self._message = message
        except (TooLarge, Unreachable) as error:
            self._settle(error)

    def on_end(self, error: Exception | None) -> None:
        error = error or self._reader.failure()
        if error is None and self._message is None:
            error = Unreachable("the answer is empty")
        self._settle(error)

    def _settle(self, error: Exception | None) -> None:
        if self.result.done():
            return
        if error is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(self._message or b"")


class Messages:
    """The messages that answer a call, as they arrive.  At most `limit` bytes of them wait to be read."""

    def __init__(self, connection: Connection, limit: int) -> None:
        self.stream: Stream | None = None
        self._connection = connection
        self._reader = _Reader(limit)
        self._limit = limit
        self._ready: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._wake: asyncio.Future[None] | None = None
        self.on_headers = self._reader.on_headers

    async def next(self) -> bytes:
        """Wait for the next message; raise the error that ended the call."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        message = self._ready.popleft()
        self._size -= len(message)
        return message

    def close(self) -> None:
        """Stop.  Idempotent."""
        if self.stream is not None:
            self._connection.cancel(self.stream)
        self.on_end(Unreachable("the call was cancelled"))

    def on_data(self, data: bytes) -> None:
        """Queue the messages that arrived."""
        try:
            found = self._reader.messages(data)
            self._size += sum(map(len, found))
            if self._size > self._limit:
                raise TooLarge(f"more than {self._limit} bytes wait to be read")
        except (TooLarge, Unreachable) as error:
            if self.stream is not None:
                self._connection.cancel(self.stream)
            self.on_end(error)
            return
        self._ready += found
        self._notify()

    def on_end(self, error: Exception | None) -> None:
        """End the stream of messages."""
        if self._error is None:
            self._error = error or self._reader.failure() or Unreachable("the server ended the call")
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message
