"""Builds the parts of a cluster network's controller; `run/controllers.py` runs them."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

from netloom.control.ipam.views import Attachment
from netloom.control.kube.controller import WORKERS, KubeReconciler
from netloom.control.kube.network_condition import NetworkCondition
from netloom.control.kube.pooled import PooledPorts
from netloom.control.kube.service_addresses import ServiceAddressWriter
from netloom.control.kube.views import ClusterInformers, made_informers, profile_informer
from netloom.control.runtime.cache import Cache
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.model.kinds.attachments import PortPool
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.kubernetes import KUBERNETES_KINDS
from netloom.plan.kube.planned import ClusterSettings
from netloom.store.base import Store

__all__ = ["WORKERS", "Parts", "assemble"]


class Parts(NamedTuple):
    """The parts of the controller."""

    reconciler: KubeReconciler
    cluster: ClusterInformers
    made: dict[str, Informer[Any]]
    profiles: Informer[SecurityProfile]
    """The profiles of administrators."""
    connections: list[Callable[[], Coroutine[Any, Any, Any]]]
    """What runs always."""

    @property
    def informers(self) -> list[Informer[Any]]:
        """All informers."""
        return [*self.cluster, *self.made.values(), self.profiles]

    def watch(self, controller: Controller[Any]) -> None:
        """Have changes enqueue keys of the controller."""
        controller.watch(self.cluster.nodes, self.reconciler.node_changed)
        controller.watch(self.cluster.pods, self.reconciler.pod_changed)
        controller.watch(self.cluster.namespaces, self.reconciler.namespace_changed)
        controller.watch(self.cluster.services, self.reconciler.service_changed)
        controller.watch(self.cluster.slices, self.reconciler.slice_changed)
        controller.watch(self.cluster.policies, self.reconciler.policy_changed)
        controller.watch(self.cluster.cluster_policies, self.reconciler.cluster_policy_changed)
        controller.watch(self.profiles, self.reconciler.profile_changed)
        for one in self.made.values():
            controller.watch(one, self.reconciler.object_changed)


def assemble(
    store: Store,
    client: Client,
    cluster: Store,
    settings: ClusterSettings,
    *,
    pools: Cache[PortPool],
    attachments: Cache[Attachment],
    all_profiles: Informer[SecurityProfile],
    random: Random,
    fence: Callable[[], bool],
    clock: Clock,
    recorder: Recorder | None,
    component: str,
) -> Parts:
    """Return the controller of the cluster whose API is `cluster`; `store` is where Netloom's own objects are.

    `pools`, `attachments` and `all_profiles` are those of all namespaces.

    Without a `recorder` for that API it gets one of its own.
    """
    connections: list[Callable[[], Coroutine[Any, Any, Any]]] = []
    if recorder is None:
        recorder = Recorder(cluster, component, random=random, clock=clock)
        connections.append(recorder.run)
    informers = ClusterInformers(cluster, random=random)
    made = made_informers(store, settings, random=random)
    of_cluster = Client(cluster, fence=fence, registry=KUBERNETES_KINDS)
    profiles = profile_informer(store, settings, random=random)
    pooled = PooledPorts(client, namespace=settings.namespace, pools=pools, attachments=attachments)
    all_profiles.on_change(pooled.profile_changed)
    reconciler = KubeReconciler(
        client,
        settings=settings,
        cluster=informers,
        made={kind: one.cache for kind, one in made.items()},
        pooled=pooled,
        profiles=profiles.cache,
        condition=NetworkCondition(of_cluster, clock=clock),
        service_addresses=ServiceAddressWriter(of_cluster, informers.services.cache, settings),
        recorder=recorder,
    )
    return Parts(reconciler, informers, made, profiles, connections)
