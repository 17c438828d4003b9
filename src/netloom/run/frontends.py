"""The API frontend as the processes run it: its socket, TLS from files, authentication, metrics.

`serve` and `apiserver` share it. They differ in where the store and the credentials come from.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from netloom.errors import Conflict, Invalid, NetloomError
from netloom.front.api.admission.namespaces import NamespaceLifecycle
from netloom.front.api.app import Api
from netloom.front.api.auth import tokens
from netloom.front.api.auth.delegated import AccessReviews
from netloom.front.api.auth.identity import AnyOf, Authenticator
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.http import server
from netloom.front.api.http.health import Check
from netloom.front.api.http.limits import Limits
from netloom.model.kind import Registry
from netloom.model.registry import GROUP, KINDS
from netloom.run.access.credentials import Directory
from netloom.run.cluster.delegation import Delegation
from netloom.run.metrics.exposition import Metrics, Requests, watches
from netloom.store.base import Store

log = logging.getLogger(__name__)

CHECK_CERTIFICATES_EVERY = 12 * 3600.0
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # how to reach a wildcard address


class Identity(Struct, frozen=True, kw_only=True):
    """The files with the server's identity and the clients it admits."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    tokens: Path | None = None
    revoked: Path | None = None
    """Revoked client certificates."""


def of_directory(directory: Directory) -> Identity:
    """Return the files of a data directory."""
    return Identity(
        certificate=directory.server_certificate,
        key=directory.server_key,
        client_ca=directory.ca_certificate,
        tokens=directory.tokens,
        revoked=directory.revoked,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; an error names the port and what to do."""
    try:
        return server.bind(host, port)
    except OSError as error:
        where = f"{host or '*'}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} is in use ({where}): stop the process that uses it, or choose another one with --listen"
            ) from None
        if error.errno == errno.EACCES:
            raise Conflict(f"permission denied to listen on {where}: ports below 1024 require root") from None
        raise Invalid(f"cannot listen on {where}: {error.strerror or error}") from None


def url(host: str, listener: socket.socket) -> str:
    """Return the URL of the server for a client on this machine."""
    reached = _EVERYWHERE.get(host, host)
    port = listener.getsockname()[1]
    return f"https://[{reached}]:{port}" if ":" in reached else f"https://{reached}:{port}"


def tls(identity: Identity) -> ssl.SSLContext:
    """Return the server's TLS context; an error names the file that cannot be used."""
    for path in (identity.certificate, identity.key, identity.client_ca):
        if path is not None and not path.is_file():
            raise Invalid(f"{path}: no such file")
    try:
        return server.tls_context(identity.certificate, identity.key, identity.client_ca)
    except (ssl.SSLError, OSError) as error:
        raise Invalid(f"{identity.certificate} and {identity.key} cannot be used for TLS: {error}") from None


def _checks(store: Store) -> dict[str, Check]:
    """Return the checks of a store: that it answers and, if it has its own disk, that the disk is not full."""

    async def answers() -> None:
        await store.revision()

    disk: Check | None = getattr(store, "check_disk", None)
    return {"store": answers} if disk is None else {"store": answers, "disk": disk}


def aggregated_api(store: Store, delegation: Delegation, metrics: Metrics, *, agent: str, limits: Limits) -> Api:
    """Return the API over `store` as part of a Kubernetes cluster's API; the cluster authenticates and authorizes.

    It serves only our group: the cluster has Events, Leases and everything else.
    """
    requests = Requests()
    metrics.add(requests.read)

    nodes = RoleAuthorizer(store)
    made = Api(
        store,
        authenticator=delegation.authenticator(agent),
        authorizer=AccessReviews(delegation.ask, nodes),
        kinds=Registry(kind for kind in KINDS if kind.group == GROUP),
        namespaces=NamespaceLifecycle(delegation.namespace),
        limits=limits,
        ready={**_checks(store), "cluster": delegation.ready},
        metrics=metrics.scrape,
        observe=requests.observe,
        beside=nodes.run,
        remote_vteps=nodes.node_speakers.remote_vteps,
    )
    metrics.add(watches, made.watches)
    return made


def authenticator(identity: Identity) -> Authenticator:
    """Return the authentication by client certificates and tokens that these files give."""
    known: list[Authenticator] = []
    if identity.client_ca is not None:
        known.append(tokens.ClientCertificates(identity.revoked))
    if identity.tokens is not None:
        known.append(tokens.TokenFile(identity.tokens))
    return AnyOf(*known)


def api(store: Store, identity: Identity, metrics: Metrics, *, ready: Mapping[str, Check]) -> Api:
    """Return the API over `store` with these files and metrics."""
    requests = Requests()
    metrics.add(requests.read)

    authorizer = RoleAuthorizer(store)
    made = Api(
        store,
        authenticator=authenticator(identity),
        authorizer=authorizer,
        ready={**_checks(store), **ready},
        metrics=metrics.scrape,
        observe=requests.observe,
        beside=authorizer.run,
        was_on=authorizer.node_networks.was_on,
        remote_vteps=authorizer.node_speakers.remote_vteps,
    )
    metrics.add(watches, made.watches)
    return made


async def renew(directory: Directory, context: ssl.SSLContext, *, hosts: list[str], server_url: str = "") -> None:
    """Check the certificates from time to time, renew them before they expire, and use the new ones at once.

    Without `server_url`, write no kubeconfig: clients are authenticated elsewhere.
    """
    while True:
        await asyncio.sleep(CHECK_CERTIFICATES_EVERY)
        try:
            if directory.prepare(hosts=hosts, now=datetime.now(UTC), admin=bool(server_url)):
                context.load_cert_chain(directory.server_certificate, directory.server_key)
                if server_url:
                    directory.write_kubeconfig(server_url)
                log.info("renewed the server certificate")
        except (NetloomError, OSError) as error:
            # There is a month left to find out why, and no reason to stop serving.
            log.error("cannot renew the certificates: %s", error)
