"""`netloom apiserver`: the API alone, over sqlite or etcd.

The server's certificate and its client CA and tokens come from a data directory as `serve` makes it, or from files that
others provide; then any number of API servers can serve one etcd. With --aggregated the server is part of a Kubernetes
cluster's API: kube-apiserver forwards the requests for our group, and the cluster authenticates and authorizes clients.
Its certificate is then made in the data directory, or given, as usual. run/cluster/manifests.py has the objects that
the cluster needs (`--print-manifests`).
"""

import asyncio
import logging
import ssl
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from netloom import __version__
from netloom.errors import Invalid
from netloom.front.api.app import Api
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.server import Server
from netloom.run import config, frontends, logs, process
from netloom.run.access.credentials import Directory
from netloom.run.cluster.delegation import Delegation, account
from netloom.run.cluster.manifests import service_names
from netloom.run.config import ApiserverSettings, VtepSettings
from netloom.run.metrics import exposition
from netloom.run.metrics.metering import MeteredStore
from netloom.run.notify import notify
from netloom.store.kube import kubeconfig
from netloom.store.opening import open_store

log = logging.getLogger(__name__)

BEHIND = Limits(connections_per_client=Limits().connections, rights_seconds=40.0)
"""Behind kube-apiserver nearly all connections come from one address, with one watch on each. Whether a watch may
continue is a question to the cluster, whose answers are cached for ten seconds."""


def main(settings: ApiserverSettings) -> int:
    """Run until stopped; return the exit status."""
    _check(settings)
    logs.configure(level=settings.log_level, form=settings.log_format)
    return process.run(serve(settings))


async def serve(settings: ApiserverSettings) -> None:
    """Serve until cancelled."""
    host, port = config.address(settings.listen)
    with ExitStack() as held:
        listener = held.enter_context(frontends.listen(host, port))
        url = frontends.url(host, listener)
        own = "" if settings.aggregated else url
        directory = Directory(Path(settings.data)) if settings.data else None
        if directory is not None:
            prepare(directory, settings, own)
        identity = frontends.of_directory(directory) if directory is not None else from_files(settings)
        delegation = _delegation(settings) if settings.aggregated else None
        context = _tls(identity, delegation)
        store = MeteredStore(await open_store(settings.store))
        try:
            measured = exposition.Metrics()
            measured.add(exposition.store, store)
            api = _api(settings, store, identity, delegation, measured)
            server = Server(api, listener, context, limits=BEHIND if settings.aggregated else None, turns=api.turns)
            measured.add(exposition.connections, server)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve())
                group.create_task(api.run())
                if directory is not None:
                    group.create_task(frontends.renew(directory, context, hosts=names(settings), server_url=own))
                if delegation is not None:
                    group.create_task(delegation.follow())
                    await delegation.known.wait()
                log.info("ready", extra={"url": url, "store": settings.store, "version": __version__})
                notify("READY=1")
        finally:
            await store.close()
            if delegation is not None:
                await delegation.close()


def names(settings: ApiserverSettings) -> list[str]:
    """Return the names in the server's own certificate."""
    host, _ = config.address(settings.listen)
    return [host, *settings.hosts, *(service_names() if settings.aggregated else ())]


def prepare(directory: Directory, settings: ApiserverSettings, own: str) -> None:
    """Create what is missing in the data directory; tokens only if this server authenticates clients itself."""
    directory.make()
    directory.prepare(hosts=names(settings), now=datetime.now(UTC), admin=bool(own))
    if own:
        directory.write_kubeconfig(own)


def _delegation(settings: ApiserverSettings) -> Delegation:
    cluster = kubeconfig.load(settings.kubeconfig or None, context=settings.context or None)
    proxies, clients = settings.requestheader_client_ca, settings.client_ca
    return Delegation(
        cluster,
        proxy_ca=Path(proxies) if proxies else None,
        proxy_names=settings.requestheader_allowed_names,
        client_ca=Path(clients) if clients else None,
    )


def _tls(identity: frontends.Identity, delegation: Delegation | None) -> ssl.SSLContext:
    if delegation is None:
        return frontends.tls(identity)
    context = frontends.tls(frontends.Identity(certificate=identity.certificate, key=identity.key))
    delegation.verify(context)
    return context


def _api(
    settings: ApiserverSettings,
    store: MeteredStore,
    identity: frontends.Identity,
    delegation: Delegation | None,
    measured: exposition.Metrics,
) -> Api:
    if delegation is None:
        return frontends.api(store, identity, measured, ready={})
    return frontends.aggregated_api(store, delegation, measured, agent=account(settings.agent_account), limits=BEHIND)


def _check(settings: ApiserverSettings) -> None:
    config.require(settings, "store")
    config.address(settings.listen)
    if settings.aggregated:
        _check_aggregated(settings)
    check_identity(settings, authenticates=not settings.aggregated)


def check_identity(settings: ApiserverSettings | VtepSettings, *, authenticates: bool = True) -> None:
    """Check the settings of the server's certificate and, if it `authenticates` clients itself, of its clients."""
    if settings.data:
        own = ("tls_cert", "tls_key", "client_ca", "tokens", "revoked") if authenticates else ("tls_cert", "tls_key")
        given = [name for name in own if getattr(settings, name)]
        if given:
            raise config.invalid("data", f"use either --data or {config.flag(given[0])}, not both")
        return
    config.require(settings, "tls_cert", "tls_key")
    if authenticates and not settings.client_ca and not settings.tokens:
        raise config.invalid("clientCa", "use --client-ca, --tokens or both: otherwise no client can authenticate")


def _check_aggregated(settings: ApiserverSettings) -> None:
    account(settings.agent_account)
    for name in ("tokens", "revoked"):
        if getattr(settings, name):
            raise config.invalid("aggregated", f"cannot be used with --{name}: the cluster authenticates clients")
    if settings.client_ca and not settings.requestheader_client_ca:
        raise config.invalid("clientCa", "requires --requestheader-client-ca: otherwise the cluster provides both")


def from_files(settings: ApiserverSettings | VtepSettings) -> frontends.Identity:
    """Return the certificate, key, CA and tokens that the settings name."""
    if settings.tokens and not Path(settings.tokens).is_file():
        raise Invalid(f"{settings.tokens}: no such file")
    return frontends.Identity(
        certificate=Path(settings.tls_cert),
        key=Path(settings.tls_key),
        client_ca=Path(settings.client_ca) if settings.client_ca else None,
        tokens=Path(settings.tokens) if settings.tokens else None,
        revoked=Path(settings.revoked) if settings.revoked else None,
    )
