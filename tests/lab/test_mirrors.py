"""Mirrors: a tap sees what its source sends and gets, or one of the two, and nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from netloom.lab import Lab
from tests.lab.capturing import ICMP, ICMPV6, Frame, Wire, capturing
from tests.lab.resting import healthy
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

SOURCE, PEER = {4: "10.71.0.11", 6: "fd71::11"}, {4: "10.71.0.12", 6: "fd71::12"}
TAPS = ("tap", "tap-in", "tap-out")


@pytest.fixture(scope="module")
def mirrors(lab: Lab) -> Iterator[World]:
    """Somebody who is listened to."""
    with world(lab, "mirrors") as made:
        yield made


@pytest.mark.parametrize("family", [4, 6])
def test_each_tap_sees_its_share(mirrors: World, family: int) -> None:
    outward, inward = (SOURCE[family], PEER[family]), (PEER[family], SOURCE[family])
    with ExitStack() as stack:
        wires = {tap: stack.enter_context(capturing(mirrors.netns(tap), "eth0")) for tap in TAPS}
        assert mirrors.answers("source", PEER[family], "ping")
        wait_until(lambda: asked(mirrors, family) and pings(wires["tap"], *outward), what="the copies")
        wires["tap"].wait(lambda frame: is_ping(frame, *inward), what="the answer's copy")
        wires["tap-in"].wait(lambda frame: is_ping(frame, *inward), what="the answer's copy")
        wires["tap-out"].wait(lambda frame: is_ping(frame, *outward), what="the question's copy")
        assert not pings(wires["tap-in"], *outward)
        assert not pings(wires["tap-out"], *inward)


def test_a_mirror_that_goes_leaves_the_source_alone(mirrors: World) -> None:
    spec = mirrors.get("mirror", "all")["spec"]
    mirrors.delete("mirror/all")
    try:

        def silent() -> bool:
            with capturing(mirrors.netns("tap"), "eth0") as wire:
                assert asked(mirrors, 4)
                return not pings(wire, SOURCE[4], PEER[4])

        wait_until(silent, what="the copies to end")
    finally:
        mirrors.put("Mirror", "all", spec)


def test_a_tap_on_another_node_gets_copies_through_a_tunnel_that_goes_with_the_mirror(lab: Lab, mirrors: World) -> None:
    def tunnels() -> list[str]:
        argv = ["ovs-vsctl", "--bare", "--columns=name", "find", "Interface", "type=gre"]
        return [lab.exec(node, argv).stdout.strip() for node in ("n1", "n2")]

    mirrors.put("Mirror", "far", {"source": {"attachment": "source"}, "destination": {"attachment": "tap-far"}})
    mirrors.becomes("mirror", "far", "True", "Programmed")
    [way] = mirrors.get("mirror", "far")["status"]["tunnels"]
    assert (way["sourceIP"], way["destinationIP"]) == (lab.underlay_ip("n1"), lab.underlay_ip("n2"))
    wait_until(lambda: tunnels() == [f"mirror_{way['key']:08x}"] * 2, what="the tunnel")
    for family in (4, 6):
        outward, inward = (SOURCE[family], PEER[family]), (PEER[family], SOURCE[family])
        with capturing(mirrors.netns("tap-far"), "eth0") as wire:
            ways = partial(pings, wire, *outward), partial(pings, wire, *inward)
            wait_until(lambda: asked(mirrors, family) and all(way() for way in ways), what="copies of both ways")  # noqa: B023
    healthy(lab)
    mirrors.delete("mirror/far")
    wait_until(lambda: tunnels() == ["", ""], what="the end of the tunnel")
    assert mirrors.answers("source", PEER[4], "ping")


def asked(made: World, family: int) -> bool:
    """Have the source ask the peer."""
    return made.ping("source", PEER[family])


def pings(wire: Wire, source: str, target: str) -> list[Frame]:
    """Return the pings from one address to another."""
    return [frame for frame in list(wire.frames) if is_ping(frame, source, target)]


def is_ping(frame: Frame, source: str, target: str) -> bool:
    """Whether a frame is ICMP from one address to another."""
    return frame.ip in ((source, target, ICMP), (source, target, ICMPV6))
