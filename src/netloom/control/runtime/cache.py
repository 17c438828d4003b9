"""The cache of an informer: a copy of part of the store, with indexes.  Pure: no IO, no clock.

In whatever order lists and watch events arrive, and however often, the copy ends as the state of the store at the
newest revision received. A new list is compared with the copy, so that a deletion that no watch reported is still a
change. An object that cannot be decoded is treated as absent and kept in `undecodable`: it does not affect other
objects.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from netloom.store.base import Event, EventType, Stored

V = TypeVar("V")


class Key(NamedTuple):
    """The namespace and the name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Change(Struct, Generic[V], frozen=True, eq=False):
    """A change of one object.  A hint to reconcile its key; never act on the change itself."""

    key: Key
    old: V | None
    new: V | None


Indexer = Callable[[V], Iterable[str]]


class _Decoded(NamedTuple, Generic[V]):
    """One object of a list.  Its bytes are not kept: a list of fifty thousand is too much to have twice."""

    revision: int
    value: V | None
    error: str = ""


Listed = dict[Key, _Decoded[V] | None]
"""The part of a list that was received; None for an object that the cache has at the same revision."""


class Cache(Generic[V]):
    """A copy of the objects of one kind, as values."""

    def __init__(self, decode: Callable[[Stored], V], indexes: Mapping[str, Indexer[V]] | None = None) -> None:
        self.revision = 0
        """The cache has all changes up to this revision."""
        self.undecodable: dict[Key, str] = {}
        self._decode = decode
        self._indexers = dict(indexes or {})
        self._values: dict[Key, V] = {}
        self._revisions: dict[Key, int] = {}
        self._indexes: dict[str, dict[str, Key | dict[Key, None]]] = {name: {} for name in self._indexers}
        """An entry of a single object is its key, without a dict: most entries of most indexes are."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._values.values()))

    def items(self) -> list[tuple[Key, V]]:
        """Return all objects with their keys."""
        return list(self._values.items())

    def get(self, namespace: str, name: str) -> V | None:
        """Return one object, or None."""
        return self._values.get(Key(namespace, name))

    def indexed(self, index: str, value: str) -> list[V]:
        """Return the objects for which the function of the index returns `value`."""
        found = self._indexes[index].get(value)
        if found is None:
            return []
        return [self._values[found]] if isinstance(found, Key) else [self._values[key] for key in found]

    def add_page(self, listed: Listed[V], items: Iterable[Stored]) -> None:
        """Add a page of a list to what was `listed` before; do not decode again what the cache has."""
        for item in items:
            key = Key(item.namespace, item.name)
            known = self._revisions.get(key) == item.revision
            listed[key] = None if known else _decoded(self._decode, item)

    def finish(self, listed: Listed[V], revision: int) -> list[Change[V]]:
        """Replace the content by what was listed, at `revision`; return what changed."""
        changes: list[Change[V]] = []
        for key, decoded in listed.items():
            if decoded is not None:
                changes += self._put(key, decoded)
        for key in [key for key in self._revisions if key not in listed]:
            changes += self._remove(key)
        self.revision = revision
        return changes

    def apply(self, events: Sequence[Event], revision: int) -> list[Change[V]]:
        """Apply the events of a watch, up to `revision`; events older than the cache change nothing."""
        changes: list[Change[V]] = []
        for event in events:
            item = event.object
            if item.revision <= self.revision:
                continue
            key = Key(item.namespace, item.name)
            if event.type is EventType.DELETED:
                changes += self._remove(key)
            else:
                changes += self._put(key, _decoded(self._decode, item))
        self.revision = max(self.revision, revision, *(event.object.revision for event in events))
        return changes

    def _put(self, key: Key, item: _Decoded[V]) -> list[Change[V]]:
        value = item.value
        if value is None:
            gone = self._remove(key)
            self.undecodable[key] = item.error
            self._revisions[key] = item.revision
            return gone
        self.undecodable.pop(key, None)
        self._revisions[key] = item.revision
        old = self._values.get(key)
        self._unindex(key, old)
        self._values[key] = value
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for entry in indexer(value):
                there = index.setdefault(entry, key)
                if isinstance(there, dict):
                    there[key] = None
                elif there != key:
                    index[entry] = {there: None, key: None}
        return [Change(key, old, value)]

    def _remove(self, key: Key) -> list[Change[V]]:
        self.undecodable.pop(key, None)
        self._revisions.pop(key, None)
        old = self._values.pop(key, None)
        if old is None:
            return []
        self._unindex(key, old)
        return [Change(key, old, None)]

    def _unindex(self, key: Key, old: V | None) -> None:
        if old is None:
            return
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for entry in indexer(old):
                there = index.get(entry)
                if isinstance(there, dict):
                    there.pop(key, None)
                if not there or there == key:
                    index.pop(entry, None)


def _decoded(decode: Callable[[Stored], V], item: Stored) -> _Decoded[V]:
    try:
        return _Decoded(item.revision, decode(item))
    except (msgspec.MsgspecError, ValueError) as error:
        return _Decoded(item.revision, None, str(error))
