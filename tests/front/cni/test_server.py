"""The socket of the plugin: bounded, private, and free of those who gave up."""

import asyncio
import contextlib
import socket
import stat
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from netloom.front.cni import server as cni
from netloom.front.cni.server import CniServer

Main = Callable[[CniServer, Path], Coroutine[Any, Any, None]]


def serving(folder: Path, answer: Callable[[bytes], Awaitable[bytes]], main: Main) -> None:
    """Run `main` beside a server."""

    async def there() -> None:
        path = folder / "run" / "cni.sock"
        server = CniServer(str(path), answer)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(server.run())
            await becomes(path.exists)
            async with asyncio.timeout(60):
                await main(server, path)
            task.cancel()

    asyncio.run(there())


async def echo(data: bytes) -> bytes:
    return b"0\n" + data


def files(folder: Path) -> dict[str, int]:
    """Return the names and modes of the files in a folder."""
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


async def call(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    found = await reader.read()
    writer.close()
    return found


async def becomes(holds: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never holds")


def test_a_request_is_answered_and_the_socket_is_private(tmp_path: Path) -> None:
    async def main(_: CniServer, path: Path) -> None:
        assert await call(path, b"5\nhello") == b"0\nhello"
        assert files(path.parent) == {"cni.sock": 0o600}

    serving(tmp_path, echo, main)


@pytest.mark.parametrize("data", [b"x\n", b"-1\n", b"\n", b"+5\nhello", b"999999999\n", b"600000\n", b"x" * 70_000])
def test_what_is_no_request_is_not_answered(tmp_path: Path, data: bytes) -> None:
    async def main(_: CniServer, path: Path) -> None:
        with contextlib.suppress(ConnectionError):
            assert await call(path, data) == b""
        assert await call(path, b"5\nhello") == b"0\nhello"

    serving(tmp_path, echo, main)


def test_a_request_that_does_not_arrive_ends_after_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cni, "PATIENCE", 0.05)

    async def main(server: CniServer, path: Path) -> None:
        assert await call(path, b"5\nhell") == b""
        assert await call(path, b"") == b""
        await becomes(lambda: server.clients == 0)

    serving(tmp_path, echo, main)


def test_a_client_that_hangs_up_ends_its_call_and_no_other(tmp_path: Path) -> None:
    ended: list[bytes] = []
    go_on = asyncio.Event()

    async def answer(data: bytes) -> bytes:
        try:
            await go_on.wait()
        finally:
            ended.append(data)
        return b"0\n"

    async def main(server: CniServer, path: Path) -> None:
        _, leaving = await asyncio.open_unix_connection(str(path))
        leaving.write(b"7\nleaving")
        staying = asyncio.ensure_future(call(path, b"7\nstaying"))
        await becomes(lambda: server.clients == 2)
        leaving.close()
        await becomes(lambda: ended == [b"leaving"])
        go_on.set()
        assert await staying == b"0\n"
        assert ended == [b"leaving", b"staying"]

    serving(tmp_path, answer, main)


def test_a_client_that_takes_no_answer_ends_after_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cni, "PATIENCE", 0.5)

    async def large(_: bytes) -> bytes:
        return b"x" * 50_000_000

    async def main(server: CniServer, path: Path) -> None:
        slow = socket.socket(socket.AF_UNIX)
        slow.connect(str(path))
        slow.sendall(b"1\nx")
        await becomes(lambda: server.clients == 1)
        await becomes(lambda: server.clients == 0)
        slow.close()

    serving(tmp_path, large, main)


def test_clients_beyond_the_limit_are_sent_away_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cni, "MOST_CLIENTS", 2)

    async def main(server: CniServer, path: Path) -> None:
        held = [await asyncio.open_unix_connection(str(path)) for _ in range(2)]
        await becomes(lambda: server.clients == 2)
        with contextlib.suppress(ConnectionError):
            assert await call(path, b"5\nhello") == b""
        for _, writer in held:
            writer.close()
        await becomes(lambda: server.clients == 0)
        assert await call(path, b"5\nhello") == b"0\nhello"

    serving(tmp_path, echo, main)


def test_a_server_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "run" / "cni.sock"))
    left.close()

    async def main(_: CniServer, path: Path) -> None:
        for _attempt in range(10_000):
            with contextlib.suppress(OSError):
                if await call(path, b"5\nhello") == b"0\nhello":
                    return
            await asyncio.sleep(0.001)
        raise AssertionError("it never answers")

    serving(tmp_path, echo, main)
