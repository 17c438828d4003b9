"""Send concurrent requests as one, to a server that accepts batches.

A Netloom server announces in a header of every answer how many requests it takes at once (front/api/verbs/batches.py).
Until it has, and always to a Kubernetes API server, each request is sent alone. Behind a Kubernetes API server that
proxies our group to a Netloom server, only requests of our group are batched: the announcement is kept by group. Then:

    request ──► queue ──(the loop comes round)──► batch ──► one POST ──► each answer to its caller
                  ▲                                          │
                  └──── at most `IN_FLIGHT` on their way ────┘   requests made meanwhile wait, and are sent together

A single request is not delayed, and a thousand are sent in a few batches. Concurrent requests are divided among the
batches that may be in flight; with one large batch, client and server would only take turns. Each request gets its own
answer. When the connection is lost, every request of the batch ends as a single one would: it is unknown whether the
server acted.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from netloom.errors import NetloomError, Unreachable
from netloom.store.http.client import Client, Response

PATH = "/apis/netloom.dev/v1alpha1/batch"
HEADER = "netloom-batch"
IN_FLIGHT = 3
"""One that the server processes, one in transit, and one whose answers are being processed."""
LEAST = 16
"""Up to this many requests are not divided: they are sent as one batch."""
MOST = 256
"""Requests in one batch, even if the server takes more: the first answer arrives with the last."""
MOST_BYTES = 1 << 20


class _Waiting(NamedTuple):
    method: str
    path: str
    body: bytes
    future: asyncio.Future[Response]


class _Asked(Struct):
    method: str
    path: str
    body: Raw | msgspec.UnsetType = msgspec.UNSET


class _Batch(Struct):
    requests: list[_Asked]


class _Answer(Struct):
    code: int
    body: Raw


class _Answers(Struct):
    answers: list[_Answer]


_answers = msgspec.json.Decoder(_Answers).decode


class Batcher:
    """Requests to one server, single or batched."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limits: dict[str, int] = {}
        """How many requests the server takes at once, by API group and version; none: not announced."""
        self._forbidden = False
        """Whether a proxy or a guard before the server refuses batches."""
        self._queue: deque[_Waiting] = deque()
        self._scheduled = False
        self._batches: set[asyncio.Task[None]] = set()
        self._flying = 0
        """Requests in batches that are in flight."""
        self._closed = False

    async def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a request about one object, in a batch if there are others."""
        if not self._limits.get(_root(path)) or len(body) > MOST_BYTES:
            return await self.alone(method, path, body)
        if self._closed:
            raise Unreachable("the client is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._queue.append(_Waiting(method, path, body, future))
        self._schedule()
        return await future

    async def alone(self, method: str, path: str, body: bytes = b"") -> Response:
        """Send a single request, and learn from the answer whether the server takes batches."""
        response = await self._client.request(method, path, body=body)
        offered = response.headers.get(HEADER, "")
        if offered.isdigit() and not self._forbidden:
            self._limits[_root(path)] = min(int(offered), MOST)
        else:
            self._limits.pop(_root(path), None)
        return response

    async def close(self) -> None:
        """Cancel queued requests and those in flight."""
        self._closed = True
        for task in list(self._batches):
            task.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)
        _fail(self._queue, Unreachable("the client is closed"))
        self._queue.clear()

    def _schedule(self) -> None:
        if self._queue and not self._scheduled and len(self._batches) < IN_FLIGHT:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        """Send queued requests, as many as one batch holds."""
        self._scheduled = False
        batch = self._take()
        if not batch or self._closed:
            return
        self._flying += len(batch)
        task = asyncio.get_running_loop().create_task(self._carry(batch))
        self._batches.add(task)
        task.add_done_callback(self._ended)
        self._schedule()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        share = -(-(len(self._queue) + self._flying) // IN_FLIGHT)
        most = min(max(share, LEAST), max(min(self._limits.values(), default=1), 1))
        while self._queue and len(batch) < most:
            size += len(self._queue[0].body)
            if batch and size > MOST_BYTES:
                break
            waiting = self._queue.popleft()
            if not waiting.future.done():  # The caller may have been cancelled.
                batch.append(waiting)
        return batch

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._batches.discard(task)
        self._schedule()

    async def _carry(self, batch: Sequence[_Waiting]) -> None:
        try:
            for waiting, response in zip(batch, await self._answered(batch), strict=True):
                if not waiting.future.done():
                    waiting.future.set_result(response)
        except asyncio.CancelledError:
            _fail(batch, Unreachable("the client is closed"))
            raise
        except Exception as error:  # noqa: BLE001 - every error belongs to the callers.
            _fail(batch, error)
        finally:
            self._flying -= len(batch)

    async def _answered(self, batch: Sequence[_Waiting]) -> list[Response]:
        if len(batch) == 1:
            return [await self.alone(*batch[0][:3])]
        asked = [_Asked(one.method, one.path, Raw(one.body) if one.body else msgspec.UNSET) for one in batch]
        response = await self.alone("POST", PATH, msgspec.json.encode(_Batch(asked)))
        if response.status in (403, 404, 405):
            # Another server than the one that announced batches, or a guard before it: nothing was done. A guard stays.
            self._forbidden = response.status == 403
            self._limits.clear()
            return list(await asyncio.gather(*(self.alone(*one[:3]) for one in batch)))
        if response.status != 200:
            return [response] * len(batch)
        try:
            answers = _answers(response.body).answers
        except msgspec.DecodeError as error:
            raise Unreachable(f"the answer to a batch cannot be read: {error}") from error
        if len(answers) != len(batch):
            raise Unreachable(f"{len(batch)} requests got {len(answers)} answers")
        return [Response(answer.code, {}, bytes(answer.body)) for answer in answers]


def _root(path: str) -> str:
    """Return what a path begins with: /api/v1, or /apis/GROUP/VERSION."""
    return "/".join(path.partition("?")[0].split("/", 4)[: 3 if path.startswith("/api/") else 4])


def _fail(batch: Sequence[_Waiting] | deque[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            # One exception for each: raising it writes a traceback into it.
            waiting.future.set_exception(copy.copy(error) if isinstance(error, NetloomError) else error)
