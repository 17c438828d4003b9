"""`netloom agent`: one per node, in the node's network namespace.

    switch (local OVSDB) ─► lock ─► prepare, if asked to ─► attachments, Networks, Mirrors ─► ports, flows, statuses
    Node: registered at once, with a heartbeat whatever else happens

The database's lock decides which agent works on a switch: a second one ends with an error. While the switch is away
the Node is not Ready; the agent waits. Here the parts are built and started; they are listed in `run/node/parts.py`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from msgspec import structs

from netloom import __version__
from netloom.control.node.fabrics.bridges import BridgeReconciler
from netloom.control.node.fabrics.fabric import FabricReconciler
from netloom.control.node.host import NodeHost
from netloom.control.node.host_documents import WORKERS, AppliedOwners, HostDocumentApplier, host_documents_informer
from netloom.control.node.local_ports.hooks import ProgramRunner
from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.control.node.local_ports.pods import PodPorts
from netloom.control.node.local_ports.port_planner import PortPlanner
from netloom.control.node.local_ports.ports import Ports
from netloom.control.node.node import NodeReconciler, PartStates
from netloom.control.node.switch import NodeSwitch, SwitchSettings
from netloom.control.node.views import NodeWatches, attachment_informer
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, now
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.manager import Manager
from netloom.drivers.link.worker import Links
from netloom.drivers.linux.host import LinuxHost
from netloom.drivers.programs.programs import Programs
from netloom.drivers.relay.relays import Relays
from netloom.drivers.shapes import PortRelays
from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vswitch.pods import PodSandboxes
from netloom.drivers.vxlan.bridge import underlay_address
from netloom.drivers.vxlan.driver import FabricFlows
from netloom.errors import Conflict, Unreachable
from netloom.model.kinds.events import AGENT
from netloom.model.kinds.networks import Fabric
from netloom.model.values import addresses
from netloom.openflow.io import Connection
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK, METERS
from netloom.run import config, logs, process
from netloom.run.config import AgentSettings
from netloom.run.metrics.metering import MeteredStore
from netloom.run.node.parts import BACKOFF, PARTS, FlowConnection, NodeServices, Part, socket_path
from netloom.run.node.settings import check, granted, mappings
from netloom.run.notify import notify
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

if TYPE_CHECKING:
    from netloom.control.evpn.host import SpeakerHost
    from netloom.control.node.cluster import ClusterDrivers

log = logging.getLogger(__name__)

LOCK_SECONDS = 3.0
"""Seconds within which the lock of an agent that was just killed is released."""


def main(settings: AgentSettings) -> int:
    """Run until stopped; return the exit status."""
    config.require(settings, "node")
    check(settings)
    if settings.health_listen:
        from netloom.run import health  # Imports a whole server: only where it is needed.

        health.loopback(*config.address(settings.health_listen, "healthListen"))
    logs.configure(level=settings.log_level, form=settings.log_format)
    cluster = kubeconfig.load(settings.kubeconfig or None, context=settings.context or None)
    return process.run(serve(settings, cluster))


async def serve(settings: AgentSettings, cluster: kubeconfig.Cluster) -> None:
    """Work on an API until cancelled."""
    store = MeteredStore(await KubeStore.open(cluster))
    try:
        agent = Agent(settings, store, random=SystemRandom())
        async with asyncio.TaskGroup() as group:
            if settings.health_listen:
                group.create_task(_healthy(settings.health_listen, agent, store))
            log.info("started", extra={"url": cluster.server, "node": settings.node, "version": __version__})
            await agent.run()
    finally:
        await store.close()


async def _healthy(listen: str, agent: "Agent", store: MeteredStore) -> None:
    from netloom.run import health
    from netloom.run.metrics import agent as metrics_agent  # As above.
    from netloom.run.metrics import exposition
    from netloom.run.metrics import speaker as metrics_speaker

    measured = exposition.Metrics()
    measured.add(exposition.store, store)
    measured.add(metrics_agent.agent, agent)
    measured.add(metrics_speaker.speakers, lambda: agent.speakers)
    host, port = config.address(listen)
    await health.serve(host, port, ready=lambda: agent.ready, metrics=measured.scrape)


class Agent:
    """All of a node's agent, over any store."""

    def __init__(
        self,
        settings: AgentSettings,
        store: Store,
        *,
        random: Random,
        clock: Clock = now,
        switch: Vswitch | None = None,
        links: Links | None = None,
        relays: PortRelays | None = None,
        flows: FlowConnection | None = None,
        programs: ProgramRunner | None = None,
        linux: AppliedOwners | None = None,
        cluster: "ClusterDrivers | None" = None,
    ) -> None:
        """Tests pass drivers, a connection for `flows`, and runners of `programs` and of documents of their own."""
        self.settings = settings
        self.store = store
        self.random = random
        self.switch = switch or Vswitch([settings.ovs], owner=settings.ovn_owner, random=random)
        self.links = links or Links(owner=settings.ovn_owner)
        self._relays = relays or Relays(owner=settings.ovn_owner)
        self.lifetimes = Lifetimes(clock=clock)
        self.manager: Manager | None = None
        self.services: NodeServices | None = None
        self.part_states = PartStates()
        self._parts: Sequence[Part] = ()
        self._clock = clock
        self._client = Client(store)
        self._flows = flows or Connection(socket_path(settings), random=random)
        self._cluster = cluster
        self._programs = programs or Programs(timeout=settings.exec_timeout)
        self._linux = linux or LinuxHost(settings.sandbox_state)
        self._documents: HostDocumentApplier | None = None

    @property
    def ready(self) -> bool:
        """Whether ports can be plugged."""
        return self.manager is not None and self.manager.ready and self.switch.synced

    @property
    def watches(self) -> NodeWatches | None:
        """The watches of this node, once they are started."""
        return None if self.services is None else self.services.watches

    @property
    def fabric(self) -> FabricReconciler | None:
        """The reconciler of the vxlan fabric, once it is started."""
        return None if self.services is None else self.services.fabric

    @property
    def speakers(self) -> "SpeakerHost | None":
        """What runs the BGP speakers of this node, once there is one."""
        return next((host for part in self._parts for host in part.speakers), None)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.switch.client.run())
                group.create_task(self.switch.writer.run())
                await self._work()
        finally:
            self._relays.close()
            self.links.close()

    async def _work(self) -> None:
        underlay = await self._underlay()
        settings = SwitchSettings(
            node=self.settings.node,
            ovs=self.settings.ovs,
            ovn_remote=self.settings.ovn_remote,
            encap=self.settings.encap,
            datapath=self.settings.datapath,
            prepare=self.settings.prepare,
            mappings=mappings(self.settings),
        )
        able = await self.links.probe()
        switch = NodeSwitch(self.switch, settings, capabilities=able)
        host = NodeHost(underlay, devices=self.links, switch=switch, grants=granted(self.settings), capabilities=able)
        node = NodeReconciler(
            self._client,
            self.settings.node,
            underlay,
            facts=lambda: structs.replace(switch.facts(host.remark), parts=self.part_states.current),
            clock=self._clock,
            random=self.random,
        )
        async with asyncio.TaskGroup() as group:
            # Ports do not wait for it: while the API server is away, pods can still be deleted.
            group.create_task(node.run())
            group.create_task(self._sandboxes().run())
            await self._prepare(switch, underlay)
            await host.refresh()
            manager = self.manager = self._assemble(switch, host, underlay)
            self.switch.on_switch.connect(node.check)
            self.part_states.on_change.connect(node.check)
            node.check()  # The switch may have changed before.
            log.info("ready", extra={"node": self.settings.node})
            notify("READY=1")
            await manager.run()

    async def _underlay(self) -> str:
        """Return the node's underlay address as the kernel writes it: from the settings, or from the switch."""
        address = self.settings.underlay_ip
        if not addresses.is_ip(address):
            await self.switch.client.synced.wait()
            address = underlay_address(self.switch)
        if not addresses.is_ip(address):
            raise config.invalid("underlayIp", "required: the switch has no ovn-encap-ip either")
        return str(addresses.address(address))

    async def _lock(self) -> None:
        """Wait for the switch, and for its lock."""
        await self.switch.client.synced.wait()
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await self.switch.lock.held.wait()
        except TimeoutError:
            raise Conflict(f"another agent works on the switch at {self.settings.ovs}") from None

    async def _prepare(self, switch: NodeSwitch, underlay: str) -> None:
        """Lock the switch and prepare it, however often its database goes away meanwhile."""
        while True:
            await self._lock()
            try:
                if await switch.prepare(underlay):
                    log.info("Open vSwitch is prepared", extra={"remote": self.settings.ovn_remote})
                return
            except Unreachable as error:
                log.info("the switch is not prepared yet: %s", error)

    def _sandboxes(self) -> Manager:
        """Return what applies HostDocuments: it needs no switch."""
        documents = host_documents_informer(self.store, self.settings.node, random=self.random)
        applier = self._documents = HostDocumentApplier(
            self._client,
            documents=documents.cache,
            host=self._linux,
            grants=granted(self.settings),
            clock=self._clock,
            time=asyncio.get_running_loop().time,
        )
        controller = Controller(
            "host-documents",
            applier.reconcile,
            random=self.random,
            all_keys=applier.all_keys,
            workers=WORKERS,
            backoff=BACKOFF,
        )
        controller.watch(documents, applier.document_changed)
        return Manager(
            controllers=[controller],
            informers=[documents],
            recorder=Recorder(self.store, AGENT, random=self.random, host=self.settings.node, clock=self._clock),
            random=self.random,
            chores=[lambda: applier.tidy(controller.queue.update)],
            grace=0,
        )

    def _assemble(self, switch: NodeSwitch, host: NodeHost, underlay: str) -> Manager:
        self.links.userspace = switch.userspace
        attachments = attachment_informer(self.store, self.settings.node, random=self.random)
        watches = NodeWatches(
            self.store, attachments, node=self.settings.node, random=self.random, lifetimes=self.lifetimes
        )
        sandboxes = PodSandboxes(self.switch)
        sandboxes.load()
        planner = PortPlanner(attachments.cache, watches, host, sandboxes)
        fabric = FabricReconciler(
            underlay=underlay,
            datapath=switch.datapath,
            attachments=attachments,
            watches=watches,
            planner=planner,
            switch=self.switch,
            flows=FabricFlows(
                self._flows, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=METERS, may_write=self._may_write
            ),
            connect=self._flows.run,
            random=self.random,
        )
        bridges = BridgeReconciler(
            underlay=underlay,
            datapath=switch.datapath,
            attachments=attachments.cache,
            watches=watches,
            switch=self.switch,
        )
        ports = Ports(
            self.switch,
            self.links,
            carriers={Fabric.VXLAN: fabric, Fabric.LINUX: bridges},
            relays=self._relays,
            underlay_device=lambda: host.device,
            sandboxes=sandboxes,
        )
        services = self.services = NodeServices(
            settings=self.settings,
            underlay=underlay,
            store=self.store,
            client=self._client,
            recorder=Recorder(self.store, AGENT, random=self.random, host=self.settings.node, clock=self._clock),
            lifetimes=self.lifetimes,
            clock=self._clock,
            random=self.random,
            switch=self.switch,
            links=self.links,
            relays=self._relays,
            programs=self._programs,
            node_switch=switch,
            host=host,
            attachments=attachments,
            watches=watches,
            planner=planner,
            part_states=self.part_states,
            cluster=self._cluster,
            fabric=fabric,
            bridges=bridges,
            ports=ports,
            pods=PodPorts(
                attachments=attachments.cache,
                planner=planner,
                ports=ports,
                node_switch=switch,
                switch=self.switch,
                links=self.links,
                random=self.random,
            ),
        )
        self._parts = [part(services) for part in PARTS]
        return Manager(
            controllers=[controller for part in self._parts for controller in part.controllers],
            informers=[attachments],
            recorder=services.recorder,
            random=self.random,
            chores=[chore for part in self._parts for chore in part.chores],
            connections=[chore for part in self._parts for chore in part.always],
        )

    def _may_write(self) -> bool:
        # While the database is away, nothing says that another agent has the switch: the last known holder keeps it.
        return self.switch.lock.held.is_set() or not self.switch.synced

    def numbers(self) -> Mapping[str, float]:
        """Return the values of the agent's metrics."""
        found: dict[str, float] = {
            "switch_transactions": self.switch.writer.counters.transactions,
            "switch_changes": self.switch.writer.counters.changes,
            "switch_refused": self.switch.writer.counters.refused,
            "link_writes": self.links.counters.writes,
        }
        if self.manager is not None:
            found["looked"] = sum(one.succeeded for one in self.manager.controllers)
        for part in self._parts:
            found |= part.numbers()
        if self._documents is not None:
            documents = self._documents
            found |= {
                "documents_applied": documents.applied,
                "documents_changes": documents.changes,
                "documents_failed": documents.failures,
            }
        return found
