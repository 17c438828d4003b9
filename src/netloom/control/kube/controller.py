"""Reconciles a cluster network: the objects that are made for the pods, nodes, Services and policies of a cluster.

    Pod, Node, … ──► key ──► plan/kube ──► compare with the objects made for it ──► writes (writer.py), Events

The key of an object that is made is its *source*: `Pod/NAMESPACE/NAME`, `Node/NAME`, …, and `Cluster/pods` for what
there is once. It is in an annotation, so a change of a pod costs a comparison of one attachment, and what is left of a
pod that is gone is found without a comparison of everything. After a restart all keys are compared; where nothing
differs, nothing is written.

The attachment of a pod is made after that of its node, which reserves the node's own address. It may be a port of a
PortPool (`pooled.py`).

An object of the cluster that cannot be decoded is neither there nor gone: nothing is changed for it.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from netloom.control.kube.network_condition import NetworkCondition
from netloom.control.kube.policies import PolicyPlans
from netloom.control.kube.pooled import PooledPorts
from netloom.control.kube.service_addresses import ServiceAddressWriter
from netloom.control.kube.views import (
    BY_NODE,
    BY_PROFILE,
    BY_SERVICE,
    BY_SOURCE,
    CLUSTER,
    HINTED,
    ClusterInformers,
    source_of,
)
from netloom.control.kube.writer import IN_USE, Writer
from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.conditions import READY, TRUE
from netloom.control.runtime.documents import document_of
from netloom.control.runtime.events import Recorder
from netloom.errors import Invalid
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster_policies import ClusterNetworkPolicy
from netloom.model.kinds.kubernetes import ClusterNamespace, ClusterNode, EndpointSlice, NetworkPolicy, Pod, Service
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kubernetes import CLUSTER_NETWORK_POLICY, CLUSTER_NODE, NETWORK_POLICY, POD, SERVICE
from netloom.model.registry import KINDS, NETWORK_ATTACHMENT
from netloom.plan.kube import names
from netloom.plan.kube.changes import changes, differs
from netloom.plan.kube.cluster import plan_network, plan_node, slices, zone
from netloom.plan.kube.planned import NOTHING, ClusterSettings, Planned
from netloom.plan.kube.pods import plan_pod, wants_attachment
from netloom.plan.kube.policies.named_profiles import named
from netloom.plan.kube.policies.network_policies import plan_hosts
from netloom.plan.kube.services.load_balancers import has_hints, plan_service
from netloom.plan.object_changes import Changes
from netloom.plan.problem import Problem, Unit

log = logging.getLogger(__name__)

WORKERS = 16
AGAIN = 0.5
"""Seconds after which a deletion that was refused is repeated."""
LATER = 30.0
"""Seconds after which an object that cannot be written is tried again."""


class KubeReconciler:
    """Reconciles the objects of a cluster network.  The keys are their sources."""

    def __init__(
        self,
        client: Client,
        *,
        settings: ClusterSettings,
        cluster: ClusterInformers,
        made: Mapping[str, Cache[Any]],
        pooled: PooledPorts,
        profiles: Cache[SecurityProfile],
        condition: NetworkCondition,
        service_addresses: ServiceAddressWriter,
        recorder: Recorder,
    ) -> None:
        """`made` are the objects that are made for the cluster, by kind, indexed BY_SOURCE.

        `profiles` are those of administrators.
        """
        self._settings = settings
        self._nodes = cluster.nodes.cache
        self._pods = cluster.pods.cache
        self._services = cluster.services.cache
        self._slices = cluster.slices.cache
        self._policies = cluster.policies.cache
        self._cluster_policies = cluster.cluster_policies.cache
        self._policy_plans = PolicyPlans(settings)
        self._made = made
        self._profiles = profiles
        self._attachments: Cache[NetworkAttachment] = made[NETWORK_ATTACHMENT.name]
        self._pooled = pooled
        self._condition = condition
        self._service_addresses = service_addresses
        self._recorder = recorder
        self._writer = Writer(client)
        self._reported: dict[Unit, tuple[Problem, ...]] = {}
        """The problems of each key that Events say already."""

    # What to reconcile.

    def all_keys(self) -> Iterable[Unit]:
        """Return the sources of all that is made or planned."""
        self._pooled.doubt()
        found = {CLUSTER: None}
        found |= dict.fromkeys(_unit(CLUSTER_NODE.name, key) for key, _ in self._nodes.items())
        found |= dict.fromkeys(_unit(POD.name, key) for key, one in self._pods.items() if wants_attachment(one))
        found |= dict.fromkeys(_unit(SERVICE.name, key) for key, _ in self._services.items())
        found |= dict.fromkeys(_unit(NETWORK_POLICY.name, key) for key, _ in self._policies.items())
        found |= dict.fromkeys(_unit(CLUSTER_NETWORK_POLICY.name, key) for key, _ in self._cluster_policies.items())
        found |= dict.fromkeys(source_of(one) for cache in self._made.values() for one in cache)
        return list(found)

    def event_target(self, key: Unit) -> Resource | None:
        """Return the object of the cluster that a key names, for Events."""
        match key.kind:
            case CLUSTER_NODE.name:
                return self._nodes.get("", key.name)
            case POD.name:
                return self._pods.get(key.namespace, key.name)
            case SERVICE.name:
                return self._services.get(key.namespace, key.name)
            case NETWORK_POLICY.name:
                return self._policies.get(key.namespace, key.name)
            case CLUSTER_NETWORK_POLICY.name:
                return self._cluster_policies.get("", key.name)
        return None

    def node_changed(self, change: Change[ClusterNode]) -> Iterable[Unit]:
        """Return the node and the policies it concerns; if its blocks changed, the Router and its pods as well.

        If its zone changed, Services with hints.
        """
        own = _unit(CLUSTER_NODE.name, change.key)
        old, new = change.old, change.new
        others = [*self._policy_plans.node_changed(change)]
        if zone(old) != zone(new):
            others += self._hinted_services()
        if old is not None and new is not None and old.spec.blocks == new.spec.blocks:
            return (own, *others) if self._condition.is_wanted(new) else others
        return (own, CLUSTER, *self._pods_on(change.key.name), *others)

    def _hinted_services(self) -> Iterable[Unit]:
        found = {(one.metadata.namespace, one.service): None for one in self._slices.indexed(HINTED, HINTED)}
        return [Unit(SERVICE.name, *name) for name in found if name[1]]

    def pod_changed(self, change: Change[Pod]) -> Iterable[Unit]:
        """Return the pod, if something that is planned from it changed, and the policies that this concerns."""
        if _planned(change.old) == _planned(change.new):
            return ()
        return (_unit(POD.name, change.key), *self._policy_plans.pod_changed(change))

    def service_changed(self, change: Change[Service]) -> Iterable[Unit]:
        """Return the Service, and others that may get other addresses by this."""
        return (_unit(SERVICE.name, change.key), *self._service_addresses.service_changed(change))

    def slice_changed(self, change: Change[EndpointSlice]) -> Iterable[Unit]:
        """Return the Service that a slice is of."""
        found = {one.service: None for one in (change.old, change.new) if one is not None and one.service}
        return [Unit(SERVICE.name, change.key.namespace, name) for name in found]

    def policy_changed(self, change: Change[NetworkPolicy]) -> Iterable[Unit]:
        """Return the policy."""
        self._policy_plans.policy_changed(change)
        return (_unit(NETWORK_POLICY.name, change.key),)

    def cluster_policy_changed(self, change: Change[ClusterNetworkPolicy]) -> Iterable[Unit]:
        """Return the policy."""
        self._policy_plans.cluster_policy_changed(change)
        return (_unit(CLUSTER_NETWORK_POLICY.name, change.key),)

    def namespace_changed(self, change: Change[ClusterNamespace]) -> Iterable[Unit]:
        """Return the policies that the labels of a namespace concern."""
        return self._policy_plans.namespace_changed(change)

    def profile_changed(self, change: Change[SecurityProfile]) -> Iterable[Unit]:
        """Return the pods that name a profile of an administrator."""
        found = self._pods.indexed(BY_PROFILE, change.key.name)
        return [Unit(POD.name, one.metadata.namespace, one.metadata.name) for one in found if wants_attachment(one)]

    def object_changed(self, change: Change[Any]) -> Iterable[Unit]:
        """Return the source of an object that is made; for the attachment of a node, the pods on it as well."""
        old, new = change.old, change.new
        if old is not None and new is not None and _matters(old) == _matters(new):
            return ()
        found = {source_of(one): None for one in (old, new) if one is not None}
        if old is None or new is None:
            found |= dict.fromkeys(
                one for key in list(found) if key.kind == CLUSTER_NODE.name for one in self._pods_on(key.name)
            )
        return list(found)

    def _pods_on(self, node: str) -> Iterable[Unit]:
        found = self._pods.indexed(BY_NODE, node)
        return [Unit(POD.name, one.metadata.namespace, one.metadata.name) for one in found if wants_attachment(one)]

    # Reconciling.

    async def reconcile(self, key: Unit) -> float | None:
        """Write what differs; return when to look again."""
        planned = self._plan(key)
        if planned is None:
            return None  # What is missing enqueues the key.
        desired = [_stamped(one, key) for one in planned.objects]
        wanted = self._changes(key, desired)
        if key.kind == POD.name:
            wanted = await self._pooled.take(key, wanted)
        problems = await self._writer.write(wanted)
        unaddressed = await self._service_addresses.write(key) if key.kind == SERVICE.name else ()
        self._report(key, (*planned.problems, *unaddressed, *problems))
        if key.kind == CLUSTER_NODE.name:
            await self._condition.write(self._nodes.get("", key.name), ready=self._is_ready(key.name))
        if not problems:
            return LATER if key.kind == SERVICE.name and not self._service_addresses.are_known else None
        return AGAIN if all(one.reason == IN_USE for one in problems) else LATER

    def _plan(self, key: Unit) -> Planned | None:
        """Return what must exist for a key; None if that is not known."""
        match key.kind:
            case CLUSTER.kind:
                return None if self._nodes.undecodable else self._plan_cluster()
            case CLUSTER_NODE.name:
                node = self._nodes.get("", key.name)
                if node is None:
                    return None if Key("", key.name) in self._nodes.undecodable else NOTHING
                return plan_node(self._settings, node, pooled=self._has_attachment(node.metadata.name))
            case POD.name:
                return self._plan_pod(key)
            case SERVICE.name:
                return self._plan_service(key)
            case NETWORK_POLICY.name:
                policy = self._policies.get(key.namespace, key.name)
                if policy is None:
                    return None if Key(key.namespace, key.name) in self._policies.undecodable else NOTHING
                return self._policy_plans.plan(policy)
            case CLUSTER_NETWORK_POLICY.name:
                return self._plan_cluster_policy(key)
        return NOTHING

    def _plan_cluster(self) -> Planned:
        network, hosts = plan_network(self._settings, self._nodes), plan_hosts(self._settings)
        return Planned(objects=(*network.objects, *hosts.objects), problems=(*network.problems, *hosts.problems))

    def _plan_cluster_policy(self, key: Unit) -> Planned | None:
        policy = self._cluster_policies.get("", key.name)
        if policy is None:
            return None if Key("", key.name) in self._cluster_policies.undecodable else NOTHING
        return self._policy_plans.plan_cluster(policy)

    def _plan_service(self, key: Unit) -> Planned | None:
        service = self._services.get(key.namespace, key.name)
        if service is None:
            return None if Key(key.namespace, key.name) in self._services.undecodable else NOTHING
        if self._slices.undecodable:
            return None  # Which Service it is of is not known.
        found = self._slices.indexed(BY_SERVICE, f"{key.namespace}/{key.name}")
        zones = {}
        if any(map(has_hints, found)):
            zones = {key.name: zone(node) or "" for key, node in self._nodes.items()}
            zones |= {key.name: "" for key in self._nodes.undecodable}
        return plan_service(self._settings, service, sorted(found, key=lambda one: one.metadata.name), zones)

    def _plan_pod(self, key: Unit) -> Planned | None:
        pod = self._pods.get(key.namespace, key.name)
        if pod is None:
            return None if Key(key.namespace, key.name) in self._pods.undecodable else NOTHING
        if not wants_attachment(pod):
            return NOTHING
        on = pod.spec.node_name
        node = self._nodes.get("", on)
        if node is None and Key("", on) in self._nodes.undecodable:
            return None
        own = slices(self._settings, node)[0] if node is not None else ()
        if own and not self._has_attachment(on):
            return None
        return plan_pod(self._settings, pod, own, lambda name: self._profiles.get(self._settings.namespace, name))

    def _has_attachment(self, node: str) -> bool:
        """Whether a node has its attachment, which reserves the node's own address."""
        return self._attachments.get(self._settings.namespace, names.node(node)) is not None

    def _changes(self, key: Unit, desired: list[Resource]) -> Changes:
        observed = {
            (one.kind, one.metadata.name): one
            for cache in self._made.values()
            for one in cache.indexed(BY_SOURCE, str(key))
        }
        for one in desired:  # Its annotation may have been changed by hand.
            found = self._made[one.kind].get(one.metadata.namespace, one.metadata.name)
            if found is not None:
                observed[one.kind, one.metadata.name] = found
        if key.kind == POD.name:
            desired = self._pooled.placed(key, desired, observed)
        wanted = changes(desired, observed.values())
        if not wanted.update:
            return wanted
        # With the defaults that the stored object has, it may be the same.
        update = [one for one in wanted.update if differs(_completed(one), observed[one.kind, one.metadata.name])]
        return structs.replace(wanted, update=tuple(update))

    def _is_ready(self, node: str) -> bool:
        found = self._attachments.get(self._settings.namespace, names.node(node))
        ready = None if found is None else found.status.condition(READY)
        return ready is not None and ready.status == TRUE

    def _report(self, key: Unit, problems: tuple[Problem, ...]) -> None:
        """Record Events about problems that are new."""
        before = self._reported.pop(key, ())
        if not problems:
            return
        self._reported[key] = problems
        target = self.event_target(key)
        for one in problems:
            if one in before:
                continue
            if target is not None:
                self._recorder.warning(target, one.reason, one.message)
            else:  # What there is once for the cluster is made for no object of it.
                log.warning("%s: %s", key, one.message)


def _unit(kind: str, key: Key) -> Unit:
    return Unit(kind, key.namespace, key.name)


def _planned(pod: Pod | None) -> object:
    """Return what is planned from a pod."""
    if pod is None or not wants_attachment(pod):
        return None
    return pod.metadata.uid, pod.metadata.labels, named(pod), pod.spec


def _matters(one: Resource) -> object:
    """Return what matters here of an object that is made."""
    meta = one.metadata
    ready = None
    if isinstance(one, NetworkAttachment):  # Only that of a node has its status.
        condition = one.status.condition(READY)
        ready = None if condition is None else condition.status
    return getattr(one, "spec", None), meta.labels, meta.annotations, meta.deletion_timestamp, meta.uid, ready


def _stamped(one: Resource, key: Unit) -> Resource:
    """Return a planned object with its source."""
    metadata = structs.replace(one.metadata, annotations=one.metadata.annotations | {names.SOURCE: str(key)})
    return structs.replace(one, metadata=metadata)


def _completed(one: Resource) -> Resource:
    """Return a planned object with the defaults of its fields; one that is not valid as it is: its write says why."""
    kind = KINDS.of(one)
    try:
        return kind.decode(msgspec.json.encode(document_of(one)))
    except Invalid:
        return one
