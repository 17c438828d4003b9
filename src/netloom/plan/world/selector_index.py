"""An index of values by the selectors they belong to, searched by labels.  Pure.

An attachment looks up the profiles, address sets and meters whose selectors match it, and there may be thousands that
do not. So each entry is stored under a label that every object its selector matches must have. A selector without such
a label is compared on each lookup.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from netloom.plan.world.selector_matches import ANY, ScopedSelector

T = TypeVar("T")


class SelectorIndex(NamedTuple, Generic[T]):
    """Values with their selectors."""

    by_label: dict[tuple[str, str], tuple[tuple[ScopedSelector, T], ...]]
    others: tuple[tuple[ScopedSelector, T], ...]

    def matching(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the values whose selectors match labels."""
        if self.by_label:
            for label in labels.items():
                for selector, value in self.by_label.get(label, ()):
                    if selector.matches(labels):
                        yield value
        for selector, value in self.others:
            if selector.matches(labels):
                yield value


def index_by_selector(entries: Iterable[tuple[ScopedSelector, T]]) -> SelectorIndex[T]:
    """Return an index of values by their selectors."""
    by_label: dict[tuple[str, str], list[tuple[ScopedSelector, T]]] = {}
    others: list[tuple[ScopedSelector, T]] = []
    for selector, value in entries:
        anchors = selector.anchors()
        if not anchors or any(text == ANY for _, text in anchors):
            others.append((selector, value))
            continue
        for anchor in anchors:
            by_label.setdefault(anchor, []).append((selector, value))
    return SelectorIndex({label: tuple(found) for label, found in by_label.items()}, tuple(others))
