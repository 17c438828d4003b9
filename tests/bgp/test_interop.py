"""Our speaker with GoBGP and ExaBGP: internal and external sessions, routes in both directions, crashes, restarts."""

import asyncio
from ipaddress import IPv4Address, IPv6Address

import pytest

from netloom.bgp import communities as ext
from netloom.bgp.attributes import Pmsi
from netloom.bgp.fsm import State
from netloom.bgp.nlri import EVPN, IPV4, EvpnRoute, IpPrefix, MacIp, Multicast
from tests.support.bgp_daemons import ExaBgpDaemon, GoBgp, Kind, daemon
from tests.support.bgp_peers import MAC, ROUTES, Ours, play
from tests.support.frr import OURS, THEIRS

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHOWN = {
    "2|02:00:00:00:00:01|",
    "2|02:00:00:00:00:01|10.1.0.1",
    "2|02:00:00:00:00:01|fd00::1",
    f"3||{OURS}",
    "5||10.7.0.0/16",
}
RD = ext.route_distinguisher(f"{THEIRS}:10")
THEIR_MAC = MAC[:-1] + b"\2"
THEIR_ROUTES: list[EvpnRoute] = [
    MacIp(RD, THEIR_MAC, None, 10),
    MacIp(RD, THEIR_MAC, IPv4Address("10.1.0.2"), 10),
    MacIp(RD, THEIR_MAC, IPv6Address("fd00::2"), 10),
    Multicast(RD, IPv4Address(THEIRS)),
    IpPrefix(RD, IPv4Address("10.8.0.0"), 16, IPv4Address(0), 10),
]

kinds = pytest.mark.parametrize("kind", [GoBgp, ExaBgpDaemon])


def announce(ours: Ours) -> None:
    ours.originate(*ROUTES[:3], ROUTES[4])
    ours.originate(ROUTES[3], pmsi=Pmsi(10, IPv4Address(OURS).packed))


def received(ours: Ours) -> list[str]:
    return sorted(map(repr, ours.received()))


@kinds
@pytest.mark.parametrize("asn", [65001, 65002])
def test_routes_are_seen_on_both_sides_and_withdrawn(kind: Kind, asn: int) -> None:
    with daemon(kind, asn) as (netns, other):

        async def scene(ours: Ours) -> None:
            announce(ours)
            await ours.until(lambda: set(other.routes()) == SHOWN, "our routes")
            assert all("65001:10" in text for text in other.routes().values())
            await asyncio.to_thread(other.announce, *THEIR_ROUTES)
            await ours.until(lambda: received(ours) == sorted(map(repr, THEIR_ROUTES)), "their routes")
            paths = ours.speaker.rib.best[EVPN].values()
            assert all(ext.route_target("65001:10") in path.attributes.extended for path in paths)
            assert {str(path.attributes.next_hop) for path in paths} == {OURS, THEIRS}
            ours.retract(*ROUTES[:2])
            await asyncio.to_thread(other.withdraw, *THEIR_ROUTES[:2])
            await ours.until(lambda: len(other.routes()) == 3, "our withdrawal")
            await ours.until(lambda: received(ours) == sorted(map(repr, THEIR_ROUTES[2:])), "their withdrawal")
            [event] = ours.events
            assert event.is_up
            assert not ours.speaker.neighbor(THEIRS).malformed

        play(netns, asn, scene, families=(EVPN, IPV4))


@kinds
def test_a_session_comes_back_after_a_crash_of_the_peer(kind: Kind) -> None:
    with daemon(kind, 65002) as (netns, other):

        async def scene(ours: Ours) -> None:
            announce(ours)
            await ours.until(lambda: set(other.routes()) == SHOWN, "our routes")
            await asyncio.to_thread(other.announce, THEIR_ROUTES[0])
            await ours.until(lambda: len(ours.received()) == 1, "their route")
            other.kill()
            await ours.until(lambda: ours.state is not State.ESTABLISHED, "the end")
            assert len(ours.received()) == 1, "it may be restarting"
            other.start()
            await ours.until(lambda: ours.state is State.ESTABLISHED, "the session")
            await ours.until(lambda: set(other.routes()) == SHOWN, "our routes again")
            await ours.until(lambda: not ours.received(), "the end of the route that it has no more")

        play(netns, 65002, scene, families=(EVPN, IPV4))


def test_gobgp_keeps_our_routes_while_we_restart() -> None:
    with daemon(GoBgp, 65002) as (netns, other):
        assert isinstance(other, GoBgp)

        async def first(ours: Ours) -> None:
            announce(ours)
            await ours.until(lambda: set(other.routes()) == SHOWN, "our routes")

        async def second(ours: Ours) -> None:
            assert set(other.routes()) == SHOWN, "the session is up, and nothing is sent yet"
            ours.originate(*ROUTES[:3])
            ours.speaker.complete()
            ours.io.wake()
            await ours.until(lambda: other.stale() == 0 and len(other.routes()) == 3, "the end of the others")

        play(netns, 65002, first)
        assert set(other.routes()) == SHOWN
        assert other.stale() == len(SHOWN)
        play(netns, 65002, second, restarting=True)
