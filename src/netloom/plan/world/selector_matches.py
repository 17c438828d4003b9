"""Which ports a label selector selects, kept up to date as ports change.  Pure.

A selector is indexed by labels that every port it selects must have. So a port that appears, changes or disappears is
compared with the selectors of its own labels only.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from netloom.model.selection import LabelSelector, SelectorOperator
from netloom.model.values.selectors import Operator, Requirement
from netloom.plan.world.inputs import Port

_OPERATORS = {
    SelectorOperator.IN: Operator.IN,
    SelectorOperator.NOT_IN: Operator.NOT_IN,
    SelectorOperator.EXISTS: Operator.EXISTS,
    SelectorOperator.DOES_NOT_EXIST: Operator.ABSENT,
}


class ScopedSelector(NamedTuple):
    """A label selector in a namespace, comparable and hashable."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    requirements: tuple[Requirement, ...]

    def matches(self, have: Mapping[str, str]) -> bool:
        """Return whether the selector matches labels."""
        for key, value in self.labels:
            if have.get(key) != value:
                return False
        return all(requirement.matches(have) for requirement in self.requirements)

    def anchors(self) -> tuple[tuple[str, str], ...]:
        """Return labels of which every selected object has at least one; () if none are known.  `ANY` is any value."""
        if self.labels:
            return self.labels[:1]
        for one in self.requirements:
            if one.operator is Operator.IN:
                return tuple((one.key, value) for value in sorted(one.values))
            if one.operator is Operator.EXISTS:
                return ((one.key, ANY),)
        return ()


ANY = "*"
"""Stands for all values of a label; no label can have it."""


def selector_in(namespace: str, selector: LabelSelector) -> ScopedSelector:
    """Return a selector together with the namespace it applies to."""
    requirements = {
        Requirement(one.key, _OPERATORS[one.operator], frozenset(one.values)) for one in selector.match_expressions
    }
    return ScopedSelector(
        namespace,
        tuple(sorted(selector.match_labels.items())),
        tuple(sorted(requirements, key=lambda one: (one.key, one.operator, sorted(one.values)))),
    )


class SelectorMatches:
    """The selectors that plans read, and the ports that each selects."""

    def __init__(self) -> None:
        self._ports: dict[ScopedSelector, dict[str, Port]] = {}
        self._by_label: dict[tuple[str, str, str], set[ScopedSelector]] = {}

    def __contains__(self, one: ScopedSelector) -> bool:
        return one in self._ports

    def __getitem__(self, one: ScopedSelector) -> Mapping[str, Port]:
        return self._ports[one]

    def add(self, one: ScopedSelector, ports: Iterable[Port]) -> None:
        """Start to track a selector, given the ports of its namespace."""
        self._ports[one] = {port.name: port for port in ports if one.matches(port.labels)}
        for place in _index_keys(one):
            self._by_label.setdefault(place, set()).add(one)

    def drop(self, one: ScopedSelector) -> None:
        """Stop tracking a selector."""
        del self._ports[one]
        for place in _index_keys(one):
            self._by_label[place].discard(one)
            if not self._by_label[place]:
                del self._by_label[place]

    def change(self, old: Port | None, new: Port | None) -> Iterator[ScopedSelector]:
        """Record the change of a port; yield the selectors that selected it or select it now."""
        if not self._ports:
            return
        concerned = self._candidates(old) | self._candidates(new)
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

    def _candidates(self, port: Port | None) -> set[ScopedSelector]:
        if port is None:
            return set()
        by_label, namespace = self._by_label, port.namespace
        found: set[ScopedSelector] = set(by_label.get((namespace, "", ""), ()))
        for key, value in port.labels.items():
            found.update(by_label.get((namespace, key, value), ()))
            found.update(by_label.get((namespace, key, ANY), ()))
        return found


def _index_keys(one: ScopedSelector) -> Iterator[tuple[str, str, str]]:
    anchors = one.anchors()
    if not anchors:
        yield one.namespace, "", ""
    for key, value in anchors:
        yield one.namespace, key, value
