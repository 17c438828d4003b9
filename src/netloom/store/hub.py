"""Publish changes to watchers: one shared history window, and one short queue of references for each watcher.

A *change* is one write: the state before, the state after. The hub keeps the last changes (bounded by number and by
bytes); a watch that begins within that window gets the changes it missed and then the new ones.

    publish ──> window            what `watch since` and `list at a revision` read
         └────> channels          watchers that ask the same question (kind, namespace, selector) share one channel:
                  └─> queues      the question is answered once per change, the same `Event` goes to all of them

Channels whose selector fixes a field (`spec.node=n1`) are found by that field's value, so a change to one node's
attachment costs nothing for the watchers of a thousand others.

Memory is bounded whatever watchers do: a queue is of bounded length, and a watcher that still waits for a change which
has left the window is dropped. Both get `Expired` and must list again. Only `next` awaits; all runs on one loop.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypedDict

from netloom.errors import Expired, NetloomError
from netloom.model.kind import Kind
from netloom.model.values.selectors import Selector
from netloom.store.base import Event, EventType, Sink, Stored
from netloom.store.semantics import restamp

WINDOW_CHANGES = 50_000
WINDOW_BYTES = 32 << 20
QUEUE_LENGTH = 4_096


class Limits(TypedDict, total=False):
    """The limits of a hub, where they are not the default."""

    window_changes: int
    window_bytes: int
    queue_length: int


@dataclass(slots=True, eq=False)
class Change:
    """One write: `old` became `new` at `revision`.  None: it was not there, or is there no longer."""

    revision: int
    kind: Kind
    key: str
    namespace: str
    new: Stored | None
    old: Stored | None
    _events: tuple[Event, ...] = ()

    def seen_through(self, selector: Selector) -> Event | None:
        """Return the event of this change for a watcher with `selector`, or None."""
        is_in = self.new is not None and self.new.selected(selector)
        was_in = self.old is not None and self.old.selected(selector)
        if is_in:
            return self.event(EventType.MODIFIED if was_in else EventType.ADDED)
        return self.event(EventType.DELETED) if was_in else None

    def event(self, type_: EventType) -> Event:
        """Return this change as an event: always the same object for the same type."""
        for event in self._events:
            if event.type is type_:
                return event
        if type_ is EventType.DELETED:
            assert self.old is not None
            # As in Kubernetes: the last state that was selected, at the revision at which it ceased to be.
            event = Event(type_, restamp(self.old, self.revision))
        else:
            assert self.new is not None
            event = Event(type_, self.new)
        self._events += (event,)
        return event

    @property
    def size(self) -> int:
        """Return roughly how many bytes of memory this keeps."""
        return 200 + (len(self.new.raw) if self.new else 0) + (len(self.old.raw) if self.old else 0)


@dataclass(slots=True, eq=False)
class Channel:
    """The watchers with the same kind, namespace and selector."""

    kind: Kind
    namespace: str
    selector: Selector
    watches: dict["HubWatch", None] = field(default_factory=dict)

    def answer(self, change: Change) -> Event | None:
        """Return the event of `change` for these watchers, or None."""
        if self.namespace and self.namespace != change.namespace:
            return None
        return change.seen_through(self.selector)


Question = tuple[str, Selector]


@dataclass(slots=True, eq=False)
class Audience:
    """The channels of one kind; the anchored ones by field and value."""

    free: dict[Question, Channel] = field(default_factory=dict)
    anchored: dict[str, dict[str, dict[Question, Channel]]] = field(default_factory=dict)

    def shelf(self, selector: Selector) -> dict[Question, Channel]:
        """Return the mapping that holds channels with this selector."""
        anchor = selector.anchor()
        if anchor is None:
            return self.free
        return self.anchored.setdefault(anchor[0], {}).setdefault(anchor[1], {})

    def forget(self, channel: Channel) -> None:
        """Remove an empty channel."""
        del self.shelf(channel.selector)[channel.namespace, channel.selector]
        anchor = channel.selector.anchor()
        if anchor is not None and not self.anchored[anchor[0]][anchor[1]]:
            del self.anchored[anchor[0]][anchor[1]]

    def concerned(self, change: Change) -> Iterator[Channel]:
        """Yield every channel that `change` may match."""
        yield from self.free.values()
        for name, by_value in self.anchored.items():
            if not by_value:
                continue
            states = (state for state in (change.new, change.old) if state is not None)
            for value in {state.facets().fields.get(name, ""): None for state in states}:
                if value in by_value:
                    yield from by_value[value].values()

    def __iter__(self) -> Iterator[Channel]:
        yield from self.free.values()
        for by_value in self.anchored.values():
            for channels in by_value.values():
                yield from channels.values()


class HubWatch:
    """One watcher's end.  A `Watch`."""

    __slots__ = ("_channel", "_error", "_hub", "_last", "_limit", "_queue", "_sink", "_waiter")

    def __init__(self, hub: "Hub", channel: Channel, since: int, backlog: Sequence[Event]) -> None:
        self._hub = hub
        self._channel = channel
        self._last = since
        self._queue = deque(backlog)
        # Missed changes do not count against the limit: they are in the window anyway.
        self._limit = hub.queue_length + len(backlog)
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: NetloomError | None = None

    async def next(self) -> Sequence[Event]:
        """Wait for the next events, at least one, and return all that are ready."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events = list(self._queue)
        self._queue.clear()
        self._last = events[-1].object.revision
        return events

    @property
    def revision(self) -> int:
        """The revision up to which `next` has returned everything."""
        return self._last if self._queue or self._error is not None else max(self._last, self._hub.revision)

    def direct(self, sink: Sink | None) -> None:
        """Offer events to `sink` first, while none is queued."""
        self._sink = sink

    async def close(self) -> None:
        """Stop listening."""
        self._sink = None
        self._queue.clear()
        self._hub.leave(self, self._channel)

    def _put(self, event: Event) -> bool:
        """Queue an event; False when there is no room."""
        if event.object.revision <= self._last:
            return True
        if self._sink is not None and not self._queue and self._sink(event):
            self._last = event.object.revision
            return True
        if len(self._queue) >= self._limit:
            return False
        self._queue.append(event)
        self._wake()
        return True

    def _fail(self, error: NetloomError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """All watchers of one store, and the history window."""

    def __init__(
        self,
        *,
        revision: int,
        window_changes: int = WINDOW_CHANGES,
        window_bytes: int = WINDOW_BYTES,
        queue_length: int = QUEUE_LENGTH,
    ) -> None:
        self.revision = revision
        self.oldest = revision
        """The oldest revision a watch may begin at."""
        self.queue_length = queue_length
        self._window_changes = window_changes
        self._window_bytes = window_bytes
        self._window: list[Change] = []
        self._first = 0  # Changes before this index have left the window and wait to be removed together.
        self._bytes = 0
        self._bytes_gone = 0  # Of the changes that wait to be removed.
        self._audiences: dict[Kind, Audience] = {}

    def restore(self, changes: Sequence[Change]) -> list[Change]:
        """Add changes to the history without publishing them; return those that left the window."""
        for change in changes:
            self._window.append(change)
            self._bytes += change.size
        if changes:
            self.revision = changes[-1].revision
        return self._trim()

    def publish(self, changes: Sequence[Change]) -> list[Change]:
        """Publish changes to the watchers they match; return the changes that left the window."""
        slow: list[HubWatch] = []
        for change in changes:
            audience = self._audiences.get(change.kind)
            if audience is None:
                continue
            for channel in audience.concerned(change):
                event = channel.answer(change)
                if event is None:
                    continue
                slow += [watch for watch in channel.watches if not watch._put(event)]
        for watch in slow:
            self._expire(watch, "the watch fell too far behind")
        return self.restore(changes)

    def advance(self, revision: int) -> None:
        """Record that there are no other changes up to `revision`."""
        self.revision = max(self.revision, revision)

    def after(self, revision: int) -> Sequence[Change]:
        """Return the changes since `revision`; `Expired` if some of them are gone."""
        if revision < self.oldest:
            raise Expired(f"too old resource version: {revision} ({self.oldest})")
        begin = bisect_right(self._window, revision, lo=self._first, key=attrgetter("revision"))
        return self._window[begin:]

    def watch(self, kind: Kind, namespace: str, selector: Selector, since: int) -> HubWatch:
        """Return a watch that begins after `since`."""
        history = self.after(since)
        shelf = self._audiences.setdefault(kind, Audience()).shelf(selector)
        channel = shelf.setdefault((namespace, selector), Channel(kind, namespace, selector))
        answers = (channel.answer(change) for change in history if change.kind is kind)
        watch = HubWatch(self, channel, since, [event for event in answers if event is not None])
        channel.watches[watch] = None
        return watch

    def leave(self, watch: HubWatch, channel: Channel) -> None:
        """Remove a watcher."""
        if watch not in channel.watches:
            return
        del channel.watches[watch]
        if not channel.watches:
            self._audiences[channel.kind].forget(channel)

    def fail(self, error: NetloomError) -> None:
        """End every watch after its queued events."""
        for watch in self._watches():
            watch._fail(error)
            self.leave(watch, watch._channel)

    def forget(self) -> list[Change]:
        """Drop the history and return it.  Running watches continue; a watch from an older revision must list again."""
        gone = self._window[self._first :]
        self._window, self._first, self._bytes, self._bytes_gone = [], 0, 0, 0
        self.oldest = self.revision
        return gone

    def restart(self, revision: int) -> None:
        """Drop all history: changes up to `revision` were missed, so every watcher must list again."""
        for watch in self._watches():
            self._expire(watch, f"too old resource version: {watch._last} ({revision})")
        self.revision = revision
        self.forget()

    def _watches(self) -> list[HubWatch]:
        return [w for audience in self._audiences.values() for channel in audience for w in channel.watches]

    def _expire(self, watch: HubWatch, why: str) -> None:
        watch._queue.clear()
        watch._fail(Expired(f"{why}: list again"))
        self.leave(watch, watch._channel)

    def _trim(self) -> list[Change]:
        """Trim the window to its limits."""
        gone: list[Change] = []
        while len(self._window) - self._first > self._window_changes or self._bytes > self._window_bytes:
            change = self._window[self._first]
            self._first += 1
            self._bytes -= change.size
            self._bytes_gone += change.size
            self.oldest = change.revision
            gone.append(change)
        # Removing from the front of a list moves all of it, so it is done in steps, as is the search for slow watchers.
        many = self._first > 256 and self._first * 4 > len(self._window)
        if many or self._bytes_gone * 4 > self._window_bytes:
            del self._window[: self._first]
            self._first = self._bytes_gone = 0
            self._drop_laggards()
        return gone

    def _drop_laggards(self) -> None:
        for watch in self._watches():
            if watch._queue and watch._queue[0].object.revision <= self.oldest:
                self._expire(watch, "the watch fell too far behind")
