"""Fair queuing: which request runs next when more are waiting than one process can serve at once.

One event loop serves all clients, so a client that sends more, or more expensive, requests would take the time of the
others. Every request waits here for its turn. One turn is given in each iteration of the loop, to the flow (all
requests of one client) that has used the least processor time; an idle flow collects no credit. This is start-time fair
queuing (Goyal, Vin and Cheng, 1996) with measured instead of estimated times: a flow is charged for each step of its
requests when the step ends, and before its next turn.

So with N busy clients each has 1/N of the processor, whatever they request and over however many connections, and any
client may use what the others leave. The limits on requests must bound the cost of one turn.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from heapq import heappop, heappush
from itertools import count
from types import coroutine
from typing import Any, TypeVar

from netloom.errors import TooManyRequests
from netloom.front.api.auth.identity import Credentials, Identity

T = TypeVar("T")

TURN_SECONDS = 0.0001
"""The cost of each turn besides the measured time: reading and parsing the request, and writing the answer."""
MOST_FLOWS = 4096
"""How many flows to keep before those without debt are removed."""


class Flow:
    """All requests of one client."""

    __slots__ = ("held", "used", "waiting")

    def __init__(self, used: float) -> None:
        self.used = used
        """The processor time it has used.  A flow that was idle starts with as much as the others."""
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.held = 0
        """How many bytes its requests hold in memory."""


class Turns:
    """Gives turns to flows."""

    def __init__(self, *, most_held: int = 32 << 20, clock: Callable[[], float] = time.perf_counter) -> None:
        """`most_held` is how many bytes of bodies the requests of one flow may hold together.

        A step of a request does not block, so `clock` need not be that of the thread, which costs ten times as much.
        """
        self.most_held = most_held
        self.clock = clock
        self._flows: dict[Hashable, Flow] = {}
        self._reached = 0.0
        """The time used by the flow with the last turn: a flow that was idle starts with it."""
        self._queue: list[tuple[float, int, Flow]] = []
        """The waiting flows, by the time they had used when they were queued."""
        self._number = count()
        self._busy = False
        """Whether a turn was given in this iteration of the loop, or a flow waits."""

    def __len__(self) -> int:
        return len(self._flows)

    def flow(self, key: Hashable) -> Flow:
        """Return the flow of a client."""
        found = self._flows.get(key)
        if found is None:
            if len(self._flows) >= MOST_FLOWS:
                self._forget()
            found = self._flows[key] = Flow(self._reached)
        return found

    async def take(self, flow: Flow) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy = True
            self._begin(flow)
            loop.call_soon(self._next, loop)
            return
        turn = loop.create_future()
        flow.waiting.append(turn)
        if len(flow.waiting) == 1:
            self._put(flow)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the next request."""
        while self._queue:
            when, _, flow = heappop(self._queue)
            while flow.waiting and flow.waiting[0].done():  # Cancelled.
                flow.waiting.popleft()
            if not flow.waiting:
                continue
            if flow.used > when:  # It was charged meanwhile.
                self._put(flow)
                continue
            turn = flow.waiting.popleft()
            self._begin(flow)
            if flow.waiting:
                self._put(flow)
            turn.set_result(None)  # It continues before `_next` is called again, so it is charged first.
            loop.call_soon(self._next, loop)
            return
        self._busy = False

    def _begin(self, flow: Flow) -> None:
        self._reached = max(self._reached, flow.used)
        flow.used = self._reached + TURN_SECONDS

    def _put(self, flow: Flow) -> None:
        heappush(self._queue, (max(self._reached, flow.used), next(self._number), flow))

    def _forget(self) -> None:
        """Remove the flows without debt; if too many remain, the oldest of them too."""
        owing = [(k, flow) for k, flow in self._flows.items() if flow.used > self._reached or flow.waiting or flow.held]
        self._flows = dict(owing[-MOST_FLOWS // 2 :])


class Callers:
    """The flow of each recently valid credential: a request waits for its turn before it is authenticated.

    Requests with unknown credentials share a flow by client address: inventing a token for each request gains nothing.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Hashable] = {}

    def key(self, offered: Credentials) -> Hashable:
        """Return the key of the flow in which a request waits."""
        return self._known.get(_digest(offered), ("address", offered.client))

    def add(self, offered: Credentials, who: Identity) -> Hashable:
        """Return the key of the flow of an authenticated identity."""
        digest, key = _digest(offered), ("caller", who.name, who.roles)
        if digest not in self._known:
            while len(self._known) >= MOST_FLOWS:
                del self._known[next(iter(self._known))]
        self._known[digest] = key
        return key


def _digest(offered: Credentials) -> bytes:
    shown = offered.certificate.encoded if offered.certificate is not None else b""
    proofs = (offered.header(b"authorization"), shown, offered.header(b"x-remote-user"))
    return hashlib.sha256(b"\0".join(proofs)).digest()


class Turn:
    """One request's part in a flow."""

    __slots__ = ("_held", "_turns", "flow")

    def __init__(self, turns: Turns, flow: Flow) -> None:
        self.flow = flow
        self._turns = turns
        self._held = 0

    async def take(self) -> None:
        """Wait for a turn."""
        await self._turns.take(self.flow)

    def move(self, key: Hashable) -> None:
        """Continue in another flow: the client is authenticated now."""
        self.flow = self._turns.flow(key)

    def hold(self, size: int) -> None:
        """Count bytes that the request holds; raise `TooManyRequests` if that is too much."""
        if self.flow.held + size > self._turns.most_held:
            raise TooManyRequests("too many large requests at once: send them one after the other", retry_after=1)
        self.flow.held += size
        self._held += size

    def release(self) -> None:
        """Stop counting the held bytes."""
        self.flow.held -= self._held
        self._held = 0

    @coroutine
    def metered(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run `work` step by step, and charge the flow for the processor time of each step."""
        clock = self._turns.clock
        thrown: BaseException | None = None
        while True:
            began = clock()
            try:
                waited = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as done:
                value: T = done.value
                return value
            finally:
                self.flow.used += clock() - began
            thrown = None
            try:
                yield waited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001  # passed on to the work, whatever it is
                thrown = error
