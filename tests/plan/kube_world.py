"""A small cluster for tests of policies: what Kubernetes' API reference says they mean, and what the profiles do.

`Cluster.wanted` reads the documents of the policies, rule by rule, as the references of networking.k8s.io/v1 and of
policy.networking.k8s.io/v1alpha2 do; it shares no code with what it judges. `Cluster.profiles` are planned; `Judge`
executes them.
"""

import copy
from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from msgspec import Struct

from netloom.model.document import Resource
from netloom.model.kinds import kubernetes
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.policy import Action, IngressRule, Peer, PortRange, SecurityProfile, Tier
from netloom.model.kubernetes import CLUSTER_NETWORK_POLICY, CLUSTER_NODE
from netloom.model.registry import SECURITY_PROFILE
from netloom.model.schemas.validation import admit
from netloom.plan.kube import names
from netloom.plan.kube.indexes import NamedPorts, Namespaces, NodeAddresses, port_labels
from netloom.plan.kube.planned import ClusterSettings, Planned
from netloom.plan.kube.policies.cluster_policies import plan_cluster_policy
from netloom.plan.kube.policies.network_policies import plan_hosts, plan_policy
from netloom.plan.world.selector_matches import selector_in
from tests.plan.kube_objects import document

Json = dict[str, Any]

SETTINGS = ClusterSettings(pod_blocks=("10.1.0.0/16", "fd01::/64"), service_blocks=("10.96.0.0/12", "fd96::/112"))


class PodAt(Struct, frozen=True):
    """A pod; without a namespace, the host of a node."""

    namespace: str
    name: str
    ip: str
    labels: Mapping[str, str] = {}
    ports: tuple[tuple[str, str, int], ...] = ()
    """The named ports: protocol, name and number."""

    @property
    def view(self) -> kubernetes.Pod:
        ports = [{"protocol": p, "name": n, "containerPort": number} for p, n, number in self.ports]
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": self.namespace, "name": self.name, "labels": dict(self.labels)},
            "spec": {"containers": [{"ports": ports}]},
        }
        return kubernetes.decode(msgspec.json.encode(document), kubernetes.Pod)

    @property
    def attached(self) -> dict[str, str]:
        """The labels of its attachment."""
        if not self.namespace:
            return {names.HOST: "true"}
        own = {key: value for key, value in self.labels.items() if not key.startswith(names.PREFIX)}
        return {**own, **port_labels(self.view), names.OF_NAMESPACE: self.namespace}


class Probe(Struct, frozen=True):
    """The first packet of a connection; an end is a pod or an address outside."""

    source: PodAt | str
    target: PodAt | str
    protocol: str
    port: int


class Cluster:
    """Namespaces, pods, nodes and policies."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, str]],
        pods: Iterable[PodAt],
        *policies: Json,
        tiers: Iterable[Json] = (),
        nodes: Mapping[str, Mapping[str, str]] = {},
    ) -> None:
        """`tiers` are specs of ClusterNetworkPolicies; `nodes` the labels of nodes by address."""
        self.namespaces = namespaces
        self.pods = tuple(pods)
        self.policies = [policy(one) for one in policies]
        self.tiers = list(tiers)
        self.nodes = nodes
        self.addresses = NodeAddresses()
        for ip, labels in nodes.items():
            self.addresses.put(ip, node_view(ip, labels))
        self.index = Namespaces()
        for name, labels in namespaces.items():
            self.index.put(name, labels)
        self.ports = NamedPorts()
        for pod in self.pods:
            if pod.namespace:
                self.ports.put(pod.namespace, pod.name, pod.view)
        plans = [plan_hosts(SETTINGS), *map(self._planned, self.policies), *map(self._tier, range(len(self.tiers)))]
        self.profiles = [admitted(one) for plan in plans for one in plan.objects]
        self.problems = [one for plan in plans for one in plan.problems]

    def _planned(self, one: Json) -> Planned:
        view = kubernetes.decode(msgspec.json.encode(one), kubernetes.NetworkPolicy)
        return plan_policy(SETTINGS, view, self.index.selected, self.ports.numbers)

    def _tier(self, number: int) -> Planned:
        one = document(CLUSTER_NETWORK_POLICY, f"t{number}", spec=self.tiers[number])
        view = kubernetes.decode(msgspec.json.encode(one), ClusterNetworkPolicy)
        return plan_cluster_policy(SETTINGS, view, self.index.selected, self.ports.numbers, self.addresses.selected)

    # What Kubernetes' API reference says.

    def wanted(self, probe: Probe) -> bool:
        """Return whether a connection must be possible."""
        return self._way("ingress", "from", probe.target, probe.source, probe) and self._way(
            "egress", "to", probe.source, probe.target, probe
        )

    def _way(self, field: str, peers: str, subject: PodAt | str, other: PodAt | str, probe: Probe) -> bool:
        if isinstance(subject, str) or not subject.namespace:
            return True
        about = field, peers, subject, other, probe
        for said in (self._decision("Admin", *about), self._isolated(*about), self._decision("Baseline", *about)):
            if said is not None:
                return said
        return True

    def _decision(
        self, tier: str, field: str, peers: str, subject: PodAt, other: PodAt | str, probe: Probe
    ) -> bool | None:
        """Return what a tier of ClusterNetworkPolicies decides: the first rule that matches, unless it passes."""
        those = [one for one in self.tiers if one["tier"] == tier]
        for one in sorted(those, key=lambda one: int(one["priority"])):
            if not self._those_pods(one["subject"], subject):
                continue
            for rule in one.get(field, ()):
                if not any(self._tier_peer(peer, other) for peer in rule[peers]):
                    continue
                if rule.get("protocols") and not any(_protocol(entry, probe) for entry in rule["protocols"]):
                    continue
                return {"Accept": True, "Deny": False, "Pass": None}[rule["action"]]
        return None

    def _tier_peer(self, peer: Json, other: PodAt | str) -> bool:
        ip = ip_address(other if isinstance(other, str) else other.ip)
        if "networks" in peer:
            return any(ip in ip_network(one) for one in peer["networks"])
        if "nodes" in peer:
            return any(ip == ip_address(at) and _selects(peer["nodes"], has) for at, has in self.nodes.items())
        return isinstance(other, PodAt) and self._those_pods(peer, other)

    def _those_pods(self, one: Json, pod: PodAt) -> bool:
        if not pod.namespace:
            return False
        labels = self.namespaces[pod.namespace]
        if "namespaces" in one:
            return _selects(one["namespaces"], labels)
        return _selects(one["pods"]["namespaceSelector"], labels) and _selects(one["pods"]["podSelector"], pod.labels)

    def _isolated(self, field: str, peers: str, subject: PodAt, other: PodAt | str, probe: Probe) -> bool | None:
        """Return what NetworkPolicies decide; None if none selects the pod."""
        isolated = False
        for one in self.policies:
            spec = one["spec"]
            types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
            if field.title() not in types or one["metadata"]["namespace"] != subject.namespace:
                continue
            if not _selects(spec.get("podSelector") or {}, subject.labels):
                continue
            isolated = True
            if field == "ingress" and isinstance(other, PodAt) and not other.namespace:
                return True  # The host of a node.
            for rule in spec.get(field) or ():
                for port in rule.get("ports") or [None]:
                    for peer in rule.get(peers) or [None]:
                        if field == "egress" and _is_named_port_of_a_block(port, peer):
                            continue  # docs/kubernetes-policies.md: not known.
                        if self._port(port, probe) and self._peer(peer, subject.namespace, other):
                            return True
        return False if isolated else None

    def _port(self, port: Json | None, probe: Probe) -> bool:
        if port is None:
            return True
        if probe.protocol != port.get("protocol", "TCP"):
            return False
        match port.get("port"):
            case None:
                return True
            case str() as name:
                target = probe.target
                return isinstance(target, PodAt) and (probe.protocol, name, probe.port) in target.ports
            case number:
                assert isinstance(number, int)
                return bool(number <= probe.port <= port.get("endPort", number))

    def _peer(self, peer: Json | None, namespace: str, other: PodAt | str) -> bool:
        if peer is None:
            return True
        if (block := peer.get("ipBlock")) is not None:
            ip = ip_address(other if isinstance(other, str) else other.ip)
            return ip in ip_network(block["cidr"]) and not any(ip in ip_network(e) for e in block.get("except") or ())
        if isinstance(other, str) or not other.namespace:
            return False
        spaces, pods = peer.get("namespaceSelector"), peer.get("podSelector")
        if spaces is None and pods is None:
            return False
        if spaces is None and other.namespace != namespace:
            return False
        if spaces is not None and not _selects(spaces, self.namespaces[other.namespace]):
            return False
        return pods is None or _selects(pods, other.labels)


def _protocol(entry: Json, probe: Probe) -> bool:
    if "destinationNamedPort" in entry:
        target = probe.target
        named = (probe.protocol, entry["destinationNamedPort"], probe.port)
        return isinstance(target, PodAt) and named in target.ports
    ((protocol, match),) = entry.items()
    port = match["destinationPort"]
    first, last = (port["range"]["start"], port["range"]["end"]) if "range" in port else (port["number"],) * 2
    return bool(probe.protocol == protocol.upper() and first <= probe.port <= last)


def node_view(ip: str, labels: Mapping[str, str]) -> kubernetes.ClusterNode:
    """Return a node with an address."""
    status = {"addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": "n1"}]}
    one = document(CLUSTER_NODE, ip, labels=dict(labels), status=status)
    return kubernetes.decode(msgspec.json.encode(one), kubernetes.ClusterNode)


def _is_named_port_of_a_block(port: Json | None, peer: Json | None) -> bool:
    return port is not None and isinstance(port.get("port"), str) and peer is not None and "ipBlock" in peer


def admitted(profile: Resource) -> SecurityProfile:
    """Return a profile as a store has it, after it was admitted."""
    document = msgspec.json.decode(msgspec.json.encode(profile))
    admit(SECURITY_PROFILE, copy.deepcopy(document))
    found = SECURITY_PROFILE.decode(msgspec.json.encode(document))
    assert isinstance(found, SecurityProfile)
    assert found == profile
    return found


def policy(spec: Json) -> Json:
    """Return a NetworkPolicy; `spec` may have `namespace` and `name` besides."""
    spec = dict(spec)
    metadata = {"namespace": spec.pop("namespace", "a"), "name": spec.pop("name", "p")}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {"podSelector": {}, **spec},
    }


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for one in selector.get("matchExpressions") or ():
        value, values = labels.get(one["key"]), one.get("values") or ()
        holds = {
            "In": value is not None and value in values,
            "NotIn": value is None or value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[one["operator"]]
        if not holds:
            return False
    return True


class Judge:
    """What profiles do, as docs/firewalls.md says."""

    def __init__(self, profiles: Iterable[SecurityProfile]) -> None:
        self.profiles = {one.metadata.name: one for one in profiles}

    def allows(self, probe: Probe) -> bool:
        """Return whether a connection is possible."""
        return self._way("ingress", probe.target, probe.source, probe) and self._way(
            "egress", probe.source, probe.target, probe
        )

    def _way(self, field: str, subject: PodAt | str, other: PodAt | str, probe: Probe) -> bool:
        if isinstance(subject, str):
            return True
        covering = [one for one in self.profiles.values() if self._covers(one, subject)]
        default = [one for one in covering if one.spec.tier is Tier.DEFAULT]
        lists = [rules for one in default if (rules := getattr(one.spec, field)) is not None]
        admin = self._first(Tier.ADMIN, covering, field, other, probe)
        if admin is not None:
            return admin
        if lists:
            return any(self._rule(rule, other, probe) for rules in lists for rule in rules)
        return self._first(Tier.BASELINE, covering, field, other, probe) is not False

    def _first(
        self, tier: Tier, covering: list[SecurityProfile], field: str, other: PodAt | str, probe: Probe
    ) -> bool | None:
        """Return what the first rule of a tier that matches decides."""
        those = [one for one in covering if one.spec.tier is tier]
        those.sort(key=lambda one: (one.spec.priority or 0, one.metadata.name))
        for rule in (rule for one in those for rule in getattr(one.spec, field) or ()):
            if self._rule(rule, other, probe):
                return {Action.ALLOW: True, Action.DROP: False}.get(rule.action)
        return None

    def _covers(self, profile: SecurityProfile, pod: PodAt) -> bool:
        selector = profile.spec.selector
        return selector is not None and selector_in("", selector).matches(pod.attached)

    def _rule(self, rule: Any, other: PodAt | str, probe: Probe) -> bool:
        peers = rule.from_ if isinstance(rule, IngressRule) else rule.to
        return (not peers or any(self._peer(peer, other) for peer in peers)) and (
            not rule.ports or any(_in_range(port, probe) for port in rule.ports)
        )

    def _peer(self, peer: Peer, other: PodAt | str) -> bool:
        if peer.cidr:
            ip = ip_address(other if isinstance(other, str) else other.ip)
            return ip in ip_network(peer.cidr) and not any(ip in ip_network(one) for one in peer.except_)
        if isinstance(other, str):
            return False
        if peer.profile:
            return self._covers(self.profiles[peer.profile], other)
        assert peer.selector is not None
        return selector_in("", peer.selector).matches(other.attached)


def _in_range(port: PortRange, probe: Probe) -> bool:
    if port.protocol != probe.protocol.lower():
        return False
    return port.port is None or port.port <= probe.port <= (port.end_port or port.port)
