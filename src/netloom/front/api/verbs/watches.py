"""watch: one loop per watcher, which waits for the store's next events and sends all that are ready in one piece.

Four things end a wait early: a bookmark is due, the watch's time is over, the client or the server ends the connection,
the right to the watch is lost (watch_rights.py). All are one alarm, so a watcher costs one task and one timer. The
alarm may also ring while the client is slow to read; frames that were not sent are then sent first. The store bounds
how much waits for one client.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from netloom.errors import Expired, NetloomError, NotAcceptable, TooManyRequests
from netloom.front.api.auth.identity import Identity
from netloom.front.api.auth.roles import node_of
from netloom.front.api.auth.watch_rights import Right, Rights, WatchSession
from netloom.front.api.http.exchange import Exchange
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.negotiation import Media
from netloom.front.api.http.paths import Request
from netloom.front.api.output.forms import View, batches
from netloom.front.api.output.frames import Frames
from netloom.front.api.verbs.lists import CHUNK, check_revision
from netloom.store.base import Event, EventType, Page, Store, Watch

K = TypeVar("K")
FrameOf = Callable[[Event, View], bytes]


class Watches:
    """All watches of one server."""

    def __init__(self, store: Store, limits: Limits, rights: Rights) -> None:
        self.rights = rights
        self._store = store
        self._limits = limits
        self._frames = Frames()
        self._open: Counter[tuple[str, str]] = Counter()
        self.open: Counter[tuple[str, str]] = Counter()
        """Open watches by resource and node; clients that are not nodes are counted together, as ""."""

    def __len__(self) -> int:
        return self._open.total()

    async def watch(self, exchange: Exchange, request: Request, who: Identity) -> None:
        """Answer with events until the time limit, the client disconnects, or the client must list again."""
        view = exchange.view(request)
        if view.output.media is Media.YAML:
            raise NotAcceptable("only the following media types are accepted: application/json;stream=watch")
        with self._admitted(request, self.rights.session(exchange.credentials, who)) as right:
            await self._answer(exchange, request, view, right)

    @asynccontextmanager
    async def following(self, request: Request, session: WatchSession) -> AsyncIterator[tuple[Watch, FrameOf, Right]]:
        """Yield a watch that is counted and limited like any other, the renderer of its frames, and its right."""
        with self._admitted(request, session) as right:
            since = request.options.revision or 0
            selector = request.options.selector
            watch = await self._store.watch(request.kind, request.namespace, selector=selector, since=since)
            try:
                yield watch, self._frame_of, right
            finally:
                watch.direct(None)
                await watch.close()

    def _frame_of(self, event: Event, view: View) -> bytes:
        return self._frames.of(event, view.event, (view.output, view.include))

    @contextmanager
    def _admitted(self, request: Request, session: WatchSession) -> Iterator[Right]:
        """Count a watch and check its right during the block; refuse one watch too many."""
        who = session.who
        # By name and node: on a cluster the agents of all nodes may share one account.
        holder = who.name, node_of(who)
        if self._open[holder] >= self._limits.watches_per_identity:
            raise TooManyRequests(f"too many watches by {who.name!r}", retry_after=1)
        with (
            _counted(self._open, holder),
            _counted(self.open, (request.kind.plural, node_of(who))),
            session.watching(request.attributes()) as right,
        ):
            yield right

    async def _answer(self, exchange: Exchange, request: Request, view: View, right: Right) -> None:
        asked = request.options
        if asked.initial is not None and asked.revision:
            await check_revision(asked.revision, self._store)
        wants_state = asked.initial if asked.initial is not None else not asked.revision
        initial: Page | None = None
        since = asked.revision or 0
        if wants_state:
            initial = await self._store.list(request.kind, request.namespace, selector=asked.selector)
            since = initial.revision
        elif not since:
            since = await self._store.revision()
        try:
            watch = await self._store.watch(request.kind, request.namespace, selector=asked.selector, since=since)
        except Expired as error:
            # As kube-apiserver: the stream begins, and its only event is the error.
            await exchange.start(200, view.stream_media)
            await exchange.finish(view.error(error))
            return
        try:
            await exchange.start(200, view.stream_media)
            if initial is not None:
                await self._state(exchange, view, initial, right, marked=asked.initial is True and asked.bookmarks)
            else:
                await exchange.write(b"")  # Send the headers at once.
            await self._events(exchange, request, view, watch, right)
        finally:
            await watch.close()

    async def _state(self, exchange: Exchange, view: View, initial: Page, right: Right, *, marked: bool) -> None:
        """Send the current objects, as events."""
        parts = (view.event(Event(EventType.ADDED, stored)) for stored in initial.items)
        for group in batches(parts, CHUNK):
            if right.lost is not None:
                return
            await exchange.write(b"".join(group))
            await exchange.turn.take()
        await exchange.write(view.bookmark(initial.revision, initial_end=True) if marked else b"")

    async def _events(self, exchange: Exchange, request: Request, view: View, watch: Watch, right: Right) -> None:
        seconds = request.options.timeout
        # Watches without a timeout get different ones, so that a thousand agents do not reconnect together.
        longest = self._limits.watch_seconds
        lasts = min(seconds, longest) if seconds else longest * random.uniform(0.5, 1.0)  # noqa: S311
        every = self._limits.bookmark_seconds if request.options.bookmarks else inf
        loop = asyncio.get_running_loop()
        alarm = _Alarm(end=loop.time() + lasts, mark=loop.time() + every)
        form = (view.output, view.include)
        outbox = _Outbox(exchange)

        def push(event: Event) -> bool:
            """Send an event without waking this watch's task, unless it already has frames to send."""
            return not outbox.frames and not alarm.rung and exchange.push(self._frames.of(event, view.event, form))

        watch.direct(push)
        if exchange.connection is not None:
            exchange.connection.on_lost = alarm.ring
        try:
            with right.calling(alarm.ring):
                if right.lost is not None:
                    alarm.ring()
                while True:
                    try:
                        async with asyncio.timeout_at(alarm.due()) as alarm.timeout:
                            await outbox.flush()
                            while True:
                                frames = [self._frames.of(event, view.event, form) for event in await watch.next()]
                                if len(frames) > 1 or not exchange.push(frames[0]):
                                    outbox.frames.extend(frames)
                                    await outbox.flush()
                    except TimeoutError:
                        pass
                    finally:
                        alarm.timeout = None
                    if alarm.over(loop.time()):
                        break
                    alarm.mark += every
                    outbox.frames.append(view.bookmark(watch.revision))
        except NetloomError as error:
            outbox.frames.append(view.error(error))
        else:
            if right.lost is not None:
                # The client may not have the queued frames any more.
                outbox.frames.clear()
                outbox.frames.append(view.error(right.lost))
            elif every != inf:
                outbox.frames.append(view.bookmark(watch.revision))
        finally:
            watch.direct(None)
            if exchange.connection is not None:
                exchange.connection.on_lost = None
        await outbox.flush()
        await exchange.finish()


class _Outbox:
    """Frames for one client: shared with other watchers until they are sent, in pieces of bounded size."""

    __slots__ = ("_exchange", "frames")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.frames: deque[bytes] = deque()

    async def flush(self) -> None:
        """Send all frames; what an alarm interrupts stays queued."""
        while self.frames:
            group = next(iter(batches(self.frames, CHUNK)))
            await self._exchange.write(group[0] if len(group) == 1 else b"".join(group))
            for _ in group:
                self.frames.popleft()


@dataclass(slots=True)
class _Alarm:
    """Ends a wait for events."""

    end: float
    mark: float
    rung: bool = False
    timeout: asyncio.Timeout | None = None

    def due(self) -> float:
        return -inf if self.rung else min(self.end, self.mark)

    def over(self, now: float) -> bool:
        return self.rung or now >= self.end

    def ring(self) -> None:
        """End the watch now."""
        self.rung = True
        if self.timeout is not None and not self.timeout.expired():
            self.timeout.reschedule(-inf)


@contextmanager
def _counted(counts: Counter[K], key: K) -> Iterator[None]:
    """Count something during the block."""
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if counts[key] <= 0:
            del counts[key]
