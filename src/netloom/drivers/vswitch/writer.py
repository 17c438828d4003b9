"""Changes that are made at the same time travel as one transaction.

A burst of two hundred ports is then a handful of transactions, and a handful of times that the switch reconfigures
itself. A group that is refused is sent again one by one, so that one bad change costs itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from netloom.errors import NetloomError
from netloom.ovsdb.errors import Conflict, TransactionRefused
from netloom.ovsdb.operations import Operation

REST = 0.02
"""How long after a group, in seconds, the next one gathers: in a burst the switch reconfigures itself less often, and a
single change does not wait."""
GROUP = 50
"""How many changes at most travel together: OVN is quickest with groups of 20 to 50."""

Transact = Callable[[Sequence[Operation]], Awaitable[Any]]


@dataclass(slots=True)
class WriterCounters:
    """What was sent."""

    changes: int = 0
    transactions: int = 0
    refused: int = 0


class Writer:
    """Sends changes, together where they come together."""

    def __init__(self, transact: Transact, guard: Sequence[Operation] = ()) -> None:
        """`guard` goes before every group: as that a lock is ours."""
        self.counters = WriterCounters()
        self._guard = list(guard)
        self._transact = transact
        self._waiting: asyncio.Queue[tuple[Sequence[Operation], asyncio.Future[None]]] = asyncio.Queue()

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Have all of this done or nothing, and return when it is; raises what the database says otherwise."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((operations, done))
        await done

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        clock = asyncio.get_running_loop().time
        last = clock() - REST
        while True:
            group = [await self._waiting.get()]
            # At least, who was woken by the same event is to come along.
            await asyncio.sleep(max(0.0, last + REST - clock()) if self._waiting.qsize() < GROUP - 1 else 0)
            while len(group) < GROUP and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            group = [(operations, done) for operations, done in group if not done.cancelled()]
            await self._send(group)
            last = clock()

    async def _send(self, group: Sequence[tuple[Sequence[Operation], "asyncio.Future[None]"]]) -> None:
        if not group:
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
