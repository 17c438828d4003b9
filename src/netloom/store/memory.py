"""A store in memory, lost when the process ends: for tests, simulation and trials."""

import time
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Unpack

from netloom.errors import Unreachable
from netloom.store.base import Stored
from netloom.store.engine import FIRST_REVISION, LocalStore, Minter, Write, pretended
from netloom.store.hub import Hub, Limits


class MemoryStore(LocalStore):
    """A `Store` in this process's memory.  Every write is decided and applied in one step of the loop."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, random: Random | None = None, **limits: Unpack[Limits]
    ) -> None:
        super().__init__(Hub(revision=FIRST_REVISION, **limits), Minter(clock, random or SystemRandom()))

    async def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._hub.fail(Unreachable("the store is closed"))

    async def _submit(self, write: Write, *, dry_run: bool) -> Stored:
        decision = write(self._lookup, self._hub.revision + 1)
        if dry_run:
            return pretended(decision)
        if decision.change is not None:
            self._apply([decision.change])
        return decision.result
