"""Many watches over one connection: an extension of the Kubernetes API, for programs with many watches.

   POST /apis/netloom.dev/v1alpha1/watches          a request and an answer that both stay open, line by line
    → {"begin":7,"path":"/apis/…/networks?watch=true&resourceVersion=41&…"}
    → {"end":7}
    ← {"watch":7,"type":"BEGUN","object":{}}
    ← {"watch":7,"type":"ADDED","object":{…}}
   ← {"watch":7,"type":"ERROR","object":{…}}        a Status: this watch is over, the others continue
   ← {"watch":0,"type":"BOOKMARK","object":{…}}     the revision that all of them have reached

A connection costs both sides a hundred times as much as a watch: buffers, a handshake, a descriptor. A node needs three
watches for each of its Networks, and there are many nodes. Nothing else differs: each watch is parsed, authenticated,
authorized, counted and limited as if it were alone. An invalid credential ends the connection, after an ERROR for each
watch.

Servers that offer it announce it in the header `Netloom-Watches` of their answers, with the number of watches per
connection; but not through a proxy, which may buffer the whole request before it forwards any of it.
"""

import asyncio
import random
import time
from contextlib import suppress
from math import inf
from typing import NoReturn

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, Internal, MethodNotAllowed, NetloomError, TooLarge, TooManyRequests, Unauthorized
from netloom.front.api.auth.identity import Identity
from netloom.front.api.auth.watch_rights import Right
from netloom.front.api.http.exchange import JSON, ClientGone, Connection, Exchange
from netloom.front.api.http.negotiation import negotiate
from netloom.front.api.http.paths import Request, Routes, Verb
from netloom.front.api.output import statuses
from netloom.front.api.output.forms import View
from netloom.front.api.output.frames import frame
from netloom.front.api.verbs.batches import Observer
from netloom.front.api.verbs.lists import CHUNK
from netloom.front.api.verbs.operations import Operations
from netloom.front.api.verbs.watches import Watches
from netloom.model.registry import GROUP, VERSION
from netloom.store.base import Sink, Watch

PATH = f"/apis/{GROUP}/{VERSION}/watches"
LONGEST_LINE = 32 << 10
MOST_WAITING = 16 << 20
"""How many unread bytes a client may have before it is disconnected; it can resume from its revision."""
_TOGETHER = 16
"""How many watches to begin before other clients have their turns."""
_CLOSE = ((b"connection", b"close"),)


class _Command(Struct, frozen=True):
    begin: int = 0
    path: str = ""
    end: int = 0


_decode = msgspec.json.Decoder(_Command).decode


class Streams:
    """Answers streams of watches."""

    def __init__(self, watches: Watches, routes: Routes, operations: Operations, observe: Observer) -> None:
        self.watches = watches
        self.routes = routes
        self.operations = operations
        self.observe = observe

    async def reply(self, exchange: Exchange, who: Identity) -> None:
        """Serve watches until the time limit or until the client disconnects."""
        if exchange.method != "POST":
            raise MethodNotAllowed("use POST for a stream of watches")
        if exchange.connection is None:
            raise BadRequest("watches can share only a network connection")
        connection = exchange.connection
        connection.deadline = inf  # The request body lasts as long as the watches.
        await exchange.start(200, JSON, _CLOSE)
        await exchange.write(b"")  # Send the headers at once.
        await _Stream(self, exchange, connection, who).run()


class _Stream:
    """One connection's watches."""

    def __init__(self, parent: Streams, exchange: Exchange, connection: Connection, who: Identity) -> None:
        self._parent = parent
        self._exchange = exchange
        self._connection = connection
        self._session = parent.watches.rights.session(exchange.credentials, who)
        self._clock: asyncio.Timeout | None = None
        self._watches: dict[int, Watch] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outbox = _Outbox(exchange, connection)

    async def run(self) -> None:
        limits = self._exchange.limits
        lasts = limits.watch_seconds * random.uniform(0.5, 1.0)  # noqa: S311  # so that not all reconnect together
        try:
            async with asyncio.timeout(lasts) as clock:
                self._clock = clock
                self._connection.on_lost = self._end
                await self._carry(limits.bookmark_seconds)
        except TimeoutError:
            pass
        except BaseExceptionGroup as errors:
            if errors.split((ClientGone, NetloomError))[1] is not None:
                raise
            raise ClientGone from None
        finally:
            self._clock = None
            self._connection.on_lost = None
        with suppress(ClientGone):
            await self._exchange.finish(self._outbox.rest())

    def _end(self) -> None:
        """Stop: the client disconnected, the server stops, or the credential is invalid."""
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(-inf)

    async def _carry(self, bookmarks: float) -> None:
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._outbox.run()), group.create_task(self._mark(bookmarks))]
            try:
                await self._read_commands(group)
            finally:
                for task in (*beside, *self._tasks.values()):
                    task.cancel()

    async def _read_commands(self, group: asyncio.TaskGroup) -> None:
        """Begin and end watches as the client requests, until it disconnects."""
        rest = b""
        while chunk := await self._exchange.more():
            *lines, rest = (rest + chunk).split(b"\n")
            if any(len(line) > LONGEST_LINE for line in (*lines, rest)):
                raise TooLarge(f"a line may have at most {LONGEST_LINE} bytes")
            for number, line in enumerate(lines):
                if number % _TOGETHER == _TOGETHER - 1:
                    await self._exchange.turn.take()
                self._execute(line, group)

    def _execute(self, line: bytes, group: asyncio.TaskGroup) -> None:
        try:
            command = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"a line must be a command to begin or end a watch: {error}") from None
        if command.end and (task := self._tasks.get(command.end)) is not None:
            task.cancel()
        if not command.begin:
            return
        if command.begin in self._tasks:
            raise BadRequest(f"watch {command.begin} is already open")
        if len(self._tasks) >= self._exchange.limits.watches_per_stream:
            refused = TooManyRequests("too many watches on one connection", retry_after=1)
            self._outbox.put(command.begin, _error(refused))
            return
        self._tasks[command.begin] = group.create_task(self._charged(command.begin, command.path))

    async def _charged(self, number: int, path: str) -> None:
        """Run one watch and charge the client for it."""
        await self._exchange.turn.metered(self._follow(number, path))

    async def _follow(self, number: int, path: str) -> None:
        """Run one watch to its end."""
        began, code = time.perf_counter(), 200
        request: Request | None = None
        try:
            plain, _, query = path.partition("?")
            request = self._parent.routes.parse("GET", plain, query)
            if request.verb is not Verb.WATCH or not request.options.revision or request.options.initial is not None:
                raise BadRequest("watches that share a connection must have a resourceVersion and no sendInitialEvents")
            # The connection may have been opened long ago.
            self._session.who = await self._parent.watches.rights.authenticate(self._session.offered)
            await self._parent.operations.authorize(request, self._session.who)
            await self._events(number, request)
        except NetloomError as error:
            code = error.http_status
            self._outbox.put(number, _error(error))
            if isinstance(error, Unauthorized):
                self._end()  # A client with a new credential needs a new connection for it.
        finally:
            del self._tasks[number]
            self._parent.observe(request, "GET", code, time.perf_counter() - began)

    async def _events(self, number: int, request: Request) -> None:
        view = View(request.kind, negotiate(self._exchange.header(b"accept")), request.options.include)
        async with self._parent.watches.following(request, self._session) as (watch, frame_of, right):
            self._watches[number] = watch
            try:
                self._outbox.put(number, frame("BEGUN", b"{}"))
                await self._pass_on(watch, right, lambda event: self._outbox.put(number, frame_of(event, view)))
            finally:
                del self._watches[number]

    async def _pass_on(self, watch: Watch, right: Right, sink: Sink) -> NoReturn:
        """Send events until the right to them is lost; raise the reason."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as over:

                def lost() -> None:
                    watch.direct(None)
                    if not over.expired():
                        over.reschedule(-inf)

                with right.calling(lost):
                    if right.lost is None:
                        watch.direct(sink)
                        while True:
                            for event in await watch.next():
                                sink(event)
        raise right.lost or Internal("a watch ended without a reason")

    async def _mark(self, every: float) -> None:
        """Send bookmarks from time to time, with the revision that all watches have reached."""
        while True:
            await asyncio.sleep(every)
            if self._watches:
                revision = min(watch.revision for watch in self._watches.values())
                self._outbox.put(0, frame("BOOKMARK", b'{"metadata":{"resourceVersion":"%d"}}' % revision))


class _Outbox:
    """Frames for one client: all frames of one iteration of the loop are sent in one piece."""

    def __init__(self, exchange: Exchange, connection: Connection) -> None:
        self._exchange = exchange
        self._connection = connection
        self._parts: list[bytes] = []
        self._size = 0
        self._scheduled = False
        self._stuck = asyncio.Event()
        """Set while the client does not read: `run` waits for it then."""

    def put(self, number: int, made: bytes) -> bool:
        """Queue a frame of a watch."""
        part = b'{"watch":%d,%b' % (number, made[1:])
        self._parts.append(part)
        self._size += len(part)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def rest(self) -> bytes:
        """Return the unsent frames when the stream ends, and send no more; nothing if the client does not read."""
        parts, self._parts = self._parts, []
        return b"" if self._stuck.is_set() else b"".join(parts)

    async def run(self) -> None:
        """Send frames that could not be sent without waiting, until cancelled."""
        while True:
            await self._stuck.wait()
            while self._parts:
                parts, self._parts, self._size = self._parts, [], 0
                whole = b"".join(parts)
                for at in range(0, len(whole), CHUNK):
                    await self._exchange.write(whole[at : at + CHUNK])
            self._stuck.clear()

    def _flush(self) -> None:
        self._scheduled = False
        if not self._parts:
            return
        if self._stuck.is_set():
            if self._size > MOST_WAITING:
                self._connection.abort()
        elif self._connection.push(b"".join(self._parts)):
            self._parts.clear()
            self._size = 0
        else:
            self._stuck.set()


def _error(error: NetloomError) -> bytes:
    return frame("ERROR", msgspec.json.encode(statuses.failure(error)))
