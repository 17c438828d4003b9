"""Two speakers of one site for the same Network: one forwards, and the other takes over when its node is off."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netloom.lab import Lab
from netloom.lab.daemons.databases import version
from tests.lab.capturing import capturing, send
from tests.lab.test_evpn_frr import B, answered, learned, reaches
from tests.lab.vxlan_wire import BROADCAST, tunnelled, udp
from tests.lab.worlds import MANIFESTS, World, world
from tests.support.datacentre import DataCentre, data_centre
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

VNI = 7021
CENTRE = "172.31.204.1"
NODES = ("n1", "n2")


@contextmanager
def shared(lab: Lab) -> Iterator[tuple[World, DataCentre]]:
    """Yield a world whose Network the speakers of n1 and n2 extend to a data centre."""
    text = (MANIFESTS / "frr.yaml").read_text().replace("FABRIC", "ovn")
    peers = dict.fromkeys(map(lab.underlay_ip, NODES), 65000)
    with (
        world(lab, "speakers", text=text) as made,
        data_centre(f"{CENTRE}/16", asn=65000, peers=peers, vnis=[VNI]) as centre,
    ):
        centre.connect(lab.netns("underlay"), bridge="underlay")
        for node in NODES:
            own = lab.underlay_ip(node)
            made.put("BGPSpeaker", node, {"asn": 65000, "routerID": own, "node": node, "listen": {"address": own}})
            made.put("BGPPeer", node, {"speaker": node, "address": CENTRE, "remoteASN": 65000})
            made.put("EVPNNetwork", node, {"network": "wide", "speaker": node})
        centre.add_host("far", ["10.72.0.101/24", "fd00:72::101/64"])
        try:
            for peer in peers:
                centre.wait_established(peer)
            yield made, centre
        finally:
            for node in NODES:
                made.delete(f"evpnnetwork/{node}", f"bgppeer/{node}", f"bgpspeaker/{node}")


def forwarding(made: World) -> list[str]:
    items = json.loads(made.cli("get", "evpnnetworks", "-o", "json").out)["items"]
    return [one["metadata"]["name"] for one in items if one["status"].get("forwarding")]


def broadcasts(lab: Lab, made: World, centre: DataCentre) -> int:
    """Return how often the data centre gets one broadcast of ours."""
    mac = str(made.get("networkattachment", "b")["status"]["mac"])

    def frame(text: str) -> bytes:
        return udp((mac, B[0]), (BROADCAST, "255.255.255.255"), text.encode())

    with capturing(centre.netns, centre.device) as wire:

        def seen(text: str) -> int:
            return sum(one.inner == frame(text) for one in tunnelled(wire.frames))

        numbers: list[int] = []

        def counted() -> bool:
            """Send the one that is counted, and one after it that shows when it must be there."""
            numbers.append(len(numbers))
            for text in (f"counted {numbers[-1]}", f"after {numbers[-1]}"):
                send(made.netns("b"), "eth0", frame(text))
            return any(seen(f"counted {one}") and seen(f"after {one}") for one in numbers)

        wait_until(counted, what="the broadcast", interval=0.5)
        return max(seen(f"counted {one}") for one in numbers)


def test_one_forwards_and_the_other_takes_over(lab: Lab) -> None:
    with shared(lab) as (made, centre):
        far = centre.hosts["far"]
        wait_until(lambda: forwarding(made) == ["n1"], what="the first by name to forward")
        wait_until(lambda: centre.vteps(VNI) == {lab.underlay_ip("n1")}, what="one VTEP")
        wait_until(lambda: far.mac in learned(made), what="the data centre's machine")
        answered(lambda: reaches(far.netns, B[0]), what="a ping through the first")
        assert broadcasts(lab, made, centre) == 1
        lab.off("n1")
        try:
            wait_until(lambda: forwarding(made) == ["n2"], what="the second to forward")
            wait_until(lambda: centre.vteps(VNI) == {lab.underlay_ip("n2")}, what="the other VTEP")
            answered(lambda: reaches(far.netns, B[0]), what="a ping through the second")
            answered(lambda: made.ping("b", "10.72.0.101"), what="a ping through the second to the data centre")
            if version(lab.layout, "central").startswith("25.03."):  # docs/known-limits.md
                socket = f"{lab.layout.folder}/ovn/ovn-northd.ctl"
                subprocess.run(["ovn-appctl", "-t", socket, "inc-engine/recompute"], check=True, capture_output=True)
            assert broadcasts(lab, made, centre) == 1
        finally:
            lab.on("n1")
        centre.wait_established(lab.underlay_ip("n1"))
        assert forwarding(made) == ["n2"]
        assert centre.vteps(VNI) == {lab.underlay_ip("n2")}
