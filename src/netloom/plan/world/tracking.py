"""Which unit read what, so that a change replans the units that read it.  Pure.

While a unit is planned, each query of the world is a *topic*; all topics that it read are its *footprint*. Thousands of
attachments make the same queries, so footprints are shared: a unit costs one entry, however much it reads.

A *shared* answer is computed from the world once for all units that read it. It reads topics and is a topic itself.
When a topic that it read changes, it is computed again, and its readers are planned again only if the result differs.
"""

from collections.abc import Callable, Container, Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from netloom.plan.problem import Unit

T = TypeVar("T")


class Answer:
    """A shared answer; as a topic it is compared by identity, which is fast."""

    __slots__ = ("arguments", "function", "value")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.value: Any = NOTHING


NOTHING: Any = object()
"""The value of an answer that is not computed yet, or could not be."""
Topic = tuple[Hashable, ...] | Answer
Footprint = frozenset[Topic]


class Tracker:
    """Footprints, and the units that must be planned again."""

    def __init__(self) -> None:
        self.reading: set[Topic] | None = None
        """The topics read by the unit that is being planned; None: none is."""
        self.dirty: set[Unit] = set()
        self.stale: set[Answer] = set()
        """Shared answers that must be computed again."""
        self._footprint: dict[Unit, Footprint] = {}
        self._units: dict[Footprint, set[Unit]] = {}
        self._footprints: dict[Topic, set[Footprint]] = {}
        self._interned: dict[Footprint, Footprint] = {}
        self._last: Footprint = frozenset()
        self._read_by_answer: dict[Answer, Footprint] = {}
        self._answers: dict[Topic, set[Answer]] = {}

    def touch(self, topic: Topic) -> None:
        """Mark the units and answers that read a topic for planning."""
        if (footprints := self._footprints.get(topic)) is not None:
            for footprint in footprints:
                self.dirty |= self._units[footprint]
        if (answers := self._answers.get(topic)) is not None:
            self.stale |= answers

    def is_read(self, topic: Topic) -> bool:
        """Return whether a unit or an answer read a topic."""
        return topic in self._footprints or topic in self._answers

    def note(self, unit: Unit, read: AbstractSet[Topic]) -> list[Topic]:
        """Record what a unit read; return the topics that have no reader any more."""
        old = self._footprint.get(unit)
        if old == read:
            return []
        footprint = self._last
        if footprint != read:  # Most units read what the one before them read.
            footprint = frozenset(read)
            footprint = self._last = self._interned.get(footprint, footprint)
        self._footprint[unit] = footprint
        units = self._units.get(footprint)
        if units is None:
            self._interned[footprint] = footprint
            units = self._units[footprint] = set()
            for topic in footprint:
                self._footprints.setdefault(topic, set()).add(footprint)
        units.add(unit)
        return [] if old is None else self._leave(unit, old)

    def forget(self, unit: Unit) -> list[Topic]:
        """Forget a unit; return the topics that have no reader any more."""
        old = self._footprint.pop(unit, None)
        return [] if old is None else self._leave(unit, old)

    def _leave(self, unit: Unit, footprint: Footprint) -> list[Topic]:
        units = self._units[footprint]
        units.discard(unit)
        if units:
            return []
        del self._units[footprint], self._interned[footprint]
        return _unread(self._footprints, footprint, footprint, self._answers)

    def note_answer(self, answer: Answer, read: Iterable[Topic]) -> list[Topic]:
        """Record what a shared answer read; return the topics that have no reader any more."""
        old = self._read_by_answer.get(answer, frozenset())
        new = frozenset(read)
        self._read_by_answer[answer] = new
        for topic in new - old:
            self._answers.setdefault(topic, set()).add(answer)
        return _unread(self._answers, answer, old - new, self._footprints)

    def forget_answer(self, answer: Answer) -> list[Topic]:
        """Forget a shared answer; return the topics that have no reader any more."""
        self.stale.discard(answer)
        return _unread(self._answers, answer, self._read_by_answer.pop(answer, frozenset()), self._footprints)


def _unread(readers: dict[Topic, set[T]], reader: T, topics: Iterable[Topic], others: Container[Topic]) -> list[Topic]:
    """Remove a reader of topics; return those that have no reader any more, here or among the others."""
    unread = []
    for topic in topics:
        readers[topic].discard(reader)
        if not readers[topic]:
            del readers[topic]
            if topic not in others:
                unread.append(topic)
    return unread
