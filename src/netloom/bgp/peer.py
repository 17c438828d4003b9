"""A configured peer: the session that we start, the one that the peer starts, and which of them stays.

When both sides connect at the same time, the connection that the higher BGP identifier made stays (RFC 4271 section
6.8). Both sides have to decide alike, whatever they hear first, or they close both connections:
- An OPEN tells the identifier: then one of two connections that are open is closed at once.
- The higher side does not go on with a new connection when the other one is established; so the lower side follows an
  OPEN on the connection of the higher one, even if its own is established already.
- The higher side, once established, gives way only to a peer that has restarted (RFC 4724), and only when the new
  session is established: until then the peer may be closing a connection of a moment ago.

At most two connections exist per peer, however often it connects: a new one replaces one whose OPEN has not come.
"""

from enum import Enum
from random import Random

from netloom.bgp.attributes import AttributeCache
from netloom.bgp.errors import Cease, Code, Notification
from netloom.bgp.fsm import LONGEST_IDLE, Close, Local, Output, Session, State
from netloom.bgp.messages import Open


class Side(Enum):
    """Which side has made a connection."""

    OURS = "ours"
    THEIRS = "theirs"


Outputs = list[tuple[Side, Output]]

_ORDER = list(State)


class Peer:
    """One peer."""

    def __init__(
        self, local: Local, *, remote_asn: int, random: Random, cache: AttributeCache, passive: bool = False
    ) -> None:
        """With `passive`, wait for the peer to connect."""
        self.remote_asn = remote_asn
        self._local = local
        self._random = random
        self._cache = cache
        self._passive = passive
        self._running = False
        self._closed_until = 0.0
        """Until when there is no session, because the last one had too many prefixes."""
        self._sessions: dict[Side, Session] = {}
        self.messages = 0
        """The number of messages received, in all sessions."""

    @property
    def state(self) -> State:
        """The state of the session that is farther on."""
        if not self._running:
            return State.IDLE
        least = State.ACTIVE if self._passive else State.IDLE
        return max((least, *(one.state for one in self._sessions.values())), key=_ORDER.index)

    def set_local(self, local: Local) -> None:
        """Change our side; what a peer is told of it, with the next OPEN."""
        self._local = local
        for session in self._sessions.values():
            session.local = local

    def deadline(self) -> float | None:
        """Return when to call `tick` at the latest; None: never."""
        due = [at for one in self._sessions.values() if (at := one.deadline()) is not None]
        return min(due, default=None)

    def start(self, now: float) -> Outputs:
        """Start."""
        self._running = True
        if self._passive:
            return []
        session = self._sessions[Side.OURS] = self._session()
        return self._of(Side.OURS, session.start(now))

    def stop(self, now: float, why: Notification | None = None) -> Outputs:
        """End all connections."""
        self._running = False
        ended = [(side, one) for side, session in self._sessions.items() for one in session.stop(now, why)]
        self._sessions.clear()
        return ended

    def accepted(self, now: float) -> Outputs | None:
        """Start with a connection that the peer opened; None if it is refused."""
        before = self._sessions.get(Side.THEIRS)
        if (
            not self._running
            or now < self._closed_until
            or (before is not None and before.state is not State.OPEN_SENT)
        ):
            return None
        outputs = self._of(Side.THEIRS, before.stop(now, _collision())) if before is not None else []
        session = self._sessions[Side.THEIRS] = self._session()
        return outputs + self._of(Side.THEIRS, session.accepted(now))

    def connected(self, now: float) -> Outputs:
        """Continue with the connection that we opened."""
        ours, theirs = self._sessions[Side.OURS], self._sessions.get(Side.THEIRS)
        before: Outputs = []
        if theirs is not None and theirs.peer is not None:
            if theirs.state is State.ESTABLISHED or not self._is_higher(theirs.peer):
                return self._of(Side.OURS, ours.stop(now, _collision()))
            before = self._of(Side.THEIRS, theirs.stop(now, _collision()))
            del self._sessions[Side.THEIRS]
        return before + self._of(Side.OURS, ours.connected(now))

    def failed(self, side: Side, now: float, why: str) -> Outputs:
        """Handle a connection that failed or was closed."""
        session = self._sessions.get(side)
        return [] if session is None else self._after(side, session, session.failed(now, why), now)

    def fail(self, side: Side, error: Notification, now: float) -> Outputs:
        """End a session because of an error that the caller found; with too many prefixes, for a minute.

        Otherwise the routes of the peer would flap each second, at all other peers, too.
        """
        session = self._sessions.get(side)
        if session is None:
            return []
        outputs = self._after(side, session, session.fail(error, now), now)
        if (error.code, error.subcode) == (Code.CEASE, Cease.MAX_PREFIXES):
            self._closed_until = now + LONGEST_IDLE
            if (ours := self._sessions.get(Side.OURS)) is not None and ours.state is State.IDLE:
                ours.start_later(now, LONGEST_IDLE)
        return outputs

    def receive(self, side: Side, data: bytes, now: float) -> Outputs:
        """Handle bytes from the peer."""
        session = self._sessions.get(side)
        if session is None:
            return []
        outputs: Outputs = []
        before = session.messages
        for output in session.receive(data, now):
            outputs += self._after(side, session, [output], now)
        self.messages += session.messages - before
        return outputs

    def tick(self, now: float) -> Outputs:
        """Run the timers that have expired."""
        outputs: Outputs = []
        for side, session in list(self._sessions.items()):
            outputs += self._after(side, session, session.tick(now), now)
        return outputs

    def _after(self, side: Side, session: Session, outputs: list[Output], now: float) -> Outputs:
        """Resolve a collision, and forget a connection of the peer that has ended."""
        found = self._of(side, outputs)
        other_side = Side.OURS if side is Side.THEIRS else Side.THEIRS
        other = self._sessions.get(other_side)
        if session.state is State.OPEN_CONFIRM and other is not None:
            loser = self._loser(side, session, other)
            if loser is session:
                # What it would have sent now, a KEEPALIVE, is not sent.
                found = self._of(side, session.stop(now, _collision()))
            elif loser is other:
                found = self._of(other_side, self._replaced(other, now)) + found
        elif session.state is State.ESTABLISHED and other is not None and side is Side.THEIRS:
            found = self._of(other_side, self._replaced(other, now)) + found
        theirs, ours = self._sessions.get(Side.THEIRS), self._sessions.get(Side.OURS)
        # ACTIVE: it ended before the peer's OPEN. A session that waits for nothing would refuse the next connection.
        if theirs is not None and theirs.state in (State.IDLE, State.ACTIVE):
            del self._sessions[Side.THEIRS]
            if ours is not None and ours.state is State.IDLE and ours.deadline() is None:
                ours.start_later(now)
        return found

    @staticmethod
    def _replaced(session: Session, now: float) -> list[Output]:
        if session.state is State.ESTABLISHED:
            return [Close(), *session.failed(now, "the peer has restarted")]
        return session.stop(now, _collision())

    def _loser(self, side: Side, session: Session, other: Session) -> Session | None:
        """Return the session of two that has to end, now that one has heard the peer's OPEN; None: neither yet."""
        assert session.peer is not None
        preferred = Side.OURS if self._is_higher(session.peer) else Side.THEIRS
        match other.state:
            case State.ESTABLISHED:
                if side is Side.THEIRS and side is not preferred:
                    return None if session.peer.capabilities.graceful_restart is not None else session
                return other if side is Side.THEIRS else session
            case State.OPEN_SENT | State.OPEN_CONFIRM:
                return other if side is preferred else session
            case _:
                return None

    def _is_higher(self, peer: Open) -> bool:
        """Whether our identifier is the higher one; if they are equal, our AS number (RFC 6286)."""
        return (self._local.router_id, self._local.asn) > (peer.router_id, peer.asn)

    def _session(self) -> Session:
        return Session(self._local, remote_asn=self.remote_asn, random=self._random, cache=self._cache)

    @staticmethod
    def _of(side: Side, outputs: list[Output]) -> Outputs:
        return [(side, one) for one in outputs]


def _collision() -> Notification:
    return Notification(Code.CEASE, Cease.COLLISION)
