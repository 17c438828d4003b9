"""The recorder of Kubernetes Events.

Recording must never delay or fail the caller: `normal` and `warning` put a note into a bounded buffer and return; `run`
writes the notes. A note that repeats one about the same object increases `count` and `lastTimestamp` of its Event. One
object cannot fill the store: each has a burst of 25 notes and one more every five minutes, as with client-go. Times
have microseconds where the store keeps them; Kubernetes truncates those of an Event to seconds.

The notes are written in groups, all of a group at the same time, so that they share a commit of the store or a request.
A group is small compared with what the controllers write at full speed, because their writes matter more. Further notes
wait in the buffer. When the buffer is full, a warning replaces the oldest normal note; other notes are dropped and
counted. Warnings are written first.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import NoReturn, TypeVar

from msgspec import Struct

from netloom.control.runtime.clock import Clock, micro
from netloom.control.runtime.clock import now as time_of_day
from netloom.errors import Conflict, Forbidden, NetloomError, NotFound
from netloom.model.document import Document, Resource
from netloom.model.kinds.events import Event, EventSource, ObjectReference
from netloom.model.registry import EVENT
from netloom.store.base import Store, Stored

K = TypeVar("K")
V = TypeVar("V")

logger = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
BURST = 25
REFILL = 300.0
REMEMBERED = 4096
BUFFERED = 8192
"""Enough for a burst of attachments as large as a /20; a note takes about a kilobyte."""
GROUP = 32
LONGEST_MESSAGE = 1024
RETRY = 1.0


class Note(Struct, frozen=True):
    """One thing to record.  Equal notes become one Event with a count."""

    object: ObjectReference
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Pending:
    count: int
    first: datetime
    last: datetime


@dataclass(slots=True)
class Bucket:
    """A token bucket.  Pure: time is an argument."""

    tokens: float = BURST
    at: float = 0.0
    burst: float = BURST
    refill: float = REFILL
    """Seconds until one more may be written."""

    def take(self, now: float) -> bool:
        """Take one token if there is one."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) / self.refill)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class RecorderCounters:
    """Counters of the notes."""

    written: int = 0
    dropped: int = 0
    failed: int = 0


def reference(value: Resource) -> ObjectReference:
    """Return the reference to an object for its Events."""
    return ObjectReference(
        kind=value.kind,
        namespace=value.metadata.namespace,
        name=value.metadata.name,
        uid=value.metadata.uid,
        api_version=value.api_version,
        resource_version=value.metadata.resource_version,
    )


class Recorder:
    """Writes Events in the name of one component."""

    def __init__(
        self, store: Store, component: str, *, random: Random, host: str = "", clock: Clock = time_of_day
    ) -> None:
        self.counters = RecorderCounters()
        self._store = store
        self._source = EventSource(component=component, host=host)
        self._random = random
        self._clock = clock
        self._events: OrderedDict[Note, Stored] = OrderedDict()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._pending: dict[str, OrderedDict[Note, _Pending]] = {WARNING: OrderedDict(), NORMAL: OrderedDict()}
        """By type, in the order of importance."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def normal(self, target: Resource | ObjectReference, reason: str, message: str) -> None:
        """Record an expected event about an object."""
        self._record(target, NORMAL, reason, message)

    def warning(self, target: Resource | ObjectReference, reason: str, message: str) -> None:
        """Record a problem of an object."""
        self._record(target, WARNING, reason, message)

    def _record(self, target: Resource | ObjectReference, type_: str, reason: str, message: str) -> None:
        to = reference(target) if isinstance(target, Resource) else target
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        # Without its revision: the same note about a later version of the object is a repetition.
        known = ObjectReference(
            kind=to.kind, namespace=to.namespace, name=to.name, uid=to.uid, api_version=to.api_version
        )
        note = Note(known, type_, reason, message)
        now = self._clock()
        if pending := self._pending[type_].get(note):
            pending.count += 1
            pending.last = now
            return
        of = to.uid or f"{to.kind}/{to.namespace}/{to.name}"
        bucket = self._buckets.get(of) or Bucket()
        _remember(self._buckets, of, bucket)
        # A full buffer takes one more warning instead of a note that is less important.
        has_space = self.waiting < BUFFERED or (type_ == WARNING and bool(self._pending[NORMAL]))
        if not has_space or not bucket.take(asyncio.get_running_loop().time()):
            self.counters.dropped += 1
            return
        self._pending[type_][note] = _Pending(1, now, now)
        if self.waiting > BUFFERED:
            self._pending[NORMAL].popitem(last=False)
            self.counters.dropped += 1
        self._idle.clear()
        self._wake.set()

    @property
    def waiting(self) -> int:
        """How many notes wait to be written."""
        return sum(map(len, self._pending.values()))

    async def run(self) -> NoReturn:
        """Write notes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while group := self._next():
                async with asyncio.TaskGroup() as writing:
                    for note, pending in group:
                        writing.create_task(self._write(note, pending))
            self._idle.set()

    def _next(self) -> list[tuple[Note, _Pending]]:
        """Take the next notes to write; no two of them are equal."""
        group: list[tuple[Note, _Pending]] = []
        for notes in self._pending.values():
            while notes and len(group) < GROUP:
                group.append(notes.popitem(last=False))
        return group

    async def flush(self) -> None:
        """Wait until all notes are written or dropped; call it only while `run` runs."""
        await self._idle.wait()

    async def _write(self, note: Note, pending: _Pending) -> None:
        try:
            try:
                stored = await self._once(note, pending)
            except NetloomError as error:
                # Try once more: the Event has expired, another writer updated it, or the store was unreachable for a
                # moment. An agent gets Forbidden for an expired Event: the API hides from nodes whether it exists.
                self._events.pop(note, None)
                if not isinstance(error, NotFound | Conflict | Forbidden):
                    await asyncio.sleep(RETRY * self._random.uniform(0.5, 1.0))
                stored = await self._once(note, pending)
        except NetloomError as error:
            self.counters.failed += 1
            logger.info("cannot write the Event %s (%s): %s", note.reason, note.message, error)
            return
        _remember(self._events, note, stored)
        self.counters.written += 1

    async def _once(self, note: Note, pending: _Pending) -> Stored:
        if known := self._events.get(note):
            document = known.document()
            document["count"] = document.get("count", 1) + pending.count
            document["lastTimestamp"] = micro(pending.last)
            return await self._store.update(EVENT, document)
        return await self._store.create(EVENT, self._new(note, pending))

    def _new(self, note: Note, pending: _Pending) -> Document:
        to = note.object
        event = Event(
            api_version=EVENT.api_version,
            kind=EVENT.name,
            involved_object=to,
            reason=note.reason,
            message=note.message,
            type=note.type,
            source=self._source,
            first_timestamp=micro(pending.first),
            last_timestamp=micro(pending.last),
            count=pending.count,
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )
        # The same format as client-go's; a name has at most 253 characters.
        name = f"{to.name[:236]}.{self._random.getrandbits(64):016x}"
        return EVENT.document(event) | {"metadata": {"name": name, "namespace": to.namespace or "default"}}


def _remember(within: OrderedDict[K, V], key: K, value: V) -> None:
    """Set an entry; drop the least recently set one if there are too many."""
    within[key] = value
    within.move_to_end(key)
    if len(within) > REMEMBERED:
        within.popitem(last=False)
