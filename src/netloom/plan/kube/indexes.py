"""What plans of policies ask of a whole cluster, kept up to date as it changes, and which policies a change concerns.

    namespace changed ──► Namespaces, PolicyIndex.of_namespace ──► keys of policies to plan again
    pod changed ────────► NamedPorts ── (namespace, port) ──► PolicyIndex.of_port ──► keys of policies to plan again

A pod that comes, goes or changes its labels concerns no policy, unless it brings a number that a named port did not
have in its namespace, or takes the last of one: selectors are resolved where the attachments are.  Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netloom.model.kinds.kubernetes import ClusterNode, LabelSelector, Pod
from netloom.model.values import addresses
from netloom.plan.kube import names
from netloom.plan.kube.policies.matching import NamedPort
from netloom.plan.kube.policies.selecting import matches

_SelectorKey = tuple[object, ...]
LONGEST_PORT_NAME = 15


class PolicyKey(NamedTuple):
    """A policy; a ClusterNetworkPolicy has no namespace."""

    namespace: str
    name: str


class PortPlace(NamedTuple):
    """A named port in a namespace."""

    namespace: str
    port: NamedPort


def port_labels(pod: Pod) -> dict[str, str]:
    """Return the labels that the attachment of a pod has for its named ports."""
    return {names.port_label(*port): str(number) for port, number in _named_ports(pod).items()}


def _named_ports(pod: Pod) -> dict[NamedPort, int]:
    found: dict[NamedPort, int] = {}
    for port in pod.ports:
        if 0 < len(port.name) <= LONGEST_PORT_NAME and 0 < port.container_port < 65536:
            found.setdefault(NamedPort(port.protocol, port.name), port.container_port)
    return found


class Namespaces:
    """The labels of all namespaces, searched by selectors."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._selected: dict[_SelectorKey, tuple[str, ...]] = {}

    def put(self, name: str, labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Add or change a namespace, or with None remove it; return the labels that it had."""
        old = self._labels.get(name)
        if labels is None:
            self._labels.pop(name, None)
        else:
            self._labels[name] = labels
        if old != labels:
            self._selected.clear()
        return old

    def selected(self, selector: LabelSelector) -> tuple[str, ...]:
        """Return the namespaces that a selector selects, sorted."""
        key = _selector_key(selector)
        found = self._selected.get(key)
        if found is None:
            chosen = (name for name, labels in self._labels.items() if matches(selector, labels))
            found = self._selected[key] = tuple(sorted(chosen))
        return found


class NamedPorts:
    """The numbers of the named ports of all pods."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[NamedPort, int]] = {}
        self._numbers: dict[PortPlace, Counter[int]] = {}

    def put(self, namespace: str, name: str, pod: Pod | None) -> set[PortPlace]:
        """Add or change a pod, or with None remove it; return the ports whose numbers in its namespace changed.

        A pod without an attachment, as one in the network of its host, is not added.
        """
        old = self._of.pop((namespace, name), {})
        new = _named_ports(pod) if pod is not None else {}
        if new:
            self._of[namespace, name] = new
        if old == new:
            return set()
        changed = set()
        for port, number in new.items():
            for place in (PortPlace(namespace, port), PortPlace("", port)):
                numbers = self._numbers.setdefault(place, Counter())
                numbers[number] += 1
                if numbers[number] == 1:
                    changed.add(place)
        for port, number in old.items():
            for place in (PortPlace(namespace, port), PortPlace("", port)):
                numbers = self._numbers[place]
                numbers[number] -= 1
                if not numbers[number]:
                    del numbers[number]
                    changed.add(place)
                if not numbers:
                    del self._numbers[place]
        return {place for place in changed if place.namespace}

    def numbers(self, namespace: str, protocol: str, name: str) -> Iterable[int]:
        """Return the numbers of a named port in a namespace, or with "" in all."""
        return self._numbers.get(PortPlace(namespace, NamedPort(protocol, name)), ())


class PolicyIndex:
    """The policies whose plans depend on the labels of namespaces, or on the numbers of named ports."""

    def __init__(self) -> None:
        self._policies: dict[PolicyKey, tuple[tuple[_SelectorKey, ...], frozenset[NamedPort]]] = {}
        self._selectors: dict[_SelectorKey, tuple[LabelSelector, set[PolicyKey]]] = {}
        self._ports: dict[NamedPort, set[PolicyKey]] = {}

    def put(self, key: PolicyKey, selectors: Iterable[LabelSelector] = (), ports: Iterable[NamedPort] = ()) -> None:
        """Set the selectors of namespaces and the named ports of a policy; without any, remove it."""
        old, old_ports = self._policies.pop(key, ((), frozenset()))
        for one in old:
            _, readers = self._selectors[one]
            readers.discard(key)
            if not readers:
                del self._selectors[one]
        for port in old_ports:
            self._ports[port].discard(key)
            if not self._ports[port]:
                del self._ports[port]
        found = {_selector_key(selector): selector for selector in selectors}
        for one, selector in found.items():
            self._selectors.setdefault(one, (selector, set()))[1].add(key)
        named = frozenset(ports)
        for port in named:
            self._ports.setdefault(port, set()).add(key)
        if found or named:
            self._policies[key] = tuple(found), named

    def of_namespace(self, old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> set[PolicyKey]:
        """Return the policies that a change of a namespace's labels concerns; None: there is no such namespace."""
        found: set[PolicyKey] = set()
        for selector, readers in self._selectors.values():
            before, now = old is not None and matches(selector, old), new is not None and matches(selector, new)
            if before is not now:
                found |= readers
        return found

    def of_port(self, port: NamedPort) -> set[PolicyKey]:
        """Return the policies that a change of the numbers of a named port concerns."""
        return set(self._ports.get(port, ()))


def _selector_key(selector: LabelSelector) -> _SelectorKey:
    expressions = ((one.key, one.operator, one.values) for one in selector.match_expressions)
    return (*sorted(selector.match_labels.items()), *expressions)


class NodeAddresses:
    """The addresses of all nodes, searched by selectors of their labels."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {}

    def put(self, name: str, node: ClusterNode | None) -> bool:
        """Add or change a node, or with None remove it; return whether something that is searched changed."""
        old = self._nodes.pop(name, None)
        new = None if node is None else (node.metadata.labels, tuple(_addresses(node)))
        if new is not None:
            self._nodes[name] = new
        return old != new

    def selected(self, selector: LabelSelector) -> list[str]:
        """Return the addresses of the nodes that a selector selects, sorted."""
        return sorted({ip for labels, ips in self._nodes.values() if matches(selector, labels) for ip in ips})


def _addresses(node: ClusterNode) -> Iterable[str]:
    for one in node.status.addresses:
        if one.type in ("InternalIP", "ExternalIP") and addresses.is_ip(one.address):
            yield addresses.canonical(one.address)
