"""A store that counts what is asked of it: the same store to everybody else."""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from netloom.errors import NetloomError
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.selectors import EVERYTHING, Selector
from netloom.store.base import Event, Page, Propagation, Sink, Store, Stored, Unless, Watch

Next = Callable[[], Coroutine[Any, Any, Sequence[Event]]]


class MeteredStore:
    """Passes everything on to another store and counts it, by operation and by how it ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.operations: Counter[tuple[str, str]] = Counter()
        """By operation and outcome: "ok", or the reason of the error."""
        self.watches = 0
        """Open now."""

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Create."""
        with self._counting("create"):
            return await self._store.create(kind, document, dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Get."""
        with self._counting("get"):
            return await self._store.get(kind, namespace, name, known=known)

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
        """List."""
        with self._counting("list"):
            return await self._store.list(
                kind, namespace, selector=selector, revision=revision, limit=limit, token=token
            )

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch."""
        with self._counting("watch"):
            return _MeteredWatch(self, await self._store.watch(kind, namespace, selector=selector, since=since))

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Update."""
        with self._counting("update"):
            return await self._store.update(kind, document, subresource=subresource, dry_run=dry_run)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Unless | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete."""
        with self._counting("delete"):
            return await self._store.delete(
                kind,
                namespace,
                name,
                propagation=propagation,
                uid=uid,
                revision=revision,
                unless=unless,
                dry_run=dry_run,
            )

    async def revision(self) -> int:
        """Return the revision of the newest write."""
        return await self._store.revision()

    async def close(self) -> None:
        """Let go of everything."""
        await self._store.close()

    def _counting(self, operation: str) -> "_Counting":
        return _Counting(self.operations, operation)


class _Counting:
    """Counts one operation by how its block ends; a class, because a generator costs more than the counting."""

    __slots__ = ("_operation", "_operations")

    def __init__(self, operations: Counter[tuple[str, str]], operation: str) -> None:
        self._operations = operations
        self._operation = operation

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome = "ok" if error is None else error.reason if isinstance(error, NetloomError) else "other"
        self._operations[self._operation, outcome] += 1


class _MeteredWatch:
    """A watch whose opening and closing are counted.  What it returns goes past it: `next` is the watch's own."""

    __slots__ = ("_meter", "_open", "_watch", "next")

    def __init__(self, meter: MeteredStore, watch: Watch) -> None:
        self.next: Next = watch.next
        self._meter = meter
        self._watch = watch
        self._open = True
        meter.watches += 1

    @property
    def revision(self) -> int:
        """Pass on."""
        return self._watch.revision

    def direct(self, sink: Sink | None) -> None:
        """Pass on."""
        self._watch.direct(sink)

    async def close(self) -> None:
        """Pass on, and count it as closed once."""
        if self._open:
            self._open = False
            self._meter.watches -= 1
        await self._watch.close()
