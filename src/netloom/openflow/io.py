"""Sockets for the session: the only module of `openflow` that does IO, reads the clock and logs.

    switch = Connection("/run/openvswitch/br-vxlan.mgmt", random=Random())
    async with asyncio.TaskGroup() as group:
        group.create_task(switch.run())
        await switch.connected.wait()
        await switch.change([Put(Flow(0, 1, (), (Output(1),)))])
        await switch.flows()

Changes are written as they come, without waiting for earlier answers, and are applied in that order. A change without
an answer when the connection ends raises `Unreachable`: it may or may not have been applied. A restarted switch has no
flows; that is another connection, and so another `generation`.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NoReturn

from netloom.openflow.flows import Flow, MeterSpec, Mod
from netloom.openflow.messages import Fault, MeterCommand
from netloom.openflow.session import LIMIT, Answered, Event, OpenFlowSession, Ready
from netloom.openflow.switch import ChangeRefused, Counters, Unreachable
from netloom.openflow.wire import RemoteError
from netloom.openflow.words import METER_MOD, METER_UNKNOWN
from netloom.reconnect import CONNECT_TIMEOUT, Action, Reconnect
from netloom.signals import Signal

log = logging.getLogger(__name__)

LONGEST = 0.5
"""The longest delay before reconnecting, in seconds: the switch is on this machine, and packets wait for its flows."""

CHUNK = 512
"""How many mods to encode before they are written and other tasks may run."""

Dial = Callable[[str, asyncio.Protocol], Awaitable[asyncio.BaseTransport]]


class Connection:
    """A connection to a switch, which reconnects; a `Switch`."""

    def __init__(
        self, path: str, *, random: Random, probe: float = 5.0, limit: int = LIMIT, dial: Dial | None = None
    ) -> None:
        """Connect to the switch at a unix socket: `BRIDGE.mgmt`, in the folder of Open vSwitch's other sockets."""
        self.connected = asyncio.Event()
        self.on_connect: Signal[[]] = Signal()
        self.generation = 0
        self.counters = Counters()
        self._reconnect = Reconnect([path], random, probe=probe, longest=LONGEST)
        self._limit = limit
        self._dial = dial or open_unix
        self._link: _Link | None = None
        self._sending = asyncio.Lock()

    async def run(self) -> NoReturn:
        """Stay connected, for ever."""
        clock = asyncio.get_running_loop().time
        self._reconnect.disconnected(clock())
        self._reconnect.useful()
        while True:
            await asyncio.sleep(max(0.0, (self._reconnect.deadline() or 0.0) - clock()))
            if self._reconnect.run(clock()) is Action.CONNECT:
                await self._connect_and_stay(clock)

    async def _connect_and_stay(self, clock: Callable[[], float]) -> None:
        path = self._reconnect.remote
        link = _Link(self, OpenFlowSession(limit=self._limit), clock)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._dial(path, link)
        except (OSError, TimeoutError) as problem:
            self.counters.failures += 1
            log.debug("%s: cannot connect: %s", path, problem)
            self._reconnect.disconnected(clock())
            return
        self._link = link
        try:
            log.info("%s: %s", path, await link.ended)
        finally:
            self.connected.clear()
            self._link = None
            link.close()
        self._reconnect.disconnected(clock())

    def _ready(self) -> None:
        self.counters.connects += 1
        self.generation += 1
        self._reconnect.useful()
        self.connected.set()
        self.on_connect()

    async def flows(self, cookie: int = 0, cookie_mask: int = 0) -> list[Flow]:
        """Return the flows whose cookies equal `cookie` in the bits of the mask."""
        link = self._there()
        return self._outcome(await link.ask(link.session.ask_flows(cookie, cookie_mask))).flows

    async def count(self, cookie: int = 0, cookie_mask: int = 0) -> int:
        """Return the number of flows with matching cookies."""
        link = self._there()
        return self._outcome(await link.ask(link.session.ask_count(cookie, cookie_mask))).count

    async def change(self, mods: Sequence[Mod]) -> None:
        """Apply all of these changes, or none, in this order: one bundle.

        `ChangeRefused`: the switch refuses. `Unreachable`: there is no connection, or it ended, and the changes may or
        may not have been applied.
        """
        async with self._sending:  # In the order of the calls.
            link = self._there()
            self.counters.bundles += 1
            self.counters.mods += len(mods)
            number = link.session.open_bundle()
            try:
                for at in range(0, len(mods), CHUNK):
                    link.session.add(number, mods[at : at + CHUNK])
                    await link.yield_to_others()
            except asyncio.CancelledError:
                link.session.discard_bundle(number)
                raise
            except ChangeRefused:
                self.counters.refusals += 1
                raise
            finally:
                link.flush()
            link.session.close_bundle(number)
            answer = link.ask(number)
        self._outcome(await answer)

    async def meters(self) -> dict[int, MeterSpec]:
        """Return the meters by number."""
        link = self._there()
        return self._outcome(await link.ask(link.session.ask_meters())).meters

    async def set_meter(self, meter: int, rate_kbps: int, burst: int) -> None:
        """Create a meter, or change it."""
        spec = MeterSpec(rate_kbps, burst)
        link = self._there()
        answer = await link.ask(link.session.change_meter(MeterCommand.MODIFY, meter, spec))
        if answer.fault == Fault(METER_MOD, METER_UNKNOWN):
            answer = await link.ask(link.session.change_meter(MeterCommand.ADD, meter, spec))
        self._outcome(answer)

    async def remove_meter(self, meter: int) -> None:
        """Remove a meter, and the flows that use it."""
        link = self._there()
        self._outcome(await link.ask(link.session.change_meter(MeterCommand.DELETE, meter)))

    def _there(self) -> "_Link":
        if self._link is None or not self.connected.is_set():
            raise Unreachable(f"{self._reconnect.remote}: not connected")
        return self._link

    def _outcome(self, answer: Answered) -> Answered:
        if answer.error is not None:
            self.counters.refusals += 1
            raise answer.error
        return answer


class _Link(asyncio.Protocol):
    """One connection: carries bytes and time between a session and a socket."""

    def __init__(self, owner: Connection, session: OpenFlowSession, clock: Callable[[], float]) -> None:
        self.session = session
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._owner, self._clock = owner, clock
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[Answered]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner._reconnect.connected(self._clock())
        self.session.start()
        self.flush()
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        if self.ended.done():
            return
        self._owner.counters.bytes_in += len(data)
        self._owner._reconnect.activity(self._clock())
        try:
            events = _without_gc(self.session.receive, data)
        except RemoteError as problem:
            self._end(str(problem))
            return
        self.flush()
        for event in events:
            match event:
                case Ready():
                    self._owner._ready()
                case Answered():
                    self._answer(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end(f"connection lost: {exc}" if exc else "the switch closed the connection")

    def pause_writing(self) -> None:
        """Make senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume senders."""
        self._writable.set()

    async def yield_to_others(self) -> None:
        """Write pending messages, and let other tasks run and the switch read."""
        self.flush()
        await self._writable.wait()
        await asyncio.sleep(0)

    def flush(self) -> None:
        """Write the session's pending messages."""
        data = self.session.to_send()
        if data and self._transport is not None and not self.ended.done():
            self._owner.counters.bytes_out += len(data)
            self._transport.write(data)

    def ask(self, number: int) -> "asyncio.Future[Answered]":
        """Write a request, and return the future of its answer."""
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        if self.ended.done():
            self._unanswered(future)
            return future
        self._answers[number] = future
        self.flush()
        return future

    def close(self) -> None:
        """Close the socket; pending answers fail."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._end("closed")
        self._writable.set()
        for future in self._answers.values():
            if not future.done():
                self._unanswered(future)
        self._answers.clear()

    def _tick(self) -> None:
        match self._owner._reconnect.run(self._clock()):
            case Action.PROBE:
                self.session.probe()
                self.flush()
            case Action.DISCONNECT:
                self._end("the switch does not answer")
                return
        if (deadline := self._owner._reconnect.deadline()) is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _answer(self, answer: Answered) -> None:
        future = self._answers.pop(answer.number, None)
        if future is not None and not future.done():  # Otherwise the caller was cancelled.
            future.set_result(answer)

    def _unanswered(self, future: "asyncio.Future[Answered]") -> None:
        self._owner.counters.unanswered += 1
        future.set_exception(Unreachable("the connection to the switch was lost before its answer"))

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


def _without_gc(receive: Callable[[bytes], list[Event]], data: bytes) -> list[Event]:
    """Call `receive` without garbage collection: of thousands of flows it would collect nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return receive(data)
    finally:
        if collecting:
            gc.enable()


async def open_unix(path: str, link: asyncio.Protocol) -> asyncio.BaseTransport:
    """Connect to a unix socket."""
    transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: link, path)
    return transport
