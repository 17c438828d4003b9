"""The BGP speakers of a node: `netloom speaker`, a process of their own, and those inside `netloom serve`."""

import asyncio
import logging
from pathlib import Path
from random import Random, SystemRandom

from netloom import __version__
from netloom.control.evpn.host import SpeakerHost
from netloom.control.evpn.live import SOCKET
from netloom.control.evpn.speaker import SpeakerServices
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, now
from netloom.control.runtime.events import Recorder
from netloom.model.kinds.events import AGENT
from netloom.run import config, health, logs, process
from netloom.run.config import AgentSettings, NodeSettings, SpeakerSettings
from netloom.run.metrics import exposition
from netloom.run.metrics import speaker as metrics_speaker
from netloom.run.metrics.exposition import Metrics
from netloom.run.metrics.metering import MeteredStore
from netloom.run.node.parts import RUN, run_folder
from netloom.run.notify import notify
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

log = logging.getLogger(__name__)


def main(settings: SpeakerSettings) -> int:
    """Run until stopped; return the exit status."""
    config.require(settings, "node")
    if settings.health_listen:
        health.loopback(*config.address(settings.health_listen, "healthListen"))
    logs.configure(level=settings.log_level, form=settings.log_format)
    cluster = kubeconfig.load(settings.kubeconfig or None, context=settings.context or None)
    return process.run(serve(settings, cluster))


async def serve(settings: SpeakerSettings, cluster: kubeconfig.Cluster) -> None:
    """Run the speakers of a node until cancelled."""
    store = MeteredStore(await KubeStore.open(cluster))
    measured = exposition.Metrics()
    measured.add(exposition.store, store)
    try:
        async with asyncio.TaskGroup() as group:
            host = in_process(group, settings, store, measured)
            if settings.health_listen:
                address, port = config.address(settings.health_listen)
                ready = host.speakers.synced.is_set
                group.create_task(health.serve(address, port, ready=ready, metrics=measured.scrape))
            log.info("started", extra={"url": cluster.server, "node": settings.node, "version": __version__})
            await host.speakers.synced.wait()
            notify("READY=1")
    finally:
        await store.close()


def in_process(group: asyncio.TaskGroup, settings: SpeakerSettings, store: Store, measured: Metrics) -> SpeakerHost:
    """Run the speakers of a node as tasks of a group, with their Events and metrics."""
    random = SystemRandom()
    recorder = Recorder(store, AGENT, random=random, host=settings.node)
    host = speaker_host(settings, store, recorder, random, now)
    measured.add(metrics_speaker.speakers, lambda: host)
    group.create_task(recorder.run())
    group.create_task(host.run())
    return host


def speaker_host(settings: NodeSettings, store: Store, recorder: Recorder, random: Random, clock: Clock) -> SpeakerHost:
    """Return what runs the speakers of a node, in the agent or in a process of its own."""
    folder = run_folder(settings) if isinstance(settings, AgentSettings) else Path(RUN)
    services = SpeakerServices(
        store=store,
        client=Client(store),
        recorder=recorder,
        node=settings.node,
        clock=clock,
        random=random,
        password_folder=Path(settings.speaker_passwords),
    )
    socket = settings.speaker_socket or str(folder / SOCKET)
    return SpeakerHost(services, socket=socket, namespaces=settings.speaker_namespaces)
