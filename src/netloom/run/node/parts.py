"""The parts of an agent, and what they share.

A part is a function of the `NodeServices` that returns its controllers and chores. To add one (a tunnel end
of EVPN, a host of sandboxes), write its function and append it to `PARTS`: the other parts do not change. A part
listens to the signals of the services, and receives what it needs as arguments.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from netloom.control.node.fabrics import bridges
from netloom.control.node.fabrics.bridges import BridgeReconciler
from netloom.control.node.fabrics.fabric import FabricReconciler
from netloom.control.node.fabrics.remote_vteps import KEY, RemoteVtepReconciler
from netloom.control.node.fabrics.tunnels import TunnelNeighbours
from netloom.control.node.host import NodeHost
from netloom.control.node.local_ports.attachments import WORKERS, AttachmentReconciler
from netloom.control.node.local_ports.hooks import HookRunner, ProgramRunner
from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.control.node.local_ports.pods import PodPorts
from netloom.control.node.local_ports.port_planner import PortPlanner
from netloom.control.node.local_ports.ports import Ports
from netloom.control.node.mirrors import MirrorReconciler
from netloom.control.node.node import CLUSTER_NETWORK, PartStates
from netloom.control.node.switch import NodeSwitch
from netloom.control.node.views import AttachmentView, NodeWatches, where
from netloom.control.runtime.cache import Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer, informer
from netloom.control.runtime.queue import Backoff, Pace
from netloom.drivers.link.worker import Links
from netloom.drivers.shapes import PortRelays
from netloom.drivers.vswitch.control import SwitchControl
from netloom.drivers.vswitch.driver import VXLAN_BRIDGE, Vswitch
from netloom.drivers.vswitch.hook_journal import HookJournal
from netloom.front.cni.server import CniServer
from netloom.front.cni.verbs import Verbs
from netloom.model.kinds.bgp import BGPSpeaker
from netloom.openflow.switch import Switch
from netloom.run.config import AgentSettings
from netloom.store.base import Store

if TYPE_CHECKING:
    from netloom.control.evpn.host import SpeakerHost
    from netloom.control.node.cluster import ClusterDrivers

RUN = "/run/openvswitch"
BACKOFF = Backoff(unreachable=Pace(0.2, 5.0))
"""Short: the switch's database and the API are usually back within seconds, and ports wait for them."""

Chore = Callable[[], Coroutine[Any, Any, Any]]


class FlowConnection(Switch, Protocol):
    """A switch, and the task that stays connected to it."""

    async def run(self) -> NoReturn:
        """Stay connected until cancelled."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeServices:
    """What the parts of an agent share."""

    settings: AgentSettings
    underlay: str
    """The node's underlay address."""
    store: Store
    client: Client
    recorder: Recorder
    lifetimes: Lifetimes
    clock: Clock
    random: Random
    switch: Vswitch
    links: Links
    relays: PortRelays
    programs: ProgramRunner
    node_switch: NodeSwitch
    host: NodeHost
    attachments: Informer[AttachmentView]
    watches: NodeWatches
    planner: PortPlanner
    fabric: FabricReconciler
    bridges: BridgeReconciler
    ports: Ports
    pods: PodPorts
    part_states: PartStates
    """Where a part says how it is, if only some nodes have it."""
    cluster: "ClusterDrivers | None" = None
    """Drivers of a cluster's node, in place of nftables and the kernel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of an agent."""

    controllers: Sequence[Controller[Any]] = ()
    chores: Sequence[Chore] = ()
    always: Sequence[Chore] = ()
    """Chores that do not wait for the caches."""
    numbers: Callable[[], Mapping[str, float]] = dict
    """Returns the values of its metrics."""
    speakers: "Sequence[SpeakerHost]" = ()
    """What runs the BGP speakers of this node, once there is one."""


def watch_node(on: NodeServices) -> Part:
    """Follow what is relevant to this node, and the node itself."""
    on.switch.on_switch.connect(on.host.refresh_physical_networks)
    return Part(chores=[on.watches.run, on.host.run])


def carry_vxlan(on: NodeServices) -> Part:
    """Write the flows of the vxlan fabric."""
    return Part(chores=[on.fabric.run], numbers=on.fabric.numbers)


def connect_bridges(on: NodeServices) -> Part:
    """Keep the bridges of linux Networks."""
    reconciler = on.bridges
    controller = Controller(
        "bridges", reconciler.reconcile, random=on.random, all_keys=reconciler.all_keys, workers=1, backoff=BACKOFF
    )

    def changed(*_: object) -> None:
        controller.queue.add(bridges.KEY)

    on.attachments.on_change(changed)
    for signal in (on.watches.on_peers, on.watches.on_network, on.switch.on_switch, on.switch.on_interfaces):
        signal.connect(changed)
    on.switch.on_tunnels.connect(changed)
    return Part(controllers=[controller])


def plug_attachments(on: NodeServices) -> Part:
    """Plug and unplug the ports of this node's attachments, and run their programs."""
    hooks = HookRunner(
        HookJournal(on.switch),
        on.programs,
        on.links,
        allowed=on.settings.allowed_programs,
        recorder=on.recorder,
        clock=on.clock,
        durations=on.lifetimes.hooks,
    )
    reconciler = AttachmentReconciler(
        on.client,
        attachments=on.attachments.cache,
        planner=on.planner,
        ports=on.ports,
        switch=on.node_switch,
        hooks=hooks,
        recorder=on.recorder,
        lifetimes=on.lifetimes,
        host_ip=on.underlay,
        clock=on.clock,
        random=on.random,
    )
    controller = Controller(
        "host",
        reconciler.reconcile,
        random=on.random,
        all_keys=reconciler.all_keys,
        workers=WORKERS,
        backoff=BACKOFF,
        recorder=on.recorder,
        event_target=reconciler.event_target,
    )
    enqueue = controller.queue
    controller.watch(on.attachments, reconciler.attachment_changed)
    on.watches.on_network.connect(lambda keys: enqueue.update(on.planner.with_children(keys)))
    on.watches.on_shaping.connect(lambda change: enqueue.update(reconciler.shaping_changed(change)))
    on.watches.on_shapings_synced.connect(lambda namespace: enqueue.update(reconciler.in_namespace(namespace)))
    on.relays.on_end.connect(lambda device: enqueue.update(reconciler.relay_ended(device)))
    on.switch.on_interfaces.connect(lambda names: enqueue.update(reconciler.interfaces_changed(names)))
    on.switch.on_switch.connect(lambda: enqueue.update(reconciler.switch_changed()))
    on.host.on_change.connect(lambda: enqueue.update(reconciler.all_keys()))
    on.fabric.on_programmed.connect(enqueue.update)
    on.bridges.on_programmed.connect(enqueue.update)
    on.watches.on_profile.connect(lambda change: enqueue.update(on.planner.unfiltered(change.key.namespace)))
    on.watches.on_policies_synced.connect(lambda namespace: enqueue.update(on.planner.unfiltered(namespace)))
    on.pods.on_sandbox.connect(enqueue.add)
    hooks.on_report.connect(enqueue.add)

    def numbers() -> Mapping[str, float]:
        counters = reconciler.counters
        return {
            "plugged": counters.plugged,
            "unplugged": counters.unplugged,
            "statuses": counters.statuses,
            "troubles": sum(counters.problems.values()),
        }

    return Part(
        controllers=[controller],
        chores=[hooks.run, reconciler.tidy, lambda: reconciler.remind(enqueue.add)],
        numbers=numbers,
    )


def mirror(on: NodeServices) -> Part:
    """Write the mirrors of this node."""
    reconciler = MirrorReconciler(on.underlay, on.attachments.cache, on.watches, on.switch)
    controller = Controller("mirrors", reconciler.reconcile, random=on.random, all_keys=reconciler.all_keys, workers=1)
    on.watches.on_mirrors.connect(controller.queue.add)
    on.switch.on_interfaces.connect(lambda names: controller.queue.update(reconciler.interfaces_changed(names)))
    return Part(controllers=[controller])


def extend_networks(on: NodeServices) -> Part:
    """Connect this node's switch to the VTEPs of other sites, where it has a speaker."""
    reconciler = RemoteVtepReconciler(
        on.store,
        on.settings.node,
        on.switch,
        namespaces=on.settings.speaker_namespaces,
        nodes=lambda: {on.underlay, *on.switch.node_tunnels(), *on.fabric.node_addresses()},
        random=on.random,
    )
    controller = Controller(
        "remote-vteps",
        reconciler.reconcile,
        random=on.random,
        all_keys=reconciler.all_keys,
        workers=1,
        backoff=BACKOFF,
    )
    controller.watch(reconciler.vteps, reconciler.changed)
    controller.watch(reconciler.speakers, reconciler.changed)
    for signal in (on.switch.on_switch, on.switch.on_tunnels, on.fabric.on_remote_host):
        signal.connect(lambda: controller.queue.add(KEY))
    return Part(
        controllers=[controller],
        chores=[reconciler.speakers.run, reconciler.vteps.run, lambda: reconciler.announce(controller.queue.add)],
    )


def resolve_tunnels(on: NodeServices) -> Part:
    """Resolve the next hops of tunnels before packets need them."""
    tunnels = TunnelNeighbours(
        remotes=lambda: on.switch.tunnel_remotes() | on.fabric.remote_hosts(),
        kernel=on.links,
        write=SwitchControl(run_folder(on.settings)).set_neighbours,
        is_needed=lambda: on.switch.synced and on.node_switch.userspace,
    )
    on.switch.on_tunnels.connect(tunnels.enqueue)
    on.fabric.on_remote_host.connect(tunnels.enqueue)
    return Part(chores=[tunnels.run])


def add_pods(on: NodeServices) -> Part:
    """Serve the CNI plugin of this node, and forget the pods that ended without it."""
    pods, attachments = on.pods, on.attachments
    attachments.on_change(pods.attachment_changed)
    on.watches.on_network.connect(pods.wake)
    on.watches.on_shapings_synced.connect(lambda _: pods.wake_all())
    on.switch.on_interfaces.connect(lambda names: pods.wake(Key(*name) for name in names))
    on.switch.on_switch.connect(pods.wake_all)
    on.host.on_change.connect(pods.wake_all)
    on.fabric.on_programmed.connect(pods.wake)
    on.bridges.on_programmed.connect(pods.wake)
    if not on.settings.cni:
        return Part(chores=[pods.tidy])
    verbs = Verbs(
        pods,
        namespace=on.settings.cni_namespace,
        timeout=on.settings.cni_timeout,
        is_ready=on.attachments.synced.is_set,
        durations=on.lifetimes.cni,
    )
    server = CniServer(on.settings.cni, verbs.answer)
    return Part(chores=[pods.tidy], always=[server.run], numbers=lambda: {"cni_open": server.clients})


def run_speakers(on: NodeServices) -> Part:
    """Run the BGP speakers of this node."""
    if not on.settings.speaker:
        return Part()
    hosts: list[SpeakerHost] = []

    async def run() -> None:
        # Most nodes have no speaker: what speaks BGP is imported where there is one.
        speakers = informer(on.store, BGPSpeaker, random=on.random, selector=where("spec.node", on.settings.node))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(speakers.run())
            await speakers.synced.wait()
            some = asyncio.Event()
            speakers.on_change(lambda _: some.set())
            await some.wait()
            task.cancel()
        from netloom.run.node.speaker import speaker_host

        hosts.append(speaker_host(on.settings, on.store, on.recorder, on.random, on.clock))
        await hosts[0].run()

    return Part(chores=[run], speakers=hosts)


def serve_cluster(on: NodeServices) -> Part:
    """Connect the pods of a Kubernetes cluster with everything outside, by nftables."""
    if not on.settings.kube_namespace:
        on.part_states.set(CLUSTER_NETWORK, None)
        return Part()
    # Only nodes of such a cluster import this.
    from netloom.control.node.cluster import ClusterDrivers, ClusterReconciler
    from netloom.drivers.nft.driver import NftTable
    from netloom.drivers.nft.forwarding import enable
    from netloom.drivers.nft.tracking import Targets, forget
    from netloom.plan.kube.node.table import TABLE

    async def forgotten(now: Targets, before: Targets) -> int:
        return await asyncio.to_thread(forget, now, before)

    drivers = on.cluster or ClusterDrivers(NftTable(TABLE), enable, forgotten)
    reconciler = ClusterReconciler(
        on.store,
        on.attachments.cache,
        drivers,
        node=on.settings.node,
        namespace=on.settings.kube_namespace,
        underlay=on.underlay,
        report=on.part_states.set,
        random=on.random,
    )
    controller = Controller(
        "cluster",
        reconciler.reconcile,
        random=on.random,
        all_keys=reconciler.all_keys,
        workers=1,
        backoff=BACKOFF,
    )
    controller.watch(on.attachments, reconciler.attachment_changed)
    controller.watch(reconciler.balancers, reconciler.balancer_changed)
    return Part(
        controllers=[controller], chores=[lambda: reconciler.run(controller.queue.add)], numbers=drivers.table.numbers
    )


PARTS: Sequence[Callable[[NodeServices], Part]] = (
    watch_node,
    carry_vxlan,
    connect_bridges,
    plug_attachments,
    add_pods,
    mirror,
    extend_networks,
    resolve_tunnels,
    run_speakers,
    serve_cluster,
)


def socket_path(settings: AgentSettings) -> str:
    """Return the socket of the bridge's OpenFlow connection: beside the database's, unless it is set."""
    if settings.openflow:
        return settings.openflow.removeprefix("unix:")
    return str(run_folder(settings) / f"{VXLAN_BRIDGE}.mgmt")


def run_folder(settings: AgentSettings) -> Path:
    """Return the folder of the switch's sockets: that of its database's, if that is a file."""
    kind, _, path = settings.ovs.partition(":")
    return Path(path).parent if kind == "unix" else Path(RUN)
