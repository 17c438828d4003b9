"""The API: an ASGI application over a store.

   authenticate (401) -> parse (404, 405, 400) -> authorize (403) -> the verb -> an answer, or a Status

No framework: the routes are one regular grammar (paths.py) and a few fixed pages. All errors arrive here as exceptions
and leave as a `Status`; an answer that has begun can only be cut off. The constructor takes what the process decides:
authentication, authorization, readiness, metrics.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from netloom.errors import Internal, MethodNotAllowed, NetloomError, NotFound, TimedOut, TooLarge, Unauthorized
from netloom.front.api.admission.admission import Admission
from netloom.front.api.admission.in_use import InUse
from netloom.front.api.admission.namespaces import NamespaceLifecycle
from netloom.front.api.admission.node_writes import Counts, NodeRestriction, WasOn, no_deleted, not_counted
from netloom.front.api.admission.sandboxes import SandboxTopology
from netloom.front.api.auth.identity import Attributes, Authenticator, Authorizer, Identity, forbidden
from netloom.front.api.auth.reviews import Reviews
from netloom.front.api.auth.roles import METRICS
from netloom.front.api.auth.watch_rights import Rights
from netloom.front.api.http.exchange import ClientGone, Exchange, Headers, Receive, Scope, Send
from netloom.front.api.http.fair_queue import Callers, Turns
from netloom.front.api.http.health import Check, Health
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.paths import Request, Routes, Verb, trimmed
from netloom.front.api.output import statuses
from netloom.front.api.schemas import definitions, served
from netloom.front.api.schemas.discovery import Discovery
from netloom.front.api.schemas.documents import Schemas
from netloom.front.api.verbs import lists
from netloom.front.api.verbs.batches import PATH as BATCH
from netloom.front.api.verbs.batches import Batches
from netloom.front.api.verbs.calls import JSON, Call
from netloom.front.api.verbs.operations import Operations
from netloom.front.api.verbs.streams import PATH as STREAM
from netloom.front.api.verbs.streams import Streams
from netloom.front.api.verbs.watches import Watches
from netloom.model.damaged import PATH as DAMAGED
from netloom.model.damaged import DamagedItem, DamagedList
from netloom.model.document import Document
from netloom.model.kind import Registry
from netloom.model.registry import CUSTOM_RESOURCE_DEFINITION, KINDS, NAMESPACE
from netloom.store.base import Store

log = logging.getLogger(__name__)

VERSION: Document = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+netloom", "platform": "linux/amd64"}
"""The answer of /version: the version of the Kubernetes API."""


class Observation(Struct, frozen=True):
    """One finished request, for metrics."""

    verb: str
    resource: str
    """Plural, with the sub-resource; "" for other paths."""
    code: int
    """0 if the client disconnected before an answer."""
    seconds: float


async def _unmeasured(accept: str) -> tuple[str, bytes]:
    return "text/plain", b""


async def _idle() -> None:
    pass


class Api:
    """The application.  `await api(scope, receive, send)` answers one request."""

    def __init__(
        self,
        store: Store,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        kinds: Registry = KINDS,
        admissions: Sequence[Admission] = (),
        limits: Limits | None = None,
        ready: Mapping[str, Check] | None = None,
        metrics: Callable[[str], Awaitable[tuple[str, bytes]]] = _unmeasured,
        observe: Callable[[Observation], None] = lambda _: None,
        beside: Callable[[], Coroutine[Any, Any, None]] = _idle,
        namespaces: NamespaceLifecycle | None = None,
        was_on: WasOn = no_deleted,
        remote_vteps: Counts = not_counted,
    ) -> None:
        """Serve `store`.

        `admissions` run after the built-in ones; `metrics` returns type and text of /metrics for an Accept header;
        `observe` is called for every request; `beside` runs within `run`. `namespaces` looks up the Namespaces of a
        cluster, if Namespace is not among `kinds`; `was_on` knows deleted attachments, `remote_vteps` counts
        the RemoteVTEPs of a node.
        """
        self._kinds = kinds
        namespaces = NamespaceLifecycle.of_store(store) if NAMESPACE in kinds else namespaces
        restriction = NodeRestriction(time.monotonic, was_on=was_on, remote_vteps=remote_vteps)
        rules: Sequence[Admission] = (restriction, InUse(), SandboxTopology(), *admissions)
        if namespaces is not None:
            rules = (restriction, namespaces, InUse(namespaces.is_terminating), SandboxTopology(), *admissions)
        self.limits = limits or Limits()
        self.rights = Rights(authenticator, authorizer)
        self.watches = Watches(store, self.limits, self.rights)
        self.turns = Turns(most_held=self.limits.bodies_per_identity)
        self._callers = Callers()
        self._store = store
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._routes = Routes(kinds, longest=self.limits.url)
        self._operations = Operations(store, authorizer, rules, namespaces=namespaces)
        self._batches = Batches(self._routes, self._operations, self._observe_one)
        self._streams = Streams(self.watches, self._routes, self._operations, self._observe_one)
        self._discovery = Discovery(kinds)
        self._schemas = Schemas(kinds)
        self._reviews = Reviews(kinds, authorizer)
        self._health = Health(ready or {})
        self._metrics = metrics
        self._observe = observe
        self._beside = beside

    async def run(self) -> None:
        """Run background work until cancelled.

        Write the CustomResourceDefinitions, end watches that have lost their right, and run `beside`, which makes
        answers faster but does not change them.
        """
        async with asyncio.TaskGroup() as group:
            if CUSTOM_RESOURCE_DEFINITION in self._kinds:
                group.create_task(definitions.publish(self._store))
            group.create_task(self.rights.run(self.limits.rights_seconds))
            group.create_task(self._beside())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send, self.limits, turns=self.turns, callers=self._callers)
        try:
            await exchange.turn.take()
            await exchange.turn.metered(self._reply(exchange))
        finally:
            exchange.turn.release()

    async def _reply(self, exchange: Exchange) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.limits.request_seconds) as clock:
                await self._answer(exchange, clock)
        except ClientGone:
            pass
        except NetloomError as error:
            await _fail(exchange, error)
        except TimeoutError:
            late = TimedOut("the request took too long; it may or may not have been processed", retry_after=1)
            await _fail(exchange, late)
        except Exception:
            log.exception("%s %s failed", exchange.method, exchange.path)
            await _fail(exchange, Internal("Internal error occurred: see the server's log"))
        # A stream of watches lasts as long as they do: it is not a slow request.
        method = Verb.WATCH if exchange.path == STREAM else exchange.method
        self._observe_one(exchange.request, method, exchange.code, time.perf_counter() - began)

    def _observe_one(self, request: Request | None, method: str, code: int, seconds: float) -> None:
        if request is None:
            self._observe(Observation(method.lower(), "", code, seconds))
            return
        beneath = f"/{request.subresource}" if request.subresource else ""
        self._observe(Observation(str(request.verb), request.kind.plural + beneath, code, seconds))

    async def _answer(self, exchange: Exchange, clock: asyncio.Timeout) -> None:
        path = trimmed(exchange.path)
        if self._health.serves(path):
            _only_reads(exchange)
            return await self._health.reply(exchange, path)
        offered = exchange.credentials
        who = await self._authenticator.authenticate(offered)
        if who is None:
            raise Unauthorized("Unauthorized")
        exchange.turn.move(self._callers.add(offered, who))
        if self._reviews.serves(path):
            return await self._reviews.reply(exchange, path, who)
        if path == BATCH:
            return await self._batches.reply(exchange, who)
        if path == DAMAGED:
            return await self._other(exchange, path, who)
        if path == STREAM:
            clock.reschedule(None)
            return await self._streams.reply(exchange, who)
        if path.startswith(("/apis/", "/api/")) and not self._discovery.serves(path):
            stored, version = served.at(path)
            exchange.request = request = self._routes.parse(exchange.method, stored, exchange.query)
            if version is not None:
                if request.kind is not version.kind:
                    raise NotFound("the server could not find the requested resource")
                exchange.request = request = replace(request, served=version)
            return await self._resource(exchange, request, who, clock)
        await self._other(exchange, path, who)

    async def _resource(self, exchange: Exchange, request: Request, who: Identity, clock: asyncio.Timeout) -> None:
        await self._operations.authorize(request, who)
        match request.verb:
            case Verb.LIST:
                await lists.list_(exchange, request, self._store)
            case Verb.WATCH:
                clock.reschedule(None)
                await self.watches.watch(exchange, request, who)
            case Verb.DELETE_COLLECTION:
                await self._operations.deletes.delete_collection(exchange, await _call(exchange, request, who))
            case _:
                await self._one(exchange, request, who)

    async def _one(self, exchange: Exchange, request: Request, who: Identity) -> None:
        """Answer a request for one object."""
        view = exchange.view(request)
        call = await _call(exchange, request, who)
        try:
            result = await self._operations.run(call)
        finally:
            exchange.warn(call.warnings)
        if result.stored is not None:
            await exchange.reply(result.code, view.one(result.stored), view.media)
        else:
            await exchange.reply(result.code, view.status(result.status or {}), view.media)

    async def _other(self, exchange: Exchange, path: str, who: Identity) -> None:
        """Answer a request for another path: discovery, schemas, /version, /metrics, damaged objects."""
        what = Attributes(verb=exchange.method.lower(), path=path)
        if not await self._authorizer.allows(who, what):
            raise forbidden(who, what)
        _only_reads(exchange)
        if self._discovery.serves(path):
            await self._discovery.reply(exchange, path)
        elif self._schemas.serves(path):
            await self._schemas.reply(exchange, path)
        elif path == "/version":
            await exchange.reply(200, msgspec.json.encode(VERSION))
        elif path == DAMAGED:
            found = [
                DamagedItem(one.kind.name, one.namespace, one.name, one.revision, one.reason)
                for one in await self._store.damaged()
            ]
            await exchange.reply(200, msgspec.json.encode(DamagedList(len(list(self._kinds)), found)))
        elif path == METRICS:
            media, text = await self._metrics(exchange.header(b"accept"))
            await exchange.reply(200, text, media.encode())
        else:
            raise NotFound("the server could not find the requested resource")


async def _call(exchange: Exchange, request: Request, who: Identity) -> Call:
    body = b"" if request.verb is Verb.GET else await exchange.body()
    media = exchange.header(b"content-type") or JSON
    return Call(request, who, body, media, exchange.header(b"user-agent"))


def _only_reads(exchange: Exchange) -> None:
    if exchange.method not in ("GET", "HEAD"):
        raise MethodNotAllowed("the server does not allow this method on the requested resource")


async def _fail(exchange: Exchange, error: NetloomError) -> None:
    """Answer with the error, or cut off an answer that has begun: the server closes unfinished answers."""
    request = exchange.request
    if exchange.code:
        log.warning("%s %s: answer cut off: %s", exchange.method, exchange.path, error)
        return
    status = statuses.failure(error, request.kind if request else None, request.name if request else "")
    headers: Headers = []
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b'Bearer realm="netloom"'))
    if isinstance(error, TooLarge):
        # The rest of the body would be parsed as the next request.
        headers.append((b"connection", b"close"))
    with suppress(ClientGone):
        await exchange.reply_status(error.http_status, status, headers)
