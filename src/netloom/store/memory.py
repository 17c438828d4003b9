"""A store in memory, lost when the process ends: for tests, simulation and trials."""

import time
from collections.abc import Callable, Sequence
from random import Random, SystemRandom

from netloom.errors import Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Page, Precondition, Propagation, Stored, Watch
from netloom.store.engine import (
    FIRST_REVISION,
    Engine,
    Minter,
    Write,
    check,
    creation,
    deletion,
    pretended,
    replacement,
)
from netloom.store.hub import QUEUE_LENGTH, WINDOW_BYTES, WINDOW_CHANGES, Hub


class MemoryStore:
    """A `Store` in this process's memory.  Every write is decided and applied in one step of the loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        window_changes: int = WINDOW_CHANGES,
        window_bytes: int = WINDOW_BYTES,
        queue_length: int = QUEUE_LENGTH,
    ) -> None:
        self._minter = Minter(clock, random or SystemRandom())
        self._hub = Hub(
            revision=FIRST_REVISION,
            window_changes=window_changes,
            window_bytes=window_bytes,
            queue_length=queue_length,
        )
        self._engine = Engine(self._hub)
        self._closed = False

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        return self._write(creation(kind, document, self._minter), dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now."""
        self._check_open()
        return self._engine.get(kind, namespace, name)

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        """Return the objects of a kind."""
        self._check_open()
        return self._engine.page(kind, namespace, selector, revision, limit, token)

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`."""
        self._check_open()
        return self._engine.watch(kind, namespace, selector, since)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or its status."""
        return self._write(replacement(kind, document, subresource), dry_run=dry_run)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete an object and return its last state."""
        now = self._minter.clock()
        write = deletion(kind, namespace, name, propagation=propagation, uid=uid, revision=revision, now=now)
        if unless is not None:
            check(unless, self._hub)
        return self._write(write, dry_run=dry_run)

    async def revision(self) -> int:
        """Return the revision of the newest write."""
        self._check_open()
        return self._hub.revision

    async def damaged(self) -> Sequence[Damaged]:
        """Return nothing: memory is not damaged."""
        return ()

    async def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._hub.fail(Unreachable("the store is closed"))

    def _write(self, write: Write, *, dry_run: bool) -> Stored:
        self._check_open()
        decision = write(self._engine.lookup, self._hub.revision + 1)
        if dry_run:
            return pretended(decision)
        if decision.change is not None:
            self._engine.apply([decision.change])
        return decision.result

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("the store is closed")
