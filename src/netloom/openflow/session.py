"""One connection to a switch as a state machine: bytes go in, bytes and events come out.  Pure.

    bytes received   -> receive(data)                          ┐
   requests         -> ask_flows, ask_count, ask_meters,      ├-> returns events: Ready, Answered
                       change_meter, open_bundle, add, …      ┘-> to_send() returns the bytes to write

   HELLO ──hello──► READY        No request is allowed before Ready.

A change is one bundle, ordered and atomic. A switch that refuses a message in a bundle keeps the bundle and would
commit the rest, so the last mod is followed by a barrier, and only its answer decides: commit if nothing was refused,
else discard. Bundles may overlap: they are committed in the order in which they were closed, because barriers are
answered in order. Each mod has its own xid, which relates an error to its mod.
"""

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct

from netloom.openflow import messages
from netloom.openflow.flows import Flow, MeterSpec, Mod
from netloom.openflow.messages import Bundle, Fault, MeterCommand, Multipart
from netloom.openflow.switch import ChangeRefused
from netloom.openflow.wire import VERSION, Framer, Message, RemoteError, Type, frame

LIMIT = 1 << 28
"""How many bytes a multipart answer may have."""


class Ready(Struct, frozen=True):
    """The switch supports our version, and accepts requests."""


class Answered(Struct, frozen=True):
    """The answer to a request, or its error."""

    number: int
    flows: list[Flow] = []
    meters: dict[int, MeterSpec] = {}
    count: int = 0
    error: ChangeRefused | None = None
    fault: Fault | None = None


Event = Ready | Answered


class _Listing(Struct):
    """A multipart answer in progress."""

    kind: Multipart
    flows: list[Flow] = []
    meters: dict[int, MeterSpec] = {}
    count: int = 0
    size: int = 0


class _Change(Struct):
    """A bundle in progress."""

    id: int
    """The xid that opened it; those of its mods follow."""
    mods: list[Mod] = []
    last: int | None = None
    """The xid that committed or discarded it."""
    refused: ChangeRefused | None = None


class _Order(Struct):
    """A message that is answered only by an error, and the barrier after it."""

    number: int
    fault: Fault | None = None


class OpenFlowSession:
    """The messages of one connection."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self.ready = False
        self.foreign = 0
        """How many received flows have a match that no flow of ours can have."""
        self._limit = limit
        self._framer = Framer()
        self._out: list[bytes] = []
        self._xid = 0
        self._listings: dict[int, _Listing] = {}
        self._changes: dict[int, _Change] = {}
        """By the bundle's id, which is the xid that opened it."""
        self._barriers: dict[int, _Change | _Order] = {}
        self._orders: dict[int, _Order] = {}

    def start(self) -> None:
        """Send the hello."""
        self._out.append(messages.hello(self._next()))

    def to_send(self) -> bytes:
        """Return the pending bytes, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def probe(self) -> None:
        """Send an echo request."""
        self._out.append(frame(Type.ECHO_REQUEST, self._next()))

    def ask_flows(self, cookie: int, cookie_mask: int) -> int:
        """Request flows; return the number of the answer."""
        return self._ask_of_flows(Multipart.FLOW, cookie, cookie_mask)

    def ask_count(self, cookie: int, cookie_mask: int) -> int:
        """Request the number of flows."""
        return self._ask_of_flows(Multipart.AGGREGATE, cookie, cookie_mask)

    def _ask_of_flows(self, kind: Multipart, cookie: int, cookie_mask: int) -> int:
        xid = self._next()
        self._listings[xid] = _Listing(kind)
        self._out.append(messages.flows_request(xid, kind, cookie, cookie_mask))
        return xid

    def ask_meters(self) -> int:
        """Request all meters."""
        xid = self._next()
        self._listings[xid] = _Listing(Multipart.METER_CONFIG)
        self._out.append(messages.meters_request(xid))
        return xid

    def change_meter(self, command: MeterCommand, meter: int, spec: MeterSpec | None = None) -> int:
        """Change a meter."""
        xid, barrier = self._next(), self._next()
        self._orders[xid] = self._barriers[barrier] = _Order(xid)
        self._out.append(messages.meter_mod(xid, command, meter, spec))
        self._out.append(frame(Type.BARRIER_REQUEST, barrier))
        return xid

    def open_bundle(self) -> int:
        """Begin a change; return the number of its answer."""
        xid = self._next()
        self._changes[xid] = _Change(xid)
        self._out.append(messages.bundle_control(xid, xid, Bundle.OPEN))
        return xid

    def add(self, number: int, mods: Sequence[Mod]) -> None:
        """Add to a change, one at a time; an invalid flow raises `ChangeRefused` and ends the change."""
        change = self._changes[number]
        for mod in mods:
            self._xid += 1
            try:
                self._out.append(messages.bundle_add(self._xid, change.id, mod))
            except (LookupError, ValueError, OverflowError, struct.error) as problem:
                self.discard_bundle(number)
                raise ChangeRefused(f"invalid flow: {problem}", mod=mod, index=len(change.mods)) from problem
            change.mods.append(mod)

    def discard_bundle(self, number: int) -> None:
        """Discard a change that is not closed; there is no answer."""
        del self._changes[number]
        self._out.append(messages.bundle_control(self._next(), number, Bundle.DISCARD))

    def close_bundle(self, number: int) -> None:
        """End a change: it is committed when the switch has accepted all of it."""
        change = self._changes[number]
        barrier = self._next()
        self._barriers[barrier] = change
        self._out.append(frame(Type.BARRIER_REQUEST, barrier))

    def receive(self, data: bytes) -> list[Event]:
        """Process received bytes; return the events.  `RemoteError`: they are not OpenFlow."""
        events: list[Event] = []
        for message in self._framer.feed(data):
            if not self.ready:
                self._greet(message, events)
            elif message.version != VERSION:
                raise RemoteError(f"unexpected version {message.version} of a message")
            elif (handle := self._handlers.get(message.type)) is not None:
                handle(self, message, events)
        if not self.ready and self._framer.begun not in {None, Type.HELLO, Type.ERROR}:
            raise RemoteError(f"message of type {self._framer.begun} before hello")
        return events

    def _next(self) -> int:
        # The 32-bit numbers restart long before they overflow, so that those of one bundle are consecutive.
        self._xid = self._xid + 1 if self._xid < 0xF0000000 else 1
        return self._xid

    def _greet(self, message: Message, events: list[Event]) -> None:
        if message.type == Type.ERROR:
            raise RemoteError(f"the switch does not support OpenFlow 1.4: {messages.read_error(message.body)}")
        if message.type != Type.HELLO:
            raise RemoteError(f"message of type {message.type} before hello")
        if not messages.speaks(message.version, message.body):
            raise RemoteError(f"the switch does not support OpenFlow 1.4 (its version is {message.version})")
        self.ready = True
        events.append(Ready())

    def _echo(self, message: Message, _: list[Event]) -> None:
        self._out.append(frame(Type.ECHO_REPLY, message.xid, message.body))

    def _part(self, message: Message, events: list[Event]) -> None:
        listing = self._listings.get(message.xid)
        if listing is None:
            return
        part = messages.read_part(message.body)
        listing.size += len(part.body)
        if part.kind != listing.kind or listing.size > self._limit:
            raise RemoteError(f"unexpected answer of type {part.kind}, or more than {listing.size} bytes")
        if listing.kind is Multipart.FLOW:
            listed = messages.read_flows(part.body)
            listing.flows += listed.flows
            self.foreign += listed.foreign
        elif listing.kind is Multipart.AGGREGATE:
            listing.count += messages.read_count(part.body)
        else:
            listing.meters |= messages.read_meters(part.body)
        if part.more:
            return
        del self._listings[message.xid]
        events.append(Answered(message.xid, listing.flows, listing.meters, listing.count))

    def _barrier(self, message: Message, events: list[Event]) -> None:
        waiting = self._barriers.pop(message.xid, None)
        if isinstance(waiting, _Order):
            del self._orders[waiting.number]
            error = None if waiting.fault is None else ChangeRefused(str(waiting.fault))
            events.append(Answered(waiting.number, error=error, fault=waiting.fault))
        elif waiting is not None:
            waiting.last = self._next()
            end = Bundle.COMMIT if waiting.refused is None else Bundle.DISCARD
            self._out.append(messages.bundle_control(waiting.last, waiting.id, end))

    def _bundle(self, message: Message, events: list[Event]) -> None:
        bundle, _ = messages.read_bundle(message.body)
        change = self._changes.get(bundle)
        if change is not None and message.xid == change.last:
            self._answer(change, events)

    def _answer(self, change: _Change, events: list[Event]) -> None:
        del self._changes[change.id]
        events.append(Answered(change.id, error=change.refused))

    def _error(self, message: Message, events: list[Event]) -> None:
        fault = messages.read_error(message.body)
        xid = message.xid
        if xid in self._orders:
            self._orders[xid].fault = fault
        elif self._listings.pop(xid, None) is not None:
            events.append(Answered(xid, error=ChangeRefused(str(fault)), fault=fault))
        elif (change := self._concerned(xid)) is not None:
            self._fault(change, xid, fault, events)

    def _concerned(self, xid: int) -> _Change | None:
        for change in self._changes.values():
            if change.id <= xid <= change.id + len(change.mods) or xid == change.last:
                return change
        return None

    def _fault(self, change: _Change, xid: int, fault: Fault, events: list[Event]) -> None:
        if change.refused is None:  # The first error counts; later ones follow from it.
            index = xid - change.id - 1
            at = index if 0 <= index < len(change.mods) else None
            change.refused = ChangeRefused(str(fault), mod=None if at is None else change.mods[at], index=at)
        if xid == change.last:
            self._answer(change, events)

    _handlers: ClassVar[dict[int, "Callable[[OpenFlowSession, Message, list[Event]], None]"]] = {
        Type.ERROR: _error,
        Type.ECHO_REQUEST: _echo,
        Type.MULTIPART_REPLY: _part,
        Type.BARRIER_REPLY: _barrier,
        Type.BUNDLE_CONTROL: _bundle,
    }
