"""One network over three nodes: everybody in it is reached, nobody else is, and nobody is who they are not."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netloom.lab import Lab
from tests.lab.worlds import World, world

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

HOW: tuple[int | str, ...] = ("ping", 7000, "udp/7000")


@pytest.fixture(scope="module")
def reach(lab: Lab) -> Iterator[World]:
    """Two networks of the same addresses."""
    with world(lab, "reach") as made:
        for name in ("red-1", "red-2", "red-4", "blue-2", "blue-4", "blue-9"):
            made.listen(name, 7000, "udp/7000")
        made.listeners.add(lab.netns("n3"), 7000, name="red-3")
        made.listeners.add(lab.netns("n3"), 7000, name="red-3", protocol="udp")
        yield made


@pytest.mark.parametrize("block", ["10.60.0.", "fd60::"], ids=["v4", "v6"])
def test_machines_of_a_network_reach_each_other_on_all_nodes(reach: World, block: str) -> None:
    machines = {"red-1": 11, "red-2": 12, "red-4": 14}
    ways = [(who, f"{block}{n}", how) for who, own in machines.items() for n in (11, 12, 13, 14) for how in HOW
            if n != own]  # fmt: skip
    seen = reach.reaches(ways)
    for way, answer in seen.items():
        who, address, how = way
        expected = f"red-{address[-1]} {block}{machines[who]}"
        assert answer == ("pong" if how == "ping" else expected), way


@pytest.mark.parametrize("block", ["10.60.0.", "fd60::"], ids=["v4", "v6"])
def test_networks_without_a_router_never_meet_although_their_addresses_are_the_same(reach: World, block: str) -> None:
    own = reach.reaches([("blue-9", f"{block}12", 7000), ("red-1", f"{block}12", 7000), ("blue-2", f"{block}19", 7000)])
    assert [answer.partition(" ")[0] for answer in own.values()] == ["blue-2", "red-2", "blue-9"]
    ways = [(who, f"{block}19", how) for who in ("red-1", "red-2", "red-4") for how in HOW]
    ways += [("blue-9", f"{block}11", how) for how in HOW]
    assert set(reach.tries(ways).values()) == {""}


@pytest.mark.parametrize(
    ("own", "allowed", "forged", "target"),
    [
        ("10.60.0.14", "10.60.0.50", "10.60.0.99", "10.60.0.11"),
        ("fd60::14", "fd60::50", "fd60::99", "fd60::11"),
    ],
    ids=["v4", "v6"],
)
def test_what_is_sent_from_an_address_that_is_not_ones_own_is_dropped(
    reach: World, own: str, allowed: str, forged: str, target: str
) -> None:
    assert reach.answers("red-4", target, "ping")
    with also(reach, "red-4", allowed):
        assert reach.ping("red-4", target, spoofed=allowed), f"{own} may send as {allowed}"
    with also(reach, "red-4", forged):
        assert not reach.ping("red-4", target, spoofed=forged)


def test_what_is_sent_from_a_mac_that_is_not_ones_own_is_dropped(reach: World) -> None:
    assert reach.answers("red-4", "10.60.0.11", "ping")
    mac = reach.get("networkattachment", "red-4")["status"]["mac"]
    inside(reach, "red-4", "link", "set", "eth0", "address", "02:00:00:00:66:66")
    try:
        inside(reach, "red-4", "neighbour", "flush", "dev", "eth0")
        assert not reach.ping("red-4", "10.60.0.11")
    finally:
        inside(reach, "red-4", "link", "set", "eth0", "address", mac)
    assert reach.answers("red-4", "10.60.0.11", "ping")


@contextmanager
def also(made: World, place: str, address: str) -> Iterator[None]:
    """Give a machine an address by hand."""
    length = 128 if ":" in address else 32
    more = ["nodad"] if ":" in address else []
    inside(made, place, "address", "add", f"{address}/{length}", "dev", "eth0", *more)
    try:
        yield
    finally:
        inside(made, place, "address", "delete", f"{address}/{length}", "dev", "eth0")


def inside(made: World, place: str, *args: str) -> None:
    """Run `ip` in a machine."""
    subprocess.run(["ip", "-n", made.netns(place), *args], check=True)
