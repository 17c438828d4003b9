"""What the protocols spoken by our own code cost this process, beside the libraries that speak them.

CPU time of the client's process, user and system, for the same work in the same run; the server is another process.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from bench.table import Row
from netloom.store.http.client import Client

REQUESTS, TURNS, AT_ONCE = 4_000, 4, 64
HEADERS = {"Authorization": "Bearer " + "t" * 900}
PATH = "/apis/netloom.dev/v1alpha1/namespaces/default/networks/blue"

_SERVER = r"""
import asyncio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache\r\nContent-Length: 1024\r\n\r\n"

class Peer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.rest = transport, b""

    def data_received(self, data):
        *whole, self.rest = (self.rest + data).split(b"\r\n\r\n")
        self.transport.write((HEAD + b"x" * 1024) * len(whole))

async def main():
    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

Ask = Callable[[], Awaitable[object]]


def rows() -> list[Row]:
    """Measure and return the table."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            return asyncio.run(_http(f"http://127.0.0.1:{int(server.stdout.readline())}"))
        finally:
            server.kill()


async def _http(url: str) -> list[Row]:
    import aiohttp

    client = Client(url, headers=lambda: HEADERS)
    session = aiohttp.ClientSession(headers=HEADERS)

    async def theirs() -> None:
        async with session.get(url + PATH) as answer:
            await answer.read()

    best: dict[tuple[str, int], float] = {}
    for _ in range(TURNS):  # In turns, and the best of each: what else this machine does hits both.
        for name, ask in (("ours", lambda: client.request("GET", PATH)), ("theirs", theirs)):
            for width in (1, AT_ONCE):
                best[name, width] = min(best.get((name, width), 1e9), await _microseconds(ask, width))
    await client.close()
    await session.close()
    return [
        Row(f"CPU of an HTTP request, {width} at once", best["ours", width], "us", best["theirs", width], 0.8,
            more_is_better=False)
        for width in (1, AT_ONCE)
    ]  # fmt: skip


async def _microseconds(ask: Ask, width: int) -> float:
    async def repeat() -> None:
        for _ in range(REQUESTS // width):
            await ask()

    start = time.process_time()
    await asyncio.gather(*(repeat() for _ in range(width)))
    return (time.process_time() - start) / REQUESTS * 1e6
