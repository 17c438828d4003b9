"""Several transactions in flight, in order: the server processes one while the next is built."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from netloom.drivers.northbound.bundles import Bundle
from netloom.errors import NetloomError

Sending = Callable[[Callable[[], None]], Coroutine[Any, Any, NetloomError | None]]
"""Sends a transaction, calls its argument once it is sent, and returns the error, if any."""


class Pipeline:
    """Transactions in flight, in order."""

    def __init__(self, group: asyncio.TaskGroup, most: int) -> None:
        self.failed: list[tuple[list[Bundle], NetloomError]] = []
        self._group = group
        self._most = most
        self._underway: deque[tuple[list[Bundle], asyncio.Task[NetloomError | None]]] = deque()

    async def put(self, bundles: list[Bundle], sending: Sending) -> None:
        """Send one more, as soon as few enough are in flight; return when it is sent."""
        while len(self._underway) >= self._most or (self._underway and self._underway[0][1].done()):
            await self._settle()
        sent = asyncio.Event()
        task = self._group.create_task(sending(sent.set))
        task.add_done_callback(lambda _: sent.set())
        self._underway.append((bundles, task))
        await sent.wait()

    async def drain(self) -> None:
        """Wait until all are answered."""
        while self._underway:
            await self._settle()

    async def _settle(self) -> None:
        bundles, task = self._underway.popleft()
        if (error := await task) is not None:
            self.failed.append((bundles, error))
