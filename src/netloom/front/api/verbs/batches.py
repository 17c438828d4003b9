"""Many requests in one: an extension of our own, for programs that write much.

    POST /apis/netloom.dev/v1alpha1/batch
    {"requests": [{"method": "POST", "path": "/apis/…/iplocks?fieldManager=me", "body": {…}}, …]}
    {"answers":  [{"code": 201, "body": {…}}, …]}                       in the order of the requests

A request by HTTP costs more than what is asked by it: two programs that parse, schedule and encrypt. In a batch that is
paid once. Nothing else differs: each request is parsed, authorized and carried out as if it had come alone, and one
that fails costs itself only. They are begun together, so the store makes their writes durable together, and they see
each other no more than requests on separate connections do: what depends on another belongs into the next batch.

Servers that offer it say so, with the number of requests they take, in the header `Netloom-Batch` of every answer.
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
from netloom.front.api.verbs.calls import JSON, Call, Result
from netloom.front.api.verbs.lists import CHUNK
from netloom.front.api.verbs.operations import ON_ONE, Operations
from netloom.model.registry import GROUP, VERSION

log = logging.getLogger(__name__)

PATH = f"/apis/{GROUP}/{VERSION}/batch"
ONE_PIECE = 1 << 20
"""Answers up to this many bytes are sent in one piece."""
_TOGETHER = 32
"""How many requests of a batch are begun before other callers have their turns."""
_OPENING, _END = b'{"answers":[', b"]}"


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a batch."""

    method: str
    path: str
    """With the query."""
    body: Raw = Raw(b"")
    media: str = msgspec.field(name="contentType", default=JSON)


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that come together."""

    requests: list[Asked]


Observer = Callable[[Request | None, str, int, float], None]
"""Told of each request: what it was, if that could be read, its method, the code of its answer, and the seconds."""

_decode = msgspec.json.Decoder(Batch).decode


class Batches:
    """Answers batches."""

    def __init__(self, routes: Routes, operations: Operations, observe: Observer) -> None:
        self._routes = routes
        self._operations = operations
        self._observe = observe

    async def reply(self, exchange: Exchange, who: Identity) -> None:
        """Carry out a batch."""
        if exchange.method != "POST":
            raise MethodNotAllowed("a batch is sent by POST")
        asked = _read(await exchange.body(), exchange.limits.batch)
        agent = exchange.header(b"user-agent")
        parsed: Parsed = {}
        begun: list[asyncio.Task[Answer]] = []
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(asked), _TOGETHER):
                if start:
                    await asyncio.sleep(0)  # Those that are begun do their part.
                    await exchange.pause()
                begun += [
                    group.create_task(self._charged(exchange, one, who, agent, parsed))
                    for one in asked[start : start + _TOGETHER]
                ]
        await _send(exchange, [task.result() for task in begun])

    async def _charged(self, exchange: Exchange, asked: Asked, who: Identity, agent: str, parsed: Parsed) -> "Answer":
        """Carry out one request at the expense of the caller."""
        work = self._answer(asked, who, agent, parsed)
        return await (work if exchange.turn is None else exchange.turn.metered(work))

    async def _answer(self, asked: Asked, who: Identity, agent: str, parsed: Parsed) -> "Answer":
        began = time.perf_counter()
        call: Call | None = None
        request: Request | None = None
        try:
            path, _, query = asked.path.partition("?")
            request = self._routes.parse(asked.method, path, query, parsed)
            if request.verb not in ON_ONE:
                raise MethodNotAllowed(f"a batch is made of requests for one object each, not of {request.verb}")
            await self._operations.authorize(request, who)
            call = Call(request, who, bytes(asked.body), asked.media, agent)
            result = await self._operations.carry_out(call)
        except NetloomError as error:
            result = _failed(error, request)
        except Exception:  # The edge: one request that trips over a bug costs itself only.
            log.exception("%s %s in a batch failed", asked.method, asked.path)
            result = _failed(Internal("Internal error occurred: see the server's log"), request)
        self._observe(request, asked.method, result.code, time.perf_counter() - began)
        return Answer(result, call.warnings if call is not None else ())


def _read(body: bytes, limit: int) -> list[Asked]:
    try:
        asked = _decode(body).requests
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"this is not a batch: {error}") from None
    except RecursionError:
        raise BadRequest("the body nests too deep") from None
    if len(asked) > limit:
        raise TooLarge(f"a batch has at most {limit} requests, not {len(asked)}")
    return asked


def _failed(error: NetloomError, request: Request | None) -> Result:
    kind, name = (request.kind, request.name) if request is not None else (None, "")
    return Result(error.http_status, status=statuses.failure(error, kind, name))


class Answer(NamedTuple):
    """What came of one request.  Stored bytes stay shared with the store until they are sent."""

    result: Result
    warnings: Sequence[str]

    def encoded(self) -> bytes:
        """Return it as bytes."""
        code, stored, status = self.result.code, self.result.stored, self.result.status
        body = stored.raw if stored is not None else msgspec.json.encode(status)
        if not self.warnings:
            return b'{"code":%d,"body":%b}' % (code, body)
        said = msgspec.json.encode(list(dict.fromkeys(self.warnings)))
        return b'{"code":%d,"warnings":%b,"body":%b}' % (code, said, body)


async def _send(exchange: Exchange, answers: Sequence[Answer]) -> None:
    """Send the answers; in pieces, where they are about large objects."""
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
