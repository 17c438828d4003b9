"""The data centre that EVPN is tried against, beside a second one of its kind: FRR on both sides."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from netloom.lab import probes
from tests.lab.capturing import capturing, send
from tests.lab.vxlan_wire import BROADCAST, arp, mac, tunnelled
from tests.support.datacentre import DataCentre, Host, data_centre, underlay
from tests.support.process import wait_until

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.9.0.1", "10.9.0.2")
VNI = 10


@contextmanager
def pair(asns: tuple[int, int] = (65001, 65002), roots: tuple[str, str] = ("", "")) -> Iterator[list[DataCentre]]:
    """Yield two data centres with a session between them, and a host in each."""
    with ExitStack() as stack:
        fabric = stack.enter_context(underlay())
        made = []
        for number in (0, 1):
            peers = {ADDRESSES[1 - number]: asns[1 - number]}
            address, root = f"{ADDRESSES[number]}/24", roots[number]
            made.append(stack.enter_context(data_centre(address, asn=asns[number], peers=peers, root=root)))
            made[number].connect(fabric, bridge="underlay")
            made[number].add_host("host", [f"10.10.0.{number + 1}/24", f"fd10::{number + 1}/64"])
        for number in (0, 1):
            made[number].wait_established(ADDRESSES[1 - number])
        for one, other in (made, made[::-1]):
            wait_until(partial(knows, one, other.hosts["host"]), what="the other's host")
        yield made


def knows(centre: DataCentre, host: Host) -> bool:
    """Whether a data centre has learned of a host of another."""
    return host.mac in centre.remote_macs(VNI)


def reaches(host: Host, other: Host) -> bool:
    """Whether a host reaches all addresses of another, with frames as long as can be."""
    sizes = {4: 1442 - 28, 6: 1442 - 48}
    for address in other.ips:
        argv = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "2", "-M", "do"]
        argv += ["-s", str(sizes[6 if ":" in address else 4]), address]
        if subprocess.run(["ip", "netns", "exec", host.netns, *argv], capture_output=True, check=False).returncode:
            return False
    return True


@pytest.mark.parametrize("asns", [(65001, 65002), (65000, 65000)], ids=["ebgp", "ibgp"])
def test_hosts_of_two_data_centres_reach_each_other(asns: tuple[int, int]) -> None:
    with pair(asns) as (one, other), probes.Listeners() as listeners:
        here, there = one.hosts["host"], other.hosts["host"]
        assert reaches(here, there)
        assert reaches(there, here)
        listeners.add(there.netns, 80, name="there")
        assert probes.reach(here.netns, "10.10.0.2", 80) == "there 10.10.0.1"
        assert probes.reach(here.netns, "fd10::2", 80) == "there fd10::1"
        assert one.vteps(VNI) == {other.address}
        routes = one.routes()
        assert {
            route.partition(" ")[2] for route, path in routes.items() if path["nexthops"][0]["ip"] == "10.9.0.2"
        } == {
            f"[2]:[0]:[48]:[{there.mac}]",
            f"[2]:[0]:[48]:[{there.mac}]:[32]:[10.10.0.2]",
            f"[2]:[0]:[48]:[{there.mac}]:[128]:[fd10::2]",
            "[3]:[0]:[32]:[10.9.0.2]",
        }


def test_hosts_and_sessions_come_and_go() -> None:
    with pair() as (one, other):
        there = other.hosts["host"]
        more = other.add_host("more", ["10.10.0.3/24"], mac="02:00:00:00:10:03")
        wait_until(lambda: one.remote_macs(VNI) == {there.mac, more.mac}, what="another host")
        other.remove_host("more")
        wait_until(lambda: one.remote_macs(VNI) == {there.mac}, what="a host to go")
        wait_until(lambda: not any(more.mac in route for route in one.routes()), what="all its routes to go")
        other.stop()
        wait_until(lambda: one.remote_macs(VNI) == set(), what="all hosts to go")
        other.start()
        wait_until(lambda: one.remote_macs(VNI) == {there.mac}, what="the host to come back")
        other.kill()
        other.start()
        one.wait_established(other.address)
        wait_until(lambda: reaches(one.hosts["host"], there), what="the host to answer")


def test_a_network_more_is_a_network_of_its_own() -> None:
    with pair() as (one, other):
        for centre in (one, other):
            centre.add_network(20)
        here = one.add_host("twenty", ["10.10.0.1/24"], vni=20)
        there = other.add_host("twenty", ["10.10.0.9/24"], vni=20)
        wait_until(lambda: one.remote_macs(20) == {there.mac}, what="the other's host")
        assert there.mac not in one.remote_macs(VNI)
        assert probes.ping(here.netns, "10.10.0.9", count=3)
        assert not probes.ping(here.netns, "10.10.0.2"), "that one is in another network"


def test_a_broadcast_passes_the_cable_once() -> None:
    with pair() as (one, _):
        host = one.hosts["host"]
        request = arp(host.mac, (host.mac, "10.10.0.1"), "10.10.0.99")
        with capturing(one.netns, one.device) as wire:
            send(host.netns, "eth0", request)
            last = arp(host.mac, (host.mac, "10.10.0.1"), "10.10.0.98")
            send(host.netns, "eth0", last)
            wait_until(lambda: any(one.inner == last for one in tunnelled(wire.frames)), what="the second broadcast")
            sent = [one for one in tunnelled(wire.frames) if one.inner == request]
        assert [(frame.vni, frame.source, frame.target) for frame in sent] == [(VNI, *ADDRESSES)]
        assert request.startswith(mac(BROADCAST))


@pytest.mark.slow
@pytest.mark.versions
@pytest.mark.parametrize(("generation", "version"), [("25.03", "10.3"), ("26.03", "10.7")])
def test_other_versions_of_frr_do_the_same(generation: str, version: str) -> None:
    made = subprocess.run([ROOT / "tools" / "ovn-root", generation], capture_output=True, text=True, check=True)
    root = made.stdout.strip()
    with pair(roots=(root, "")) as (one, other):
        assert one.version().startswith(version)
        assert one.vteps(VNI) == {other.address}
        assert other.vteps(VNI) == {one.address}
        assert reaches(one.hosts["host"], other.hosts["host"])
        one.kill()
        one.start()
        one.wait_established(other.address)
        wait_until(lambda: reaches(one.hosts["host"], other.hosts["host"]), what="the host to answer")
    assert not list(Path(root, "tmp").iterdir())
