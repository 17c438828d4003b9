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

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, product
from typing import TypeVar

from netloom.model.kinds import kubernetes
from netloom.model.kinds.kubernetes import NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule
from netloom.model.kinds.policy import EgressRule, IngressRule, Peer, SecurityProfile, SecurityProfileSpec
from netloom.model.selection import LabelSelector
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

T = TypeVar("T")


def plan_hosts(settings: ClusterSettings) -> Planned:
    """Return the profile of the nodes' attachments: it restricts nothing, and policies name it as a peer."""
    spec = SecurityProfileSpec(selector=LabelSelector(match_labels={names.HOST: "true"}))
    return Planned(objects=(profile(settings, names.HOSTS, {}, spec),))


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
    return {named for some in ports for named in named_in(some)}


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
        self._own = own = policy.metadata.namespace
        self._ports = ports
        self._matches = Matches(f"NetworkPolicy {own}/{policy.metadata.name}", own, namespaces, ports)

    def plan(self) -> Planned:
        spec = self._policy.spec
        ingress, egress = closes(self._policy)
        where = "spec.podSelector"
        selected = self._matches.selectors(where, spec.pod_selector, {names.OF_NAMESPACE: self._own})
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
            self._matches.report("TooManyRules", f"{self._matches.title}: {said}")
        return Planned(objects=tuple(found[:MOST_PROFILES]), problems=tuple(self._matches.problems))

    # Profiles.

    def _profiles(
        self,
        selected: Sequence[LabelSelector],
        ingress: Sequence[IngressRule] | None,
        egress: Sequence[EgressRule] | None,
        port: str = "",
    ) -> Iterator[SecurityProfile]:
        """Yield the profiles of rules, as many as their limits need, for each selector."""
        parts = max(1, -(-max(len(ingress or ()), len(egress or ())) // MOST_RULES))
        # The first part of each selector comes first: it closes the direction, the others only allow more.
        for part, (chunk, selector) in enumerate(product(range(parts), selected), 1):
            first = chunk * MOST_RULES
            spec = SecurityProfileSpec(
                selector=selector,
                ingress=_slice(ingress, first),
                egress=_slice(egress, first),
            )
            name = names.policy(self._own, self._policy.metadata.name, part=part, port=port)
            yield profile(self._settings, name, {names.OF_NAMESPACE: self._own}, spec)

    def _named(self, named: NamedPort, number: int) -> Iterator[SecurityProfile]:
        """Yield the profiles of ingress to a named port, for the pods in which it has a number."""
        rules: list[IngressRule] = []
        for position, rule in enumerate(self._policy.spec.ingress):
            if named not in named_in(rule.ports):
                continue
            ports = (numbered(named, number),)
            peers = self._matches.peers(f"spec.ingress[{position}].from", rule.from_)
            _extend(rules, (IngressRule(from_=some, ports=ports) for some in chunks(peers, MOST_PEERS)))
        if rules:
            fixed = {names.OF_NAMESPACE: self._own, names.port_label(*named): str(number)}
            selected = self._matches.selectors("spec.podSelector", self._policy.spec.pod_selector, fixed)
            yield from self._profiles(selected, rules, None, f"{names.port_name(*named)}-{number}")

    def _numbers(self, rules: Iterable[NetworkPolicyIngressRule]) -> list[tuple[NamedPort, int]]:
        found = {named for rule in rules for named in named_in(rule.ports)}
        return [(one, number) for one in sorted(found) for number in sorted(self._ports(self._own, *one))]

    # Rules.

    def _ingress(self, where: str, rule: NetworkPolicyIngressRule) -> Iterator[IngressRule]:
        for some, over in self._matches.rules(f"{where}.from", rule.from_, rule.ports):
            yield IngressRule(from_=some, ports=over)

    def _egress(self, where: str, rule: NetworkPolicyEgressRule) -> Iterator[EgressRule]:
        at = f"{where}.to"
        for some, over in self._matches.rules(at, rule.to, rule.ports):
            yield EgressRule(to=some, ports=over)
        for named in dict.fromkeys(named_in(rule.ports)):
            for some, over in self._matches.named_egress(at, rule.to, named):
                yield EgressRule(to=some, ports=over)


def _slice(rules: Sequence[T] | None, first: int) -> tuple[T, ...] | None:
    """Return the rules of a part; None where it has none, but the first part has the list, even if empty."""
    if rules is None or (first and first >= len(rules)):
        return None
    return tuple(rules[first : first + MOST_RULES])


def _extend(rules: list[T], more: Iterable[T]) -> None:
    """Add rules, but not many more than all profiles of a policy have room for."""
    rules.extend(islice(more, MOST_IN_POLICY - len(rules)))
