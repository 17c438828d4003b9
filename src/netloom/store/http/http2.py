"""HTTP/2 connections (RFC 9113), as clients of etcd and kube-apiserver need them: many streams, bounded both ways.

    request  HEADERS and DATA                            data of one iteration of the event loop is sent in one write
    answer   HEADERS, DATA, HEADERS (the trailers)       passed to the `Listener` as they arrive

Why not a library: with 64 concurrent writers, 10,000 puts to etcd cost this stack 0.55 s of CPU, grpcio 1.07 s and
grpclib 2.63 s. Pushes, priorities and padding of its own are left out: no store needs them.

Flow control, both ways: no more is sent than the peer's window allows, and received data is acknowledged. The window of
the connection is replenished as data arrives, so a stream that is not read never delays the others. That of a stream is
replenished as data arrives or, if the stream is `paced`, as its listener reads: the peer can make it keep one window of
data and no more. No more streams are open than the server allows (SETTINGS_MAX_CONCURRENT_STREAMS): the
others wait in order. Streams that are lost with the connection fail with `Unreachable`; those that were never sent, or
that the server says it has not processed, fail with `Refused` and may be sent again.

A peer that hangs keeps its TCP connection open and sends nothing. While streams are open, a connection that is silent
for `keepalive` seconds sends a PING, and is given up when nothing arrives for as long again.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from struct import Struct as Format
from typing import Protocol

from netloom.errors import Unreachable
from netloom.store.http.connect import Meter, Opening, Refused
from netloom.store.http.hpack import Decoder, Header, HpackError

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE_SIZE, PUSH, MAX_STREAMS, INITIAL_WINDOW = 1, 2, 3, 4
REFUSED_STREAM, CANCEL = 7, 8
FRAME = 16_384
"""The largest frame that is sent and accepted: HTTP/2's default."""
FIRST_WINDOW = 65_535
OUR_WINDOW = 1 << 24
"""The receive window of one stream, unless set otherwise; that of the connection is twice as large."""
_MOST_HEADERS = 64 << 10
_MOST_UNSENT = 16 << 20
"""Bytes that the peer has not read when it sends yet another frame that must be acknowledged."""
_LARGEST_WINDOW = (1 << 31) - 1
_SETTING = Format(">HL")


class Listener(Protocol):
    """The receiver of one stream's answer."""

    def on_headers(self, headers: list[Header]) -> None:
        """Take headers or, at the end, trailers."""

    def on_data(self, data: bytes) -> None:
        """Take a part of the answer."""

    def on_end(self, error: Exception | None) -> None:
        """End the answer: it is complete, or this is the error."""


class Stream:
    """One request and its answer."""

    __slots__ = ("headers", "id", "last", "listener", "paced", "read", "unsent", "window")

    def __init__(self, listener: Listener, headers: bytes, body: bytes, *, last: bool, paced: bool) -> None:
        self.id = 0
        """The stream identifier; 0 until the stream is sent."""
        self.listener = listener
        self.headers = headers
        self.window = 0
        """The send window."""
        self.unsent = body
        self.last = last
        """Whether the unsent data ends the request."""
        self.paced = paced
        """Whether the listener acknowledges the data that it has read."""
        self.read = 0
        """Bytes received since the last WINDOW_UPDATE."""


class Connection(Opening):
    """One connection."""

    def __init__(self, *, keepalive: float = 0.0, window: int = 0, meter: Meter | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.used = False
        """Whether a request was answered on this connection."""
        self.closing = False
        """Whether no further stream may be begun."""
        self.greeted: asyncio.Future[None] = loop.create_future()
        """Done when the peer's first SETTINGS arrived."""
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the connection is closed."""
        self._meter = meter or Meter()
        self._our_window = window or OUR_WINDOW
        """The receive window of one stream."""
        self._keepalive = keepalive
        """Seconds of silence before a PING, and again until the connection is given up; 0: never."""
        self._heard = 0.0
        self._pinged = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self.most_streams = 1 << 31
        """How many streams the peer allows at once."""
        self._pending: deque[Stream] = deque()
        """Streams that wait until the peer allows another one."""
        self._next = 1
        self._out: list[bytes] = []
        self._input = b""
        self._window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._waiting: deque[Stream] = deque()
        self._read = 0
        self._decoder = Decoder()
        self._block = b""
        self._block_flags = 0

    # The caller's side.

    async def ready(self) -> None:
        """Wait for the peer's SETTINGS: the kernel accepts connections for a server that hangs."""
        await asyncio.wait([self.greeted, self.lost], return_when=asyncio.FIRST_COMPLETED)
        if not self.greeted.done():
            raise ConnectionError("it does not speak HTTP/2")

    def begin(
        self, listener: Listener, headers: bytes, body: bytes, *, last: bool = True, paced: bool = False
    ) -> Stream:
        """Begin a stream: send headers and a body, which is all there is to send, or with last=False only the first."""
        if self.closing:
            raise Refused("the connection is closing")
        stream = Stream(listener, headers, body, last=last, paced=paced)
        self._pending.append(stream)
        self._begin_pending()
        return stream

    @property
    def has_room(self) -> bool:
        """Return whether the peer allows another stream now."""
        return not self.closing and len(self._streams) + len(self._pending) < self.most_streams

    def acknowledge(self, stream: Stream) -> None:
        """Let the peer send more on a stream whose received data was read."""
        if stream.read >= self._our_window // 2 and stream.id in self._streams:
            self._send(WINDOW, 0, stream.id, stream.read.to_bytes(4, "big"))
            stream.read = 0

    def retire(self) -> None:
        """Begin no further streams, and close the connection when the last one ends."""
        self.closing = True
        self._begin_pending()
        self._close_if_done()

    def cancel(self, stream: Stream) -> None:
        """Cancel a stream; its receiver gets nothing more."""
        if stream in self._pending:
            self._pending.remove(stream)
            return
        if self._streams.pop(stream.id, None) is None:
            return
        if stream in self._waiting:
            self._waiting.remove(stream)
        self._send(RESET, 0, stream.id, CANCEL.to_bytes(4, "big"))
        self._begin_pending()
        self._close_if_done()

    def abort(self) -> None:
        """Drop the connection."""
        self.closing = True
        if self._transport is not None:
            with suppress(AttributeError):  # Python 3.11.2, Debian 12's, fails on a TLS connection closed twice.
                self._transport.abort()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface.  A header table of size 0 makes every header block readable by itself."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_PREFACE)
        ours = ((TABLE_SIZE, 0), (PUSH, 0), (INITIAL_WINDOW, self._our_window))
        self._send(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in ours))
        self._send(WINDOW, 0, 0, (2 * OUR_WINDOW - FIRST_WINDOW).to_bytes(4, "big"))
        if self._keepalive:
            self._heard = asyncio.get_running_loop().time()
            self._check_silence()

    def data_received(self, data: bytes) -> None:
        """Parse the frames that arrived."""
        self._heard = asyncio.get_running_loop().time()
        self._meter.received += len(data)
        data = self._input + data if self._input else data
        at, end = 0, len(data)
        try:
            while end - at >= 9:
                length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
                if length > FRAME:
                    raise Unreachable(f"the peer sent a frame of {length} bytes")
                if end - at - 9 < length:
                    break
                number = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
                self._frame(data[at + 3], data[at + 4], number, data[at + 9 : at + 9 + length])
                at += 9 + length
        except (Unreachable, HpackError, IndexError) as error:
            self._fail(Unreachable(f"the peer violates HTTP/2: {error}"))
            return
        self._input = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        """End all streams."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._fail(Unreachable(f"the connection was lost{f': {error}' if error else ''}"))
        if not self.lost.done():
            self.lost.set_result(None)

    # Frames.

    def _frame(self, kind: int, flags: int, number: int, body: bytes) -> None:
        match kind:
            case 0:
                self._on_data(flags, number, body)
            case 1:
                body = _unpadded(flags, body)
                self._block, self._block_flags = (body[5:] if flags & PRIORITY else body), flags
                self._on_headers(flags, number)
            case 9:
                self._block += body
                self._on_headers(flags, number)
            case 8:
                self._on_window(number, int.from_bytes(body, "big") & 0x7FFF_FFFF)
            case 4 | 6 if not flags & ACK:
                if self._transport is not None and self._transport.get_write_buffer_size() > _MOST_UNSENT:
                    raise Unreachable("it sends SETTINGS or PINGs and does not read the answers")
                if kind == SETTINGS:
                    self._on_settings(body)
                else:
                    self._send(PING, ACK, 0, body)
            case 3:
                self._on_reset(number, int.from_bytes(body, "big"))
            case 5:
                raise Unreachable("it pushes answers to requests that were not sent")
            case 7:
                self._on_goaway(int.from_bytes(body[:4], "big") & 0x7FFF_FFFF)

    def _on_data(self, flags: int, number: int, body: bytes) -> None:
        self._read += len(body)
        if self._read >= OUR_WINDOW:
            self._send(WINDOW, 0, 0, self._read.to_bytes(4, "big"))
            self._read = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # Cancelled meanwhile.
        stream.read += len(body)
        if stream.read > self._our_window:
            raise Unreachable("it sent more data than the window of a stream allows")
        stream.listener.on_data(_unpadded(flags, body))
        if flags & END_STREAM:
            if number in self._streams:  # The listener may have cancelled it.
                self._end(stream, None)
        elif not stream.paced:
            self.acknowledge(stream)

    def _on_headers(self, flags: int, number: int) -> None:
        if len(self._block) > _MOST_HEADERS:
            raise Unreachable("the peer sent a header block that is too large")
        if not flags & END_HEADERS:
            return
        headers = self._decoder.decode(self._block)  # Decoded even for a cancelled stream: it changes the table.
        self._block = b""
        stream = self._streams.get(number)
        if stream is not None:
            stream.listener.on_headers(headers)
            if self._block_flags & END_STREAM:
                self._end(stream, None)

    def _on_window(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        elif (stream := self._streams.get(number)) is not None:
            stream.window += more
        self._pump()

    def _on_settings(self, body: bytes) -> None:
        for at in range(0, len(body) - 5, 6):
            key, value = _SETTING.unpack_from(body, at)
            if key == MAX_STREAMS:
                self.most_streams = value
            elif key == INITIAL_WINDOW:
                if value > _LARGEST_WINDOW:
                    raise Unreachable(f"the peer sent a window of {value} bytes, which is out of range")
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
        self._send(SETTINGS, ACK, 0, b"")
        if not self.greeted.done():
            self.greeted.set_result(None)
        self._pump()
        self._begin_pending()

    def _on_reset(self, number: int, code: int) -> None:
        if (stream := self._streams.get(number)) is not None:
            words = f"the other side gave up the request (code {code})"
            self._end(stream, Refused(words) if code == REFUSED_STREAM else Unreachable(words))

    def _on_goaway(self, last: int) -> None:
        """Handle GOAWAY: the peer takes no new streams and has not processed those after `last`."""
        self.closing = True
        for stream in [stream for stream in self._streams.values() if stream.id > last]:
            self._end(stream, Refused("the peer is shutting down"))
        self.retire()

    # Sending.

    def _begin_pending(self) -> None:
        """Send the streams that wait, as many as the peer allows; on a closing connection, refuse them."""
        while self._pending and not self.closing and len(self._streams) < self.most_streams:
            stream = self._pending.popleft()
            stream.id, stream.window = self._next, self._first_window
            self._next += 2
            self.closing = self._next >= 1 << 31
            self._streams[stream.id] = stream
            self._send_headers(stream)
        while self._pending and self.closing:
            self._pending.popleft().listener.on_end(Refused("the connection is closing"))

    def _send_headers(self, stream: Stream) -> None:
        """Send the headers, in several frames if they are long, and as much of the body as the windows allow."""
        ends = END_STREAM if stream.last and not stream.unsent else 0
        parts = [stream.headers[at : at + FRAME] for at in range(0, len(stream.headers), FRAME)]
        for at, part in enumerate(parts):
            done = END_HEADERS if at == len(parts) - 1 else 0
            self._send(CONTINUATION if at else HEADERS, done if at else done | ends, stream.id, part)
        if not ends:
            self._waiting.append(stream)
            self._pump()

    def _check_silence(self) -> None:
        """Send a PING after silence; give up when nothing arrived since the last one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._pinged > self._heard:
            self._fail(Unreachable(f"the peer did not answer a PING within {self._keepalive:g} s"))
            return
        due = self._heard + self._keepalive
        if now >= due:
            # Only while there are streams: etcd, as other servers of gRPC, ends a connection that sends PINGs without.
            if self._streams:
                self._pinged = now
                self._send(PING, 0, 0, b"netloom.")
            due = now + self._keepalive
        self._timer = loop.call_at(due, self._check_silence)

    def _pump(self) -> None:
        """Send queued data within the peer's windows.  A blocked stream goes to the end of the queue."""
        for _ in range(len(self._waiting)):
            stream = self._waiting.popleft()
            while True:
                size = max(min(len(stream.unsent), FRAME, self._window, stream.window), 0)
                done = size == len(stream.unsent)
                if size <= 0 and not done:
                    self._waiting.append(stream)
                    break
                self._send(DATA, END_STREAM if done and stream.last else 0, stream.id, stream.unsent[:size])
                stream.unsent = stream.unsent[size:]
                stream.window -= size
                self._window -= size
                if done:
                    break

    def _send(self, kind: int, flags: int, number: int, body: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(b"%b%c%c%b%b" % (len(body).to_bytes(3, "big"), kind, flags, number.to_bytes(4, "big"), body))

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    # Endings.

    def _end(self, stream: Stream, error: Exception | None) -> None:
        del self._streams[stream.id]
        if stream in self._waiting:
            self._waiting.remove(stream)
        stream.listener.on_end(error)
        self._begin_pending()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.closing and not self._streams:
            self.abort()

    def _fail(self, error: Exception) -> None:
        """Fail all streams: the connection is unusable."""
        self.closing = True
        for stream in list(self._streams.values()):
            self._end(stream, error)
        self._begin_pending()
        self.abort()


class Pool:
    """The connections to one server: another one is made when those there are have no room."""

    def __init__(self, connect: Callable[[], Coroutine[None, None, Connection | None]]) -> None:
        """`connect` returns None if the server does not speak HTTP/2."""
        self._connect = connect
        self._connections: list[Connection] = []
        self._attempt: asyncio.Task[Connection | None] | None = None
        """The attempt to connect that is under way, for all that wait for it: when it fails, it fails for all."""

    async def take(self, *, full: bool = False) -> Connection | None:
        """Return a connection that has room or, with `full`, any; None if the server does not speak HTTP/2."""
        while True:
            for connection in self._connections:
                if not connection.closing and (full or connection.has_room):
                    return connection
            made = await self._made()
            if made is None:
                return None
            if made.closing or (made.most_streams == 0 and not full):
                raise Refused("the server takes no requests")  # Connecting again at once would not help.

    def retire(self) -> None:
        """Use none of the connections for further streams."""
        for connection in self._connections:
            connection.retire()

    async def close(self) -> None:
        """Close the connections."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        for connection in self._connections:
            connection.abort()
            await connection.lost

    async def _made(self) -> Connection | None:
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connected())
        attempt = self._attempt
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise Unreachable("the client is closed") from None
            raise
        except Unreachable as error:
            raise copy.copy(error) from error  # One exception for each caller: raising it writes a traceback into it.

    async def _connected(self) -> Connection | None:
        """Make a connection and keep it.

        Both in one task: who finds the attempt done finds its connection, too, and does not ask for it again and again.
        """
        try:
            made = await self._connect()
            self._connections = [connection for connection in self._connections if not connection.closing]
            if made is not None:
                self._connections.append(made)
            return made
        finally:
            self._attempt = None


def _unpadded(flags: int, body: bytes) -> bytes:
    return body[1 : len(body) - body[0]] if flags & PADDED else body
