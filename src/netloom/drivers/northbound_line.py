"""Several transactions on their way at once, in order: the server works on one while the next is made."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from netloom.drivers.northbound_bundles import Bundle
from netloom.errors import NetloomError


class Line:
    """Transactions on their way, in order."""

    def __init__(self, group: asyncio.TaskGroup, most: int) -> None:
        self.failed: list[tuple[list[Bundle], NetloomError]] = []
        self._group = group
        self._most = most
        self._underway: deque[tuple[list[Bundle], asyncio.Task[NetloomError | None]]] = deque()

    async def put(self, bundles: list[Bundle], sending: Coroutine[Any, Any, NetloomError | None]) -> None:
        """Send one more, as soon as few enough are on their way."""
        while len(self._underway) >= self._most or (self._underway and self._underway[0][1].done()):
            await self._settle()
        self._underway.append((bundles, self._group.create_task(sending)))
        await asyncio.sleep(0)  # It is sent, in order, before the next one is made.

    async def drain(self) -> None:
        """Wait until all have arrived."""
        while self._underway:
            await self._settle()

    async def _settle(self) -> None:
        bundles, task = self._underway.popleft()
        if (error := await task) is not None:
            self.failed.append((bundles, error))
