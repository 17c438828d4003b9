"""NetworkPolicies as SecurityProfiles.  Pure.

Both close a direction for the pods that they select, both are additive, so a policy becomes a profile, rule by rule:

- The selectors select attachments by their labels: the pod's own, and the label of its namespace. A namespaceSelector
  becomes the list of the namespaces that it selects now (`Namespaces`); one that is empty selects all pods.
- A named port has another number in each pod. A pod's attachment has a label for each of its named ports. So ingress
  to a named port becomes one more profile for each number, for the pods with that label; egress to one becomes a rule
  for each number, to the pods with that label.
- The host of every node may connect to every pod, for probes. It is the profile `hosts` that has their attachments.
- What one profile has no room for is spread over several.

A rule whose peers select nothing allows nothing: it is left out, because a rule without peers allows everyone. A rule
that cannot be expressed is left out too, and reported: less is allowed then, never more. Only a podSelector of the
policy itself that cannot be expressed leaves the whole policy without effect.

`indexes.py` says which policies a change concerns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, product
from typing import NamedTuple, TypeVar

from netloom.model.kinds import kubernetes
from netloom.model.kinds.kubernetes import (
    NetworkPolicy,
    NetworkPolicyEgressRule,
    NetworkPolicyIngressRule,
    NetworkPolicyPeer,
    NetworkPolicyPort,
)
from netloom.model.kinds.policy import (
    EgressRule,
    IngressRule,
    Peer,
    PortRange,
    RuleProtocol,
    SecurityProfile,
    SecurityProfileSpec,
)
from netloom.model.registry import SECURITY_PROFILE
from netloom.model.selection import LabelRequirement, LabelSelector, SelectorOperator
from netloom.plan.kube import names
from netloom.plan.kube.blocks import BlockError, remaining
from netloom.plan.kube.planned import ClusterSettings, Planned, meta
from netloom.plan.kube.selecting import TooComplexError, alternatives
from netloom.plan.problem import Problem

T = TypeVar("T")

MOST_PEERS = 32
MOST_PORTS = 32
MOST_RULES = 64
MOST_EXCEPTIONS = 16
"""The limits of a SecurityProfile."""
MOST_PROFILES = 32
"""How many profiles one policy may become: a bound for what one user can cause."""
MOST_IN_POLICY = MOST_PROFILES * MOST_RULES
_PROTOCOLS = {"TCP": RuleProtocol.TCP, "UDP": RuleProtocol.UDP, "SCTP": RuleProtocol.SCTP}

SelectNamespaces = Callable[[kubernetes.LabelSelector], Sequence[str]]
"""Returns the namespaces that a selector selects, sorted."""
FindPorts = Callable[[str, str, str], Iterable[int]]
"""Returns the numbers that a protocol and a name of a port have among the pods of a namespace, "" of all."""


class NamedPort(NamedTuple):
    """A port to which a policy refers by name."""

    protocol: str
    name: str


def plan_hosts(settings: ClusterSettings) -> Planned:
    """Return the profile of the nodes' attachments: it restricts nothing, and policies name it as a peer."""
    spec = SecurityProfileSpec(selector=LabelSelector(match_labels={names.HOST: "true"}))
    return Planned(objects=(_profile(settings, names.HOSTS, {}, spec),))


def plan_policy(
    settings: ClusterSettings, policy: NetworkPolicy, namespaces: SelectNamespaces, ports: FindPorts
) -> Planned:
    """Return the SecurityProfiles of a NetworkPolicy."""
    return _Plan(settings, policy, namespaces, ports).plan()


def closes(policy: NetworkPolicy) -> tuple[bool, bool]:
    """Return whether a policy closes ingress and egress of the pods that it selects."""
    types = policy.spec.policy_types
    if types:
        return "Ingress" in types, "Egress" in types
    return True, bool(policy.spec.egress)


def named_ports(policy: NetworkPolicy) -> set[NamedPort]:
    """Return the ports to which a policy refers by name: their numbers are part of the plan."""
    spec = policy.spec
    ports = [*(rule.ports for rule in spec.ingress), *(rule.ports for rule in spec.egress)]
    return {named for some in ports for named in _named(some)}


def namespace_selectors(policy: NetworkPolicy) -> Iterator[kubernetes.LabelSelector]:
    """Yield the selectors of namespaces whose results are part of the plan: the empty one never changes."""
    spec = policy.spec
    peers = [*(one for rule in spec.ingress for one in rule.from_), *(one for rule in spec.egress for one in rule.to)]
    for peer in peers:
        selector = peer.namespace_selector
        if selector is not None and (selector.match_labels or selector.match_expressions):
            yield selector


class _Plan:
    """The translation of one policy."""

    def __init__(
        self, settings: ClusterSettings, policy: NetworkPolicy, namespaces: SelectNamespaces, ports: FindPorts
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._own = policy.metadata.namespace
        self._namespaces = namespaces
        self._ports = ports
        self._problems: dict[Problem, None] = {}

    def plan(self) -> Planned:
        spec = self._policy.spec
        ingress, egress = closes(self._policy)
        where = "spec.podSelector"
        selected = self._selectors(where, spec.pod_selector, {names.OF_NAMESPACE: self._own})
        inward: list[IngressRule] | None = None
        outward: list[EgressRule] | None = None
        if ingress:
            inward = [IngressRule(from_=(Peer(profile=names.HOSTS),))]
            for position, rule in enumerate(spec.ingress):
                _extend(inward, self._ingress(f"spec.ingress[{position}]", rule))
        if egress:
            outward = []
            for position, away in enumerate(spec.egress):
                _extend(outward, self._egress(f"spec.egress[{position}]", away))
        profiles = self._profiles(selected, inward, outward)
        numbered = (self._named(*one) for one in (self._numbers(spec.ingress) if ingress else ()))
        found = list(islice(chain(profiles, chain.from_iterable(numbered)), MOST_PROFILES + 1))
        if len(found) > MOST_PROFILES:
            said = f"its rules and named ports need more than {MOST_PROFILES} profiles: the rest of them allows nothing"
            self._report("TooManyRules", f"{self._title}: {said}")
        return Planned(objects=tuple(found[:MOST_PROFILES]), problems=tuple(self._problems))

    # Profiles.

    def _profiles(
        self,
        selected: Sequence[LabelSelector],
        ingress: Sequence[IngressRule] | None,
        egress: Sequence[EgressRule] | None,
        port: str = "",
    ) -> Iterator[SecurityProfile]:
        """Yield the profiles of rules, as many as their limits need, for each selector."""
        chunks = max(1, -(-max(len(ingress or ()), len(egress or ())) // MOST_RULES))
        # The first part of each selector comes first: it closes the direction, the others only allow more.
        for part, (chunk, selector) in enumerate(product(range(chunks), selected), 1):
            first = chunk * MOST_RULES
            spec = SecurityProfileSpec(
                selector=selector,
                ingress=_slice(ingress, first),
                egress=_slice(egress, first),
            )
            name = names.policy(self._own, self._policy.metadata.name, part=part, port=port)
            yield _profile(self._settings, name, {names.OF_NAMESPACE: self._own}, spec)

    def _named(self, named: NamedPort, number: int) -> Iterator[SecurityProfile]:
        """Yield the profiles of ingress to a named port, for the pods in which it has a number."""
        rules: list[IngressRule] = []
        for position, rule in enumerate(self._policy.spec.ingress):
            if named not in _named(rule.ports):
                continue
            range_ = PortRange(protocol=_PROTOCOLS[named.protocol], port=number)
            peers = self._peers(f"spec.ingress[{position}].from", rule.from_)
            _extend(rules, (IngressRule(from_=some, ports=(range_,)) for some in _chunks(peers, MOST_PEERS)))
        if rules:
            fixed = {names.OF_NAMESPACE: self._own, names.port_label(*named): str(number)}
            selected = self._selectors("spec.podSelector", self._policy.spec.pod_selector, fixed)
            yield from self._profiles(selected, rules, None, f"{names.port_name(*named)}-{number}")

    def _numbers(self, rules: Iterable[NetworkPolicyIngressRule]) -> list[tuple[NamedPort, int]]:
        found = {named for rule in rules for named in _named(rule.ports)}
        return [(one, number) for one in sorted(found) for number in sorted(self._ports(self._own, *one))]

    # Rules.

    def _ingress(self, where: str, rule: NetworkPolicyIngressRule) -> Iterator[IngressRule]:
        ports = self._ranges(where, rule.ports)
        if ports != []:
            peers = self._peers(f"{where}.from", rule.from_)
            for some, over in product(_chunks(peers, MOST_PEERS), _chunks(ports, MOST_PORTS)):
                yield IngressRule(from_=some, ports=over)

    def _egress(self, where: str, rule: NetworkPolicyEgressRule) -> Iterator[EgressRule]:
        at = f"{where}.to"
        ports = self._ranges(where, rule.ports)
        if ports != []:
            peers = self._peers(at, rule.to)
            for some, over in product(_chunks(peers, MOST_PEERS), _chunks(ports, MOST_PORTS)):
                yield EgressRule(to=some, ports=over)
        for named in dict.fromkeys(_named(rule.ports)):
            yield from self._named_egress(at, rule, named)

    def _named_egress(self, at: str, rule: NetworkPolicyEgressRule, named: NamedPort) -> Iterator[EgressRule]:
        """Yield the rules for egress to a named port: one for each of its numbers, to the pods in which it has that."""
        given = rule.to or (NetworkPolicyPeer(namespace_selector=kubernetes.LabelSelector()),)
        if any(peer.ip_block is not None for peer in given):
            said = f"{self._title}: {at}: no address of an ipBlock is known to have a port named {named.name}"
            self._report("PortUnknown", f"{said}: give its number")
        within = self._reach(given)
        for number in sorted({number for one in within for number in self._ports(one, *named)}):
            label = {names.port_label(*named): str(number)}
            peers = self._peers(at, given, label)
            ports = (PortRange(protocol=_PROTOCOLS[named.protocol], port=number),)
            yield from (EgressRule(to=some, ports=ports) for some in _chunks(peers, MOST_PEERS))

    def _reach(self, peers: Iterable[NetworkPolicyPeer]) -> set[str]:
        """Return the namespaces in which peers select pods; "" stands for all."""
        found: set[str] = set()
        for peer in peers:
            if peer.namespace_selector is not None:
                chosen = self._chosen(peer.namespace_selector)
                found.update([""] if chosen is None else chosen)
            elif peer.pod_selector is not None:
                found.add(self._own)
        return {""} if "" in found else found

    def _ranges(self, where: str, ports: Sequence[NetworkPolicyPort]) -> list[PortRange] | None:
        """Return the ports with numbers; None for all traffic, [] if there are none."""
        if not ports:
            return None
        found: dict[PortRange, None] = {}
        for port in ports:
            if (protocol := _PROTOCOLS.get(port.protocol)) is None:
                said = f"{self._title}: {where}.ports: protocol {port.protocol!r:.64} cannot be matched"
                self._report("Unsupported", said)
            elif not isinstance(port.port, str):
                end = port.end_port if port.end_port is not None and port.end_port != port.port else None
                if port.port is None or (0 < port.port < 65536 and (end is None or port.port < end < 65536)):
                    found[PortRange(protocol=protocol, port=port.port, end_port=end)] = None
                else:
                    self._report("Unsupported", f"{self._title}: {where}.ports: port {port.port} to {end} is no range")
        return list(found)

    # Peers.

    def _peers(
        self, where: str, peers: Sequence[NetworkPolicyPeer], labels: dict[str, str] | None = None
    ) -> list[Peer] | None:
        """Return peers; None for anyone, [] for nobody. With `labels`, only pods that have these as well."""
        if not peers:
            return None
        found: list[Peer] = []
        for position, peer in enumerate(peers):
            at = f"{where}[{position}]"
            if peer.ip_block is None:
                found += (Peer(selector=one) for one in self._pods(at, peer, labels or {}))
            elif labels is None:  # Which port has the name is known of pods only.
                found += self._blocks(at, peer)
        return found

    def _pods(self, at: str, peer: NetworkPolicyPeer, labels: dict[str, str]) -> Iterator[LabelSelector]:
        pods = peer.pod_selector or kubernetes.LabelSelector()
        if peer.namespace_selector is None:
            if peer.pod_selector is not None:
                yield from self._selectors(f"{at}.podSelector", pods, {names.OF_NAMESPACE: self._own, **labels})
            return
        chosen = self._chosen(peer.namespace_selector)
        if chosen is None:
            inside = LabelRequirement(key=names.OF_NAMESPACE, operator=SelectorOperator.EXISTS)
        elif chosen:
            inside = LabelRequirement(key=names.OF_NAMESPACE, operator=SelectorOperator.IN, values=tuple(chosen))
        else:
            return
        yield from self._selectors(f"{at}.podSelector", pods, labels, inside)

    def _chosen(self, selector: kubernetes.LabelSelector) -> Sequence[str] | None:
        """Return the namespaces that a selector selects; None for all, now and later."""
        if not selector.match_labels and not selector.match_expressions:
            return None
        return self._namespaces(selector)

    def _selectors(
        self, at: str, pods: kubernetes.LabelSelector, labels: dict[str, str], *others: LabelRequirement
    ) -> list[LabelSelector]:
        """Return selectors of attachments; an attachment that is selected is selected by one of them."""
        try:
            return alternatives(pods, labels, others)
        except TooComplexError as error:
            self._report("SelectorTooLong", f"{self._title}: {at}: {error}")
            return []

    def _blocks(self, at: str, peer: NetworkPolicyPeer) -> list[Peer]:
        assert peer.ip_block is not None
        try:
            cidr, exceptions, left = remaining(peer.ip_block.cidr, peer.ip_block.except_, MOST_EXCEPTIONS)
        except BlockError as error:
            self._report("NotABlock", f"{self._title}: {at}.ipBlock: {error}")
            return []
        if left is None:
            return [Peer(cidr=cidr, except_=exceptions)]
        return [Peer(cidr=one) for one in left]

    # Problems.

    @property
    def _title(self) -> str:
        return f"NetworkPolicy {self._own}/{self._policy.metadata.name}"

    def _report(self, reason: str, message: str) -> None:
        self._problems[Problem(reason, message)] = None


def _profile(
    settings: ClusterSettings, name: str, labels: dict[str, str], spec: SecurityProfileSpec
) -> SecurityProfile:
    return SecurityProfile(
        api_version=SECURITY_PROFILE.api_version,
        kind=SECURITY_PROFILE.name,
        metadata=meta(settings, name, labels),
        spec=spec,
    )


def _slice(rules: Sequence[T] | None, first: int) -> tuple[T, ...] | None:
    """Return the rules of a part; None where it has none, but the first part has the list, even if empty."""
    if rules is None or (first and first >= len(rules)):
        return None
    return tuple(rules[first : first + MOST_RULES])


def _chunks(items: Sequence[T] | None, size: int) -> list[tuple[T, ...]]:
    """Return items in parts; one empty part for "any", which a rule says by an empty list; none for no items."""
    if items is None:
        return [()]
    rest = iter(items)
    return list(iter(lambda: tuple(islice(rest, size)), ()))


def _extend(rules: list[T], more: Iterable[T]) -> None:
    """Add rules, but not many more than all profiles of a policy have room for."""
    rules.extend(islice(more, MOST_IN_POLICY + 1 - len(rules)))


def _named(ports: Iterable[NetworkPolicyPort]) -> Iterator[NamedPort]:
    for port in ports:
        if isinstance(port.port, str) and port.protocol in _PROTOCOLS:
            yield NamedPort(port.protocol, port.port)
