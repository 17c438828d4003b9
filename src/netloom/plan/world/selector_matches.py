"""Which ports a label selector selects, kept up to date as ports change.  Pure.

A selector is filed under labels that whatever it selects must have, so that a port that comes, goes or changes is
compared with the selectors of its own labels, not with all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from netloom.model.selection import LabelSelector, SelectorOperator
from netloom.model.selectors import Operator, Requirement
from netloom.plan.world.inputs import Port

_OPERATORS = {
    SelectorOperator.IN: Operator.IN,
    SelectorOperator.NOT_IN: Operator.NOT_IN,
    SelectorOperator.EXISTS: Operator.EXISTS,
    SelectorOperator.DOES_NOT_EXIST: Operator.ABSENT,
}


class Selection(NamedTuple):
    """A selector in a namespace, comparable and hashable."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    requirements: tuple[Requirement, ...]

    def matches(self, have: Mapping[str, str]) -> bool:
        """Whether labels are selected."""
        for key, value in self.labels:
            if have.get(key) != value:
                return False
        return all(requirement.matches(have) for requirement in self.requirements)

    def anchors(self) -> tuple[tuple[str, str], ...]:
        """Return labels one of which everything selected has; an empty value means any; none: nothing is known."""
        if self.labels:
            return self.labels[:1]
        for one in self.requirements:
            if one.operator is Operator.IN:
                return tuple((one.key, value) for value in sorted(one.values))
            if one.operator is Operator.EXISTS:
                return ((one.key, ANY),)
        return ()


ANY = "*"
"""No label's value, so that it can stand for all."""


def selection(namespace: str, selector: LabelSelector) -> Selection:
    """Return what a selector means in a namespace."""
    requirements = {
        Requirement(one.key, _OPERATORS[one.operator], frozenset(one.values)) for one in selector.match_expressions
    }
    return Selection(
        namespace,
        tuple(sorted(selector.match_labels.items())),
        tuple(sorted(requirements, key=lambda one: (one.key, one.operator, sorted(one.values)))),
    )


class Selections:
    """The selections somebody reads, and the names of the ports in each."""

    def __init__(self) -> None:
        self._ports: dict[Selection, dict[str, Port]] = {}
        self._filed: dict[tuple[str, str, str], set[Selection]] = {}

    def __contains__(self, one: Selection) -> bool:
        return one in self._ports

    def __getitem__(self, one: Selection) -> Mapping[str, Port]:
        return self._ports[one]

    def add(self, one: Selection, ports: Iterable[Port]) -> None:
        """Begin to follow a selection, among the ports of its namespace."""
        self._ports[one] = {port.name: port for port in ports if one.matches(port.labels)}
        for place in _places(one):
            self._filed.setdefault(place, set()).add(one)

    def drop(self, one: Selection) -> None:
        """Follow it no more."""
        del self._ports[one]
        for place in _places(one):
            self._filed[place].discard(one)
            if not self._filed[place]:
                del self._filed[place]

    def change(self, old: Port | None, new: Port | None) -> Iterator[Selection]:
        """Take note of a port's change; give the selections it was in, or is in now."""
        if not self._ports:
            return
        concerned = self._near(old) | self._near(new)
        for one in concerned:
            ports = self._ports[one]
            if old is not None and old.name in ports:
                if new is not None and one.matches(new.labels):
                    ports[new.name] = new
                else:
                    del ports[old.name]
                yield one
            elif new is not None and one.matches(new.labels):
                ports[new.name] = new
                yield one

    def _near(self, port: Port | None) -> set[Selection]:
        if port is None:
            return set()
        filed, namespace = self._filed, port.namespace
        found: set[Selection] = set(filed.get((namespace, "", ""), ()))
        for key, value in port.labels.items():
            found.update(filed.get((namespace, key, value), ()))
            found.update(filed.get((namespace, key, ANY), ()))
        return found


def _places(one: Selection) -> Iterator[tuple[str, str, str]]:
    anchors = one.anchors()
    if not anchors:
        yield one.namespace, "", ""
    for key, value in anchors:
        yield one.namespace, key, value
