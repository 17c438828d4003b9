"""The state machine of one BGP connection, as the table of RFC 4271 section 8.  Pure: time is an argument.

    session = Session(local, remote_asn=65001, random=Random())
    session.start(now)                  outputs: Connect(); or session.accepted(now), if the peer has connected
    session.connected(now)              outputs: Send(OPEN)
    session.receive(data, now)          outputs: Send(KEEPALIVE), Established(…), Received(…), Ended(…)
    session.tick(now)                   at `deadline()`

Every call returns what the caller has to do, in order. A connection that the peer made has a session of its own, and
`peer.py` keeps at most one of the two (collision detection). Of the optional parts of the RFC, automatic start with an
idle hold time that doubles is here, and DelayOpen is not.
"""

from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address
from random import Random

from msgspec import Struct

from netloom.bgp.attributes import AttributeCache, Context
from netloom.bgp.errors import Cease, Code, Notification, OpenError
from netloom.bgp.messages import (
    KEEPALIVE,
    LONGEST_EXTENDED,
    Capabilities,
    Framer,
    GracefulRestart,
    Kind,
    Open,
    Refresh,
    decode_notification,
    decode_open,
    decode_refresh,
    encode_notification,
    encode_open,
)
from netloom.bgp.nlri import EVPN, Family
from netloom.bgp.update import Update, decode_update

CONNECT_RETRY = 5.0
OPEN_HOLD = 240.0
"""Seconds for the peer's OPEN (RFC 4271 section 8.2.2)."""
SHORTEST_IDLE, LONGEST_IDLE = 1.0, 60.0


class State(Enum):
    """The states of a session."""

    IDLE = "Idle"
    CONNECT = "Connect"
    ACTIVE = "Active"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class Event(Enum):
    """What can happen to a session; the numbers are those of RFC 4271 section 8.1."""

    START = (1, 3)
    STOP = (2, 8, 23)
    RETRY_TIMER = (9,)
    HOLD_TIMER = (10,)
    KEEPALIVE_TIMER = (11,)
    CONNECTED = (16, 17)
    FAILED = (18,)
    OPEN = (19,)
    ERROR = (21, 22, 28)
    NOTIFICATION = (25,)
    KEEPALIVE = (26,)
    UPDATE = (27,)


class Act(Enum):
    """What a transition does."""

    CONNECT = "start a connection, and the connect-retry timer"
    AWAIT = "start the connect-retry timer only"
    SEND_OPEN = "send OPEN, and wait long for that of the peer"
    CONFIRM = "send KEEPALIVE, and start the timers that were negotiated"
    SEND_KEEPALIVE = "send KEEPALIVE"
    HEARD = "restart the hold timer"
    UP = "report that the session is established"
    NOTIFY = "send the NOTIFICATION of the event"
    CLOSE = "close the connection; report the end, if the session was established"
    HOLD_BACK = "wait before the next automatic start, longer each time"


S, E, A = State, Event, Act
_END = (S.IDLE, (A.CLOSE, A.HOLD_BACK))
_FAIL = (S.IDLE, (A.NOTIFY, A.CLOSE, A.HOLD_BACK))
_STOP = (S.IDLE, (A.NOTIFY, A.CLOSE))

TABLE: dict[tuple[State, Event], tuple[State, tuple[Act, ...]]] = {
    (S.IDLE, E.START): (S.CONNECT, (A.CONNECT,)),
    (S.IDLE, E.STOP): (S.IDLE, ()),
    (S.IDLE, E.CONNECTED): (S.IDLE, (A.CLOSE,)),
    (S.CONNECT, E.STOP): (S.IDLE, (A.CLOSE,)),
    (S.CONNECT, E.RETRY_TIMER): (S.CONNECT, (A.CLOSE, A.CONNECT)),
    (S.CONNECT, E.CONNECTED): (S.OPEN_SENT, (A.SEND_OPEN,)),
    (S.CONNECT, E.FAILED): _END,
    (S.ACTIVE, E.STOP): (S.IDLE, (A.CLOSE,)),
    (S.ACTIVE, E.RETRY_TIMER): (S.CONNECT, (A.CONNECT,)),
    (S.ACTIVE, E.CONNECTED): (S.OPEN_SENT, (A.SEND_OPEN,)),
    (S.ACTIVE, E.FAILED): _END,
    (S.OPEN_SENT, E.STOP): _STOP,
    (S.OPEN_SENT, E.HOLD_TIMER): _FAIL,
    (S.OPEN_SENT, E.FAILED): (S.ACTIVE, (A.CLOSE, A.AWAIT)),
    (S.OPEN_SENT, E.OPEN): (S.OPEN_CONFIRM, (A.CONFIRM,)),
    (S.OPEN_SENT, E.ERROR): _FAIL,
    (S.OPEN_SENT, E.NOTIFICATION): _END,
    (S.OPEN_CONFIRM, E.STOP): _STOP,
    (S.OPEN_CONFIRM, E.HOLD_TIMER): _FAIL,
    (S.OPEN_CONFIRM, E.KEEPALIVE_TIMER): (S.OPEN_CONFIRM, (A.SEND_KEEPALIVE,)),
    (S.OPEN_CONFIRM, E.FAILED): _END,
    (S.OPEN_CONFIRM, E.ERROR): _FAIL,
    (S.OPEN_CONFIRM, E.NOTIFICATION): _END,
    (S.OPEN_CONFIRM, E.KEEPALIVE): (S.ESTABLISHED, (A.HEARD, A.UP)),
    (S.ESTABLISHED, E.STOP): _STOP,
    (S.ESTABLISHED, E.HOLD_TIMER): _FAIL,
    (S.ESTABLISHED, E.KEEPALIVE_TIMER): (S.ESTABLISHED, (A.SEND_KEEPALIVE,)),
    (S.ESTABLISHED, E.FAILED): _END,
    (S.ESTABLISHED, E.ERROR): _FAIL,
    (S.ESTABLISHED, E.NOTIFICATION): _END,
    (S.ESTABLISHED, E.KEEPALIVE): (S.ESTABLISHED, (A.HEARD,)),
    (S.ESTABLISHED, E.UPDATE): (S.ESTABLISHED, (A.HEARD,)),
}
"""Any other event is ignored without a connection, and is an error of the state machine with one (RFC 6608)."""

_FINAL = (Cease.SHUTDOWN, Cease.DECONFIGURED, Cease.MAX_PREFIXES)
_MACHINE_ERRORS = {S.OPEN_SENT: 1, S.OPEN_CONFIRM: 2, S.ESTABLISHED: 3}


class Connect(Struct, frozen=True):
    """Connect to the peer."""


class Close(Struct, frozen=True):
    """Close the connection, after what has been sent."""


class Send(Struct, frozen=True):
    """Send bytes."""

    data: bytes


class Established(Struct, frozen=True):
    """The session is up."""

    peer: Open
    families: tuple[Family, ...]
    """Those that both sides support."""
    context: Context
    longest: int
    """How long messages to the peer may be."""
    hold: float


class Received(Struct, frozen=True):
    """The peer sent an UPDATE."""

    update: Update


class Refreshed(Struct, frozen=True):
    """The peer sent a ROUTE-REFRESH."""

    family: Family
    what: Refresh


class Ended(Struct, frozen=True):
    """An established session has ended, or an attempt has failed."""

    why: str
    established: bool
    graceful: bool = False
    """Whether the peer may be restarting: its routes stay while it does (RFC 4724, 8538)."""


Output = Connect | Close | Send | Established | Received | Refreshed | Ended


class Local(Struct, frozen=True):
    """Our side of a session."""

    asn: int
    router_id: IPv4Address
    hold: int = 90
    families: tuple[Family, ...] = (EVPN,)
    restart: GracefulRestart | None = None

    def open(self) -> Open:
        """Return our OPEN."""
        return Open(
            self.asn,
            self.router_id,
            self.hold,
            Capabilities(
                families=self.families,
                asn=self.asn,
                refresh=True,
                enhanced_refresh=True,
                extended_messages=True,
                graceful_restart=self.restart,
            ),
        )


class Session:
    """One connection with a peer, or the attempts to make one."""

    def __init__(self, local: Local, *, remote_asn: int, random: Random, cache: AttributeCache) -> None:
        self.state = State.IDLE
        self.peer: Open | None = None
        """The OPEN of the peer."""
        self.initiates = True
        """Whether we make the connection; otherwise the peer has made it, and this ends with it."""
        self.local = local
        self._remote_asn = remote_asn
        self._random = random
        self._cache = cache
        self._framer = Framer()
        self._idle = SHORTEST_IDLE
        self._start_at: float | None = None
        self._retry_at: float | None = None
        self._hold_at: float | None = None
        self._keepalive_at: float | None = None
        self._hold = 0.0
        self._error = Notification(Code.CEASE, Cease.SHUTDOWN)
        self._reported: Established | None = None
        self._connected = False
        self.messages = 0
        """The number of messages received."""

    def deadline(self) -> float | None:
        """Return when to call `tick` at the latest; None: never."""
        due = [at for at in (self._start_at, self._retry_at, self._hold_at, self._keepalive_at) if at is not None]
        return min(due, default=None)

    def start(self, now: float) -> list[Output]:
        """Start: connect to the peer."""
        self._start_at = None
        return self._happen(Event.START, now)

    def start_later(self, now: float, seconds: float | None = None) -> None:
        """Start after so many seconds, or after the idle hold time."""
        self._start_at = now + (self._jittered(self._idle) if seconds is None else seconds)
        self._idle = min(LONGEST_IDLE, self._idle * 2)

    def stop(self, now: float, why: Notification | None = None) -> list[Output]:
        """Stop, without an automatic restart."""
        self._error = why or Notification(Code.CEASE, Cease.SHUTDOWN)
        outputs = self._happen(Event.STOP, now)
        self._start_at = None
        return outputs

    def accepted(self, now: float) -> list[Output]:
        """Start with a connection that the peer opened."""
        self.state, self.initiates = State.ACTIVE, False
        return self.connected(now)

    def connected(self, now: float) -> list[Output]:
        """Continue with the connection that was opened."""
        self._framer = Framer()
        self._connected = True
        return self._happen(Event.CONNECTED, now)

    def failed(self, now: float, why: str) -> list[Output]:
        """Handle a connection that failed or was closed."""
        self._error = Notification(Code.CEASE, 0, why=why)
        return self._happen(Event.FAILED, now)

    def fail(self, error: Notification, now: float) -> list[Output]:
        """End the session because of an error that the caller found, such as too many prefixes."""
        self._error = error
        return self._happen(Event.ERROR, now)

    def tick(self, now: float) -> list[Output]:
        """Run the timers that have expired."""
        outputs: list[Output] = []
        if self._start_at is not None and now >= self._start_at:
            outputs += self.start(now)
        if self._retry_at is not None and now >= self._retry_at:
            outputs += self._happen(Event.RETRY_TIMER, now)
        if self._hold_at is not None and now >= self._hold_at:
            self._error = Notification(Code.HOLD_TIMER)
            outputs += self._happen(Event.HOLD_TIMER, now)
        if self._keepalive_at is not None and now >= self._keepalive_at:
            outputs += self._happen(Event.KEEPALIVE_TIMER, now)
        return outputs

    def receive(self, data: bytes, now: float) -> Iterator[Output]:
        """Handle bytes from the peer, one message after the other, until the session ends."""
        try:
            for kind, body in self._framer.feed(data):
                self.messages += 1
                yield from self._message(kind, body, now)
                if not self._connected:
                    break
        except Notification as error:
            yield from self.fail(error, now)

    def _message(self, kind: Kind, body: bytes, now: float) -> list[Output]:
        match kind:
            case Kind.UPDATE if self._reported is not None:
                up = self._reported
                update = decode_update(body, up.context, up.families, self._cache, neighbor=self._remote_asn)
                return [*self._happen(Event.UPDATE, now), Received(update)]
            case Kind.KEEPALIVE:
                return self._happen(Event.KEEPALIVE, now)
            case Kind.OPEN if self.state is State.OPEN_SENT:
                self.peer = self._checked(decode_open(body))
                return self._happen(Event.OPEN, now)
            case Kind.NOTIFICATION:
                self._error = decode_notification(body)
                return self._happen(Event.NOTIFICATION, now)
            case Kind.ROUTE_REFRESH if self._reported is not None:
                family, what = decode_refresh(body)
                heard = self._happen(Event.UPDATE, now)
                known = what is not None and family in self._reported.families
                return [*heard, Refreshed(family, what)] if known and what is not None else heard
            case _:
                return self._happen(Event.OPEN if kind is Kind.OPEN else Event.UPDATE, now)

    def _checked(self, peer: Open) -> Open:
        """Check that the peer is the one that was configured."""
        if peer.asn != self._remote_asn:
            why = f"the peer is in AS {peer.asn}, but AS {self._remote_asn} is configured"
            raise Notification(Code.OPEN, OpenError.BAD_PEER_AS, why=why)
        if peer.router_id == self.local.router_id and peer.asn == self.local.asn:
            raise Notification(
                Code.OPEN, OpenError.BAD_IDENTIFIER, why=f"the peer uses our BGP identifier {peer.router_id}"
            )
        if not set(peer.capabilities.families or (Family(1, 1),)) & set(self.local.families):
            wanted = b"".join(
                b"\1\4" + family.afi.to_bytes(2, "big") + bytes((0, family.safi)) for family in self.local.families
            )
            why = "the peer supports none of our address families"
            raise Notification(Code.OPEN, OpenError.UNSUPPORTED_CAPABILITY, wanted, why)
        return peer

    def _happen(self, event: Event, now: float) -> list[Output]:
        found = TABLE.get((self.state, event))
        if found is None:
            if self.state not in _MACHINE_ERRORS:
                return []
            self._error = Notification(
                Code.STATE_MACHINE, _MACHINE_ERRORS[self.state], why=f"{event.name} in state {self.state.value}"
            )
            found = _FAIL
        before, (self.state, acts) = self.state, found
        outputs: list[Output] = []
        for act in acts:
            outputs += self._do(act, event, before, now)
        return outputs

    def _do(self, act: Act, event: Event, before: State, now: float) -> list[Output]:
        match act:
            case Act.CONNECT:
                self._retry_at = now + self._jittered(CONNECT_RETRY)
                return [Connect()]
            case Act.AWAIT if self.initiates:
                self._retry_at = now + self._jittered(CONNECT_RETRY)
            case Act.SEND_OPEN:
                self._retry_at = None
                self._hold_at = now + OPEN_HOLD
                return [Send(encode_open(self.local.open()))]
            case Act.CONFIRM:
                return self._confirm(now)
            case Act.SEND_KEEPALIVE:
                self._keepalive_at = now + self._jittered(self._hold / 3)
                return [Send(KEEPALIVE)]
            case Act.HEARD:
                self._hold_at = now + self._hold if self._hold else None
            case Act.UP:
                self._idle = SHORTEST_IDLE
                self._reported = self._negotiated()
                return [self._reported]
            case Act.NOTIFY:
                return [Send(encode_notification(self._hardened(self._error)))]
            case Act.CLOSE:
                return self._close(event, before)
            case Act.HOLD_BACK if self.initiates:
                self.start_later(now)
        return []

    def _confirm(self, now: float) -> list[Output]:
        assert self.peer is not None
        self._hold = float(min(self.local.hold, self.peer.hold))
        self._hold_at = now + self._hold if self._hold else None
        self._keepalive_at = now + self._jittered(self._hold / 3) if self._hold else None
        if self.peer.capabilities.extended_messages:
            self._framer.longest = LONGEST_EXTENDED
        return [Send(KEEPALIVE)]

    def _close(self, event: Event, before: State) -> list[Output]:
        was, up, self._connected = self._connected, self._reported, False
        graceful = up is not None and self._is_graceful(up, event)
        self._retry_at = self._hold_at = self._keepalive_at = None
        self.peer, self._reported = None, None
        open_or_opening = was or before is State.CONNECT
        outputs: list[Output] = [Close()] if open_or_opening and event is not Event.FAILED else []
        if event is not Event.RETRY_TIMER and before is not State.IDLE:
            outputs.append(Ended(str(self._error), up is not None, graceful))
        return outputs

    def _hardened(self, error: Notification) -> Notification:
        """Return a final Cease as a hard reset if the peer would take it for a restart (RFC 8538)."""
        if error.code != Code.CEASE or error.subcode not in _FINAL or not self._tells_restarts():
            return error
        return Notification(Code.CEASE, Cease.HARD_RESET, bytes((error.code, error.subcode)) + error.data)

    def _tells_restarts(self) -> bool:
        """Whether a NOTIFICATION is a restart for both sides."""
        theirs = self._reported.peer.capabilities.graceful_restart if self._reported is not None else None
        ours = self.local.restart
        return theirs is not None and ours is not None and theirs.notification and ours.notification

    def _is_graceful(self, up: Established, event: Event) -> bool:
        """Whether the routes of the peer stay: it may be restarting, and nothing says that it is not."""
        if up.peer.capabilities.graceful_restart is None or self.local.restart is None:
            return False
        if event is Event.FAILED:
            return True
        hard = self._error.code == Code.CEASE and self._error.subcode == Cease.HARD_RESET
        return self._tells_restarts() and not hard and event in (Event.NOTIFICATION, Event.HOLD_TIMER)

    def _negotiated(self) -> Established:
        assert self.peer is not None
        theirs = self.peer.capabilities
        offered = theirs.families or (Family(1, 1),)
        return Established(
            self.peer,
            tuple(family for family in self.local.families if family in offered),
            Context(internal=self._remote_asn == self.local.asn, as4=theirs.asn is not None),
            LONGEST_EXTENDED if theirs.extended_messages else 4096,
            self._hold,
        )

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.75 + self._random.random() / 4)
