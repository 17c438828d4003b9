"""A client that runs for the length of a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from netloom.ovsdb.io import OvsdbClient

T = TypeVar("T")
PATIENCE = 60.0


@contextlib.asynccontextmanager
async def following(
    remotes: Sequence[str],
    database: str = "OVN_Northbound",
    tables: Mapping[str, Sequence[str] | None] | None = None,
    *,
    wait: bool = True,
    **options: Any,
) -> AsyncIterator[OvsdbClient]:
    """Give a client that follows, once it is in sync."""
    tables = {"Logical_Switch": None, "Logical_Switch_Port": None} if tables is None else tables
    client = OvsdbClient(remotes, database, tables=tables, random=Random(1), **options)
    task = asyncio.create_task(client.run())
    try:
        if wait:
            await synced(client)
        yield client
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def synced(client: OvsdbClient) -> None:
    async with asyncio.timeout(PATIENCE):
        await client.synced.wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - Nobody would set an event.
            await asyncio.sleep(0.01)


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def whole() -> T:
        return await main()

    return asyncio.run(whole())
