"""`netloom apiserver`: the API alone, over sqlite or etcd.

Who it is and whom it knows comes from a data directory as `serve` makes it, or from files somebody else provides; then
any number of them serve one etcd.
"""

import asyncio
import logging
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from netloom import __version__
from netloom.errors import Cause, Invalid
from netloom.front.api.server import Server
from netloom.run import config, doors, logs, metrics, process
from netloom.run.config import ApiserverSettings
from netloom.run.credentials import Directory
from netloom.run.metering import MeteredStore
from netloom.run.notify import notify
from netloom.store.opening import open_store

log = logging.getLogger(__name__)


def main(settings: ApiserverSettings) -> int:
    """Run until stopped; return the exit status."""
    _check(settings)
    logs.configure(level=settings.log_level, form=settings.log_format)
    return process.run(serve(settings))


async def serve(settings: ApiserverSettings) -> None:
    """Serve until cancelled."""
    host, port = config.address(settings.listen)
    hosts = [host, *settings.hosts]
    with ExitStack() as held:
        listener = held.enter_context(doors.listen(host, port))
        url = doors.url(host, listener)
        directory = Directory(Path(settings.data)) if settings.data else None
        if directory is not None:
            directory.make()
            directory.prepare(hosts=hosts, now=datetime.now(UTC))
            directory.write_kubeconfig(url)
        identity = doors.of_directory(directory) if directory is not None else _from_files(settings)
        context = doors.tls(identity)
        store = MeteredStore(await open_store(settings.store))
        try:
            measured = metrics.Metrics()
            measured.add(metrics.store(store))
            server = Server(doors.api(store, identity, measured, ready={}), listener, context)
            measured.add(metrics.connections(server))
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve())
                if directory is not None:
                    group.create_task(doors.renew(directory, context, hosts=hosts, server_url=url))
                log.info("ready", extra={"url": url, "store": settings.store, "version": __version__})
                notify("READY=1")
        finally:
            await store.close()


def _check(settings: ApiserverSettings) -> None:
    config.require(settings, "store")
    config.address(settings.listen)
    if settings.data:
        given = [name for name in ("tls_cert", "tls_key", "client_ca", "tokens") if getattr(settings, name)]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise Invalid(
                "the configuration is not right", causes=[Cause("data", f"either --data or {flag}, not both")]
            )
        return
    config.require(settings, "tls_cert", "tls_key")
    if not settings.client_ca and not settings.tokens:
        cause = Cause("clientCa", "give --client-ca, --tokens or both: otherwise nobody could be known")
        raise Invalid("the configuration is not right", causes=[cause])


def _from_files(settings: ApiserverSettings) -> doors.Identity:
    if settings.tokens and not Path(settings.tokens).is_file():
        raise Invalid(f"{settings.tokens}: no such file")
    return doors.Identity(
        certificate=Path(settings.tls_cert),
        key=Path(settings.tls_key),
        client_ca=Path(settings.client_ca) if settings.client_ca else None,
        tokens=Path(settings.tokens) if settings.tokens else None,
    )
