"""The objects of one kind, by key and in order, and by the fields that lists select by.

A list whose selector fixes a field (`spec.node=n1`) looks at the objects that have that value, not at all of them: a
thousand agents that start together ask some dozen such questions each. An index is made when a field is first asked for
and maintained from then on; unused fields cost nothing.
"""

from bisect import bisect_left, bisect_right, insort
from itertools import islice

from netloom.model.values.selectors import Operator, Selector
from netloom.store.base import Page, Stored
from netloom.store.paging import token
from netloom.store.semantics import key_of

_NAME = "metadata.name"
_Index = dict[str, str | dict[str, None]]
"""Keys by a field's value; a single key is stored without a container."""


class Collection:
    """The objects of one kind."""

    __slots__ = ("_indexes", "items", "keys")

    def __init__(self, items: dict[str, Stored] | None = None, *, indexed: bool = True) -> None:
        self.items: dict[str, Stored] = items or {}
        self.keys: list[str] = sorted(self.items)
        self._indexes: dict[str, _Index] | None = {} if indexed else None

    def put(self, key: str, stored: Stored | None) -> None:
        """Set or remove one object."""
        old = self.items.get(key)
        for field, index in (self._indexes or {}).items():
            before = "" if old is None else old.facets().fields[field]
            after = "" if stored is None else stored.facets().fields[field]
            if old is not None and (stored is None or before != after):
                _remove(index, before, key)
            if stored is not None and (old is None or before != after):
                _add(index, after, key)
        if stored is None:
            if old is None:
                return  # It exists, but could not be read.
            del self.items[key]
            del self.keys[bisect_left(self.keys, key)]
            return
        if old is None:
            insort(self.keys, key)
        self.items[key] = stored

    def page(self, namespace: str, selector: Selector, revision: int, limit: int | None, start: str) -> Page:
        """Return a page of the objects after the key `start`."""
        keys = self._narrowed(namespace, selector)
        begin, end = 0, len(keys)
        if namespace:
            # "0" is the character after "/": everything between is of this namespace.
            begin, end = bisect_left(keys, namespace + "/"), bisect_left(keys, namespace + "0")
        if start:
            begin = max(begin, bisect_right(keys, start))
        chosen = (stored for stored in map(self.items.__getitem__, keys[begin:end]) if stored.selected(selector))
        if not limit:
            return Page(list(chosen), revision)
        items = list(islice(chosen, limit + 1))
        if len(items) <= limit:
            return Page(items, revision)
        items.pop()
        last = key_of(items[-1].namespace, items[-1].name)
        remaining = None if selector else end - begin - limit
        return Page(items, revision, token(revision, last), remaining)

    def _narrowed(self, namespace: str, selector: Selector) -> list[str]:
        """Return keys, in order, that include those of all selected objects."""
        if self._indexes is None or not self.items:
            return self.keys
        fewest: tuple[str, ...] | dict[str, None] | None = None
        least = len(self.items)
        for requirement in selector.fields:
            if requirement.operator is not Operator.IN or len(requirement.values) != 1:
                continue
            value = min(requirement.values)
            if requirement.key == _NAME:
                if namespace:
                    key = key_of(namespace, value)
                    return [key] if key in self.items else []
                continue
            found = self._index(self._indexes, requirement.key).get(value, {})
            keys = (found,) if isinstance(found, str) else found
            if len(keys) <= least:
                fewest, least = keys, len(keys)
        return self.keys if fewest is None else sorted(fewest)

    def _index(self, indexes: dict[str, _Index], field: str) -> _Index:
        index = indexes.get(field)
        if index is None:
            index = indexes[field] = {}
            for key, stored in self.items.items():
                _add(index, stored.facets().fields[field], key)
        return index


def _add(index: _Index, value: str, key: str) -> None:
    there = index.setdefault(value, key)
    if isinstance(there, dict):
        there[key] = None
    elif there != key:
        index[value] = {there: None, key: None}


def _remove(index: _Index, value: str, key: str) -> None:
    there = index[value]
    if isinstance(there, dict):
        del there[key]
    if not there or there == key:
        del index[value]
