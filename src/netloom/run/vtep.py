"""`netloom vtep`: the REST API of rest_vtep and evpn-for-ovn (front/vtep), and the same operations over RabbitMQ.

    connection ─► front/api/http: TLS, limits ─► Application: authenticate, authorize ─► front/vtep ─► the API

The server and its authentication are those of the API server. A client needs the rights to write the objects itself:
viewers may read, editors may change. The process writes with its own credential, that of the kubeconfig.
`netloom serve` runs the same beside its API if `vtepListen` is set.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from socket import socket
from typing import Any

import msgspec

from netloom import __version__
from netloom.errors import Forbidden, Internal, NetloomError, TimedOut, TooLarge, Unauthorized
from netloom.front.api.auth.identity import Attributes, Authenticator, Authorizer, Identity, forbidden
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.http.exchange import JSON, ClientGone, Exchange, Headers, Receive, Scope, Send
from netloom.front.api.http.fair_queue import Callers, Turns
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.server import Server
from netloom.front.vtep import routes
from netloom.front.vtep.operations import Vtep
from netloom.front.vtep.ports import SwitchPorts
from netloom.model.kind import Kind
from netloom.model.registry import BGP_PEER, BGP_SPEAKER, EVPN_NETWORK, NETWORK, REMOTE_VTEP
from netloom.run import apiserver, config, files, frontends, health, logs, process
from netloom.run.access.credentials import Directory
from netloom.run.config import VtepSettings
from netloom.run.notify import notify
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

log = logging.getLogger(__name__)

Rpc = Callable[[Vtep], Coroutine[Any, Any, None]]
"""Serves the operations as RPC until cancelled."""
MANAGER = "netloom-vtep"
LIMITS = Limits(body=64 * 1024, bodies_per_identity=1024 * 1024, url=8 * 1024, headers=32 * 1024, connections=2000)
READS: Mapping[Kind, tuple[str, ...]] = dict.fromkeys((BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, REMOTE_VTEP), ("list",))
"""The rights that a client needs to read."""
WRITES: Mapping[Kind, tuple[str, ...]] = dict.fromkeys(
    (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, NETWORK), ("list", "create", "update", "delete")
)
"""The rights that a client needs to change something."""


def main(settings: VtepSettings) -> int:
    """Run until stopped; return the exit status."""
    _check(settings)
    logs.configure(level=settings.log_level, form=settings.log_format)
    cluster = kubeconfig.load(settings.kubeconfig or None, context=settings.context or None)
    return process.run(serve(settings, cluster, _rpc(settings)))


async def serve(settings: VtepSettings, cluster: kubeconfig.Cluster, rpc: Rpc | None) -> None:
    """Serve until cancelled."""
    host, port = config.address(settings.listen)
    with ExitStack() as held:
        listener = held.enter_context(frontends.listen(host, port))
        url = frontends.url(host, listener)
        directory = Directory(Path(settings.data), server="vtep") if settings.data else None
        hosts = [host, *settings.hosts]
        if directory is not None:
            directory.make()
            directory.prepare(hosts=hosts, now=datetime.now(UTC))
        identity = _identity(settings, directory)
        context = frontends.tls(identity) if identity is not None else None
        store = await KubeStore.open(cluster, manager=MANAGER)
        ports = SwitchPorts(settings.ovs, random=SystemRandom()) if settings.ovs else None
        vtep = Vtep(store, namespace=settings.namespace, node=settings.node, bgp_port=settings.bgp_port, ports=ports)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    listening(vtep, store, listener, context, identity=identity, namespace=settings.namespace)
                )
                if ports is not None:
                    group.create_task(ports.run())
                if rpc is not None:
                    group.create_task(rpc(vtep))
                if directory is not None and context is not None:
                    group.create_task(frontends.renew(directory, context, hosts=hosts))
                shown = url if context is not None else url.replace("https:", "http:", 1)
                log.info("ready", extra={"url": shown, "api": cluster.server, "version": __version__})
                notify("READY=1")
        finally:
            await store.close()


async def beside_api(directory: Directory, listener: socket, context: ssl.SSLContext) -> None:
    """Serve on a socket until cancelled, as a client of the API server of the same process.

    Through its API, and not its store: so these writes are admitted like all others.
    """
    store = await KubeStore.open(kubeconfig.load(str(directory.kubeconfig)), manager=MANAGER)
    try:
        identity = frontends.of_directory(directory)
        await listening(Vtep(store), store, listener, context, identity=identity, namespace="default")
    finally:
        await store.close()


async def listening(
    vtep: Vtep,
    store: Store,
    listener: socket,
    context: ssl.SSLContext | None,
    *,
    identity: frontends.Identity | None,
    namespace: str,
) -> None:
    """Serve the REST API on a socket until cancelled; without `identity`, to every client."""
    authenticator = frontends.authenticator(identity) if identity is not None else None
    application = Application(vtep, authenticator=authenticator, authorizer=RoleAuthorizer(store), namespace=namespace)
    await Server(application, listener, context, limits=LIMITS, turns=application.turns).serve()


class Application:
    """The REST API as an ASGI application."""

    def __init__(
        self, vtep: Vtep, *, authenticator: Authenticator | None, authorizer: Authorizer, namespace: str
    ) -> None:
        """Without an authenticator, serve every client on this machine but browsers."""
        self.turns = Turns(most_held=LIMITS.bodies_per_identity)
        self._callers = Callers()
        self._vtep = vtep
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._namespace = namespace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send, LIMITS, turns=self.turns, callers=self._callers)
        with suppress(ClientGone):
            try:
                await exchange.turn.take()
                code, body, headers = await exchange.turn.metered(self._reply(exchange))
            finally:
                exchange.turn.release()
            headers.append((b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": code, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _reply(self, exchange: Exchange) -> tuple[int, bytes, Headers]:
        try:
            async with asyncio.timeout(LIMITS.request_seconds):
                body, media = await self._answer(exchange)
                return 200, body, [(b"content-type", media)]
        except NetloomError as error:
            failed = error
        except TimeoutError:
            failed = TimedOut("the request took too long; it may or may not have been processed")
        except ClientGone:
            raise
        except Exception:
            log.exception("%s %s failed", exchange.method, exchange.path)
            failed = Internal("internal error: see the log of netloom vtep")
        code, answer = routes.failure(failed, exchange.method, exchange.path)
        headers: Headers = [(b"content-type", JSON)]
        if isinstance(failed, Unauthorized):
            headers.append((b"www-authenticate", b'Bearer realm="netloom"'))
        if isinstance(failed, TooLarge):
            headers.append((b"connection", b"close"))  # The rest of the body would be parsed as the next request.
        return code, msgspec.json.encode(answer), headers

    async def _answer(self, exchange: Exchange) -> tuple[bytes, bytes]:
        method = "GET" if exchange.method == "HEAD" else exchange.method
        if (method, exchange.path) == ("GET", routes.TEST):
            return routes.HELLO, b"text/html; charset=utf-8"
        who = await self._authenticated(exchange)
        if (method, exchange.path) == ("GET", routes.OPENAPI):
            return routes.openapi(), JSON
        routes.match(method, exchange.path)
        if who is not None:
            await self._authorize(who, READS if method == "GET" else WRITES)
        body = await exchange.body() if method == "POST" else b""
        return msgspec.json.encode(await routes.answer(self._vtep, method, exchange.path, body)), JSON

    async def _authenticated(self, exchange: Exchange) -> Identity | None:
        _refuse_browsers(exchange)
        if self._authenticator is None:
            _refuse_other_names(exchange)
            return None
        who = await self._authenticator.authenticate(exchange.credentials)
        if who is None:
            raise Unauthorized("Unauthorized: send a bearer token or a client certificate")
        exchange.turn.move(self._callers.add(exchange.credentials, who))
        return who

    async def _authorize(self, who: Identity, rights: Mapping[Kind, tuple[str, ...]]) -> None:
        for kind, verbs in rights.items():
            for verb in verbs:
                what = Attributes(verb=verb, kind=kind, namespace=self._namespace)
                if not await self._authorizer.allows(who, what):
                    raise forbidden(who, what)


def _rpc(settings: VtepSettings) -> Rpc | None:
    """Return the RPC server of the settings; None if they have none."""
    if not settings.rabbit:
        return None
    from netloom.front.vtep import rabbit  # an extra: few need it

    password = files.read(Path(settings.rabbit_password_file)).decode(errors="replace").strip()
    if settings.rabbit_ca:
        files.read(Path(settings.rabbit_ca))
    broker = rabbit.Broker(url=settings.rabbit, password=password, ca=settings.rabbit_ca)
    return lambda vtep: rabbit.serve(vtep, broker)


def _refuse_browsers(exchange: Exchange) -> None:
    """Refuse what a page in a browser sends.

    Bodies are JSON whatever their Content-Type, so that any web site could send them without asking first, and the
    browser adds its client certificate or, without authentication, needs none.
    """
    if exchange.header(b"origin"):
        raise Forbidden("requests of web pages are not served: send the request without an Origin header")


def _refuse_other_names(exchange: Exchange) -> None:
    """Refuse a request that names another host: a web site may have its own name resolve to this machine."""
    if not health.is_loopback(_name(exchange.header(b"host"))):
        raise Forbidden("without authentication, only programs on this machine are served, at a loopback address")


def _identity(settings: VtepSettings, directory: Directory | None) -> frontends.Identity | None:
    if settings.insecure:
        return None
    return frontends.of_directory(directory) if directory is not None else apiserver.from_files(settings)


def _check(settings: VtepSettings) -> None:
    host, port = config.address(settings.listen)
    if settings.ovs and not settings.ovs.startswith(("unix:", "tcp:")):
        raise config.invalid("ovs", f"{settings.ovs!r} is not unix:PATH or tcp:HOST:PORT")
    if settings.rabbit:
        _check_rabbit(settings)
    if not settings.insecure:
        return apiserver.check_identity(settings)
    health.loopback(host, port, "insecure")
    for name in ("data", "tls_cert", "tls_key", "client_ca", "tokens", "revoked"):
        if getattr(settings, name):
            raise config.invalid("insecure", f"use either --insecure or {config.flag(name)}, not both")


def _check_rabbit(settings: VtepSettings) -> None:
    scheme, _, rest = settings.rabbit.partition("://")
    hosts = [one.rpartition("@") for one in rest.partition("/")[0].split(",")]
    if scheme != "rabbit" or not all(user and host for user, _, host in hosts):
        raise config.invalid("rabbit", "must be rabbit://USER@HOST:PORT/VHOST")
    if any(":" in user for user, _, _ in hosts):
        raise config.invalid("rabbit", "must not contain the password: use --rabbit-password-file")
    config.require(settings, "rabbit_password_file")
    if not settings.rabbit_ca and not all(health.is_loopback(_name(host)) for _, _, host in hosts):
        raise config.invalid("rabbitCa", "required: without TLS, only a loopback address is allowed in --rabbit")


def _name(host: str) -> str:
    """Return the name or address in HOST:PORT or [HOST]:PORT."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
