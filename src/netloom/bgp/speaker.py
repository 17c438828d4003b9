"""A speaker without sockets: its peers, the RIB between them, graceful restart.  Pure: time is an argument.

    speaker = Speaker(asn, router_id, random=Random())
    speaker.add_peer(PeerConfig("10.0.0.2", remote_asn=65002), now)
    speaker.receive("10.0.0.2", side, data, now)     and accepted, connected, failed, tick
    speaker.take_actions()                           what the sockets have to do: Connect, Send, Close
    speaker.messages("10.0.0.2")                     UPDATE messages, as many as the peer reads
    speaker.take_events()                            sessions that came up or ended

Each call changes the RIB and remembers which peers have to hear of it; messages are made when they can be sent. So a
peer that does not read costs a set of keys, and a route that changes often is sent as it is in the end.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address
from random import Random

from msgspec import Struct

from netloom.bgp import update
from netloom.bgp.attributes import AttributeCache, Attributes
from netloom.bgp.errors import Cease, Code, Notification
from netloom.bgp.fsm import Close, Connect, Ended, Established, Local, Received, Refreshed, Send, State
from netloom.bgp.messages import GracefulRestart, Refresh, encode_refresh, shutdown_data
from netloom.bgp.nlri import EVPN, ROUTE_TARGETS, Family, Routes
from netloom.bgp.peer import Outputs, Peer, Side
from netloom.bgp.rib import AdjIn, AdjOut, Path, Relation, Rib, Source

RESTART_SECONDS = 120
"""How long peers keep our routes while we restart."""
STALE_SECONDS = 360.0
"""How long we keep routes that a restarted peer has not sent again, if it never says that it has sent all, and how long
we keep routes of a peer that is away, however long it says that its restart may take."""
DEFERRAL_SECONDS = 60.0
"""How long we wait, after our own restart, for all routes of peers before we say that we have sent all."""


class PeerConfig(Struct, frozen=True):
    """A peer, as it is configured."""

    name: str
    """Its address."""
    remote_asn: int
    hold: int = 90
    passive: bool = False
    client: bool = False
    """Whether it is a route reflector client."""
    max_prefixes: int = 0
    families: tuple[Family, ...] = (EVPN,)


class SessionEvent(Struct, frozen=True):
    """A session came up or has ended."""

    peer: str
    is_up: bool
    why: str = ""


class Neighbor(Struct, eq=False):
    """The state of a peer."""

    config: PeerConfig
    peer: Peer
    side: Side | None = None
    """The connection of the established session."""
    up: Established | None = None
    source: Source | None = None
    """Whose routes there are; it outlives a session while the peer restarts."""
    out: AdjOut | None = None
    updates: int = 0
    malformed: int = 0
    flaps: int = 0
    """How often an established session has ended."""
    bytes_in: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    last_error: str = ""
    flush_at: float | None = None
    """When to remove stale routes, whatever happens."""
    outbox: list[bytes] = []
    """Messages that are made, and not sent; the last is the next."""
    owed: list[bytes] = []
    """Messages that follow the routes which are enqueued."""
    refreshes: dict[Family, None] = {}
    """Families that the peer has asked for again; the answer begins when it has read all that was there before."""
    has_new_targets: bool = False
    """Whether the peer has changed which route targets it wants, since it last got routes."""
    ended: set[Family] = set()
    """Families of which the peer has sent all."""


class Speaker:
    """A BGP speaker."""

    def __init__(self, asn: int, router_id: IPv4Address, *, random: Random, restarting: bool = False) -> None:
        """With `restarting`, tell peers that forwarding was preserved during the restart."""
        self.rib = Rib(asn, router_id)
        self.cache = AttributeCache()
        self.local = Source("local", Relation.LOCAL, router_id, asn)
        self.rib.add_source(self.local)
        self._random = random
        self._restarting = restarting
        self._neighbors: dict[str, Neighbor] = {}
        self._actions: list[tuple[str, Side, Connect | Send | Close]] = []
        self._events: list[SessionEvent] = []
        self._is_complete = False
        self._defer_until: float | None = None

    # Peers

    def add_peer(self, config: PeerConfig, now: float) -> None:
        """Begin a session with a peer."""
        if self._restarting and self._defer_until is None:
            self._defer_until = now + DEFERRAL_SECONDS
        peer = Peer(
            self._local_side(config),
            remote_asn=config.remote_asn,
            random=self._random,
            cache=self.cache,
            passive=config.passive,
        )
        self._neighbors[config.name] = Neighbor(config, peer)
        self._run(config.name, peer.start(now), now)

    def _local_side(self, config: PeerConfig) -> Local:
        restart = GracefulRestart(
            RESTART_SECONDS, dict.fromkeys(config.families, True), restarting=self._restarting, notification=True
        )
        return Local(self.rib.asn, self.rib.router_id, config.hold, config.families, restart)

    def remove_peer(self, name: str, now: float) -> None:
        """End the session with a peer, and remove its routes."""
        neighbor = self._neighbors[name]
        error = Notification(Code.CEASE, Cease.DECONFIGURED)
        self._run(name, neighbor.peer.stop(now, error), now)
        self._forget(neighbor)
        del self._neighbors[name]

    def shut_down(self, text: str, now: float) -> None:
        """End all sessions for good: peers are told why (RFC 9003), and remove our routes."""
        error = Notification(Code.CEASE, Cease.SHUTDOWN, shutdown_data(text))
        for name, neighbor in self._neighbors.items():
            self._run(name, neighbor.peer.stop(now, error), now)

    def configs(self) -> dict[str, PeerConfig]:
        """Return the configured peers."""
        return {name: one.config for name, one in self._neighbors.items()}

    def neighbor(self, name: str) -> Neighbor:
        """Return the state of a peer."""
        return self._neighbors[name]

    def received(self, name: str) -> int:
        """Return how many routes of a peer there are."""
        neighbor = self._neighbors.get(name)
        return 0 if neighbor is None or neighbor.source is None else self._adjacent(neighbor.source).count()

    def accepted(self, name: str, now: float) -> bool:
        """Accept a connection from a peer; return False to refuse it."""
        neighbor = self._neighbors.get(name)
        outputs = neighbor.peer.accepted(now) if neighbor is not None else None
        if outputs is None:
            return False
        self._run(name, outputs, now)
        return True

    def connected(self, name: str, now: float) -> None:
        """Continue with the connection that we opened."""
        if (neighbor := self._neighbors.get(name)) is not None:
            self._run(name, neighbor.peer.connected(now), now)

    def failed(self, name: str, side: Side, why: str, now: float) -> None:
        """Handle a connection that failed or was closed."""
        if (neighbor := self._neighbors.get(name)) is not None:
            self._run(name, neighbor.peer.failed(side, now, why), now)

    def receive(self, name: str, side: Side, data: bytes, now: float) -> None:
        """Handle bytes from a peer."""
        if (neighbor := self._neighbors.get(name)) is not None:
            neighbor.bytes_in += len(data)
            self._run(name, neighbor.peer.receive(side, data, now), now)

    def deadline(self) -> float | None:
        """Return when to call `tick` at the latest; None: never."""
        due = [at for one in self._neighbors.values() if (at := one.peer.deadline()) is not None]
        due += [one.flush_at for one in self._neighbors.values() if one.flush_at is not None]
        due += [self._defer_until] if self._defer_until is not None else []
        return min(due, default=None)

    def tick(self, now: float) -> None:
        """Run the timers that have expired."""
        for name, neighbor in list(self._neighbors.items()):
            self._run(name, neighbor.peer.tick(now), now)
            if neighbor.flush_at is not None and now >= neighbor.flush_at:
                neighbor.flush_at = None
                if neighbor.up is None or neighbor.source is None:
                    self._forget(neighbor)  # It has not come back.
                else:
                    self._sweep(neighbor.source)
        if self._defer_until is not None and now >= self._defer_until:
            self._end_restart()

    # Routes

    def originate(self, family: Family, attributes: Attributes, routes: Routes) -> None:
        """Announce routes of our own."""
        self.rib.announce(self.local, family, attributes, routes)

    def retract(self, family: Family, routes: Routes) -> None:
        """Withdraw routes of our own."""
        self.rib.withdraw(self.local, family, routes)

    def complete(self) -> None:
        """Mark our own routes as complete: from now on peers get End-of-RIB."""
        if not self._is_complete:
            self._is_complete = True
            if self._may_end():
                self._end_restart()

    def take_changes(self) -> dict[Family, dict[bytes, tuple[Path | None, Path | None]]]:
        """Return the routes whose best path has changed, and enqueue them for all peers."""
        for family, chosen in self.rib.take_chosen().items():
            for neighbor in self._neighbors.values():
                if neighbor.out is not None:
                    neighbor.out.enqueue_chosen(family, chosen)
        return self.rib.take_changes()

    def messages(self, name: str) -> Iterator[tuple[Side, bytes]]:
        """Yield messages to a peer, until it has all; the caller takes as many as it can send."""
        neighbor = self._neighbors.get(name)
        while neighbor is not None and neighbor.out is not None and neighbor.side is not None:
            if neighbor.outbox:
                data = neighbor.outbox.pop()
                self._count(neighbor, data)
                yield neighbor.side, data
            elif neighbor.has_new_targets:
                neighbor.has_new_targets = False
                if neighbor.source is not None:
                    neighbor.out.want_targets(self._adjacent(neighbor.source).tables.get(ROUTE_TARGETS, {}))
            elif neighbor.out.is_pending:
                neighbor.outbox = neighbor.out.flush()[::-1]
            elif neighbor.owed:
                neighbor.outbox, neighbor.owed = neighbor.owed[::-1], []
            elif neighbor.refreshes:
                self._resend(neighbor, neighbor.out)
            else:
                return

    def take_actions(self) -> list[tuple[str, Side, Connect | Send | Close]]:
        """Return what the sockets have to do, in order."""
        taken, self._actions = self._actions, []
        return taken

    @property
    def has_actions(self) -> bool:
        """Whether `take_actions` or `take_events` returns something."""
        return bool(self._actions or self._events)

    def take_events(self) -> list[SessionEvent]:
        """Return the sessions that came up or ended."""
        taken, self._events = self._events, []
        return taken

    # What sessions report

    def _run(self, name: str, outputs: Outputs, now: float) -> None:
        neighbor = self._neighbors[name]
        for side, output in outputs:
            match output:
                case Connect() | Send() | Close():
                    if isinstance(output, Send):
                        self._count(neighbor, output.data)
                    self._actions.append((name, side, output))
                case Established():
                    self._establish(neighbor, side, output, now)
                case Ended():
                    self._end(neighbor, side, output, now)
                case Received() | Refreshed() if neighbor.side is not side:
                    pass  # It came with what has ended the session.
                case Received():
                    self._update(neighbor, side, output.update, now)
                case Refreshed():
                    self._refresh(neighbor, output.family, output.what)

    @staticmethod
    def _count(neighbor: Neighbor, data: bytes) -> None:
        neighbor.messages_out += 1
        neighbor.bytes_out += len(data)

    def _establish(self, neighbor: Neighbor, side: Side, up: Established, now: float) -> None:
        config, peer = neighbor.config, up.peer
        relation = Relation.EXTERNAL
        if up.context.internal:
            relation = Relation.CLIENT if config.client else Relation.INTERNAL
        before = neighbor.source
        if before is not None and (before.router_id, before.asn) != (peer.router_id, peer.asn):
            self._forget(neighbor)
        source = neighbor.source = neighbor.source or Source(config.name, relation, peer.router_id, peer.asn)
        adjacent = self.rib.add_source(source)
        kept = peer.capabilities.graceful_restart
        for family in list(adjacent.stale):
            if kept is None or not kept.families.get(family, False) or family not in up.families:
                self.rib.sweep_stale(source, family)
        neighbor.flush_at = now + STALE_SECONDS if adjacent.stale else None
        neighbor.side, neighbor.up, neighbor.last_error = side, up, ""
        neighbor.out = AdjOut(self.rib, source, up.context, up.families, longest=up.longest)
        neighbor.outbox, neighbor.owed, neighbor.ended = [], [], set()
        neighbor.refreshes, neighbor.has_new_targets = {}, False
        for family in up.families:
            if family == EVPN and ROUTE_TARGETS in up.families:
                continue  # The peer says first which it wants (RFC 4684).
            neighbor.out.enqueue_all(family)
        if self._restarting:
            if self._may_end():
                self._end_restart()
        elif self._may_end():
            neighbor.owed = [update.end_of_rib(family) for family in up.families]
        self._events.append(SessionEvent(config.name, True))

    def _end(self, neighbor: Neighbor, side: Side, ended: Ended, now: float) -> None:
        if not ended.established:
            neighbor.last_error = ended.why
            return
        up, source = neighbor.up, neighbor.source
        neighbor.flaps += 1
        neighbor.side = neighbor.up = neighbor.out = None
        neighbor.last_error = ended.why
        restart = up.peer.capabilities.graceful_restart if up is not None else None
        if ended.graceful and restart is not None and source is not None:
            if neighbor.flush_at is not None:
                self._sweep(source)  # Those of an earlier restart (RFC 4724 section 4.2).
            self.rib.mark_stale(source, restart.families)
            neighbor.flush_at = now + min(restart.seconds, STALE_SECONDS)
        else:
            self._forget(neighbor)
        self._events.append(SessionEvent(neighbor.config.name, False, ended.why))

    def _update(self, neighbor: Neighbor, side: Side, got: update.Update, now: float) -> None:
        source = neighbor.source
        assert source is not None
        neighbor.updates += 1
        neighbor.malformed += len(got.malformed)
        for family, routes in got.withdrawn.items():
            self.rib.withdraw(source, family, routes)
        for family, came in got.announced.items():
            self.rib.announce(source, family, came.attributes, came.routes)
        if ROUTE_TARGETS in got.announced or ROUTE_TARGETS in got.withdrawn or got.end_of_rib == ROUTE_TARGETS:
            neighbor.has_new_targets = True
        if got.end_of_rib is not None:
            neighbor.ended.add(got.end_of_rib)
            self.rib.sweep_stale(source, got.end_of_rib)
            if not self._adjacent(source).stale:
                neighbor.flush_at = None
            if self._restarting and self._may_end():
                self._end_restart()
        most = neighbor.config.max_prefixes
        if most and got.announced and self._adjacent(source).count() > most:
            error = Notification(Code.CEASE, Cease.MAX_PREFIXES, why=f"the peer has sent more than {most} prefixes")
            self._run(neighbor.config.name, neighbor.peer.fail(side, error, now), now)

    def _refresh(self, neighbor: Neighbor, family: Family, what: Refresh) -> None:
        assert neighbor.source is not None
        match what:
            case Refresh.REQUEST:
                # However often it asks: what it gets is made when it reads.
                neighbor.refreshes[family] = None
            case Refresh.BEGIN:
                self.rib.begin_refresh(neighbor.source, family)
            case Refresh.END:
                self.rib.sweep_stale(neighbor.source, family)

    @staticmethod
    def _resend(neighbor: Neighbor, out: AdjOut) -> None:
        """Begin to send all routes of a family again."""
        family = next(iter(neighbor.refreshes))
        del neighbor.refreshes[family]
        out.resend(family)
        if neighbor.up is not None and neighbor.up.peer.capabilities.enhanced_refresh:
            neighbor.outbox = [encode_refresh(family, Refresh.BEGIN)]
            neighbor.owed.append(encode_refresh(family, Refresh.END))

    # Restarts

    def _may_end(self) -> bool:
        """Whether End-of-RIB may be sent to peers."""
        if not self._is_complete:
            return False
        if not self._restarting:
            return True
        return all(map(_has_ended, self._neighbors.values()))

    def _end_restart(self) -> None:
        """Note that peers have sent all, or are not waited for any longer; sessions from now on are no restart."""
        self._restarting, self._defer_until = False, None
        for neighbor in self._neighbors.values():
            neighbor.peer.set_local(self._local_side(neighbor.config))
        self._owe_ends()

    def _owe_ends(self) -> None:
        if self._may_end():
            for neighbor in self._neighbors.values():
                if neighbor.up is not None:
                    neighbor.owed += [update.end_of_rib(family) for family in neighbor.up.families]

    def _sweep(self, source: Source) -> None:
        """Remove the stale routes of a peer."""
        for family in list(self._adjacent(source).stale):
            self.rib.sweep_stale(source, family)

    def _forget(self, neighbor: Neighbor) -> None:
        if neighbor.source is not None:
            self.rib.remove_source(neighbor.source)
            neighbor.source = None
        neighbor.flush_at = None

    def _adjacent(self, source: Source) -> AdjIn:
        return self.rib.add_source(source)


def _has_ended(neighbor: Neighbor) -> bool:
    """Whether a peer has sent all of its routes, or is not waited for: two that restart would wait for each other."""
    if neighbor.up is None:
        return neighbor.peer.state is State.IDLE
    restart = neighbor.up.peer.capabilities.graceful_restart
    return (restart is not None and restart.restarting) or neighbor.ended.issuperset(neighbor.up.families)
