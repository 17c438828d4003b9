"""What the plans of policies need to know of the whole cluster, and which policies a change concerns.

The indexes follow the informers: they are full when the caches are.
"""

from collections.abc import Iterable

from netloom.control.runtime.cache import Change
from netloom.model.kinds.kubernetes import ClusterNamespace, NetworkPolicy, Pod
from netloom.model.kubernetes import NETWORK_POLICY
from netloom.plan.kube.indexes import NamedPorts, Namespaces, PolicyIndex, PolicyKey
from netloom.plan.kube.planned import ClusterSettings, Planned
from netloom.plan.kube.pods import wants_attachment
from netloom.plan.kube.policies import plan_policy
from netloom.plan.problem import Unit


class PolicyPlans:
    """Plans policies."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._namespaces = Namespaces()
        self._ports = NamedPorts()
        self._index = PolicyIndex()

    def plan(self, policy: NetworkPolicy) -> Planned:
        """Return what must exist for a policy."""
        return plan_policy(self._settings, policy, self._namespaces.selected, self._ports.numbers)

    def policy_changed(self, change: Change[NetworkPolicy]) -> None:
        """Update what the plan of a policy reads."""
        self._index.put(PolicyKey(change.key.namespace, change.key.name), change.new)

    def namespace_changed(self, change: Change[ClusterNamespace]) -> Iterable[Unit]:
        """Return the policies with a selector that selects a namespace now and not before, or the other way round."""
        labels = change.new.metadata.labels if change.new is not None else None
        old = self._namespaces.put(change.key.name, labels)
        return [_unit(key) for key in self._index.of_namespace(old, labels)]

    def pod_changed(self, change: Change[Pod]) -> Iterable[Unit]:
        """Return the policies with a named port that has other numbers now."""
        attached = change.new if change.new is not None and wants_attachment(change.new) else None
        changed = self._ports.put(change.key.namespace, change.key.name, attached)
        return [_unit(key) for place in changed for key in self._index.of_port(place.port)]


def _unit(key: PolicyKey) -> Unit:
    return Unit(NETWORK_POLICY.name, key.namespace, key.name)
