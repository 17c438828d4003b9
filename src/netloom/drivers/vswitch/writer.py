"""Sends changes that are made at the same time as one transaction.

So a burst of two hundred ports takes a handful of transactions, and the switch reconfigures itself a handful of times.
A group that is refused is sent again one change at a time, so that a bad change affects only itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from netloom.errors import NetloomError
from netloom.ovsdb.errors import Conflict, TransactionRefused
from netloom.ovsdb.operations import Operation

REST = 0.02
"""Seconds for which changes are collected after a group: in a burst the switch reconfigures itself less often, and a
single change does not wait."""
GROUP = 50
"""The most changes in one transaction: OVN is quickest with groups of 20 to 50."""

Transact = Callable[[Sequence[Operation]], Awaitable[Any]]


@dataclass(slots=True)
class WriterCounters:
    """Counters for the metrics."""

    changes: int = 0
    transactions: int = 0
    refused: int = 0


class GroupWriter:
    """Sends changes, grouped into transactions."""

    def __init__(self, transact: Transact, guard: Sequence[Operation] = ()) -> None:
        """`guard` precedes every group, as the assertion that we hold a lock."""
        self.counters = WriterCounters()
        self._guard = list(guard)
        self._transact = transact
        self._waiting: asyncio.Queue[tuple[Sequence[Operation], asyncio.Future[None]]] = asyncio.Queue()

    async def commit(self, operations: Sequence[Operation]) -> bool:
        """Commit operations together; return whether there are any.  Raise the database's error if they are refused."""
        if not operations:
            return False
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((operations, done))
        await done
        return True

    async def settled(self) -> None:
        """Wait until all changes that were committed before have been answered, even if nobody waits for them."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait(((), done))
        await done

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        clock = asyncio.get_running_loop().time
        last = clock() - REST
        while True:
            group = [await self._waiting.get()]
            # At least yield once: other tasks that the same event woke may add their changes.
            await asyncio.sleep(max(0.0, last + REST - clock()) if self._waiting.qsize() < GROUP - 1 else 0)
            while len(group) < GROUP and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            group = [(operations, done) for operations, done in group if not done.cancelled()]
            await self._send(group)
            last = clock()

    async def _send(self, group: Sequence[tuple[Sequence[Operation], "asyncio.Future[None]"]]) -> None:
        if not any(operations for operations, _ in group):
            self._end(group, None)
            return
        self.counters.transactions += 1
        try:
            await self._transact(self._guard + [operation for operations, _ in group for operation in operations])
        except (TransactionRefused, Conflict) as error:
            self.counters.refused += 1
            if len(group) > 1:
                for one in group:
                    await self._send([one])
                return
            self._end(group, error)
        except NetloomError as error:
            self._end(group, error)
        else:
            self.counters.changes += len(group)
            self._end(group, None)

    @staticmethod
    def _end(group: Sequence[tuple[Sequence[Operation], "asyncio.Future[None]"]], error: NetloomError | None) -> None:
        for _, done in group:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
