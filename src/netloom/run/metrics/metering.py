"""A store that counts and times its operations, and is otherwise the store that it wraps."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from netloom.control.runtime.counters import Histograms, Timing
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Event, Page, Precondition, Propagation, Sink, Store, Stored, Watch

Next = Callable[[], Coroutine[Any, Any, Sequence[Event]]]


class MeteredStore:
    """Passes every operation to another store, and times it by operation, kind and outcome."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.durations = Histograms(("operation", "resource", "outcome"))
        """The outcome is "ok", or the reason of the error."""
        self.open: Counter[str] = Counter()
        """Watches open now, by resource."""

    @property
    def check_disk(self) -> Callable[[], Awaitable[None]] | None:
        """The store's own check whether its disk is full, where it has one."""
        check: Callable[[], Awaitable[None]] | None = getattr(self._store, "check_disk", None)
        return check

    @property
    def watches(self) -> int:
        """How many watches are open now."""
        return self.open.total()

    @property
    def operations(self) -> Counter[tuple[str, str]]:
        """The number of operations, by operation and outcome."""
        found: Counter[tuple[str, str]] = Counter()
        for (operation, _, outcome), durations in self.durations.found.items():
            found[operation, outcome] += durations.count
        return found

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Create."""
        with self._timing("create", kind.plural):
            return await self._store.create(kind, document, dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Get."""
        with self._timing("get", kind.plural):
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
        with self._timing("list", kind.plural):
            return await self._store.list(
                kind, namespace, selector=selector, revision=revision, limit=limit, token=token
            )

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch."""
        with self._timing("watch", kind.plural):
            opened = await self._store.watch(kind, namespace, selector=selector, since=since)
            return _MeteredWatch(self.open, kind.plural, opened)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Update."""
        with self._timing("update", f"{kind.plural}/status" if subresource else kind.plural):
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
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete."""
        with self._timing("delete", kind.plural):
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

    async def damaged(self) -> Sequence[Damaged]:
        """Return the objects that are set aside."""
        return await self._store.damaged()

    async def close(self) -> None:
        """Release all resources."""
        await self._store.close()

    def _timing(self, operation: str, resource: str) -> Timing:
        return self.durations.timing(operation, resource, clock=perf_counter)


class _MeteredWatch:
    """A watch whose opening and closing are counted.  `next` is the inner watch's own, so it costs nothing."""

    __slots__ = ("_counts", "_open", "_resource", "_watch", "next")

    def __init__(self, counts: Counter[str], resource: str, watch: Watch) -> None:
        self.next: Next = watch.next
        self._counts = counts
        self._resource = resource
        self._watch = watch
        self._open = True
        counts[resource] += 1

    @property
    def revision(self) -> int:
        """The inner watch's revision."""
        return self._watch.revision

    def direct(self, sink: Sink | None) -> None:
        """Forward to the inner watch."""
        self._watch.direct(sink)

    async def close(self) -> None:
        """Close the inner watch, and count that once."""
        if self._open:
            self._open = False
            self._counts[self._resource] -= 1
        await self._watch.close()
