"""Health and metrics of a process without an API: a small HTTP server, on loopback only.

It has no TLS and no credentials, because only this machine can reach it; any other address is refused.
"""

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Iterable

from netloom.run import config, frontends

_LONGEST = 8192
_SECONDS = 5.0
_TEXT = "text/plain; charset=utf-8"


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address, or localhost."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    return False


def loopback(host: str, port: int, key: str = "healthListen") -> None:
    """Raise `Invalid` for the setting `key` unless `host` is a loopback address."""
    if not is_loopback(host):
        text = f"{host or '*'}:{port} is not a loopback address: this listener has no authentication"
        raise config.invalid(key, text)


async def serve(
    host: str, port: int, *, ready: Callable[[], bool], metrics: Callable[[str], Awaitable[tuple[str, bytes]]]
) -> None:
    """Answer /healthz, /livez, /readyz and /metrics until cancelled."""

    async def page(path: str, accept: str) -> tuple[int, str, bytes]:
        match path:
            case "/healthz" | "/livez":
                return 200, _TEXT, b"ok"
            case "/readyz":
                return (200, _TEXT, b"ok") if ready() else (500, _TEXT, b"not ready")
            case "/metrics":
                return (200, *await metrics(accept))
        return 404, _TEXT, b"not found"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A malformed request, or a client that disconnects, ends its connection.
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                first, *rest = request.decode("latin-1").split("\r\n")
                words = first.split()
                status, media, body = (
                    await page(words[1].partition("?")[0], _accepted(rest))
                    if words[:1] == ["GET"] and len(words) > 1
                    else (405, _TEXT, b"")
                )
                writer.write(
                    b"HTTP/1.1 %d -\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                    % (status, media.encode(), len(body), body)
                )
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=frontends.listen(host, port), limit=_LONGEST)
    async with server:
        await server.serve_forever()


def _accepted(headers: Iterable[str]) -> str:
    """Return the Accept header of a request."""
    pairs = (line.partition(":") for line in headers)
    return ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == "accept")
