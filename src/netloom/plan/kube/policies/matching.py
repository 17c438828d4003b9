"""What the rules of policies of Kubernetes match, as peers and ports of SecurityProfiles.  Pure.

NetworkPolicies (`policies.py`) and ClusterNetworkPolicies (`cluster_policies.py`) have it in common. What cannot be
expressed is left out and reported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple, TypeVar

from netloom.model.kinds import kubernetes
from netloom.model.kinds.kubernetes import NetworkPolicyPeer, NetworkPolicyPort
from netloom.model.kinds.policy import Peer, PortRange, RuleProtocol, SecurityProfile, SecurityProfileSpec
from netloom.model.registry import SECURITY_PROFILE
from netloom.model.selection import LabelRequirement, LabelSelector, SelectorOperator
from netloom.plan.kube import names
from netloom.plan.kube.blocks import BlockError, remaining
from netloom.plan.kube.planned import ClusterSettings, meta
from netloom.plan.kube.policies.selecting import TooComplexError, alternatives
from netloom.plan.problem import Problem

T = TypeVar("T")

MOST_PEERS = 32
MOST_PORTS = 32
MOST_RULES = 64
MOST_EXCEPTIONS = 16
"""The limits of a SecurityProfile."""
MOST_PROFILES = 32
"""How many profiles one policy may become: a bound for what one user can cause."""
MOST_IN_POLICY = MOST_PROFILES * MOST_RULES + 1
"""From how many rules on the rest of a policy needs more profiles than it may have."""
_PROTOCOLS = {"TCP": RuleProtocol.TCP, "UDP": RuleProtocol.UDP, "SCTP": RuleProtocol.SCTP}

SelectNamespaces = Callable[[kubernetes.LabelSelector], Sequence[str]]
"""Returns the namespaces that a selector selects, sorted."""
FindPorts = Callable[[str, str, str], Iterable[int]]
"""Returns the numbers that a protocol and a name of a port have among the pods of a namespace, "" of all."""


class NamedPort(NamedTuple):
    """A port to which a policy refers by name."""

    protocol: str
    name: str


class Matches:
    """What the rules of one policy match."""

    def __init__(self, title: str, own: str, namespaces: SelectNamespaces, ports: FindPorts) -> None:
        """`title` is the policy, for messages; `own` its namespace."""
        self.title = title
        self.own = own
        self.problems: dict[Problem, None] = {}
        self._namespaces = namespaces
        self._ports = ports

    def numbers(self, peers: Iterable[NetworkPolicyPeer], named: Iterable[NamedPort]) -> list[tuple[NamedPort, int]]:
        """Return the numbers that named ports have in the pods that peers select, sorted."""
        within = self.reach(peers)
        found = {(port, number) for port in named for one in within for number in self._ports(one, *port)}
        return sorted(found)

    def rules(
        self, where: str, peers: Sequence[NetworkPolicyPeer], ports: Sequence[NetworkPolicyPort]
    ) -> Iterator[tuple[tuple[Peer, ...], tuple[PortRange, ...]]]:
        """Yield the peers and the ports of rules, as many as their limits need, for ports with numbers."""
        ranges = self.ranges(where.rpartition(".")[0], ports)
        if ranges != []:
            yield from product(chunks(self.peers(where, peers), MOST_PEERS), chunks(ranges, MOST_PORTS))

    def named_egress(
        self, at: str, to: Sequence[NetworkPolicyPeer], named: NamedPort
    ) -> Iterator[tuple[tuple[Peer, ...], tuple[PortRange, ...]]]:
        """Yield what egress to a named port matches: for each of its numbers, the pods in which it has that."""
        given = to or (NetworkPolicyPeer(namespace_selector=kubernetes.LabelSelector()),)
        if any(peer.ip_block is not None for peer in given):
            said = f"{self.title}: {at}: no address of an ipBlock is known to have a port named {named.name}"
            self.report("PortUnknown", f"{said}: give its number")
        within = self.reach(given)
        for number in sorted({number for one in within for number in self._ports(one, *named)}):
            label = {names.port_label(*named): str(number)}
            peers = self.peers(at, given, label)
            yield from ((some, (numbered(named, number),)) for some in chunks(peers, MOST_PEERS))

    def reach(self, peers: Iterable[NetworkPolicyPeer]) -> set[str]:
        """Return the namespaces in which peers select pods; "" stands for all."""
        found: set[str] = set()
        for peer in peers:
            if peer.namespace_selector is not None:
                chosen = self.chosen(peer.namespace_selector)
                found.update([""] if chosen is None else chosen)
            elif peer.pod_selector is not None:
                found.add(self.own)
        return {""} if "" in found else found

    def ranges(self, where: str, ports: Sequence[NetworkPolicyPort]) -> list[PortRange] | None:
        """Return the ports with numbers; None for all traffic, [] if there are none."""
        if not ports:
            return None
        found: dict[PortRange, None] = {}
        for port in ports:
            if (protocol := _PROTOCOLS.get(port.protocol)) is None:
                said = f"{self.title}: {where}.ports: protocol {port.protocol!r:.64} cannot be matched"
                self.report("Unsupported", said)
            elif not isinstance(port.port, str):
                end = port.end_port if port.end_port is not None and port.end_port != port.port else None
                if port.port is None or (0 < port.port < 65536 and (end is None or port.port < end < 65536)):
                    found[PortRange(protocol=protocol, port=port.port, end_port=end)] = None
                else:
                    self.report("Unsupported", f"{self.title}: {where}.ports: port {port.port} to {end} is no range")
        return list(found)

    def peers(
        self, where: str, peers: Sequence[NetworkPolicyPeer], labels: dict[str, str] | None = None
    ) -> list[Peer] | None:
        """Return peers; None for anyone, [] for nobody. With `labels`, only pods that have these as well."""
        if not peers:
            return None
        found: list[Peer] = []
        for position, peer in enumerate(peers):
            at = f"{where}[{position}]"
            if peer.ip_block is None:
                found += (Peer(selector=one) for one in self.pods(at, peer, labels or {}))
            elif labels is None:  # Which port has the name is known of pods only.
                found += self._blocks(at, peer)
        return found

    def pods(self, at: str, peer: NetworkPolicyPeer, labels: dict[str, str]) -> Iterator[LabelSelector]:
        """Yield selectors of the pods of a peer that have `labels` as well."""
        pods = peer.pod_selector or kubernetes.LabelSelector()
        if peer.namespace_selector is None:
            if peer.pod_selector is not None:
                yield from self.selectors(f"{at}.podSelector", pods, {names.OF_NAMESPACE: self.own, **labels})
            return
        chosen = self.chosen(peer.namespace_selector)
        if chosen is None:
            inside = LabelRequirement(key=names.OF_NAMESPACE, operator=SelectorOperator.EXISTS)
        elif chosen:
            inside = LabelRequirement(key=names.OF_NAMESPACE, operator=SelectorOperator.IN, values=tuple(chosen))
        else:
            return
        yield from self.selectors(f"{at}.podSelector", pods, labels, inside)

    def chosen(self, selector: kubernetes.LabelSelector) -> Sequence[str] | None:
        """Return the namespaces that a selector selects; None for all, now and later."""
        if not selector.match_labels and not selector.match_expressions:
            return None
        return self._namespaces(selector)

    def selectors(
        self, at: str, pods: kubernetes.LabelSelector, labels: dict[str, str], *others: LabelRequirement
    ) -> list[LabelSelector]:
        """Return selectors of attachments; an attachment that is selected is selected by one of them."""
        try:
            return alternatives(pods, labels, others)
        except TooComplexError as error:
            self.report("SelectorTooLong", f"{self.title}: {at}: {error}")
            return []

    def _blocks(self, at: str, peer: NetworkPolicyPeer) -> list[Peer]:
        assert peer.ip_block is not None
        try:
            cidr, exceptions, left = remaining(peer.ip_block.cidr, peer.ip_block.except_, MOST_EXCEPTIONS)
        except BlockError as error:
            self.report("NotABlock", f"{self.title}: {at}.ipBlock: {error}")
            return []
        if left is None:
            return [Peer(cidr=cidr, except_=exceptions)]
        return [Peer(cidr=one) for one in left]

    def report(self, reason: str, message: str) -> None:
        """Note a problem."""
        self.problems[Problem(reason, message)] = None


def profile(settings: ClusterSettings, name: str, labels: dict[str, str], spec: SecurityProfileSpec) -> SecurityProfile:
    """Return a profile that is made for the cluster."""
    return SecurityProfile(
        api_version=SECURITY_PROFILE.api_version,
        kind=SECURITY_PROFILE.name,
        metadata=meta(settings, name, labels),
        spec=spec,
    )


def numbered(named: NamedPort, number: int) -> PortRange:
    """Return a named port where it has a number."""
    return PortRange(protocol=_PROTOCOLS[named.protocol], port=number)


def chunks(items: Sequence[T] | None, size: int) -> list[tuple[T, ...]]:
    """Return items in parts; one empty part for "any", which a rule says by an empty list; none for no items."""
    if items is None:
        return [()]
    rest = iter(items)
    return list(iter(lambda: tuple(islice(rest, size)), ()))


def named_in(ports: Iterable[NetworkPolicyPort]) -> Iterator[NamedPort]:
    """Yield the ports that have names."""
    for port in ports:
        if isinstance(port.port, str) and port.protocol in _PROTOCOLS:
            yield NamedPort(port.protocol, port.port)
