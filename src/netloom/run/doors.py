"""The API's door as the processes open it: a socket, TLS from files, who is known, what is measured.

Shared by `serve` and `apiserver`, which differ in where the store and the credentials come from.
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
from netloom.run.credentials import Directory
from netloom.run.delegation import Delegation
from netloom.run.metrics import Metrics, Requests, watches
from netloom.store.base import Store

log = logging.getLogger(__name__)

LOOK_AT_CERTIFICATES = 12 * 3600.0
_EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where we are reached if bound there


class Identity(Struct, frozen=True, kw_only=True):
    """The files that say who the server is and whom it knows."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    tokens: Path | None = None
    revoked: Path | None = None
    """Client certificates that count no more."""


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
    """Return a listening socket; what stands in the way is said in words, with the port."""
    try:
        return server.bind(host, port)
    except OSError as error:
        where = f"{host or '*'}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} is in use ({where}): stop who uses it, or choose another by --listen"
            ) from None
        if error.errno == errno.EACCES:
            raise Conflict(f"may not listen on {where}: ports below 1024 are for root") from None
        raise Invalid(f"cannot listen on {where}: {error.strerror or error}") from None


def url(host: str, listener: socket.socket) -> str:
    """Return where a client on this machine reaches the server."""
    reached = _EVERYWHERE.get(host, host)
    port = listener.getsockname()[1]
    return f"https://[{reached}]:{port}" if ":" in reached else f"https://{reached}:{port}"


def tls(identity: Identity) -> ssl.SSLContext:
    """Return how we speak TLS, or say which file cannot be used."""
    for path in (identity.certificate, identity.key, identity.client_ca):
        if path is not None and not path.is_file():
            raise Invalid(f"{path}: no such file")
    try:
        return server.tls_context(identity.certificate, identity.key, identity.client_ca)
    except (ssl.SSLError, OSError) as error:
        raise Invalid(f"{identity.certificate} and {identity.key} cannot be used for TLS: {error}") from None


def _checks(store: Store) -> dict[str, Check]:
    """Return the checks of a store: whether it answers, and where it has a disk of its own, whether that is full."""

    async def answers() -> None:
        await store.revision()

    disk: Check | None = getattr(store, "check_disk", None)
    return {"store": answers} if disk is None else {"store": answers, "disk": disk}


def behind(store: Store, delegation: Delegation, metrics: Metrics, *, agent: str, limits: Limits) -> Api:
    """Return the API over `store` behind a Kubernetes' own, which says who is known and who may what.

    Only our own group: Events, Leases and all else the cluster has itself.
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
    )
    metrics.add(watches(made.watches))
    return made


def api(store: Store, identity: Identity, metrics: Metrics, *, ready: Mapping[str, Check]) -> Api:
    """Return the API over `store` as these files and metrics have it."""
    known: list[Authenticator] = []
    if identity.client_ca is not None:
        known.append(tokens.ClientCertificates(identity.revoked))
    if identity.tokens is not None:
        known.append(tokens.TokenFile(identity.tokens))
    requests = Requests()
    metrics.add(requests.read)

    authorizer = RoleAuthorizer(store)
    made = Api(
        store,
        authenticator=AnyOf(*known),
        authorizer=authorizer,
        ready={**_checks(store), **ready},
        metrics=metrics.scrape,
        observe=requests.observe,
        beside=authorizer.run,
        was_on=authorizer.concern.was_on,
    )
    metrics.add(watches(made.watches))
    return made


async def renew(directory: Directory, context: ssl.SSLContext, *, hosts: list[str], server_url: str = "") -> None:
    """Look at the certificates now and then, make them again before they end, and use the new ones at once.

    Without `server_url` nobody is given a kubeconfig: somebody else says who is known.
    """
    while True:
        await asyncio.sleep(LOOK_AT_CERTIFICATES)
        try:
            if directory.prepare(hosts=hosts, now=datetime.now(UTC), admin=bool(server_url)):
                context.load_cert_chain(directory.server_certificate, directory.server_key)
                if server_url:
                    directory.write_kubeconfig(server_url)
                log.info("the server certificate was made again")
        except (NetloomError, OSError) as error:
            # There is a month left to find out why, and no reason to stop serving.
            log.error("the certificates could not be looked after: %s", error)
