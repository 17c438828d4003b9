"""A store that counts and times its operations, and is otherwise the store that it wraps."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any, ParamSpec, TypeVar, cast

from netloom.control.runtime.counters import Histograms
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Event, Sink, Store, Watch

P = ParamSpec("P")
T = TypeVar("T")
Next = Callable[[], Coroutine[Any, Any, Sequence[Event]]]


class MeteredStore:
    """Passes every operation to another store, and times it by operation, kind and outcome."""

    def __init__(self, store: Store) -> None:
        self.durations = Histograms(("operation", "resource", "outcome"))
        """The outcome is "ok", or the reason of the error."""
        self.open: Counter[str] = Counter()
        """Watches open now, by resource."""
        self.create = self._timed("create", store.create)
        self.get = self._timed("get", store.get)
        self.list = self._timed("list", store.list)
        self.update = self._timed("update", store.update)
        self.delete = self._timed("delete", store.delete)
        self.revision, self.damaged, self.close = store.revision, store.damaged, store.close
        self.check_disk: Callable[[], Awaitable[None]] | None = getattr(store, "check_disk", None)
        """The store's own check whether its disk is full, where it has one."""
        self._watch = self._timed("watch", store.watch)

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

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch, and count the watch until it is closed."""
        opened = await self._watch(kind, namespace, selector=selector, since=since)
        return _MeteredWatch(self.open, kind.plural, opened)

    def _timed(self, operation: str, method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a method of the store that is timed; its first argument is the kind."""

        async def timed(*args: P.args, **options: P.kwargs) -> T:
            resource = cast("Kind", args[0]).plural
            if options.get("subresource"):
                resource += "/status"
            with self.durations.timing(operation, resource, clock=perf_counter):
                return await method(*args, **options)

        return timed


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
