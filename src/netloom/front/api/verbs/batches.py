"""Many requests in one: an extension of the Kubernetes API, for programs that write much.

    POST /apis/netloom.dev/v1alpha1/batch
    {"requests": [{"method": "POST", "path": "/apis/…/iplocks?fieldManager=me", "body": {…}}, …]}
    {"answers":  [{"code": 201, "body": {…}}, …]}                       in the order of the requests

An HTTP request costs more than the operation itself: two programs parse, schedule and encrypt. A batch pays that once.
Nothing else differs: each request is parsed, authorized and processed as if it were alone, and a failed one does not
affect the others. They start together, so the store makes their writes durable together, and they do not see each other
any more than requests on separate connections: a request that depends on another belongs in the next batch.

Servers that offer it announce it in the header `Netloom-Batch` of every answer, with the number of requests they
accept.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from netloom.errors import BadRequest, Internal, MethodNotAllowed, NetloomError, TooLarge
from netloom.front.api.auth.identity import Identity
from netloom.front.api.http.exchange import Exchange
from netloom.front.api.http.paths import Parsed, Request, Routes
from netloom.front.api.output import statuses
from netloom.front.api.output.forms import batches
from netloom.front.api.verbs.calls import JSON, Call, CallResult
from netloom.front.api.verbs.lists import CHUNK
from netloom.front.api.verbs.operations import ON_ONE, Operations
from netloom.model.registry import GROUP, VERSION

log = logging.getLogger(__name__)

PATH = f"/apis/{GROUP}/{VERSION}/batch"
ONE_PIECE = 1 << 20
"""Answers up to this many bytes are sent in one piece."""
_TOGETHER = 32
"""How many requests of a batch to start before other clients have their turns."""
_OPENING, _END = b'{"answers":[', b"]}"


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a batch."""

    method: str
    path: str
    """With the query."""
    body: Raw = Raw(b"")
    media: str = msgspec.field(name="contentType", default=JSON)


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that come together."""

    requests: list[BatchRequest]


Observer = Callable[[Request | None, str, int, float], None]
"""Called for each request with the request (if it could be parsed), its method, the status code and the seconds."""

_decode = msgspec.json.Decoder(Batch).decode


class Batches:
    """Answers batches."""

    def __init__(self, routes: Routes, operations: Operations, observe: Observer) -> None:
        self._routes = routes
        self._operations = operations
        self._observe = observe

    async def reply(self, exchange: Exchange, who: Identity) -> None:
        """Process a batch."""
        if exchange.method != "POST":
            raise MethodNotAllowed("use POST for a batch")
        asked = _read(await exchange.body(), exchange.limits.batch)
        agent = exchange.header(b"user-agent")
        parsed: Parsed = {}
        begun: list[asyncio.Task[BatchAnswer]] = []
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(asked), _TOGETHER):
                if start:
                    await asyncio.sleep(0)  # Let the started ones run.
                    await exchange.turn.take()
                begun += [
                    group.create_task(self._charged(exchange, one, who, agent, parsed))
                    for one in asked[start : start + _TOGETHER]
                ]
        await _send(exchange, [task.result() for task in begun])

    async def _charged(
        self, exchange: Exchange, asked: BatchRequest, who: Identity, agent: str, parsed: Parsed
    ) -> "BatchAnswer":
        """Process one request and charge the client for it."""
        return await exchange.turn.metered(self._answer(asked, who, agent, parsed))

    async def _answer(self, asked: BatchRequest, who: Identity, agent: str, parsed: Parsed) -> "BatchAnswer":
        began = time.perf_counter()
        call: Call | None = None
        request: Request | None = None
        try:
            path, _, query = asked.path.partition("?")
            request = self._routes.parse(asked.method, path, query, parsed)
            if request.verb not in ON_ONE:
                raise MethodNotAllowed(f"a request in a batch must be for one object: {request.verb} is not allowed")
            await self._operations.authorize(request, who)
            call = Call(request, who, bytes(asked.body), asked.media, agent)
            result = await self._operations.run(call)
        except NetloomError as error:
            result = _failed(error, request)
        except Exception:  # A frontend boundary: a request that hits a bug must not affect the others.
            log.exception("%s %s in a batch failed", asked.method, asked.path)
            result = _failed(Internal("Internal error occurred: see the server's log"), request)
        self._observe(request, asked.method, result.code, time.perf_counter() - began)
        return BatchAnswer(result, call.warnings if call is not None else ())


def _read(body: bytes, limit: int) -> list[BatchRequest]:
    try:
        asked = _decode(body).requests
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"not a valid batch: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if len(asked) > limit:
        raise TooLarge(f"a batch may have at most {limit} requests, got {len(asked)}")
    return asked


def _failed(error: NetloomError, request: Request | None) -> CallResult:
    kind, name = (request.kind, request.name) if request is not None else (None, "")
    return CallResult(error.http_status, status=statuses.failure(error, kind, name))


class BatchAnswer(NamedTuple):
    """The answer to one request.  Stored bytes stay shared with the store until they are sent."""

    result: CallResult
    warnings: Sequence[str]

    def encoded(self) -> bytes:
        """Return it as bytes."""
        code, stored, status = self.result.code, self.result.stored, self.result.status
        body = stored.raw if stored is not None else msgspec.json.encode(status)
        if not self.warnings:
            return b'{"code":%d,"body":%b}' % (code, body)
        said = msgspec.json.encode(list(dict.fromkeys(self.warnings)))
        return b'{"code":%d,"warnings":%b,"body":%b}' % (code, said, body)


async def _send(exchange: Exchange, answers: Sequence[BatchAnswer]) -> None:
    """Send the answers; in pieces, if the objects are large."""
    large = sum(len(answer.result.stored.raw) for answer in answers if answer.result.stored is not None)
    if large <= ONE_PIECE:
        await exchange.reply(200, b"".join((_OPENING, b",".join([answer.encoded() for answer in answers]), _END)))
        return
    await exchange.start(200, JSON.encode())
    opening = _OPENING
    for group in batches((answer.encoded() for answer in answers), CHUNK):
        await exchange.write(opening + b",".join(group))
        opening = b","
    await exchange.finish(_END)
