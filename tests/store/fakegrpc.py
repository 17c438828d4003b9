"""An HTTP/2 server, of gRPC or of REST, that sends exactly what a test wants, frame by frame, on a loopback port."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from netloom.store.http.hpack import Decoder, encode
from netloom.store.http.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME,
    HEADERS,
    PING,
    SETTINGS,
    WINDOW,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Return one frame."""
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def message(body: bytes) -> bytes:
    """Return a message as it stands in DATA."""
    return b"\0" + len(body).to_bytes(4, "big") + body


@dataclass(slots=True)
class Call:
    """One call as the server sees it."""

    number: int
    method: str
    body: bytes
    """The message, without its five bytes in front; of REST, all bytes."""
    writer: asyncio.StreamWriter
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, kind: int, flags: int, body: bytes = b"") -> None:
        """Send any frame on this call's stream."""
        self.writer.write(frame(kind, flags, self.number, body))

    def head(self) -> None:
        """Begin the answer."""
        self.send(HEADERS, END_HEADERS, encode([(":status", "200"), ("content-type", "application/grpc")]))

    def tell(self, body: bytes) -> None:
        """Send a message."""
        whole = message(body)
        for at in range(0, len(whole), FRAME):
            self.send(DATA, 0, whole[at : at + FRAME])

    def end(self, code: int = 0, words: str = "") -> None:
        """End the answer."""
        trailers = [("grpc-status", str(code))] + ([("grpc-message", words)] if words else [])
        self.send(HEADERS, END_HEADERS | END_STREAM, encode(trailers))

    def reply(self, body: bytes) -> None:
        """Send a whole answer."""
        self.head()
        self.tell(body)
        self.end()

    def begin(self, status: int = 200, *headers: tuple[str, str]) -> None:
        """Begin an answer of REST; `send` of DATA continues it."""
        self.send(HEADERS, END_HEADERS, encode([(":status", str(status)), *headers]))

    def answer(self, body: bytes, status: int = 200, *headers: tuple[str, str]) -> None:
        """Send a whole answer of REST."""
        self.begin(status, *headers)
        self.send(DATA, END_STREAM, body)

    def fail(self, code: int, words: str) -> None:
        """Answer with an error, as servers do: trailers alone."""
        trailers = [(":status", "200"), ("grpc-status", str(code)), ("grpc-message", words)]
        self.send(HEADERS, END_HEADERS | END_STREAM, encode(trailers))


Answer = Callable[[Call], Awaitable[None]]


@dataclass(slots=True)
class FakeGrpc:
    """A listening server; `calls` is what it was asked, `acks` the frames that acknowledge something."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    frames: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    """All frames that came but those of requests: kind, flags, stream, body."""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    pongs: bool = False

    def hang_up(self) -> None:
        """Drop all connections."""
        for writer in self.writers:
            with contextlib.suppress(AttributeError):  # Python 3.11.2 fails on a TLS connection closed twice.
                writer.transport.abort()


def in_turn(*answers: Callable[[Call], None]) -> Answer:
    """Answer each call in the next of these ways."""
    left = list(answers)

    async def answer(call: Call) -> None:
        left.pop(0)(call)

    return answer


def always(way: Callable[[Call], None]) -> Answer:
    """Answer every call in this way."""

    async def answer(call: Call) -> None:
        way(call)

    return answer


@asynccontextmanager
async def serving(
    answer: Answer, *, hello: bytes = frame(SETTINGS, 0, 0), pongs: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeGrpc]:
    """Give a server for a while, of REST if it has `tls`, else of gRPC; with `pongs` it answers PINGs."""
    fake = FakeGrpc(pongs=pongs)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fake.writers.append(writer)
        writer.write(hello)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert await reader.readexactly(len(PREFACE)) == PREFACE
            await _serve(fake, reader, writer, answer, rest=tls is not None)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    fake.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        fake.hang_up()
        await asyncio.sleep(0)


async def _serve(
    fake: FakeGrpc, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer, *, rest: bool
) -> None:
    decoder = Decoder()
    headers: dict[int, dict[str, str]] = {}
    block = b""
    bodies: dict[int, bytes] = {}
    while True:
        head = await reader.readexactly(9)
        kind, flags = head[3], head[4]
        stream = int.from_bytes(head[5:], "big")
        body = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if kind in (HEADERS, CONTINUATION):
            block += body
            if kind == HEADERS:
                bodies[stream], ended = b"", flags & END_STREAM
            if not flags & END_HEADERS:
                continue
            headers[stream], block = dict(decoder.decode(block)), b""
            if not ended:
                continue
            flags, body = END_STREAM, b""
        elif kind != DATA:
            fake.frames.append((kind, flags, stream, body))
            if kind == SETTINGS and not flags & ACK:
                writer.write(frame(SETTINGS, ACK, 0))
            elif kind == PING and fake.pongs:
                writer.write(frame(PING, ACK, 0, body))
            continue
        bodies[stream] += body
        if flags & END_STREAM if rest else len(bodies[stream]) >= 5 + int.from_bytes(bodies[stream][1:5], "big"):
            fields = headers[stream]
            call = Call(stream, fields[":path"], bodies[stream][0 if rest else 5 :], writer, fields)
            fake.calls.append(call)
            await answer(call)
            await writer.drain()


def window(more: int, stream: int = 0) -> bytes:
    """Return the frame that lets the client send more."""
    return frame(WINDOW, 0, stream, more.to_bytes(4, "big"))


def split_headers(call: Call, headers: list[tuple[str, str]], *, last: bool) -> None:
    """Send headers in two frames."""
    block = encode(headers)
    call.send(HEADERS, END_STREAM if last else 0, block[:7])
    call.send(CONTINUATION, END_HEADERS, block[7:])
