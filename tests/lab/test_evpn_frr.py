"""A Network that reaches into a data centre of FRR and kernel VXLAN: routes on both sides, and pings."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from netloom.lab import Lab, probes
from tests.lab.worlds import MANIFESTS, World, world
from tests.support.datacentre import DataCentre, data_centre
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

VNI = 7021
CENTRE = "172.31.203.1"
A, B, HOST = ("10.72.0.11", "fd00:72::11"), ("10.72.0.12", "fd00:72::12"), ("10.72.0.101", "fd00:72::101")


@contextmanager
def joined(lab: Lab, name: str, fabric: str, asn: int) -> Iterator[tuple[World, DataCentre]]:
    """Yield a world whose Network is extended to a data centre, when both sides know each other."""
    text = (MANIFESTS / "frr.yaml").read_text().replace("FABRIC", fabric)
    own = lab.underlay_ip("n1")
    peers = {own: 65000}
    with world(lab, name, text=text) as made, data_centre(f"{CENTRE}/16", asn=asn, peers=peers, vnis=[VNI]) as centre:
        centre.connect(lab.netns("underlay"), bridge="underlay")
        listen = {"address": own}
        targets: dict[str, Any] = {}
        if asn != 65000:
            targets = {"importTargets": ["auto", f"{asn}:{VNI}"], "exportTargets": ["auto", f"{asn}:{VNI}"]}
        made.put("BGPSpeaker", "main", {"asn": 65000, "routerID": own, "node": "n1", "listen": listen})
        made.put("BGPPeer", "centre", {"speaker": "main", "address": CENTRE, "remoteASN": asn})
        made.put("EVPNNetwork", "wide", {"network": "wide", "speaker": "main", **targets})
        centre.add_host("far", [f"{HOST[0]}/24", f"{HOST[1]}/64"])
        try:
            centre.wait_established(own)
            wait_until(lambda: macs(made) <= centre.remote_macs(VNI), what="our machines at the data centre")
            wait_until(lambda: centre.hosts["far"].mac in learned(made), what="the data centre's machine here")
            yield made, centre
        finally:
            made.delete("evpnnetwork/wide", "bgppeer/centre", "bgpspeaker/main")


def macs(made: World) -> set[str]:
    return {str(made.get("networkattachment", name)["status"]["mac"]) for name in "ab"}


def learned(made: World) -> set[str]:
    items = json.loads(made.cli("get", "remotevteps", "-o", "json").out)["items"]
    return {one["mac"] for item in items for one in item["spec"].get("macs", ())}


def answered(ping: Callable[[], bool], what: str) -> None:
    """Wait for the answer to a ping, with pauses: Open vSwitch 3.1 may keep a stale flow while packets use it."""
    for pause in (*[0.2] * 10, *[12.0] * 8):
        if ping():
            return
        time.sleep(pause)
    raise AssertionError(f"no answer to {what}")


def reaches(netns: str, address: str) -> bool:
    return probes.ping(netns, address)


def everybody_reaches_everybody(made: World, centre: DataCentre) -> None:
    far = centre.hosts["far"]
    for address in HOST:
        for name in "ab":
            answered(lambda: made.ping(name, address), what=f"a ping from {name} to {address}")  # noqa: B023
    for address in (*A, *B):
        answered(lambda: reaches(far.netns, address), what=f"a ping from the data centre to {address}")  # noqa: B023


ASNS = pytest.mark.parametrize("asn", [65000, 65021], ids=["ibgp", "ebgp"])


@ASNS
def test_machines_of_a_vxlan_network_and_of_the_data_centre_reach_each_other(plain: Lab, asn: int) -> None:
    with joined(plain, "frr", "vxlan", asn) as (made, centre):
        everybody_reaches_everybody(made, centre)
        assert centre.vteps(VNI) == {plain.underlay_ip("n1"), plain.underlay_ip("n2")}
        came_and_went(made, centre)
        the_peer_goes_and_comes(made, centre, plain)


@ASNS
def test_machines_of_an_ovn_network_and_of_the_data_centre_reach_each_other(lab: Lab, asn: int) -> None:
    with joined(lab, "frr-ovn", "ovn", asn) as (made, centre):
        everybody_reaches_everybody(made, centre)
        assert centre.vteps(VNI) == {lab.underlay_ip("n1")}
        assert vxlan_ports(lab) == [f"vxlan_{CENTRE}_{VNI}"]
        came_and_went(made, centre)
        the_peer_goes_and_comes(made, centre, lab)
    wait_until(lambda: vxlan_ports(lab) == [], what="no port to the data centre")


def vxlan_ports(lab: Lab) -> list[str]:
    """Return the ports of n1's switch that lead to other sites."""
    ports = lab.exec("n1", ["ovs-vsctl", "list-ports", "br-int"]).stdout.split()
    return [port for port in ports if port.startswith("vxlan_")]


def came_and_went(made: World, centre: DataCentre) -> None:
    """Machines that come on either side are known on the other, and are not when they are gone."""
    late = centre.add_host("late", ["10.72.0.102/24", "fd00:72::102/64"])
    wait_until(lambda: late.mac in learned(made), what="the late machine here")
    answered(lambda: made.ping("b", "10.72.0.102"), what="a ping to the late machine")
    centre.remove_host("late")
    wait_until(lambda: late.mac not in learned(made), what="the late machine gone")
    made.apply(ANOTHER)
    made.ready(ANOTHER)
    mac = str(made.get("networkattachment", "c")["status"]["mac"])
    wait_until(lambda: mac in centre.remote_macs(VNI), what="our new machine there")
    answered(lambda: reaches(centre.hosts["far"].netns, "fd00:72::13"), what="a ping to our new machine")
    made.delete("networkattachment/c")
    wait_until(lambda: mac not in centre.remote_macs(VNI), what="our new machine gone")


def the_peer_goes_and_comes(made: World, centre: DataCentre, lab: Lab) -> None:
    """A daemon that crashes keeps its routes while it restarts; one that ends in order takes them along."""
    mac, own = centre.hosts["far"].mac, lab.underlay_ip("n1")
    centre.kill("bgpd")
    wait_until(lambda: state(made) != "Established", what="the end of the session")
    assert mac in learned(made)  # Its own zebra forgets our machines with it: there is nothing to ping.
    centre.start("bgpd")
    centre.wait_established(own)
    wait_until(lambda: macs(made) <= centre.remote_macs(VNI), what="our machines at the data centre again")
    # A bgpd that did not keep its forwarding state says so: its routes go, and come again (RFC 4724 section 4.2).
    wait_until(lambda: mac in learned(made), what="the data centre's machine again")
    made.delete("bgppeer/centre")
    wait_until(lambda: not learned(made), what="no machine of the data centre")
    wait_until(lambda: not centre.remote_macs(VNI), what="no machine of ours there")
    made.put("BGPPeer", "centre", {"speaker": "main", "address": CENTRE, "remoteASN": centre.asn})
    wait_until(lambda: mac in learned(made), what="the data centre's machine again")
    everybody_reaches_everybody(made, centre)


def state(made: World) -> str:
    return str(made.get("bgppeer", "centre")["status"].get("state"))


ANOTHER = """
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: c}
spec:
  node: n2
  network: wide
  ips: [10.72.0.13, "fd00:72::13"]
  port: {type: veth, netns: /run/netns/c, name: eth0}
"""
