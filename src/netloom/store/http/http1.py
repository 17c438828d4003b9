"""One HTTP/1.1 connection to a server, as an asyncio protocol around httptools.

Requests are written by the caller as bytes; answers are parsed as they arrive. At most one request is under way: the
caller writes it, awaits `head`, and then reads the body with `read` until it returns b"".

Memory is bounded. Reading from the socket pauses while more than `BUFFER` bytes of a body wait to be read. An answer
fails when `MAX_HEADERS` bytes of it arrive without completing the headers or yielding a part of the body: endless
headers, trailers and chunk extensions do that.

Bytes that arrive when no request is under way are never taken for an answer: the connection is dropped.
"""

import asyncio
import copy
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import NamedTuple

import httptools

from netloom.store.http.connect import Meter

MAX_HEADERS = 64 << 10
BUFFER = 256 << 10
IDLE_SECONDS = 20.0
"""How long a connection is kept for the next request: less than servers keep theirs, so the client closes first."""

_BODILESS = (204, 304)


class Head(NamedTuple):
    """The status and the headers of an answer."""

    status: int
    headers: dict[str, str]
    """By their names in lower case."""


class Answer(ABC):
    """An answer that is read as it arrives."""

    __slots__ = ("_ended", "_error", "_head", "_parts", "_waiter", "used")

    def __init__(self) -> None:
        self.used = False
        """Whether an earlier request was answered on this connection."""
        self._waiter: asyncio.Future[None] | None = None
        self._clear()

    def _clear(self) -> None:
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._ended = False
        self._error: Exception | None = None

    async def head(self) -> Head:
        """Return the head of the answer."""
        while self._head is None:
            await self._wait()
        return self._head

    async def read(self) -> bytes:
        """Return the next bytes of the body, b"" at its end."""
        while not self._parts:
            if self._ended:
                return b""
            await self._wait()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._on_read()
        return data

    @abstractmethod
    def _on_read(self) -> None:
        """Let the peer send more: all that arrived was read."""

    async def _wait(self) -> None:
        if self._error is not None:
            raise copy.copy(self._error)  # It may be that of several answers, and raising writes a traceback into it.
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Connection(Answer, asyncio.Protocol):
    """One connection, and the state of the answer that is being read.

    Methods raise `ConnectionError` when the connection is lost or what arrives is not HTTP.
    """

    __slots__ = (
        "_buffered", "_closed", "_drained", "_fields", "_is_lost", "_keep", "_meter", "_parser", "_paused",
        "_transport", "_unparsed", "_until_close", "generation", "idle_since",
    )  # fmt: skip

    def __init__(self, meter: Meter, generation: int) -> None:
        super().__init__()
        self.generation = generation
        """The login whose client certificate the connection was opened with."""
        self.idle_since = 0.0
        self._meter = meter
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._is_lost = False
        self._paused = False

    def _clear(self) -> None:
        super()._clear()
        self._fields: dict[str, str] = {}
        self._buffered = 0
        self._unparsed = 0
        """Bytes received since the headers were complete or a part of the body was found."""
        self._until_close = False
        """Whether the body has no length and ends with the connection."""
        self._keep = False

    # The caller's side.

    @property
    def transport(self) -> asyncio.Transport:
        """The connected transport."""
        assert self._transport is not None
        return self._transport

    @property
    def stale(self) -> bool:
        """Whether an idle connection is lost, has received something, or has been idle for too long."""
        lost = self.transport.is_closing() or bool(self._error)
        received = self._head is not None or self._unparsed > 0
        return lost or received or time.monotonic() - self.idle_since > IDLE_SECONDS

    async def send(self, data: bytes) -> None:
        """Write bytes of a request and wait until the transport's buffer has room again."""
        if not self._error:
            self.transport.write(data)
        if self._drained is not None:
            await self._drained

    def send_chunk(self, data: bytes) -> None:
        """Write one chunk of a chunked request; ignored when the answer is complete or the connection is lost."""
        if not self._ended and not self._error and not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _on_read(self) -> None:
        self._buffered = 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def renew(self) -> bool:
        """Prepare for another request; return whether the connection can carry one."""
        if not self._ended or not self._keep or self._error or self.transport.is_closing():
            return False
        self._clear()
        self.used = True
        self.idle_since = time.monotonic()
        return True

    def abort(self) -> None:
        """Drop the connection."""
        self._fail("the connection was closed by the client")

    async def close(self) -> None:
        """Close the connection and wait until it is closed."""
        if self._is_lost:
            return
        self._closed = asyncio.get_running_loop().create_future()
        self.transport.close()
        await self._closed

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        self._meter.received += len(data)
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"not an HTTP answer: {error}")
            return
        if self._unparsed > MAX_HEADERS:
            self._fail(f"more than {MAX_HEADERS} bytes of headers")
        elif self._buffered > BUFFER and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        """End a body that ends with the connection, or fail."""
        self._lost("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        self._is_lost = True
        self._lost(str(exc) if exc is not None else "the server closed the connection")
        self.resume_writing()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Block `send`."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Unblock `send`."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _lost(self, reason: str) -> None:
        if self._until_close and not self._error:
            self._ended = True
        self._error = self._error or ConnectionError(reason)
        self._wake()

    def _fail(self, reason: str) -> None:
        self._error = self._error or ConnectionError(reason)
        self._wake()
        # Python 3.11.2, Debian 12's, forgets that it has closed a TLS connection twice, and fails.
        with suppress(AttributeError):
            self.transport.abort()

    # The parser's side.

    def on_message_begin(self) -> None:
        """Refuse an answer to nothing; the parser reports the exception as an error of its own."""
        if self._ended:
            raise ConnectionError("an answer without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers, which follow the body, are dropped."""
        if self._head is None:
            self._fields[name.decode("latin-1").lower()] = value.rstrip().decode("latin-1")

    def on_headers_complete(self) -> None:
        """Publish the head of the answer; those of informational answers before it are dropped."""
        status = self._parser.get_status_code()
        if status < 200:
            self._fields = {}
            return
        self._head = Head(status, self._fields)
        self._unparsed = 0
        chunked = self._fields.get("transfer-encoding", "").lower().endswith("chunked")
        self._until_close = not chunked and "content-length" not in self._fields and status not in _BODILESS
        self._wake()

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._unparsed = 0
        self._parts.append(data)
        self._buffered += len(data)
        self._wake()

    def on_message_complete(self) -> None:
        """End the answer."""
        if self._head is not None:
            self._ended = True
            self._keep = bool(self._parser.should_keep_alive())
            self._wake()
