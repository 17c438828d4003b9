"""Sessions: the table of states, two real sides that talk to each other, collisions, timers, errors."""

from ipaddress import IPv4Address
from itertools import pairwise
from random import Random

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from netloom.bgp import communities as ext
from netloom.bgp.attributes import AttributeCache, Attributes, Context
from netloom.bgp.errors import Cease, Code, Notification, OpenError
from netloom.bgp.fsm import (
    OPEN_HOLD,
    TABLE,
    Close,
    Connect,
    Ended,
    Established,
    Event,
    Local,
    Output,
    Received,
    Refreshed,
    Send,
    Session,
    State,
)
from netloom.bgp.messages import (
    KEEPALIVE,
    Capabilities,
    Framer,
    GracefulRestart,
    Kind,
    Open,
    Refresh,
    decode_notification,
    decode_open,
    encode_notification,
    encode_open,
    encode_refresh,
    message,
)
from netloom.bgp.nlri import EVPN, IPV4, MacIp, encode_evpn
from netloom.bgp.peer import Outputs, Peer, Side
from netloom.bgp.update import announce

ONE = Local(65001, IPv4Address("10.0.0.1"))
TWO = Local(65002, IPv4Address("10.0.0.2"))
HELPS = GracefulRestart(120, {EVPN: True}, notification=True)
UPDATE = next(
    announce(
        EVPN,
        [encode_evpn(MacIp(ext.route_distinguisher("1:1"), b"\2\0\0\0\0\1", label=10))],
        Attributes(as_path=((2, (65002,)),), next_hop=IPv4Address("10.0.0.2")),
        Context(internal=False),
        4096,
    )
)


ADD_PATH = 69


class Driven(Session):
    """A session that returns all outputs at once."""

    def receive(self, data: bytes, now: float) -> list[Output]:  # type: ignore[override]
        return list(super().receive(data, now))


def session(local: Local = ONE, asn: int = 65002) -> Driven:
    return Driven(local, remote_asn=asn, random=Random(1), cache=AttributeCache())


def sent(outputs: list[Output]) -> list[tuple[Kind, bytes]]:
    return list(Framer().feed(b"".join(one.data for one in outputs if isinstance(one, Send))))


def told(outputs: list[Output]) -> Notification:
    [(_, body)] = [one for one in sent(outputs) if one[0] is Kind.NOTIFICATION]
    return decode_notification(body)


def kinds(outputs: list[Output]) -> list[object]:
    return [sent([one])[0][0] if isinstance(one, Send) else type(one) for one in outputs]


def opened(local: Local = TWO) -> bytes:
    return encode_open(local.open())


def now_in(subject: Session | Peer) -> State:
    """Return the state; what a call has changed, mypy does not see in the attribute."""
    return subject.state


def established(local: Local = ONE, peer: Local = TWO) -> Driven:
    made = session(local, peer.asn)
    made.start(0)
    made.connected(0)
    outputs = made.receive(opened(peer) + KEEPALIVE, 0)
    assert kinds(outputs) == [Kind.KEEPALIVE, Established]
    return made


def test_every_state_and_event_ends_in_a_state() -> None:
    for state in State:
        for event in Event:
            made = session()
            made.state = state
            made.peer = TWO.open()
            made._happen(event, 0)
            expected = TABLE.get((state, event))
            if expected is None:
                connected = state in (State.OPEN_SENT, State.OPEN_CONFIRM, State.ESTABLISHED)
                assert now_in(made) is (State.IDLE if connected else state)
            else:
                assert now_in(made) is expected[0]


def test_a_peer_that_offers_several_paths_for_a_route_is_declined() -> None:
    offered = (ADD_PATH, EVPN.afi.to_bytes(2, "big") + bytes((EVPN.safi, 3)))
    theirs = msgspec.structs.replace(TWO.open().capabilities, other=(offered,))
    made = session()
    made.start(0)
    ((_, ours),) = sent(list(made.connected(0)))
    assert not decode_open(ours).capabilities.other
    outputs = made.receive(encode_open(Open(65002, TWO.router_id, 90, theirs)) + KEEPALIVE + UPDATE, 0)
    assert isinstance(outputs[-1], Received), "routes have no path identifier"


def test_a_session_comes_up() -> None:
    made = session()
    assert kinds(made.start(0)) == [Connect]
    assert now_in(made) is State.CONNECT
    assert kinds(made.connected(0)) == [Kind.OPEN]
    assert now_in(made) is State.OPEN_SENT
    assert kinds(made.receive(opened(), 0)) == [Kind.KEEPALIVE]
    assert now_in(made) is State.OPEN_CONFIRM
    [up] = made.receive(KEEPALIVE, 0)
    assert isinstance(up, Established)
    assert (up.families, up.longest, up.hold, up.context.internal) == ((EVPN,), 65535, 90.0, False)
    [got] = made.receive(UPDATE, 1)
    assert isinstance(got, Received)
    assert len(got.update.announced[EVPN].routes) == 1
    assert made.receive(encode_refresh(EVPN), 1) == [Refreshed(EVPN, Refresh.REQUEST)]
    assert made.receive(encode_refresh(IPV4), 1) == []


@given(st.integers(1, 200))
def test_the_stream_may_be_cut_anywhere(size: int) -> None:
    made = session()
    made.start(0)
    made.connected(0)
    data = opened() + KEEPALIVE + UPDATE * 3 + encode_refresh(EVPN)
    outputs: list[Output] = []
    for at in range(0, len(data), size):
        outputs += made.receive(data[at : at + size], 0)
    assert kinds(outputs) == [Kind.KEEPALIVE, Established, Received, Received, Received, Refreshed]


def test_keepalives_are_sent_and_the_hold_timer_ends_the_session() -> None:
    made = established()
    now, keepalives = 0.0, 0
    while now_in(made) is State.ESTABLISHED:
        due = made.deadline()
        assert due is not None
        assert due > now
        now = due
        outputs = made.tick(now)
        keepalives += kinds(outputs).count(Kind.KEEPALIVE)
    assert now == 90.0
    assert keepalives in (3, 4)
    assert kinds(outputs)[-3:] == [Kind.NOTIFICATION, Close, Ended]
    assert told(outputs).code == Code.HOLD_TIMER


def test_what_the_peer_sends_restarts_the_hold_timer() -> None:
    made = established()
    for data, at in ((KEEPALIVE, 80.0), (UPDATE, 160.0), (encode_refresh(EVPN), 240.0)):
        made.receive(data, at)
        made.tick(at + 89)
        assert now_in(made) is State.ESTABLISHED
    made.tick(331.0)
    assert now_in(made) is State.IDLE


def test_the_shorter_hold_time_counts_and_zero_is_none() -> None:
    for ours, theirs, expected in ((90, 9, 9.0), (3, 90, 3.0), (0, 90, 0.0)):
        made = session(Local(65001, ONE.router_id, hold=ours))
        made.start(0)
        made.connected(0)
        made.receive(encode_open(Open(65002, TWO.router_id, theirs, TWO.open().capabilities)), 0)
        [up] = made.receive(KEEPALIVE, 0)
        assert isinstance(up, Established)
        assert up.hold == expected
        assert (made.deadline() is None) == (expected == 0.0)


def test_a_peer_that_never_opens_is_given_up() -> None:
    made = session()
    made.start(0)
    made.connected(0)
    assert made.deadline() == OPEN_HOLD
    assert told(made.tick(OPEN_HOLD)).code == Code.HOLD_TIMER


def test_attempts_are_farther_and_farther_apart() -> None:
    made, now = session(), 0.0
    starts: list[float] = []
    outputs = made.start(now)
    while len(starts) < 12:
        if Connect() in outputs:
            starts.append(now)
            outputs = made.failed(now, "refused")
            assert kinds(outputs) == [Ended]
        due = made.deadline()
        assert due is not None
        now = due
        outputs = made.tick(now)
    gaps = [after - before for before, after in pairwise(starts)]
    assert 0.75 <= gaps[0] <= 1.0
    assert 45 <= gaps[-1] <= 60
    made = established()
    made.failed(1, "reset")
    assert made.deadline() is not None
    assert made.deadline() <= 2  # type: ignore[operator]  # A session that was up starts from the beginning.


def test_a_connection_that_hangs_is_tried_again() -> None:
    made = session()
    made.start(0)
    due = made.deadline()
    assert due is not None
    assert kinds(made.tick(due)) == [Close, Connect]


@pytest.mark.parametrize(
    ("peer", "subcode"),
    [
        (Open(65003, TWO.router_id, 90, Capabilities((EVPN,), 65003)), OpenError.BAD_PEER_AS),
        (Open(65002, TWO.router_id, 90, Capabilities((IPV4,), 65002)), OpenError.UNSUPPORTED_CAPABILITY),
        (Open(65002, TWO.router_id, 90), OpenError.UNSUPPORTED_CAPABILITY),
        (Open(65002, TWO.router_id, 1, TWO.open().capabilities), OpenError.HOLD_TIME),
    ],
)
def test_a_peer_that_is_not_the_configured_one_is_refused(peer: Open, subcode: int) -> None:
    made = session()
    made.start(0)
    made.connected(0)
    outputs = made.receive(encode_open(peer), 0)
    assert kinds(outputs) == [Kind.NOTIFICATION, Close, Ended]
    assert (told(outputs).code, told(outputs).subcode) == (Code.OPEN, subcode)


def test_an_internal_peer_with_our_identifier_is_refused_and_an_external_one_is_not() -> None:
    made = session(ONE, 65001)
    made.start(0)
    made.connected(0)
    assert told(made.receive(opened(ONE), 0)).subcode == OpenError.BAD_IDENTIFIER
    established(peer=Local(65002, ONE.router_id))


@pytest.mark.parametrize("data", [KEEPALIVE, UPDATE, encode_refresh(EVPN)])
def test_messages_before_their_time_are_errors_of_the_state_machine(data: bytes) -> None:
    made = session()
    made.start(0)
    made.connected(0)
    outputs = made.receive(data, 0)
    assert (told(outputs).code, told(outputs).subcode) == (Code.STATE_MACHINE, 1)
    made = established()
    outputs = made.receive(opened(), 0)
    assert (told(outputs).code, told(outputs).subcode) == (Code.STATE_MACHINE, 3)


def test_what_follows_an_error_is_not_read() -> None:
    made = established()
    outputs = made.receive(message(Kind.UPDATE, b"\xff\xff\0\0") + UPDATE, 0)
    assert kinds(outputs) == [Kind.NOTIFICATION, Close, Ended]
    assert made.receive(UPDATE, 0) == []


def test_stop_says_why_and_does_not_start_again() -> None:
    made = established()
    outputs = made.stop(0)
    assert kinds(outputs) == [Kind.NOTIFICATION, Close, Ended]
    assert (told(outputs).code, told(outputs).subcode) == (Code.CEASE, Cease.SHUTDOWN)
    assert made.deadline() is None
    made = session()
    made.start(0)
    assert kinds(made.stop(0)) == [Close, Ended]


@pytest.mark.parametrize(
    ("ours", "theirs", "end", "graceful"),
    [
        (HELPS, HELPS, "failed", True),
        (HELPS, None, "failed", False),
        (None, HELPS, "failed", False),
        (HELPS, HELPS, "notification", True),
        (HELPS, GracefulRestart(120, {EVPN: True}), "notification", False),
        (HELPS, HELPS, "hard", False),
        (HELPS, HELPS, "hold", True),
        (HELPS, HELPS, "stop", False),
        (HELPS, HELPS, "error", False),
    ],
)
def test_routes_stay_while_a_peer_may_be_restarting(
    ours: GracefulRestart | None, theirs: GracefulRestart | None, end: str, graceful: bool
) -> None:
    made = established(Local(65001, ONE.router_id, restart=ours), Local(65002, TWO.router_id, restart=theirs))
    match end:
        case "failed":
            outputs = made.failed(0, "reset")
        case "notification":
            outputs = made.receive(encode_notification(Notification(Code.CEASE, Cease.RESET)), 0)
        case "hard":
            outputs = made.receive(encode_notification(Notification(Code.CEASE, Cease.HARD_RESET)), 0)
        case "hold":
            outputs = made.tick(90)
        case "stop":
            outputs = made.stop(0)
        case _:
            outputs = made.receive(bytes(19), 0)
    [ended] = [one for one in outputs if isinstance(one, Ended)]
    assert (ended.established, ended.graceful) == (True, graceful)


# Peers -----------------------------------------------------------------------


class Wire:
    """Two peers, and the connections between them: bytes arrive in an order that the test chooses."""

    def __init__(self, one: Local = ONE, two: Local = TWO, **options: bool) -> None:
        self.peers = {
            local.asn: Peer(local, remote_asn=other.asn, random=Random(1), cache=AttributeCache(), **options)
            for local, other in ((one, two), (two, one))
        }
        self.flights: list[tuple[int, Side, bytes | None]] = []
        """Who gets it, on which connection, and the bytes; b"" for the end of a connection, None for its beginning."""
        self.seen: dict[int, list[Output]] = {asn: [] for asn in self.peers}
        self.open: set[tuple[int, Side]] = set()
        """The ends of connections that are open."""

    def other(self, local: int) -> int:
        return next(asn for asn in self.peers if asn != local)

    def run(self, local: int, outputs: Outputs | None) -> None:
        for side, output in outputs or []:
            self.seen[local].append(output)
            theirs = Side.THEIRS if side is Side.OURS else Side.OURS
            # Bytes stay in the order of their connection; what is closed here still arrives there.
            if isinstance(output, Send):
                self.flights.append((self.other(local), theirs, output.data))
            elif isinstance(output, Close):
                self.open.discard((local, side))
                self.flights.append((self.other(local), theirs, b""))

    def connect(self, local: int) -> None:
        """The kernels have made the connection; neither program knows of it yet."""
        self.open |= {(local, Side.OURS), (self.other(local), Side.THEIRS)}
        self.flights += [(self.other(local), Side.THEIRS, None), (local, Side.OURS, None)]

    def deliver(self, local: int, side: Side) -> None:
        index = next(at for at, one in enumerate(self.flights) if one[:2] == (local, side))
        data, peer = self.flights.pop(index)[2], self.peers[local]
        if data is None:
            if side is Side.OURS and peer._sessions[side].state is not State.CONNECT:
                return  # The attempt was given up; its Close is on its way.
            self.run(local, peer.connected(0) if side is Side.OURS else peer.accepted(0))
        elif (local, side) in self.open:
            self.run(local, peer.receive(side, data, 0) if data else peer.failed(side, 0, "closed"))
            if not data:
                self.open.discard((local, side))


@given(st.data(), st.booleans())
def test_two_connections_at_once_become_one(data: st.DataObject, graceful: bool) -> None:
    restart = HELPS if graceful else None
    wire = Wire(Local(65001, ONE.router_id, restart=restart), Local(65002, TWO.router_id, restart=restart))
    for local, peer in wire.peers.items():
        wire.run(local, peer.start(0))
    for local in wire.peers:
        wire.connect(local)
    steps = 0
    while wire.flights:
        # Bytes of one connection and direction stay in order; which connection is next is a matter of chance.
        streams = sorted({one[:2] for one in wire.flights}, key=repr)
        wire.deliver(*data.draw(st.sampled_from(streams)))
        steps += 1
        assert steps < 200
    assert [peer.state for peer in wire.peers.values()] == [State.ESTABLISHED] * 2
    assert len(wire.open) == 2
    assert len({side for _, side in wire.open}) == 2
    for outputs in wire.seen.values():
        ups = sum(isinstance(one, Established) for one in outputs)
        assert ups - sum(isinstance(one, Ended) and one.established for one in outputs) == 1


def test_a_flood_of_connections_leaves_one() -> None:
    peer = Peer(ONE, remote_asn=65002, random=Random(1), cache=AttributeCache(), passive=True)
    peer.start(0)
    assert now_in(peer) is State.ACTIVE
    for _ in range(100):
        outputs = peer.accepted(0)
        assert outputs is not None
    assert len(peer._sessions) == 1
    assert [type(one) for _, one in outputs or []] == [Send, Close, Ended, Send]
    peer.receive(Side.THEIRS, opened() + KEEPALIVE, 0)
    assert now_in(peer) is State.ESTABLISHED
    assert peer.accepted(0) is None
    assert [type(one) for _, one in peer.stop(0)] == [Send, Close, Ended]
    assert peer.accepted(0) is None
    assert now_in(peer) is State.IDLE


@pytest.mark.parametrize("passive", [True, False])
def test_a_connection_that_the_peer_closes_before_its_open_does_not_lock_it_out(passive: bool) -> None:
    peer = Peer(ONE, remote_asn=65002, random=Random(1), cache=AttributeCache(), passive=passive)
    peer.start(0)
    for _ in range(3):
        assert peer.accepted(0) is not None
        peer.failed(Side.THEIRS, 0, "closed")
        assert Side.THEIRS not in peer._sessions
    assert peer.accepted(0) is not None
    peer.receive(Side.THEIRS, opened() + KEEPALIVE, 0)
    assert now_in(peer) is State.ESTABLISHED


def test_we_do_not_connect_while_the_peers_connection_is_up_and_do_when_it_ends() -> None:
    peer = Peer(ONE, remote_asn=65002, random=Random(1), cache=AttributeCache())
    peer.start(0)
    peer.failed(Side.OURS, 0, "refused")
    peer.accepted(0)
    peer.receive(Side.THEIRS, opened() + KEEPALIVE, 0)
    assert now_in(peer) is State.ESTABLISHED
    for at in range(1, 80):
        assert not any(isinstance(one, Connect) for _, one in peer.tick(at))
    peer.failed(Side.THEIRS, 80, "reset")
    assert now_in(peer) is State.IDLE
    due = peer.deadline()
    assert due is not None
    assert [type(one) for _, one in peer.tick(due)] == [Connect]


def test_a_peer_that_restarted_replaces_the_session_that_it_has_forgotten() -> None:
    restarting = Local(65002, TWO.router_id, restart=HELPS)
    peer = Peer(Local(65001, ONE.router_id, restart=HELPS), remote_asn=65002, random=Random(1), cache=AttributeCache())
    peer.start(0)
    peer.connected(0)
    peer.receive(Side.OURS, opened(restarting) + KEEPALIVE, 0)
    assert now_in(peer) is State.ESTABLISHED
    peer.accepted(10)
    outputs = [one for _, one in peer.receive(Side.THEIRS, opened(restarting) + KEEPALIVE, 10)]
    [ended] = [one for one in outputs if isinstance(one, Ended)]
    assert (ended.established, ended.graceful) == (True, True)
    assert any(isinstance(one, Established) for one in outputs)
    assert now_in(peer) is State.ESTABLISHED
