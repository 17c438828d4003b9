"""A server that says exactly what a test wants it to: bytes for bytes, on a loopback port."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec


@dataclass(slots=True)
class Request:
    """What a client sent."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        decoded: dict[str, object] = msgspec.json.decode(self.body)
        return decoded


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class FakeServer:
    """A listening server; `requests` is what it was asked, `connections` how often it was connected to."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def hang_up(self) -> None:
        """Drop all connections."""
        for writer in self.writers:
            with contextlib.suppress(AttributeError):  # Python 3.11.2 trips over a TLS connection closed twice.
                writer.transport.abort()


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    """Return an answer of known length."""
    lines = [f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return one piece of a streamed answer."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def always(answer: bytes) -> Answer:
    """Answer everything with these bytes."""

    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return send


def in_turn(*answers: bytes) -> Answer:
    """Answer each request with the next of these."""
    left = list(answers)

    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0))

    return send


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeServer]:
    """Give a server for a while."""
    fake = FakeServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fake.connections += 1
        fake.writers.append(writer)
        try:
            while not writer.is_closing():
                request = await _read(reader)
                fake.requests.append(request)
                await answer(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    fake.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        server.close()
        fake.hang_up()
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)
