"""Provider Networks: on the wire of the physical network, tagged or not, and nowhere else."""

import socket
import struct
from collections.abc import Iterator
from functools import partial

import pytest

from netloom.lab import Lab
from tests.lab.capturing import ARP, VLAN, capturing, send
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

TAG = 100


@pytest.fixture(scope="module")
def providers(lab: Lab) -> Iterator[World]:
    """A VLAN, and what is untagged."""
    with world(lab, "providers") as made:
        for name in ("vlan-1", "vlan-2", "flat-1", "flat-3", "outside"):
            made.listen(name, 7200, "udp/7200")
        yield made


@pytest.mark.parametrize(
    ("source", "target"), [("10.72.0.11", "10.72.0.12"), ("fd72::11", "fd72::12")], ids=["v4", "v6"]
)
def test_what_nodes_send_each_other_in_a_vlan_is_tagged_on_the_wire(providers: World, source: str, target: str) -> None:
    underlay = providers.netns("underlay")
    with capturing(underlay, "n1-ex") as one, capturing(underlay, "n2-ex") as other:
        seen = providers.reaches([("vlan-1", target, how) for how in ("ping", 7200, "udp/7200")])
        assert list(seen.values()) == ["pong", f"vlan-2 {source}", f"vlan-2 {source}"]
        for wire in (one, other):
            for way in ((source, target), (target, source)):
                wait_until(partial(wire.seen, *way), what=f"what goes from {way[0]} to {way[1]}")
                assert {frame.vlan for frame in wire.seen(*way)} == {TAG}


def test_it_does_not_go_through_a_tunnel(providers: World) -> None:
    with capturing(providers.netns("underlay"), "n1") as wire:
        assert providers.answers("vlan-1", "10.72.0.12", "ping")
        assert not [frame for frame in wire.frames if b"\x0a\x48\x00\x0b\x0a\x48\x00\x0c" in frame.data]


def test_who_is_on_the_vlan_outside_is_answered_and_who_is_not_is_not(providers: World) -> None:
    assert providers.answers("vlan-1", "10.72.0.12", "ping")
    mac = bytes.fromhex(providers.get("networkattachment", "vlan-1")["status"]["mac"].replace(":", ""))
    own = bytes.fromhex("020000007299")
    question = own + socket.inet_aton("10.72.0.99") + bytes(6) + socket.inet_aton("10.72.0.11")
    arp = struct.pack("!H", ARP) + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + question

    def answers(tag: bytes) -> set[int]:
        with capturing(providers.netns("outside"), "eth0") as wire:
            send(providers.netns("outside"), "eth0", b"\xff" * 6 + own + tag + arp)
            providers.ping("outside", "192.0.2.51")  # Answered after what came before it.
            return {frame.vlan for frame in wire.frames if frame.data[:6] == own and frame.data[6:12] == mac}

    assert wait_until(lambda: answers(struct.pack("!HH", VLAN, TAG)), what="an answer") == {TAG}
    assert answers(b"") == set()
    assert answers(struct.pack("!HH", VLAN, TAG + 1)) == set()


@pytest.mark.parametrize(
    ("one", "three", "router", "world"),
    [
        ("192.0.2.51", "192.0.2.53", "192.0.2.1", "198.51.100.1"),
        ("2001:db8::51", "2001:db8::53", "2001:db8::1", "2001:db8:ffff::1"),
    ],
    ids=["v4", "v6"],
)
def test_an_untagged_network_is_the_physical_network_itself(
    providers: World, one: str, three: str, router: str, world: str
) -> None:
    with capturing(providers.netns("outside"), "eth0") as wire:
        seen = providers.reaches(
            [("outside", one, 7200), ("outside", three, "udp/7200"), ("flat-1", three, 7200), ("flat-3", world, 7200)]
        )
        assert list(seen.values()) == [f"flat-1 {router}", f"flat-3 {router}", f"flat-3 {one}", f"outside {three}"]
        assert {frame.vlan for frame in wire.seen(one, router)} == {0}


def test_the_vlan_and_the_untagged_network_do_not_meet(providers: World) -> None:
    assert providers.answers("vlan-1", "10.72.0.12", "ping")
    assert not any(providers.tries([("outside", "10.72.0.11", "ping"), ("vlan-1", "192.0.2.51", "ping")]).values())
