"""A SQLite store that is open for one test."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from netloom.model.registry import LEASE
from netloom.store.sqlite.store import SqliteStore
from tests.store.kinds import GADGET, WIDGET

KINDS = (WIDGET, GADGET, LEASE)


def within(path: Path, act: Callable[[SqliteStore], Awaitable[None]], **options: int) -> None:
    """Open the store, act, and close it."""

    async def go() -> None:
        store = await SqliteStore.open(path, kinds=KINDS, **options)  # type: ignore[arg-type]
        try:
            await act(store)
        finally:
            await store.close()

    asyncio.run(go())
