"""Our speaker and FRR's bgpd: real sessions over a cable, internal and external, in both directions."""

import json
from ipaddress import IPv4Address
from typing import Any

import pytest

from netloom.bgp import communities as ext
from netloom.bgp.attributes import Pmsi
from netloom.bgp.fsm import State
from netloom.bgp.nlri import MacIp
from tests.support.bgp_peers import RD, ROUTES, Ours, play
from tests.support.frr import OURS, THEIRS, Bgpd, frr, newer_root

pytestmark = pytest.mark.root


@pytest.fixture(
    params=[
        pytest.param("", id="own"),
        pytest.param("25.03", marks=pytest.mark.versions, id="10.3"),
        pytest.param("26.03", marks=pytest.mark.versions, id="10.7"),
    ]
)
def root(request: pytest.FixtureRequest) -> str:
    """Return where FRR is run from: the machine's own, and two newer ones."""
    return newer_root(request.param)


def config(asn: int, *, more: str = "", neighbor: str = "") -> str:
    return f"""
log stdout
router bgp {asn}
 bgp router-id {THEIRS}
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor {OURS} remote-as 65001
 neighbor {OURS} timers 3 9
 neighbor {OURS} timers connect 1
 {neighbor}
 address-family l2vpn evpn
  neighbor {OURS} activate
 exit-address-family
 {more}
"""


def routes_of(daemon: Bgpd) -> dict[str, Any]:
    """Return the prefixes that FRR has from us, and their paths."""
    printed = daemon.vty("show bgp l2vpn evpn route detail json")
    shown = json.loads(printed.replace("{\n,", "{", 1))  # FRR 10.3 shows an empty table so.
    return {
        prefix: value["paths"][0]
        for group in shown.values()
        if isinstance(group, dict)
        for prefix, value in group.items()
        if isinstance(value, dict) and "paths" in value
    }


@pytest.mark.parametrize("asn", [65001, 65002])
def test_routes_are_exchanged_and_withdrawn(root: str, asn: int) -> None:
    with frr(config(asn), root) as (netns, daemon):

        async def scene(ours: Ours) -> None:
            ours.originate(*ROUTES[:3], ROUTES[4])
            ours.originate(ROUTES[3], pmsi=Pmsi(10, IPv4Address(OURS).packed))
            await ours.until(lambda: len(routes_of(daemon)) == 5, "all routes")
            shown = routes_of(daemon)
            assert set(shown) == {
                "[2]:[0]:[48]:[02:00:00:00:00:01]",
                "[2]:[0]:[48]:[02:00:00:00:00:01]:[32]:[10.1.0.1]",
                "[2]:[0]:[48]:[02:00:00:00:00:01]:[128]:[fd00::1]",
                "[3]:[0]:[32]:[10.9.0.1]",
                "[5]:[0]:[16]:[10.7.0.0]",
            }
            assert all("RT:65001:10 ET:8" in str(path) for path in shown.values())
            ours.retract(*ROUTES[:2])
            await ours.until(lambda: len(routes_of(daemon)) == 3, "the withdrawal")
            [event] = ours.events
            assert event.is_up

        play(netns, asn, scene)


def test_a_moved_address_is_announced_again_with_a_higher_sequence(root: str) -> None:
    with frr(config(65002), root) as (netns, daemon):

        async def scene(ours: Ours) -> None:
            ours.originate(ROUTES[0])
            await ours.until(lambda: len(routes_of(daemon)) == 1, "the route")
            ours.originate(ROUTES[0], extended=(ext.mac_mobility(ext.Mobility(7)),))
            await ours.until(lambda: "MM:7" in str(routes_of(daemon)), "the sequence")

        play(netns, 65002, scene)


def test_many_routes_are_sent(root: str) -> None:
    with frr(config(65002), root) as (netns, daemon):
        many = [MacIp(RD, number.to_bytes(6, "big"), None, 10) for number in range(1, 5001)]

        async def scene(ours: Ours) -> None:
            ours.originate(*many)

            def count() -> bool:
                shown = daemon.json("show bgp l2vpn evpn summary json")
                return bool(shown["peers"][OURS]["pfxRcd"] == 5000)

            await ours.until(count, "all routes")

        play(netns, 65002, scene)


@pytest.mark.parametrize("passive", [False, True])
def test_a_session_comes_back_after_a_crash_of_the_peer(root: str, passive: bool) -> None:
    with frr(config(65002), root) as (netns, daemon):

        async def scene(ours: Ours) -> None:
            ours.originate(ROUTES[0])
            await ours.until(lambda: len(routes_of(daemon)) == 1, "the route")
            daemon.kill()
            await ours.until(lambda: ours.state is not State.ESTABLISHED, "the end")
            daemon.start()
            await ours.until(lambda: ours.state is State.ESTABLISHED, "the session")
            await ours.until(lambda: len(routes_of(daemon)) == 1, "the route")

        play(netns, 65002, scene, passive=passive)


@pytest.mark.parametrize(
    ("neighbor", "options"),
    [
        (f"neighbor {OURS} password secret", {"password": b"secret"}),
        (f"neighbor {OURS} ttl-security hops 1", {"ttl_security": True}),
    ],
    ids=["md5", "gtsm"],
)
def test_sessions_are_protected(root: str, neighbor: str, options: dict[str, Any]) -> None:
    with frr(config(65002, neighbor=neighbor), root) as (netns, daemon):

        async def scene(ours: Ours) -> None:
            ours.originate(ROUTES[0])
            await ours.until(lambda: len(routes_of(daemon)) == 1, "the route")

        play(netns, 65002, scene, **options)


def test_the_hold_time_keeps_a_quiet_session_up(root: str) -> None:
    with frr(config(65002), root) as (netns, daemon):

        async def scene(ours: Ours) -> None:
            before = daemon.json("show bgp neighbors json")[OURS]["messageStats"]["keepalivesRecv"]

            def more() -> bool:
                stats = daemon.json("show bgp neighbors json")[OURS]["messageStats"]
                return bool(stats["keepalivesRecv"] >= before + 4)

            await ours.until(more, "keepalives")
            assert ours.state is State.ESTABLISHED
            assert len(ours.events) == 1

        play(netns, 65002, scene)
