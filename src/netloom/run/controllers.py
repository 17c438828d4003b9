"""Builds the controllers: which there are, what each watches, what they share.

In `serve` they work on the sqlite store, in `netloom controller` on an API; the controllers do not see the difference.
Tests and the simulator use the same code, with their own clock and random numbers.
"""

import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from netloom.control import networks, nodes, pools, subnets
from netloom.control.evpn import networks as evpn
from netloom.control.ipam.controller import WORKERS, Ipam
from netloom.control.ipam.locks import WORKERS as LOCK_WORKERS
from netloom.control.ipam.locks import LockReconciler
from netloom.control.ipam.pools import EVERY, UsageReconciler
from netloom.control.ipam.views import attachment_informer, lock_informer
from netloom.control.namespaces import NamespaceReconciler
from netloom.control.ovn.plan_feed import PlanFeed, Sink
from netloom.control.ovn.plan_only import PlanOnly
from netloom.control.ovn.southbound import Southbound
from netloom.control.ovn.status import WORKERS as STATUS_WORKERS
from netloom.control.ovn.status import StatusReconciler
from netloom.control.runtime import gc
from netloom.control.runtime.client import Client, always
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.election import Candidate
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer, informer
from netloom.control.runtime.manager import Manager
from netloom.control.runtime.queue import Queue
from netloom.control.runtime.sweep import expire_events
from netloom.control.sandbox.controller import SandboxReconciler
from netloom.control.sandbox.host_documents import HostDocumentReconciler
from netloom.control.unimplemented import UnimplementedReconciler
from netloom.model.kind import Kind, Registry
from netloom.model.kinds.attachments import PortPool
from netloom.model.kinds.bgp import BGPSpeaker, EVPNNetwork, RemoteVTEP
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network, Router, Subnet, VNILock
from netloom.model.kinds.policy import LoadBalancer
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import (
    HOST_DOCUMENT,
    KINDS,
    NAMESPACE,
    NETWORK_ATTACHMENT,
    NOT_IMPLEMENTED,
    PLANNED,
    SECURITY_PROFILE,
)
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.node.grants import NO_PROVIDERS, ProviderGrants, provider_grants
from netloom.plan.problem import Unit
from netloom.plan.sandbox.names import SANDBOX_LABEL
from netloom.plan.sandbox.objects import KINDS as OWNED
from netloom.run.config import ControlSettings, invalid
from netloom.run.kube import cluster_settings
from netloom.run.ovn import Ovn, from_settings
from netloom.store.base import Store

if TYPE_CHECKING:
    from netloom.drivers.northbound.driver import Northbound

log = logging.getLogger(__name__)

COMPONENT = "netloom-controller"

Chore = Callable[[], Coroutine[Any, Any, Any]]


class Options(Struct, frozen=True, kw_only=True):
    """The settings of the controllers."""

    quarantine: float = 5.0
    """How long a released address is not allocated again, in seconds."""
    vnis: tuple[int, int] = (networks.LEAST, networks.MOST)
    """The first and the last VNI to allocate to Networks that request none."""
    vni_rest: float = 30.0
    """How long the VNI of a deleted Network is not allocated to another namespace, in seconds."""
    ovn: Ovn | None = None
    providers: ProviderGrants = NO_PROVIDERS
    """The physical networks that Networks may use, by namespace."""
    kube: ClusterSettings | None = None
    """The Kubernetes cluster to connect."""
    planning: bool = True
    """Whether, without OVN, statuses say what would become of objects that need OVN."""


def options_of(settings: ControlSettings) -> Options:
    """Return the options for a process's settings; raise `Invalid` if they are not valid."""
    first, dash, last = settings.vni_range.partition("-")
    numbers = [int(text) if text.strip().isdecimal() else 0 for text in (first, last)]
    if not dash or not 1 <= numbers[0] <= numbers[1] <= networks.MOST:
        text = f"{settings.vni_range!r} is not FIRST-LAST with 1 <= FIRST <= LAST <= {networks.MOST}"
        raise invalid("vniRange", text)
    return Options(
        quarantine=settings.quarantine,
        vnis=(numbers[0], numbers[1]),
        vni_rest=settings.vni_rest,
        ovn=from_settings(settings),
        providers=provider_grants(settings.provider_grants),
        kube=cluster_settings(settings),
    )


def assemble(
    store: Store,
    *,
    random: Random,
    election: Candidate | None = None,
    housekeeping: bool = True,
    clock: Clock = time_of_day,
    options: Options | None = None,
    registry: Registry = KINDS,
    validator: type[subnets.SubnetValidator] = subnets.SubnetValidator,
    ipam: type[Ipam] = Ipam,
    cluster: Store | None = None,
) -> "ControlPlane":
    """Return all controllers over `store`.

    `cluster` is the API of the Kubernetes cluster to connect, if that is not `store`.

    `housekeeping` is what Kubernetes does by itself: garbage collection of owned objects (of `registry`) and of old
    Events. A test may pass its own `validator` or `ipam`.
    """
    wiring = _Wiring(store, random, election, clock, options or Options())
    wiring.wire_subnets(validator)
    wiring.wire_ipam(ipam)
    wiring.wire_networks()
    wiring.wire_nodes()
    wiring.wire_evpn()
    wiring.wire_pools()
    wiring.wire_sandboxes()
    wiring.wire_unimplemented()
    if wiring.options.kube is not None:
        wiring.wire_kube(wiring.options.kube, cluster)
    if wiring.options.ovn is not None:
        wiring.wire_ovn(wiring.options.ovn)
    elif wiring.options.planning:
        wiring.wire_plans(PlanOnly(lambda: wiring.attachments.cache), None)
    chores: list[Chore] = [*wiring.chores]
    if housekeeping:
        wiring.wire_garbage(registry)
        chores.append(partial(expire_events, wiring.client, random=random, clock=clock))
    return ControlPlane(wiring, chores)


class ControlPlane(Manager):
    """All controllers; those with metrics of their own are attributes."""

    def __init__(self, wiring: "_Wiring", chores: Sequence[Chore]) -> None:
        super().__init__(
            controllers=wiring.controllers,
            informers=list(dict.fromkeys([*wiring.informers, *wiring.selected])),
            recorder=wiring.recorder,
            random=wiring.random,
            election=wiring.election,
            chores=chores,
            connections=wiring.connections,
        )
        self.ipam = wiring.ipam
        self.plans = wiring.plans
        self.northbound = wiring.northbound
        self.subnets = wiring.validator

    @property
    def ready(self) -> bool:
        """Whether this process does its part, OVN included."""
        return super().ready and (
            self.plans is None or self.northbound is None or self.plans.ready(leading=self.working)
        )


class _Wiring:
    """The parts while they are being built."""

    ipam: Ipam
    validator: subnets.SubnetValidator
    plans: PlanFeed | None = None
    northbound: "Northbound | None" = None

    def __init__(
        self, store: Store, random: Random, election: Candidate | None, clock: Clock, options: Options
    ) -> None:
        self.store = store
        self.random = random
        self.election = election
        self.clock = clock
        self.options = options
        self.fence = election.certain if election is not None else always
        self.client = Client(store, fence=self.fence)
        self.recorder = Recorder(store, COMPONENT, random=random, host=socket.gethostname(), clock=clock)
        self.networks = informer(store, Network, random=random)
        self.subnets = informer(store, Subnet, random=random, indexes={subnets.BY_NETWORK: subnets.by_network})
        self.vni_locks = informer(store, VNILock, random=random, indexes={networks.BY_HOLDER: networks.by_holder})
        self.attachments = attachment_informer(store, random=random)
        self.locks = lock_informer(store, random=random)
        self.nodes = informer(store, Node, random=random)
        indexes = {pools.BY_LABEL: pools.by_label, pools.BY_PLACE: pools.by_place}
        self.pools = informer(store, PortPool, random=random, indexes=indexes)
        self.routers = informer(store, Router, random=random)
        self.balancers = informer(store, LoadBalancer, random=random)
        self.informers: list[Informer[Any]] = [
            self.networks,
            self.subnets,
            self.vni_locks,
            self.attachments,
            self.locks,
            self.nodes,
            self.pools,
            self.routers,
            self.balancers,
        ]
        self.selected: list[Informer[Any]] = []
        """Informers of some objects of a kind, which no other controller can use."""
        self.controllers: list[Controller[Any]] = []
        self.chores: list[Chore] = []
        self.connections: list[Chore] = []

    def controller(
        self,
        name: str,
        part: Any,  # noqa: ANN401  # any part
        *,
        workers: int = 4,
        queue: Queue[Any] | None = None,
    ) -> Controller[Any]:
        """Add a controller."""
        made: Controller[Any] = Controller(
            name,
            part.reconcile,
            random=self.random,
            all_keys=part.all_keys,
            workers=workers,
            queue=queue,
            fence=self.fence,
            recorder=self.recorder,
            event_target=getattr(part, "event_target", None),
        )
        self.controllers.append(made)
        return made

    def wire_subnets(self, kind: type[subnets.SubnetValidator]) -> None:
        """Add the validator of Subnets."""
        validator = self.validator = kind(self.client, self.subnets.cache, self.recorder, clock=self.clock)
        controller = self.controller("subnets", validator)
        controller.watch(self.subnets, validator.subnet_changed)
        controller.watch(self.networks, validator.network_changed)

    def wire_ipam(self, kind: type[Ipam]) -> None:
        """Add IPAM: allocation, release, and the capacity counts."""
        queue: Queue[Any] = Queue(random=self.random)
        usage: Queue[Any] = Queue(random=self.random)
        self.ipam = kind(
            self.client,
            attachments=self.attachments.cache,
            locks=self.locks.cache,
            networks=self.networks.cache,
            recorder=self.recorder,
            enqueue=queue.update,
            on_use_changed=lambda subnet: usage.add_after(subnet, EVERY),
            clock=self.clock,
            quarantine=self.options.quarantine,
        )
        giving = self.controller("ipam", self.ipam, workers=WORKERS, queue=queue)
        locks = LockReconciler(
            self.client,
            locks=self.locks.cache,
            attachments=self.attachments.cache,
            quarantine=self.options.quarantine,
        )
        ending = self.controller("ipam-locks", locks, workers=LOCK_WORKERS)
        used = UsageReconciler(
            self.client,
            subnets=self.subnets.cache,
            networks=self.networks.cache,
            ledger=self.ipam.allocator.ledger,
            pools=self.ipam.allocator.pools,
        )
        self.controller("ipam-use", used, queue=usage)
        giving.watch(self.attachments, self.ipam.attachment_changed)
        giving.watch(self.locks, self.ipam.lock_changed)
        giving.watch(self.networks, self.ipam.network_changed)
        giving.watch(self.subnets, self.ipam.subnet_changed)
        giving.watch(self.routers, self.ipam.router_changed)
        giving.watch(self.balancers, self.ipam.balancer_changed)
        ending.watch(self.locks, locks.lock_changed)

    def wire_networks(self) -> None:
        """Add the allocation of VNIs to Networks."""
        first, last = self.options.vnis
        reconciler = networks.NetworkReconciler(
            self.client,
            networks=self.networks.cache,
            locks=self.vni_locks.cache,
            recorder=self.recorder,
            clock=self.clock,
            first=first,
            last=last,
            rest=self.options.vni_rest,
            in_use=self.ipam.allocator.ledger.in_use,
            refusal=self.options.providers.refusal,
            remark=self.options.ovn.exposed if self.options.ovn is not None else "",
        )
        controller = self.controller("networks", reconciler)
        controller.watch(self.networks, reconciler.network_changed)
        controller.watch(self.vni_locks, reconciler.lock_changed)

    def wire_nodes(self) -> None:
        """Add the controller that marks Nodes whose agents are silent."""
        watcher = nodes.NodeWatcher(self.client, self.nodes.cache, self.recorder, clock=self.clock)
        controller = self.controller("nodes", watcher)
        controller.watch(self.nodes, lambda change: (change.key,))

    def wire_evpn(self) -> None:
        """Add the controller of EVPNNetworks."""
        store, random = self.store, self.random
        indexes = {evpn.BY_NETWORK: evpn.by_network, evpn.BY_SPEAKER: evpn.by_speaker}
        stretched = informer(store, EVPNNetwork, random=random, indexes=indexes)
        speakers = informer(store, BGPSpeaker, random=random)
        remote = informer(store, RemoteVTEP, random=random, indexes={evpn.BY_EVPN_NETWORK: evpn.by_evpn_network})
        reconciler = evpn.EvpnReconciler(
            self.client,
            evpn_networks=stretched.cache,
            speakers=speakers.cache,
            networks=self.networks.cache,
            remote=remote.cache,
            routers=self.routers.cache,
            subnets=self.subnets.cache,
            recorder=self.recorder,
            clock=self.clock,
        )
        controller = self.controller("evpn", reconciler)
        controller.watch(stretched, reconciler.evpn_changed)
        controller.watch(speakers, reconciler.speaker_changed)
        controller.watch(self.networks, reconciler.network_changed)
        controller.watch(remote, reconciler.remote_changed)
        controller.watch(self.routers, reconciler.routed_changed)
        controller.watch(self.subnets, reconciler.routed_changed)
        self.informers += [stretched, speakers, remote]

    def wire_pools(self) -> None:
        """Add the controller of PortPools."""
        queue: Queue[Any] = Queue(random=self.random)
        reconciler = pools.PoolReconciler(
            self.client,
            pools=self.pools.cache,
            attachments=self.attachments.cache,
            enqueue_after=queue.add_after,
            clock=self.clock,
        )
        controller = self.controller("pools", reconciler, queue=queue)
        controller.watch(self.pools, reconciler.pool_changed)
        controller.watch(self.attachments, reconciler.attachment_changed)

    def wire_sandboxes(self) -> None:
        """Add the controller of Sandboxes, which sees the objects of Sandboxes only."""
        store, random = self.store, self.random
        sandboxes = informer(store, Sandbox, random=random)
        labelled = Selector(labels=(Requirement(SANDBOX_LABEL, Operator.EXISTS),))
        indexes = {gc.BY_OWNER: gc.INDEXES[gc.BY_OWNER]}
        owned: list[Informer[Any]] = [
            informer(store, kind.type, random=random, selector=labelled, indexes=indexes) for kind in OWNED
        ]
        reconciler = SandboxReconciler(
            self.client,
            sandboxes=sandboxes.cache,
            owned={one.kind.name: one.cache for one in owned},
            nodes=self.nodes.cache,
            recorder=self.recorder,
            clock=self.clock,
        )
        controller = self.controller("sandboxes", reconciler)
        controller.watch(sandboxes, reconciler.sandbox_changed)
        controller.watch(self.nodes, reconciler.node_changed)
        for one in owned:
            controller.watch(one, reconciler.object_changed)
        self.selected += [sandboxes, *owned]
        documents = next(one for one in owned if one.kind is HOST_DOCUMENT)
        releasing = HostDocumentReconciler(
            self.client, documents=documents.cache, nodes=self.nodes.cache, recorder=self.recorder
        )
        controller = self.controller("host-documents", releasing)
        controller.watch(documents, releasing.document_changed)
        controller.watch(self.nodes, releasing.node_changed)

    def wire_kube(self, settings: ClusterSettings, cluster: Store | None) -> None:
        """Add the controller that makes objects for a Kubernetes cluster."""
        from netloom.control.kube import wiring  # only where there is a cluster

        made = wiring.assemble(
            self.store,
            self.client,
            cluster or self.store,
            settings,
            pools=self.pools.cache,
            attachments=self.attachments.cache,
            all_profiles=self.shared(SECURITY_PROFILE),
            random=self.random,
            fence=self.fence,
            clock=self.clock,
            recorder=self.recorder if cluster is None else None,
            component=COMPONENT,
        )
        controller = self.controller("kube", made.reconciler, workers=wiring.WORKERS)
        made.watch(controller)
        self.selected += made.informers
        self.connections += made.connections

    def wire_unimplemented(self) -> None:
        """Add the controller that marks objects of kinds without an implementation."""
        watched: list[Informer[Any]] = [informer(self.store, of.type, random=self.random) for of in NOT_IMPLEMENTED]
        caches = {one.kind.name: one.cache for one in watched}
        part = UnimplementedReconciler(self.client, caches, clock=self.clock)
        controller = self.controller("unimplemented", part)
        for one in watched:
            controller.watch(one, partial(part.changed, one.kind.name))
        self.informers += watched

    def wire_ovn(self, ovn: Ovn) -> None:
        """Add the controller that writes OVN's northbound database, and its statuses."""
        from netloom.control.ovn.northbound_sync import NorthboundSync  # the driver: only where there is OVN

        if ovn.exposed:
            log.warning("%s", ovn.exposed)
        north, south = ovn.connect_north(self.random, self.fence), ovn.connect_south(self.random)
        self.northbound = north
        sink = NorthboundSync(north, recorder=self.recorder, event_target=lambda unit: statuses.event_target(unit))
        statuses, controller = self.wire_plans(sink, south)
        self.connections.append(north.client.run)
        if south is not None:
            south.on_change.connect(lambda units: controller.queue.update(statuses.concerned(units)))
            self.connections.append(south.client.run)

    def shared(self, kind: Kind) -> Informer[Any]:
        """Return the informer of all objects of a kind."""
        for one in self.informers:
            if one.kind is kind:
                return one
        self.informers.append(informer(self.store, kind.type, random=self.random))
        return self.informers[-1]

    def planned_informers(self) -> dict[str, Informer[Any]]:
        """Return the informers of all planned kinds except attachments."""
        return {kind.name: self.shared(kind) for kind in PLANNED if kind is not NETWORK_ATTACHMENT}

    def wire_plans(self, sink: Sink, south: Southbound | None) -> tuple[StatusReconciler, Controller[Any]]:
        """Add the feed of plans to a sink, and the controller that writes the statuses of what is planned."""
        informers = self.planned_informers()
        caches = {kind: one.cache for kind, one in informers.items()}
        plans = self.plans = PlanFeed(
            sink,
            random=self.random,
            fence=self.fence,
            caches=caches | {NETWORK_ATTACHMENT.name: self.attachments.cache},
            refusal=self.options.providers.refusal,
        )
        statuses = StatusReconciler(
            self.client,
            plans,
            caches=caches,
            attachments=self.attachments.cache,
            recorder=self.recorder,
            south=south,
            clock=self.clock,
        )
        controller = self.controller("logical", statuses, workers=STATUS_WORKERS)

        def enqueue(units: set[Unit] | None) -> None:
            controller.queue.update(statuses.all_keys() if units is None else sorted(units))

        plans.on_programmed.connect(enqueue)
        for kind, one in informers.items():
            one.on_change(partial(plans.changed, kind))
        self.attachments.on_change(plans.attachment_changed)
        self.chores.append(plans.run)
        return statuses, controller

    def wire_garbage(self, registry: Registry) -> None:
        """Add the garbage collector, and the controller that creates Namespaces and empties deleted ones."""
        watched = gc.collected_informers(
            self.store, random=self.random, registry=registry, shared=[self.attachments, self.locks]
        )
        collector = gc.Collector(self.client, watched, self.recorder, registry=registry)
        controller = self.controller("garbage", collector, workers=gc.WORKERS)
        for one in watched:
            controller.watch(one, partial(collector.changed, one.kind))
        self.informers += watched
        if NAMESPACE in registry:
            namespaces = NamespaceReconciler(self.client, watched, clock=self.clock)
            emptying = self.controller("namespaces", namespaces)
            for one in watched:
                emptying.watch(one, partial(namespaces.changed, one.kind))
