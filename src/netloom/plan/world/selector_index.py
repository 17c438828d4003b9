"""Things filed by the selectors they are for, and found by labels.  Pure.

An attachment asks which profiles, sets and meters are for it, and there may be thousands that are not. So each is filed
under a label that everything its selector selects has; where there is no such label it is looked at each time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from netloom.plan.world.selector_matches import ANY, Selection

T = TypeVar("T")


class Filed(NamedTuple, Generic[T]):
    """Things filed."""

    by_label: dict[tuple[str, str], tuple[tuple[Selection, T], ...]]
    others: tuple[tuple[Selection, T], ...]

    def found(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Give the things that are for labels."""
        if self.by_label:
            for label in labels.items():
                for chosen, thing in self.by_label.get(label, ()):
                    if chosen.matches(labels):
                        yield thing
        for chosen, thing in self.others:
            if chosen.matches(labels):
                yield thing


def filed(entries: Iterable[tuple[Selection, T]]) -> Filed[T]:
    """Return things filed by their selections."""
    by_label: dict[tuple[str, str], list[tuple[Selection, T]]] = {}
    others: list[tuple[Selection, T]] = []
    for chosen, thing in entries:
        anchors = chosen.anchors()
        if not anchors or any(value == ANY for _, value in anchors):
            others.append((chosen, thing))
            continue
        for anchor in anchors:
            by_label.setdefault(anchor, []).append((chosen, thing))
    return Filed({label: tuple(found) for label, found in by_label.items()}, tuple(others))
