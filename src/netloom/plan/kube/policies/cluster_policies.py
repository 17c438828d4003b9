"""ClusterNetworkPolicies as SecurityProfiles of the tiers admin and baseline.  Pure.

Their rules are in order, and so are those of profiles. Where a policy needs several, because of the limits of one or
because ingress to a named port is for the pods in which it has a number, these have priorities in the order of the
rules.

What cannot be expressed fails closed: a rule that accepts matches nothing, one that denies or passes denies everything.
So does a policy with more rules than its profiles have room for, with what it has no room for. Only a subject that
cannot be expressed leaves the policy without effect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from netloom.model.kinds import kubernetes
from netloom.model.kinds.cluster_policies import (
    ClusterNetworkPolicy,
    ClusterPolicyPeer,
    ClusterPolicyRule,
    ProtocolMatch,
    Subject,
)
from netloom.model.kinds.kubernetes import IPBlock, NetworkPolicyPeer, NetworkPolicyPort
from netloom.model.kinds.policy import Action, EgressRule, IngressRule, SecurityProfile, SecurityProfileSpec, Tier
from netloom.plan.kube import names
from netloom.plan.kube.planned import ClusterSettings, Planned
from netloom.plan.kube.policies.matching import (
    MOST_IN_POLICY,
    MOST_PEERS,
    MOST_PROFILES,
    MOST_RULES,
    FindPorts,
    Matches,
    NamedPort,
    SelectNamespaces,
    chunks,
    named_in,
    numbered,
    profile,
)

FindNodes = Callable[[kubernetes.LabelSelector], Sequence[str]]
"""Returns the addresses of the nodes that a selector selects, sorted."""

STEP = 100
"""How many priorities of profiles one priority of a policy has."""
_TIERS = {"Admin": Tier.ADMIN, "Baseline": Tier.BASELINE}
_ACTIONS = {"Accept": Action.ALLOW, "Deny": Action.DROP, "Pass": Action.PASS}


class _UnsupportedError(Exception):
    """A rule cannot be expressed."""


class _Read(NamedTuple):
    """A rule in the terms of NetworkPolicies; no peers: anyone, no ports: all traffic."""

    action: Action
    peers: list[NetworkPolicyPeer]
    ports: list[NetworkPolicyPort]


class _Part(NamedTuple):
    """The rules of one profile."""

    labels: Mapping[str, str]
    """What its pods must have besides."""
    ingress: Sequence[IngressRule] | None
    egress: Sequence[EgressRule] | None


def plan_cluster_policy(
    settings: ClusterSettings,
    policy: ClusterNetworkPolicy,
    namespaces: SelectNamespaces,
    ports: FindPorts,
    nodes: FindNodes,
) -> Planned:
    """Return the SecurityProfiles of a ClusterNetworkPolicy."""
    matches = Matches(f"ClusterNetworkPolicy {policy.metadata.name}", "", namespaces, ports)
    return _Plan(settings, policy, matches, nodes).plan()


def namespace_selectors(policy: ClusterNetworkPolicy) -> Iterator[kubernetes.LabelSelector]:
    """Yield the selectors of namespaces whose results are part of the plan: the empty one never changes."""
    given: list[Subject | ClusterPolicyPeer] = [policy.spec.subject, *_peers(policy)]
    for one in given:
        selector = one.pods.namespace_selector if one.pods is not None else one.namespaces
        if selector is not None and (selector.match_labels or selector.match_expressions):
            yield selector


def named_ports(policy: ClusterNetworkPolicy) -> set[NamedPort]:
    """Return the ports to which a policy refers by name: their numbers are part of the plan."""
    given = [one for rule in (*policy.spec.ingress, *policy.spec.egress) for one in rule.protocols]
    return {named for one in given if one.destination_named_port for named in named_in(_ports(one))}


def has_nodes(policy: ClusterNetworkPolicy) -> bool:
    """Whether the addresses of nodes are part of the plan."""
    return any(one.nodes is not None for one in _peers(policy))


def _peers(policy: ClusterNetworkPolicy) -> Iterator[ClusterPolicyPeer]:
    for rule in (*policy.spec.ingress, *policy.spec.egress):
        yield from (*rule.from_, *rule.to)


class _Plan:
    """The translation of one policy."""

    def __init__(
        self, settings: ClusterSettings, policy: ClusterNetworkPolicy, matches: Matches, nodes: FindNodes
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._matches = matches
        self._nodes = nodes

    def plan(self) -> Planned:
        spec = self._policy.spec
        tier = _TIERS.get(spec.tier)
        subject = _pods(spec.subject)
        if tier is None or subject is None:
            self._report("Unsupported", "spec.tier and spec.subject must be known: it has no effect")
            return Planned(problems=tuple(self._matches.problems))
        ingress = list(islice(self._ingress(subject), MOST_IN_POLICY))
        egress = list(islice(self._egress(), MOST_IN_POLICY))
        found = (
            one
            for number, part in enumerate(_parts(ingress, egress))
            for one in self._profiles(tier, subject, number, part)
        )
        objects = list(islice(found, MOST_PROFILES + 1))
        if len(objects) > MOST_PROFILES:
            said = f"it needs more than {MOST_PROFILES} profiles: the rest of it denies everything"
            self._report("TooManyRules", said)
            closed = _Part(
                {},
                [IngressRule(action=Action.DROP)] if ingress else None,
                [EgressRule(action=Action.DROP)] if egress else None,
            )
            rest = list(islice(self._profiles(tier, subject, STEP - 1, closed), MOST_PROFILES))
            objects = [*objects[: MOST_PROFILES - len(rest)], *rest]
        return Planned(objects=tuple(objects), problems=tuple(self._matches.problems))

    def _profiles(self, tier: Tier, subject: NetworkPolicyPeer, number: int, part: _Part) -> Iterator[SecurityProfile]:
        """Yield the profiles of a part: one, unless the subject needs several selectors, which exclude each other."""
        policy = self._policy
        for other, selector in enumerate(self._matches.pods("spec.subject", subject, dict(part.labels))):
            spec = SecurityProfileSpec(
                selector=selector,
                tier=tier,
                priority=policy.spec.priority * STEP + number,
                ingress=None if part.ingress is None else tuple(part.ingress),
                egress=None if part.egress is None else tuple(part.egress),
            )
            name = names.cluster_policy(policy.metadata.name, part=number + 1, alternative=other + 1)
            yield profile(self._settings, name, {}, spec)

    # Rules.

    def _ingress(self, subject: NetworkPolicyPeer) -> Iterator[tuple[Mapping[str, str], IngressRule]]:
        """Yield the ingress rules, each with the labels that pods must have besides."""
        for position, rule in enumerate(self._policy.spec.ingress):
            where = f"spec.ingress[{position}].from"
            read = self._read(where, rule, rule.from_)
            if read is None:
                continue
            for some, over in self._matches.rules(where, read.peers, read.ports):
                yield {}, IngressRule(from_=some, ports=over, action=read.action)
            for named, number in self._matches.numbers((subject,), set(named_in(read.ports))):
                label = {names.port_label(*named): str(number)}
                for some in chunks(self._matches.peers(where, read.peers), MOST_PEERS):
                    yield label, IngressRule(from_=some, ports=(numbered(named, number),), action=read.action)

    def _egress(self) -> Iterator[EgressRule]:
        for position, rule in enumerate(self._policy.spec.egress):
            where = f"spec.egress[{position}].to"
            read = self._read(where, rule, rule.to)
            if read is None:
                continue
            for some, over in self._matches.rules(where, read.peers, read.ports):
                yield EgressRule(to=some, ports=over, action=read.action)
            for named in dict.fromkeys(named_in(read.ports)):
                for some, over in self._matches.named_egress(where, read.peers, named):
                    yield EgressRule(to=some, ports=over, action=read.action)

    def _read(self, where: str, rule: ClusterPolicyRule, given: Sequence[ClusterPolicyPeer]) -> _Read | None:
        """Return what a rule matches; None for nothing."""
        try:
            read = self._known(where, rule, given)
        except _UnsupportedError as error:
            at = where.rpartition(".")[0]
            said = "a rule that accepts then matches nothing, one that denies or passes denies everything"
            self._report("Unsupported", f"{at}: {error}: {said}")
            return None if rule.action == "Accept" else _Read(Action.DROP, [], [])
        return read if read.peers else None

    def _known(self, where: str, rule: ClusterPolicyRule, given: Sequence[ClusterPolicyPeer]) -> _Read:
        if rule.action not in _ACTIONS or not given:
            raise _UnsupportedError("its action or its peers are not known")
        peers = [peer for one in given for peer in self._peer(one)]
        ports = [port for one in rule.protocols for port in _ports(one)]
        before = len(self._matches.problems)
        self._matches.peers(where, peers)
        self._matches.ranges(where.rpartition(".")[0], ports)
        blocks = any(peer.ip_block is not None for peer in peers)
        if len(self._matches.problems) > before or (blocks and any(named_in(ports))):
            raise _UnsupportedError("not all of it can be matched")
        return _Read(_ACTIONS[rule.action], peers, ports)

    def _report(self, reason: str, text: str) -> None:
        self._matches.report(reason, f"{self._matches.title}: {text}")

    def _peer(self, one: ClusterPolicyPeer) -> list[NetworkPolicyPeer]:
        if one.networks:
            return [NetworkPolicyPeer(ip_block=IPBlock(cidr=cidr)) for cidr in one.networks]
        if one.nodes is not None:
            ips = self._nodes(one.nodes)
            return [NetworkPolicyPeer(ip_block=IPBlock(cidr=f"{ip}/{128 if ':' in ip else 32}")) for ip in ips]
        pods = _pods(one)
        if pods is None:
            raise _UnsupportedError("it has a peer of a kind that is not supported")
        return [pods]


def _pods(one: Subject | ClusterPolicyPeer) -> NetworkPolicyPeer | None:
    if one.pods is not None:
        return NetworkPolicyPeer(namespace_selector=one.pods.namespace_selector, pod_selector=one.pods.pod_selector)
    return None if one.namespaces is None else NetworkPolicyPeer(namespace_selector=one.namespaces)


def _ports(one: ProtocolMatch) -> list[NetworkPolicyPort]:
    if one.destination_named_port:
        return [NetworkPolicyPort(protocol=name, port=one.destination_named_port) for name in ("TCP", "UDP", "SCTP")]
    for protocol, match in (("TCP", one.tcp), ("UDP", one.udp), ("SCTP", one.sctp)):
        port = None if match is None else match.destination_port
        if port is not None and port.range is not None:
            return [NetworkPolicyPort(protocol=protocol, port=port.range.start, end_port=port.range.end)]
        if port is not None:
            return [NetworkPolicyPort(protocol=protocol, port=port.number)]
    raise _UnsupportedError("it has a protocol of a kind that is not supported")


def _parts(ingress: Sequence[tuple[Mapping[str, str], IngressRule]], egress: Sequence[EgressRule]) -> Iterator[_Part]:
    """Yield the rules of each profile, in order: an egress list goes with an ingress list for the same pods."""
    outward = [egress[first : first + MOST_RULES] for first in range(0, len(egress), MOST_RULES)]
    inward: list[tuple[Mapping[str, str], list[IngressRule]]] = []
    for labels, rule in ingress:
        if not inward or inward[-1][0] != labels or len(inward[-1][1]) == MOST_RULES:
            inward.append((labels, []))
        inward[-1][1].append(rule)
    for labels, rules in inward:
        yield _Part(labels, rules, outward.pop(0) if outward and not labels else None)
    for some in outward:
        yield _Part({}, None, some)
