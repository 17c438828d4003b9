"""`netloom agent`: one per node, in the node's network namespace.

    switch (local OVSDB) ─► lock ─► prepare, if told ─► attachments, Networks, Mirrors ─► ports, status
    Node: made at once, and told to be alive whatever else happens

The database's lock decides who works on a switch: a second agent says so and goes. While the switch is away the Node is
not Ready; the agent waits.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from random import Random, SystemRandom
from typing import NoReturn

from msgspec import structs

from netloom import __version__
from netloom.control.node.attachments import WORKERS, AttachmentReconciler
from netloom.control.node.fabric import FabricReconciler
from netloom.control.node.hooks import HookRunner, Runs
from netloom.control.node.lifetimes import Lifetimes
from netloom.control.node.mirrors import MirrorReconciler
from netloom.control.node.node import NodeReconciler
from netloom.control.node.ports import Ports
from netloom.control.node.tunnels import TunnelNeighbours
from netloom.control.node.views import NodeWatches, View, attachment_informer
from netloom.control.runtime.cache import Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, now
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.control.runtime.manager import Manager
from netloom.control.runtime.queue import Backoff, Pace
from netloom.drivers.link.worker import Links
from netloom.drivers.programs.programs import Programs
from netloom.drivers.vswitch.control import SwitchControl
from netloom.drivers.vswitch.driver import Place, Vswitch
from netloom.drivers.vswitch.hook_journal import HookJournal
from netloom.errors import Conflict, NetloomError, Unreachable
from netloom.model import addresses
from netloom.model.events import AGENT
from netloom.model.networks import Fabric
from netloom.plan.node.ports import Host
from netloom.run import agent_fabric, agent_settings, config, logs, process
from netloom.run.agent_fabric import Talk
from netloom.run.agent_settings import granted, mappings, wrong
from netloom.run.agent_switch import NodeSwitch
from netloom.run.config import AgentSettings
from netloom.run.metering import MeteredStore
from netloom.run.notify import notify
from netloom.store import kubeconfig
from netloom.store.base import Store
from netloom.store.kube import KubeStore

log = logging.getLogger(__name__)

LOOK_AT_UNDERLAY = 30.0
LOCK_SECONDS = 3.0
"""How long the lock of an agent that was just killed may take to come free."""
BACKOFF = Backoff(unreachable=Pace(0.2, 5.0))
"""The switch's database, or the API, is back within seconds or it is not: a port that waits is worth a look."""


def main(settings: AgentSettings) -> int:
    """Run until stopped; return the exit status."""
    config.require(settings, "node")
    agent_settings.check(settings)
    if settings.health_listen:
        from netloom.run import health  # with it comes a whole server: only where it is wanted

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
    from netloom.run import health, metrics, metrics_agent  # as above

    measured = metrics.Metrics()
    measured.add(metrics.store(store))
    measured.add(metrics_agent.agent(agent))
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
        flows: Talk | None = None,
        programs: Runs | None = None,
    ) -> None:
        """A test may bring a `switch`, `links`, `flows` to write to, and who runs `programs`, of its own."""
        self.settings = settings
        self.store = store
        self.random = random
        self.switch = switch or Vswitch([settings.ovs], owner=settings.ovn_owner, random=random)
        self.links = links or Links(owner=settings.ovn_owner)
        self._clock = clock
        self.manager: Manager | None = None
        self.keeper: AttachmentReconciler | None = None
        self.neighbours: NodeWatches | None = None
        self.lifetimes = Lifetimes(clock=clock)
        self.fabric: FabricReconciler | None = None
        self._client = Client(store)
        self._flows = flows
        self._programs = programs or Programs(timeout=settings.exec_timeout)
        self._whole = NodeSwitch(settings, self.switch, mappings(settings))
        self._underlay = _written(settings.underlay_ip)
        self._grants = granted(settings)

    @property
    def ready(self) -> bool:
        """Whether ports can be plugged."""
        return self.manager is not None and self.manager.ready and self.switch.synced

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.switch.client.run())
                group.create_task(self.switch.writer.run())
                await self._work()
        finally:
            self.links.close()

    async def _work(self) -> None:
        if not self._underlay:
            await self.switch.client.synced.wait()
            self._underlay = _written(self._whole.underlay)
            if not self._underlay:
                raise wrong("underlayIp", "required: the switch has no ovn-encap-ip either")
        node = NodeReconciler(
            self._client,
            self.settings.node,
            self._underlay,
            facts=self._whole.facts,
            clock=self._clock,
            random=self.random,
        )
        self._whole.capabilities = await self.links.probe()
        await node.register()
        async with asyncio.TaskGroup() as group:
            group.create_task(node.run())
            await self._prepared()
            manager = await self._assemble(node)
            log.info("ready", extra={"node": self.settings.node})
            notify("READY=1")
            await manager.run()

    async def _alone(self) -> None:
        """Wait for the switch, and for its lock."""
        await self.switch.client.synced.wait()
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await self.switch.lock.held.wait()
        except TimeoutError:
            raise Conflict(f"another agent works on the switch at {self.settings.ovs}") from None

    async def _prepared(self) -> None:
        """Have the switch for ourselves, and as it should be, however often its database goes away meanwhile."""
        while True:
            await self._alone()
            try:
                if await self._whole.prepare(self._underlay):
                    log.info("Open vSwitch is prepared", extra={"remote": self.settings.ovn_remote})
                return
            except Unreachable as error:
                log.info("the switch is not prepared yet: %s", error)

    async def _assemble(self, node: NodeReconciler) -> Manager:
        attachments = attachment_informer(self.store, self.settings.node, random=self.random)
        neighbours = self.neighbours = NodeWatches(
            self.store, attachments, node=self.settings.node, random=self.random, lifetimes=self.lifetimes
        )
        recorder = Recorder(self.store, AGENT, random=self.random, host=self.settings.node, clock=self._clock)
        self.links.userspace = self._whole.userspace
        ports = Ports(self.switch, self.links)
        keeper = self.keeper = AttachmentReconciler(
            self._client,
            attachments=attachments.cache,
            neighbours=neighbours,
            ports=ports,
            recorder=recorder,
            host=await self._host(ports),
            host_ip=self._underlay,
            clock=self._clock,
            random=self.random,
            lifetimes=self.lifetimes,
            hooks=(hooks := self._hooks(recorder)),
        )
        keeper.amiss = self._whole.amiss
        plugging = self._plugging(keeper, recorder)
        hooks.look = plugging.queue.add
        plugging.watch(attachments, keeper.attachment_changed)
        fabric = self._carrying(attachments, neighbours, ports, plugging)
        tunnels = self._tunnels(fabric)
        mirrors = MirrorReconciler(attachments.cache, neighbours, self.switch)
        copying = Controller("mirrors", mirrors.reconcile, random=self.random, everything=mirrors.everything, workers=1)
        neighbours.mirrored = copying.queue.add
        remind = partial(keeper.remind, plugging.queue.add)
        self.manager = Manager(
            controllers=[plugging, copying],
            informers=[attachments],
            recorder=recorder,
            random=self.random,
            chores=[
                neighbours.run,
                fabric.run,
                tunnels.run,
                hooks.run,
                keeper.tidy,
                remind,
                partial(self._watch_underlay, ports, keeper, plugging),
            ],
        )
        self._listen(node, plugging, copying, mirrors)
        return self.manager

    def _hooks(self, recorder: Recorder) -> HookRunner:
        return HookRunner(
            HookJournal(self.switch),
            self._programs,
            self.links,
            allowed=self.settings.allowed_programs,
            recorder=recorder,
            clock=self._clock,
            measured=self.lifetimes.hooks,
        )

    def _plugging(self, keeper: AttachmentReconciler, recorder: Recorder) -> Controller[Key]:
        return Controller(
            "host",
            keeper.reconcile,
            random=self.random,
            everything=keeper.everything,
            workers=WORKERS,
            backoff=BACKOFF,
            recorder=recorder,
            about=keeper.about,
        )

    def _carrying(
        self, attachments: Informer[View], neighbours: NodeWatches, ports: Ports, plugging: Controller[Key]
    ) -> FabricReconciler:
        """Have vxlan Networks carried, and be told of what concerns both their ports and their flows."""
        host = self.keeper
        assert host is not None
        fabric = self.fabric = agent_fabric.keeper(
            self.settings,
            underlay=self._underlay,
            datapath=self._whole.datapath,
            attachments=attachments.cache,
            neighbours=neighbours,
            switch=self.switch,
            host=host,
            random=self.random,
            flows=self._flows,
        )
        ports.carrier = fabric
        host.reachable = lambda plan: plan.fabric is not Fabric.VXLAN or fabric.fabric.connected

        def both(keys: Iterable[Key]) -> None:
            keys = host.with_children(keys)
            fabric.look(keys)
            plugging.queue.update(keys)

        attachments.on_change(lambda change: fabric.look((change.key,)))
        neighbours.wake = both
        fabric.wake = plugging.queue.update
        return fabric

    def _tunnels(self, fabric: FabricReconciler) -> TunnelNeighbours:
        tunnels = TunnelNeighbours(
            remotes=lambda: self.switch.tunnel_remotes() | fabric.remote_hosts(),
            kernel=self.links,
            write=SwitchControl(agent_fabric.run_folder(self.settings)).set_neighbours,
            is_needed=lambda: self.switch.synced and self._whole.userspace,
        )
        self.switch.on_tunnels.connect(tunnels.enqueue)
        fabric.on_host = tunnels.enqueue
        return tunnels

    def _listen(
        self, node: NodeReconciler, plugging: Controller[Key], copying: Controller[str], mirrors: MirrorReconciler
    ) -> None:
        """Have what happens on the switch looked at."""
        keeper, fabric = self.keeper, self.fabric
        assert keeper is not None
        assert fabric is not None
        bridges = self._whole.bridges()

        def switched(places: set[Place]) -> None:
            fabric.look(Key(*place) for place in places)
            plugging.queue.update(keeper.with_children(Key(*place) for place in places))
            copying.queue.update(one for one in {place[0] for place in places} if mirrors.concerned(one))

        def different() -> None:
            nonlocal bridges
            node.look()
            fabric.changed()
            before, bridges = bridges, self._whole.bridges()
            if any(now is not None and now != then for then, now in zip(before, bridges, strict=True)):
                plugging.queue.update(keeper.everything())  # What was put on the old one is gone with it.
            keeper.host = structs.replace(keeper.host, physical_networks=self._whole.physical_networks)
            plugging.queue.update(keeper.troubled())

        self.switch.on_interfaces.connect(switched)
        self.switch.on_switch.connect(different)
        node.look()  # What happened before nobody told it.

    async def _watch_underlay(self, ports: Ports, keeper: AttachmentReconciler, plugging: Controller[Key]) -> NoReturn:
        """Look now and then whether the way to other nodes is what it was."""
        while True:
            await asyncio.sleep(LOOK_AT_UNDERLAY)
            try:
                host = await self._host(ports)
            except NetloomError as error:
                log.info("the underlay cannot be looked at: %s", error)
                continue
            if host != keeper.host:
                keeper.host = host
                plugging.queue.update(keeper.everything())

    async def _host(self, ports: Ports) -> Host:
        device = await self.links.holder(self._underlay)
        ports.underlay = device.name if device else ""
        if device is None:
            log.warning("no device here has the underlay's address", extra={"address": self._underlay})
        where = f"no device here has the underlay's address {self._underlay}: other nodes may not reach this one"
        self._whole.remark = "" if device else where
        return Host(
            underlay_mtu=device.mtu if device else 1500,
            underlay_v6=":" in self._underlay,
            physical_networks=self._whole.physical_networks,
            grants=self._grants,
        )

    def numbers(self) -> Mapping[str, float]:
        """Return plain numbers for who exports metrics."""
        found: dict[str, float] = {
            "switch_transactions": self.switch.writer.counters.transactions,
            "switch_changes": self.switch.writer.counters.changes,
            "switch_refused": self.switch.writer.counters.refused,
            "link_writes": self.links.counters.writes,
        }
        if self.keeper is not None:
            counters = self.keeper.counters
            found |= {
                "looked": sum(one.succeeded for one in self.manager.controllers) if self.manager else 0,
                "plugged": counters.plugged,
                "unplugged": counters.unplugged,
                "statuses": counters.statuses,
                "troubles": sum(counters.troubles.values()),
            }
        return {**found, **(self.fabric.numbers() if self.fabric is not None else {})}


def _written(ip: str) -> str:
    """Return an address as the kernel writes it, by which the device is found that has it; "" where it is none."""
    return str(addresses.address(ip)) if addresses.is_ip(ip) else ""
