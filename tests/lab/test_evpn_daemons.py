"""Machines behind a kernel VXLAN device whose BGP speaker is GoBGP or ExaBGP: they reach ours, and go when it says so.

Both announce what they are told to and program nothing, so the device sends all frames to our gateway. ExaBGP sends
EVPN routes only beside IPv4 routes, so its sessions have that family too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_address

import pytest

from netloom.bgp.communities import route_distinguisher
from netloom.bgp.nlri import EvpnRoute, MacIp, Multicast
from netloom.lab import Lab
from tests.lab.test_evpn_frr import CENTRE, HOST, VNI, everybody_reaches_everybody, learned, macs, state
from tests.lab.worlds import MANIFESTS, World, world
from tests.support.bgp_daemons import Daemon, ExaBgpDaemon, GoBgp, Kind, Session, running
from tests.support.datacentre import DataCentre, data_centre
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

RD = route_distinguisher(f"{CENTRE}:10")


@contextmanager
def joined(lab: Lab, kind: Kind, asn: int) -> Iterator[tuple[World, DataCentre, Daemon]]:
    """Yield a world whose Network is extended to a data centre, and the daemon that speaks for that."""
    text, own = (MANIFESTS / "frr.yaml").read_text().replace("FABRIC", "ovn"), lab.underlay_ip("n1")
    session = Session(ours=own, theirs=CENTRE, asn=65000, target=f"65000:{VNI}", vni=VNI)
    with (
        world(lab, "daemons", text=text) as made,
        data_centre(f"{CENTRE}/16", asn=asn, peers={own: 65000}, vnis=[VNI]) as centre,
    ):
        centre.connect(lab.netns("underlay"), bridge="underlay", speaks=False)
        centre.send_to(own, VNI)
        centre.add_host("far", [f"{HOST[0]}/24", f"{HOST[1]}/64"], announce=False)
        made.put("BGPSpeaker", "main", {"asn": 65000, "routerID": own, "node": "n1", "listen": {"address": own}})
        more = ["ipv4-unicast"] if kind is ExaBgpDaemon else ["rt-constraint"]
        peer = {"speaker": "main", "address": CENTRE, "remoteASN": asn, "additionalFamilies": more}
        made.put("BGPPeer", "centre", peer)
        made.put("EVPNNetwork", "wide", {"network": "wide", "speaker": "main"})
        try:
            with running(kind, centre.netns, asn, session) as daemon:
                yield made, centre, daemon
        finally:
            made.delete("evpnnetwork/wide", "bgppeer/centre", "bgpspeaker/main")


@pytest.mark.parametrize("asn", [65000, 65021], ids=["ibgp", "ebgp"])
@pytest.mark.parametrize("kind", [GoBgp, ExaBgpDaemon], ids=["gobgp", "exabgp"])
def test_machines_behind_another_speaker_and_ours_reach_each_other(lab: Lab, kind: Kind, asn: int) -> None:
    with joined(lab, kind, asn) as (made, centre, daemon):
        far = centre.hosts["far"]
        mac = bytes.fromhex(far.mac.replace(":", ""))
        routes: list[EvpnRoute] = [MacIp(RD, mac, None, VNI), *(MacIp(RD, mac, ip_address(ip), VNI) for ip in HOST)]
        ours = {f"2|{mac}|" for mac in macs(made)}
        if isinstance(daemon, GoBgp):  # It has route target constraint.
            wait_until(lambda: state(made) == "Established", what="the session")
            assert daemon.routes() == {}
            daemon.request_target()
        wait_until(lambda: ours <= set(daemon.routes()), what="our machines there")
        daemon.announce(Multicast(RD, IPv4Address(CENTRE)), *routes)
        wait_until(lambda: far.mac in learned(made), what="the machine of the data centre here")
        everybody_reaches_everybody(made, centre)
        daemon.withdraw(*routes)
        wait_until(lambda: far.mac not in learned(made), what="no machine of the data centre")
        daemon.kill()
        wait_until(lambda: state(made) != "Established", what="the end of the session")
        daemon.start()
        if isinstance(daemon, GoBgp):
            daemon.request_target()
        wait_until(lambda: ours <= set(daemon.routes()), what="our machines there again")
        daemon.announce(Multicast(RD, IPv4Address(CENTRE)), *routes)
        wait_until(lambda: far.mac in learned(made), what="the machine of the data centre again")
        everybody_reaches_everybody(made, centre)
