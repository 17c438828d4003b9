"""What the plans of policies need to know of the whole cluster, and which policies a change concerns.

The indexes follow the informers: they are full when the caches are.
"""

from collections.abc import Iterable

from netloom.control.runtime.cache import Change
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.kubernetes import ClusterNamespace, ClusterNode, NetworkPolicy, Pod
from netloom.model.kubernetes import CLUSTER_NETWORK_POLICY, NETWORK_POLICY
from netloom.plan.kube.indexes import NamedPorts, Namespaces, NodeAddresses, PolicyIndex, PolicyKey
from netloom.plan.kube.planned import ClusterSettings, Planned
from netloom.plan.kube.pods import wants_attachment
from netloom.plan.kube.policies import cluster_policies, network_policies
from netloom.plan.problem import Unit


class PolicyPlans:
    """Plans NetworkPolicies and ClusterNetworkPolicies."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._namespaces = Namespaces()
        self._ports = NamedPorts()
        self._nodes = NodeAddresses()
        self._index = PolicyIndex()
        self._with_nodes: set[PolicyKey] = set()
        """The ClusterNetworkPolicies whose plans depend on the addresses of nodes."""

    def plan(self, policy: NetworkPolicy) -> Planned:
        """Return what must exist for a NetworkPolicy."""
        return network_policies.plan_policy(self._settings, policy, self._namespaces.selected, self._ports.numbers)

    def plan_cluster(self, policy: ClusterNetworkPolicy) -> Planned:
        """Return what must exist for a ClusterNetworkPolicy."""
        return cluster_policies.plan_cluster_policy(
            self._settings, policy, self._namespaces.selected, self._ports.numbers, self._nodes.selected
        )

    def policy_changed(self, change: Change[NetworkPolicy]) -> None:
        """Update what the plan of a NetworkPolicy reads."""
        key = PolicyKey(change.key.namespace, change.key.name)
        if change.new is None:
            self._index.put(key)
        else:
            new = change.new
            selectors = network_policies.namespace_selectors(new)
            self._index.put(key, selectors, network_policies.named_ports(new))

    def cluster_policy_changed(self, change: Change[ClusterNetworkPolicy]) -> None:
        """Update what the plan of a ClusterNetworkPolicy reads."""
        key, new = PolicyKey("", change.key.name), change.new
        self._with_nodes.discard(key)
        if new is None:
            self._index.put(key)
            return
        self._index.put(key, cluster_policies.namespace_selectors(new), cluster_policies.named_ports(new))
        if cluster_policies.has_nodes(new):
            self._with_nodes.add(key)

    def namespace_changed(self, change: Change[ClusterNamespace]) -> Iterable[Unit]:
        """Return the policies with a selector that selects a namespace now and not before, or the other way round."""
        labels = change.new.metadata.labels if change.new is not None else None
        old = self._namespaces.put(change.key.name, labels)
        return [_unit(key) for key in self._index.of_namespace(old, labels)]

    def node_changed(self, change: Change[ClusterNode]) -> Iterable[Unit]:
        """Return the policies with the addresses of nodes, if one has others now."""
        return [_unit(key) for key in self._with_nodes] if self._nodes.put(change.key.name, change.new) else ()

    def pod_changed(self, change: Change[Pod]) -> Iterable[Unit]:
        """Return the policies with a named port that has other numbers now."""
        attached = change.new if change.new is not None and wants_attachment(change.new) else None
        changed = self._ports.put(change.key.namespace, change.key.name, attached)
        return [_unit(key) for place in changed for key in self._index.of_port(place.port)]


def _unit(key: PolicyKey) -> Unit:
    return Unit(NETWORK_POLICY.name if key.namespace else CLUSTER_NETWORK_POLICY.name, key.namespace, key.name)
