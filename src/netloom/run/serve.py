"""`netloom serve`: the whole control plane in one process, on one directory.

    lock DIR ── bind ── certificates, tokens, admin.kubeconfig ── open the store ─┬─ API server
                                                                                   ├─ controllers
                                                                                   ├─ VTEP API, BGP speakers, if set
                                                                                   └─ renewal of certificates

Everything right of the line is one TaskGroup: when one part fails, all stop; the process logs the reason and exits with
status 1. The store is closed last, after everything that writes to it.
"""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

from netloom import __version__
from netloom.control.runtime.manager import Manager
from netloom.errors import Unreachable
from netloom.front.api.http.health import Check
from netloom.front.api.http.server import Server
from netloom.run import config, controllers, files, frontends, logs, process
from netloom.run.access.credentials import Directory
from netloom.run.config import ServeSettings, SpeakerSettings
from netloom.run.kube import opened
from netloom.run.metrics import control, exposition
from netloom.run.metrics.metering import MeteredStore
from netloom.run.notify import notify
from netloom.store.opening import open_store

log = logging.getLogger(__name__)


def main(settings: ServeSettings) -> int:
    """Run until stopped; return the exit status."""
    config.require(settings, "data")
    config.address(settings.listen)
    if settings.vtep_listen:
        config.address(settings.vtep_listen, "vtepListen")
    controllers.options_of(settings)
    if settings.kube:
        config.require(settings, "kube_cluster")  # The API of this process has no pods.
    logs.configure(level=settings.log_level, form=settings.log_format)
    return process.run(serve(settings))


async def serve(settings: ServeSettings) -> None:
    """Serve until cancelled."""
    host, port = config.address(settings.listen)
    vtep = config.address(settings.vtep_listen, "vtepListen") if settings.vtep_listen else None
    hosts = [host, *(vtep[:1] if vtep else ()), *settings.hosts]
    directory = Directory(Path(settings.data))
    directory.make()
    with ExitStack() as held:
        held.enter_context(files.exclusive_lock(directory.lock, f"another netloom serve uses {directory.path}"))
        listener = held.enter_context(frontends.listen(host, port))
        vtep_listener = held.enter_context(frontends.listen(*vtep)) if vtep else None
        directory.prepare(hosts=hosts, now=datetime.now(UTC))
        url = frontends.url(host, listener)
        directory.write_kubeconfig(url)
        identity = frontends.of_directory(directory)
        context = frontends.tls(identity)
        store = MeteredStore(await open_store(f"sqlite:{directory.database}"))
        closing = AsyncExitStack()
        try:
            options = controllers.options_of(settings)
            cluster = await closing.enter_async_context(opened(settings))
            manager = controllers.assemble(store, random=SystemRandom(), options=options, cluster=cluster)
            measured = exposition.Metrics()
            measured.add(exposition.store, store)
            measured.add(control.manager, manager)
            api = frontends.api(store, identity, measured, ready={"controllers": _check(manager)})
            server = Server(api, listener, context, turns=api.turns)
            measured.add(exposition.connections, server)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve())
                group.create_task(api.run())
                group.create_task(manager.run())
                group.create_task(frontends.renew(directory, context, hosts=hosts, server_url=url))
                if vtep_listener is not None:
                    from netloom.run.vtep import beside_api  # few use it

                    group.create_task(beside_api(directory, vtep_listener, context))
                if settings.speaker_node:
                    from netloom.run.node.speaker import in_process  # likewise

                    in_process(group, _speaker(settings, directory), store, measured)
                group.create_task(_announce(manager, directory, url))
        finally:
            await closing.aclose()
            await store.close()


def _speaker(settings: ServeSettings, directory: Directory) -> SpeakerSettings:
    """Return the settings of the speakers that run in this process."""
    return SpeakerSettings(
        node=settings.speaker_node,
        speaker_namespaces=settings.speaker_namespaces,
        speaker_socket=settings.speaker_socket or str(directory.path / "speaker.sock"),
        speaker_passwords=settings.speaker_passwords,
    )


async def _announce(manager: Manager, directory: Directory, url: str) -> None:
    """Announce that the server is ready: to the log, to systemd, and on a terminal with the next steps."""
    for informer in manager.informers:
        await informer.synced.wait()
    log.info("ready", extra={"url": url, "data": str(directory.path), "version": __version__})
    notify("READY=1")
    if sys.stdout.isatty():
        sys.stdout.write(
            f"Netloom {__version__} serves {url}\n"
            f"  export KUBECONFIG={directory.kubeconfig}\n"
            "  netloom get all            (kubectl works as well)\n"
        )
        sys.stdout.flush()


def _check(manager: Manager) -> Check:
    async def ready() -> None:
        if not manager.ready:
            raise Unreachable("the controllers are not ready")

    return ready
