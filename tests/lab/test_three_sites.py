"""One network across three sites, of both fabrics: with sessions among all of them, and through a reflector."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import pytest

from netloom.lab import Lab, probes, sites
from netloom.lab.state import Reflector
from tests.lab import labs
from tests.lab.capturing import Wire, capturing, send
from tests.lab.vxlan_wire import BROADCAST, tunnelled, udp
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.slow]

VNIS = {"ovn": 10, "vxlan": 20}
FABRICS = pytest.mark.parametrize("fabric", VNIS)
EXPIRED = 12.0
"""Seconds after which Open vSwitch has forgotten a flow that no packet used."""


class Three(NamedTuple):
    """Three sites that are up, each with a machine in a Network of each fabric."""

    router: Lab
    sites: list[Lab]
    reflector: Reflector


@pytest.fixture(scope="module", params=["none", "netloom", "frr"])
def three(request: pytest.FixtureRequest) -> Iterator[Three]:
    with labs.folder() as data:
        made = sites.up(data, sites=3, nodes=1, reflector=request.param)
        for number, site in enumerate(made, start=1):
            objects = [one for fabric in VNIS for one in network(site, number, fabric)]
            netloom(
                "apply", "-f", "-", kubeconfig=site.kubeconfig, stdin=json.dumps({"kind": "List", "items": objects})
            )
        for site in made:
            netloom("wait", "bgppeers,networkattachments,evpnnetworks", "--all", kubeconfig=site.kubeconfig)
        yield Three(Lab(data), made, request.param)


def network(site: Lab, number: int, fabric: str) -> list[dict[str, Any]]:
    """Return a Network of a site with a machine in it."""
    vni = VNIS[fabric]
    targets = [f"65000:{vni}"]
    port = {"type": "veth", "netns": str(site.workload(fabric)), "name": "eth0"}
    return [
        document("Network", fabric, {"vni": vni, "fabric": fabric, "mtu": 1442}),
        document("Subnet", f"{fabric}4", {"network": fabric, "cidr": f"10.{vni}.0.0/24"}),
        document("Subnet", f"{fabric}6", {"network": fabric, "cidr": f"fd{vni}::/64"}),
        document(
            "EVPNNetwork",
            fabric,
            {"network": fabric, "speaker": "gateway", "importTargets": targets, "exportTargets": targets},
        ),
        document(
            "NetworkAttachment",
            fabric,
            {"node": "n1", "network": fabric, "ips": addresses(number, fabric), "port": port},
        ),
    ]


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def addresses(number: int, fabric: str) -> list[str]:
    return [f"10.{VNIS[fabric]}.0.1{number}", f"fd{VNIS[fabric]}::1{number}"]


def status(site: Lab, kind: str, name: str) -> dict[str, Any]:
    answer = netloom("get", kind, name, "-o", "json", kubeconfig=site.kubeconfig)
    found: dict[str, Any] = json.loads(answer.out).get("status", {})
    return found


def until_all_reach_all(three: Three, fabric: str) -> None:
    """Wait until all machines reach each other.

    A userspace Open vSwitch 3.1 may keep a cached flow that drops, for as long as packets use it: after a while there
    are pauses in which it expires.
    """
    what = "all machines to reach each other"
    with suppress(AssertionError):
        wait_until(lambda: all_reach_all(three, fabric), what=what, timeout=20)
        return
    time.sleep(EXPIRED)
    wait_until(lambda: all_reach_all(three, fabric), what=what, interval=EXPIRED)


def all_reach_all(three: Three, fabric: str) -> bool:
    return all(
        probes.ping(here.netns(fabric), address)
        for here in three.sites
        for number, there in enumerate(three.sites, start=1)
        if there is not here
        for address in addresses(number, fabric)
    )


@FABRICS
def test_all_machines_reach_each_other(three: Three, fabric: str) -> None:
    until_all_reach_all(three, fabric)
    for site in three.sites:
        wait_until(lambda: status(site, "evpnnetwork", fabric).get("remoteMACs") == 2, what="two machines")  # noqa: B023
        others = {other.underlay_ip("n1") for other in three.sites if other is not site}
        assert set(status(site, "evpnnetwork", fabric)["remoteVTEPs"]) == others
        peers = json.loads(netloom("get", "bgppeers", "-o", "json", kubeconfig=site.kubeconfig).out)["items"]
        assert len(peers) == (2 if three.reflector == "none" else 1)


@FABRICS
def test_a_broadcast_reaches_every_site_once_and_returns_to_none(three: Three, fabric: str) -> None:
    until_all_reach_all(three, fabric)
    first, second, third = three.sites
    mac = status(first, "networkattachment", fabric)["mac"]
    sender = (mac, addresses(1, fabric)[0])
    # A second one follows: when that has arrived everywhere, all copies of the first have.
    frames = [udp(sender, (BROADCAST, "255.255.255.255"), word) for word in (b"first", b"second")]
    with ExitStack() as stack:
        router = three.router.netns("router")
        cables = [stack.enter_context(capturing(router, f"site{number}")) for number in (1, 2, 3)]
        hosts = [stack.enter_context(capturing(site.netns(fabric), "eth0")) for site in (second, third)]
        for frame in frames:
            send(first.netns(fabric), "eth0", frame)
        for host in hosts:
            wait_until(lambda: seen(host, frames[1]), what="the second broadcast")  # noqa: B023
        assert [seen(host, frames[0]) for host in hosts] == [1, 1]
        passed = Counter(
            (number, one.source, one.target)
            for number, cable in enumerate(cables, start=1)
            for one in tunnelled(cable.frames)
            if one.inner == frames[0]
        )
    here, there, beyond = (site.underlay_ip("n1") for site in three.sites)
    # On the way out once for each of the other sites, and on the way in.
    assert passed == {(1, here, there): 1, (2, here, there): 1, (1, here, beyond): 1, (3, here, beyond): 1}


def seen(wire: Wire, frame: bytes) -> int:
    return sum(one.data == frame for one in list(wire.frames))


@FABRICS
def test_a_mac_that_two_sites_have_is_shown_as_a_duplicate(three: Three, fabric: str) -> None:
    first, second, _ = three.sites
    mac = "02:00:00:00:dd:01"
    try:
        for number, site in ((1, first), (2, second)):
            port = {"type": "veth", "netns": str(site.workload(f"twin-{fabric}")), "name": "eth0"}
            ips = [f"10.{VNIS[fabric]}.0.2{number}"]
            twin = document(
                "NetworkAttachment", "twin", {"node": "n1", "network": fabric, "mac": mac, "ips": ips, "port": port}
            )
            netloom("apply", "-f", "-", kubeconfig=site.kubeconfig, stdin=json.dumps(twin))
        wait_until(
            lambda: any(
                mac in status(site, "evpnnetwork", fabric).get("duplicateMACs", ()) for site in (first, second)
            ),
            what="the duplicate to be shown",
        )
    finally:
        for site in (first, second):
            netloom("delete", "networkattachment", "twin", kubeconfig=site.kubeconfig, check=False)
    wait_until(
        lambda: all(status(site, "evpnnetwork", fabric).get("remoteMACs") == 2 for site in three.sites),
        what="the twins to be forgotten",
    )
    until_all_reach_all(three, fabric)


@pytest.mark.parametrize("three", ["netloom", "frr"], indirect=True, scope="module")
def test_packets_flow_while_the_reflector_restarts(three: Three) -> None:
    for fabric in VNIS:
        until_all_reach_all(three, fabric)
    labs.killed_comes_back(three.router, {"netloom": "speaker", "frr": "bgpd"}[three.reflector])
    assert all(all_reach_all(three, fabric) for fabric in VNIS)
    for site in three.sites:
        netloom("wait", "bgppeers", "--all", kubeconfig=site.kubeconfig)
    assert all(all_reach_all(three, fabric) for fabric in VNIS)


def test_a_site_that_goes_takes_its_machines_along_and_brings_them_back(three: Three) -> None:
    first, _, third = three.sites
    third.down()
    for fabric in VNIS:
        assert probes.ping(first.netns(fabric), addresses(2, fabric)[0])
    sites.up(three.router.layout.folder, sites=3, nodes=1, reflector=three.reflector)
    for fabric in VNIS:
        netloom("delete", "networkattachment", fabric, kubeconfig=third.kubeconfig)
        objects = network(third, 3, fabric)
        netloom("apply", "-f", "-", kubeconfig=third.kubeconfig, stdin=json.dumps({"kind": "List", "items": objects}))
        until_all_reach_all(three, fabric)
