"""`netloom controller`: the controllers alone, on the API that a kubeconfig names, with leader election.

On Kubernetes, its own garbage collector and its own expiry of Events do the housekeeping; on our API we do it. Unless
the settings say which, the server's version does.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
from contextlib import AsyncExitStack
from random import Random, SystemRandom

from netloom import __version__
from netloom.control.runtime.election import Candidate, Election, JointElection
from netloom.errors import Unreachable
from netloom.run import config, controllers, health, logs, process
from netloom.run.config import ControllerSettings
from netloom.run.kube import opened
from netloom.run.metrics import control, exposition
from netloom.run.metrics.metering import MeteredStore
from netloom.run.notify import notify
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

log = logging.getLogger(__name__)

LEASE = "netloom-controller"
RETRY_SECONDS = 2.0


def main(settings: ControllerSettings) -> int:
    """Run until stopped; return the exit status."""
    if settings.health_listen:
        health.loopback(*config.address(settings.health_listen, "healthListen"))
    controllers.options_of(settings)
    logs.configure(level=settings.log_level, form=settings.log_format)
    cluster = kubeconfig.load(settings.kubeconfig or None, context=settings.context or None)
    return process.run(serve(settings, cluster))


async def serve(settings: ControllerSettings, cluster: kubeconfig.Cluster) -> None:
    """Run the controllers until cancelled."""
    housekeeping = settings.housekeeping == "on"
    if settings.housekeeping == "auto":
        housekeeping = await _is_ours(cluster)
    store = MeteredStore(await KubeStore.open(cluster))
    closing = AsyncExitStack()
    try:
        random = SystemRandom()
        identity = f"{settings.identity or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        election = _candidacy(settings, store, identity, random) if settings.leader_elect else None
        options = controllers.options_of(settings)
        manager = controllers.assemble(
            store,
            random=random,
            election=election,
            housekeeping=housekeeping,
            options=options,
            cluster=await closing.enter_async_context(opened(settings)),
        )
        measured = exposition.Metrics()
        measured.add(exposition.store, store)
        measured.add(control.manager, manager)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            if settings.health_listen:
                host, port = config.address(settings.health_listen)
                group.create_task(health.serve(host, port, ready=lambda: manager.ready, metrics=measured.scrape))
            log.info("started", extra={"url": cluster.server, "identity": identity, "version": __version__})
            for informer in manager.informers:
                await informer.synced.wait()
            log.info("ready", extra={"identity": identity})
            notify("READY=1")
    finally:
        await closing.aclose()
        await store.close()


def _candidacy(settings: ControllerSettings, store: Store, identity: str, random: Random) -> Candidate:
    """Return this process's part in leader election."""

    def of(namespace: str) -> Election:
        return Election(store, name=LEASE, namespace=namespace, identity=identity, random=random)

    own, previous = of(settings.lease_namespace), settings.previous_lease_namespace
    return JointElection(of(previous), own) if previous and previous != settings.lease_namespace else own


async def _is_ours(cluster: kubeconfig.Cluster) -> bool:
    """Return whether the server is ours; until it answers there is nothing to do anyway."""
    client = cluster.client()
    try:
        while True:
            try:
                answer = await client.request("GET", "/version")
                return "netloom" in str(json.loads(answer.body).get("gitVersion", ""))
            except (Unreachable, ValueError, AttributeError) as error:
                log.warning("cannot read the API server's version: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        await client.close()
