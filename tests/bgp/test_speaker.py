"""Speakers that talk to each other, over connections that a test can cut: routes arrive, go, and survive a restart."""

from ipaddress import IPv4Address
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from netloom.bgp import communities as ext
from netloom.bgp import update
from netloom.bgp.attributes import Attributes, Context
from netloom.bgp.fsm import Close, Connect, Send, State
from netloom.bgp.io import Changes
from netloom.bgp.messages import Refresh, encode_refresh
from netloom.bgp.nlri import EVPN, ROUTE_TARGETS, MacIp, Routes, encode_evpn, split
from netloom.bgp.peer import Side
from netloom.bgp.rib import membership
from netloom.bgp.speaker import RESTART_SECONDS, STALE_SECONDS, PeerConfig, Speaker

RD = ext.route_distinguisher("10.0.0.9:1")
INTERNAL = Context(internal=True)


def route(number: int) -> Routes:
    return split(EVPN, encode_evpn(MacIp(RD, number.to_bytes(6, "big"), None, 10)))


class Net:
    """Speakers, by name, and the connections between them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.speakers: dict[str, Speaker] = {}
        self.asns: dict[str, int] = {}
        self.wires: list[tuple[str, str, Side, bytes]] = []
        """Receiver, sender, connection and data; b"" is the end of the connection."""
        self.open: set[tuple[str, str]] = set()
        """Connections: the speaker that opened each, and the other one."""

    def add(self, name: str, asn: int, *, restarting: bool = False) -> Speaker:
        made = Speaker(asn, IPv4Address(name), random=Random(name), restarting=restarting)
        self.speakers[name], self.asns[name] = made, asn
        return made

    def peer(self, one: str, other: str, **options: Any) -> None:
        """Make two speakers peers; options as of `PeerConfig`, for both."""
        for name, remote in ((one, other), (other, one)):
            self.speakers[name].add_peer(PeerConfig(remote, self.asns[remote], **options), self.now)

    def originate(self, name: str, *numbers: int, **options: Any) -> None:
        attributes = Attributes(next_hop=IPv4Address(name), extended=(ext.route_target("1:10"),), **options)
        for number in numbers:
            self.speakers[name].originate(EVPN, attributes, route(number))

    def kill(self, name: str) -> None:
        """End a speaker without a word."""
        del self.speakers[name]
        for maker, to in list(self.open):
            if name in (maker, to):
                self.cut(maker, to)

    def cut(self, maker: str, to: str) -> None:
        """Break a connection; both ends notice."""
        self.open.discard((maker, to))
        self.wires = [one for one in self.wires if not self._is_on(one, maker, to)]
        self.wires += [(to, maker, Side.THEIRS, b""), (maker, to, Side.OURS, b"")]

    @staticmethod
    def _is_on(wire: tuple[str, str, Side, bytes], maker: str, to: str) -> bool:
        return wire[:3] in ((to, maker, Side.THEIRS), (maker, to, Side.OURS))

    def settle(self) -> None:
        """Run until nothing is on its way."""
        for _ in range(10_000):
            busy = bool(self.wires)
            for name, speaker in list(self.speakers.items()):
                busy = self._act(name, speaker) or busy
            if not busy:
                return
            wires, self.wires = self.wires, []
            for to, source, side, data in wires:
                if to not in self.speakers:
                    continue
                if data:
                    self.speakers[to].receive(source, side, data, self.now)
                else:
                    self.speakers[to].failed(source, side, "closed", self.now)
        raise AssertionError("it does not settle")

    def changed(self, name: str, changes: Changes) -> None:
        """Note the routes of a speaker whose best path has changed."""

    def _act(self, name: str, speaker: Speaker) -> bool:
        self.changed(name, speaker.take_changes())
        sending = [
            (peer, side, Send(data)) for peer in speaker.configs() for side, data in list(speaker.messages(peer))
        ]
        actions = [*speaker.take_actions(), *sending]
        for peer, side, action in actions:
            ours, theirs = ((name, peer), (peer, name))
            connection = ours if side is Side.OURS else theirs
            other = Side.THEIRS if side is Side.OURS else Side.OURS
            match action:
                case Connect():
                    if peer in self.speakers and self.speakers[peer].accepted(name, self.now):
                        self.open.add(ours)
                        speaker.connected(peer, self.now)
                    else:
                        speaker.failed(peer, Side.OURS, "refused", self.now)
                case Send() if connection in self.open:
                    self.wires.append((peer, name, other, action.data))
                case Close() if connection in self.open:
                    self.open.discard(connection)
                    self.wires.append((peer, name, other, b""))
                case _:
                    pass
        return bool(actions)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and do at each moment what is due then."""
        end = self.now + seconds
        self.settle()
        while True:
            due = [at for one in self.speakers.values() if (at := one.deadline()) is not None and at <= end]
            if not due:
                break
            self.now = max(self.now, min(due))
            for speaker in self.speakers.values():
                speaker.tick(self.now)
            self.settle()
        self.now = end

    def routes(self, name: str) -> set[int]:
        """Return the numbers of the routes that a speaker has."""
        return {
            int.from_bytes(path.route[25:31], "big") for path in self.speakers[name].rib.best.get(EVPN, {}).values()
        }


A, B, C, D = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"


def two(asn: int = 65001, **options: Any) -> Net:
    net = Net()
    net.add(A, 65001).complete()
    net.add(B, asn).complete()
    net.peer(A, B, **options)
    net.pass_time(5)
    assert all(
        one.neighbor(peer).peer.state is State.ESTABLISHED
        for one, peer in zip(net.speakers.values(), (B, A), strict=True)
    )
    return net


def test_routes_come_and_go() -> None:
    for asn in (65001, 65002):
        net = two(asn)
        net.originate(A, 1, 2)
        net.originate(B, 3)
        net.settle()
        assert net.routes(A) == net.routes(B) == {1, 2, 3}
        net.speakers[A].retract(EVPN, route(1))
        net.settle()
        assert net.routes(B) == {2, 3}
        net.speakers[B].remove_peer(A, net.now)
        net.settle()
        assert (net.routes(A), net.routes(B)) == ({2}, {3})


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.integers(0, 6), st.booleans()), max_size=25), st.booleans())
def test_all_speakers_end_with_all_routes_whatever_the_order(done: list[tuple[str, int, bool]], mesh: bool) -> None:
    net = Net()
    names = {"A": A, "B": B, "C": C, "D": D}
    for name in names.values():
        net.add(name, 65001).complete()
    if mesh:
        for one, other in ((A, B), (A, C), (A, D), (B, C), (B, D), (C, D)):
            net.peer(one, other)
    else:
        for name in (B, C, D):
            net.speakers[A].add_peer(PeerConfig(name, 65001, client=True, passive=True), 0)
            net.speakers[name].add_peer(PeerConfig(A, 65001), 0)
    expected: set[int] = set()
    owned: dict[int, set[str]] = {}
    for at, (who, number, adds) in enumerate(done):
        if adds:
            net.originate(names[who], number)
            owned.setdefault(number, set()).add(who)
        else:
            net.speakers[names[who]].retract(EVPN, route(number))
            owned.setdefault(number, set()).discard(who)
        if at % 3 == 0:
            net.pass_time(2)
    net.pass_time(20)
    expected = {number for number, owners in owned.items() if owners}
    for name in names.values():
        assert net.routes(name) == expected


def test_routes_stay_while_a_peer_restarts_and_those_that_it_lost_go_with_its_end_of_rib() -> None:
    net = two()
    net.originate(A, 1, 2)
    net.settle()
    net.kill(A)
    net.settle()
    assert net.routes(B) == {1, 2}
    net.pass_time(10)
    assert net.routes(B) == {1, 2}
    again = net.add(A, 65001, restarting=True)
    again.add_peer(PeerConfig(B, 65001), net.now)
    net.pass_time(70)
    assert net.speakers[B].neighbor(A).peer.state is State.ESTABLISHED
    assert net.routes(B) == {1, 2}
    net.originate(A, 2, 3)
    net.settle()
    assert net.routes(B) == {1, 2, 3}
    again.complete()
    net.settle()
    assert net.routes(B) == {2, 3}


def test_a_route_that_a_peer_did_not_send_again_before_it_restarts_once_more_goes() -> None:
    """RFC 4724 section 4.2: or a peer that restarts again and again never loses a route."""
    net = two()
    net.originate(A, 1, 2)
    net.settle()
    for _ in range(2):
        net.kill(A)
        net.settle()
        net.add(A, 65001, restarting=True).add_peer(PeerConfig(B, 65001), net.now)
        net.originate(A, 2)
        net.pass_time(20)
        assert net.speakers[B].neighbor(A).peer.state is State.ESTABLISHED
    assert net.routes(B) == {2}


def test_a_session_that_ends_during_a_refresh_keeps_the_routes() -> None:
    net = two()
    net.originate(A, 1, 2)
    net.settle()
    neighbor = net.speakers[B].neighbor(A)
    assert neighbor.side is not None
    net.speakers[B].receive(A, neighbor.side, encode_refresh(EVPN, Refresh.BEGIN), net.now)
    net.kill(A)
    net.settle()
    assert net.routes(B) == {1, 2}


def test_a_restart_is_told_until_it_is_over() -> None:
    net = two()
    net.kill(A)
    net.settle()
    again = net.add(A, 65001, restarting=True)
    again.add_peer(PeerConfig(B, 65001), net.now)
    again.complete()

    def told() -> bool:
        net.pass_time(20)
        up = net.speakers[B].neighbor(A).up
        assert up is not None
        assert up.peer.capabilities.graceful_restart is not None
        return up.peer.capabilities.graceful_restart.restarting

    assert told()
    for maker, to in list(net.open):
        net.cut(maker, to)
    net.settle()
    assert net.speakers[B].neighbor(A).up is None
    assert not told()


def test_a_peer_that_does_not_come_back_loses_its_routes() -> None:
    net = two()
    net.originate(A, 1)
    net.settle()
    net.kill(A)
    net.pass_time(RESTART_SECONDS - 1)
    assert net.routes(B) == {1}
    net.pass_time(2)
    assert net.routes(B) == set()


def test_a_peer_that_never_says_that_it_has_sent_all_is_not_waited_for() -> None:
    net = two()
    net.originate(A, 1)
    net.settle()
    net.kill(A)
    net.settle()
    net.add(A, 65001, restarting=True).add_peer(PeerConfig(B, 65001), net.now)
    net.pass_time(STALE_SECONDS - 10)
    assert net.routes(B) == {1}
    net.pass_time(20)
    assert net.routes(B) == set()


def test_another_router_at_the_same_address_gets_nothing_of_the_earlier_one() -> None:
    net = two()
    net.originate(A, 1)
    net.settle()
    net.kill(A)
    net.settle()
    other = Speaker(65001, IPv4Address("10.9.9.9"), random=Random(1))
    net.speakers[A] = other
    other.complete()
    other.add_peer(PeerConfig(B, 65001), net.now)
    net.pass_time(30)
    assert net.speakers[B].neighbor(A).peer.state is State.ESTABLISHED
    assert net.routes(B) == set()


def test_a_peer_with_too_many_prefixes_is_cut_off() -> None:
    net = two(max_prefixes=3)
    net.originate(A, 1, 2, 3)
    net.settle()
    assert net.routes(B) == {1, 2, 3}
    net.originate(A, 4)
    net.settle()
    neighbor = net.speakers[B].neighbor(A)
    assert neighbor.peer.state is not State.ESTABLISHED
    assert "more than 3 prefixes" in neighbor.last_error
    assert net.routes(B) == set()


@pytest.mark.parametrize("passive", [True, False])
def test_a_peer_with_too_many_prefixes_does_not_come_back_at_once(passive: bool) -> None:
    """Or its routes come and go every second, at all other peers, too."""
    net = Net()
    net.add(A, 65001).complete()
    net.add(B, 65001).complete()
    net.speakers[B].add_peer(PeerConfig(A, 65001, max_prefixes=3, passive=passive), 0)
    net.speakers[A].add_peer(PeerConfig(B, 65001), 0)
    net.originate(A, 1, 2, 3, 4)
    net.pass_time(59)
    neighbor = net.speakers[B].neighbor(A)
    assert neighbor.flaps == 1
    assert "more than 3 prefixes" in neighbor.last_error
    net.pass_time(120)
    assert 2 <= neighbor.flaps <= 3
    net.speakers[A].retract(EVPN, route(4))
    net.pass_time(120)
    assert net.routes(B) == {1, 2, 3}


def test_a_peer_that_asks_gets_all_again_and_old_routes_go() -> None:
    net = two()
    net.originate(A, 1, 2)
    net.settle()
    speaker = net.speakers[A]
    # What B has and A did not send: as after a fault of one of them.
    source = net.speakers[B].neighbor(A).source
    assert source is not None
    lost = Attributes(next_hop=IPv4Address(A), extended=(ext.route_target("1:10"),), local_pref=100)
    net.speakers[B].rib.announce(source, EVPN, lost, route(9))
    net.speakers[B].rib.withdraw(source, EVPN, route(1))
    assert net.routes(B) == {2, 9}
    side = speaker.neighbor(B).side
    assert side is not None
    speaker.receive(B, side, encode_refresh(EVPN, Refresh.REQUEST), net.now)
    net.settle()
    assert net.routes(B) == {1, 2}


def test_many_requests_of_a_peer_that_does_not_read_are_one_and_one_more_follows_while_it_is_answered() -> None:
    net = two()
    net.originate(A, *range(1, 1001))
    net.settle()
    speaker = net.speakers[A]
    neighbor = speaker.neighbor(B)
    assert neighbor.side is not None
    request, begin, end = (encode_refresh(EVPN, what) for what in Refresh)
    speaker.receive(B, neighbor.side, request * 1000, net.now)
    assert len(neighbor.outbox) + len(neighbor.owed) == 0, "what is asked for is not kept for each request"
    answer = (data for _, data in speaker.messages(B))
    first = [next(answer), next(answer)]
    assert first[0] == begin
    speaker.receive(B, neighbor.side, request * 1000, net.now)
    messages = [*first, *answer]
    assert [messages.count(one) for one in (begin, end)] == [2, 2]
    assert [one for one in messages if one in (begin, end)] == [begin, end] * 2
    half = messages.index(end) + 1
    assert messages[:half] == messages[half:]
    assert [sum(map(len, messages[:half])) > 35 * 1000, messages[-1]] == [True, end]
    assert not list(speaker.messages(B))


def test_a_refresh_that_begins_again_makes_all_routes_stale_again() -> None:
    net = two()
    net.originate(A, 1, 2, 3)
    net.settle()
    speaker, neighbor = net.speakers[B], net.speakers[B].neighbor(A)
    assert neighbor.side is not None

    def receive(*data: bytes) -> None:
        assert neighbor.side is not None
        speaker.receive(A, neighbor.side, b"".join(data), net.now)

    _, begin, end = (encode_refresh(EVPN, what) for what in Refresh)
    attributes = Attributes(next_hop=IPv4Address(A), local_pref=100)
    one, two_, _ = (b"".join(update.announce(EVPN, route(n).values(), attributes, INTERNAL, 4096)) for n in (1, 2, 3))
    receive(begin, one, two_, begin, two_, end)
    assert net.routes(B) == {2}
    receive(end, begin, one, two_, end)
    assert net.routes(B) == {1, 2}
    receive(begin, *update.withdraw(EVPN, route(1).values(), 4096), begin, two_, end)
    assert net.routes(B) == {2}


@pytest.mark.parametrize("asns", [(65001, 65001), (65002, 65003)], ids=["internal", "external"])
def test_a_route_whose_attributes_have_no_room_is_withdrawn_and_costs_no_session(asns: tuple[int, int]) -> None:
    net = Net()
    for name, asn in zip((A, B, C), (65001, *asns), strict=True):
        net.add(name, asn).complete()
    for name in (B, C):
        net.peer(A, name, client=True)
    net.pass_time(5)
    net.originate(B, 1, 2)
    net.settle()
    seen = set()
    for size in range(65280, 65480, 4):
        net.originate(B, 1, communities=b"\1" * size)
        net.settle()
        seen.add((1 in net.routes(A), 1 in net.routes(C)))
        assert [2 in net.routes(name) for name in (A, B, C)] == [True] * 3
    assert seen == {(True, True), (True, False), (False, False)}, "A adds attributes of its own for C"
    assert [net.speakers[name].neighbor(A).flaps for name in (B, C)] == [0, 0]
    net.originate(B, 1)
    net.settle()
    assert net.routes(C) == {1, 2}


def test_a_peer_says_which_targets_it_wants_before_it_gets_routes() -> None:
    families = (EVPN, ROUTE_TARGETS)
    net = Net()
    for name in (A, B):
        net.add(name, 65001).complete()
    target, other = ext.route_target("1:10"), ext.route_target("1:11")
    net.originate(A, 1)
    wanted = Attributes(next_hop=IPv4Address(B))
    net.speakers[B].originate(ROUTE_TARGETS, wanted, split(ROUTE_TARGETS, membership(65001, other)))
    net.peer(A, B, families=families)
    net.pass_time(10)
    assert net.speakers[A].neighbor(B).peer.state is State.ESTABLISHED
    assert net.routes(B) == set()
    net.speakers[B].originate(ROUTE_TARGETS, wanted, split(ROUTE_TARGETS, membership(65001, target)))
    net.settle()
    assert net.routes(B) == {1}


def test_a_machine_that_is_silent_for_an_hour_is_still_known() -> None:
    net = two()
    net.originate("10.0.0.1", 1)
    net.settle()
    for _ in range(3600):
        net.pass_time(1)
    assert net.routes("10.0.0.2") == {1}
    assert not any(event.why for speaker in net.speakers.values() for event in speaker.take_events())


def test_events_tell_what_happened_to_sessions() -> None:
    net = two()
    assert [(one.peer, one.is_up) for one in net.speakers[B].take_events()] == [(A, True)]
    net.speakers[A].remove_peer(B, net.now)
    net.settle()
    [event] = net.speakers[B].take_events()
    assert (event.peer, event.is_up, event.why) == (A, False, "cease: deconfigured (hard reset)")
