"""The BGP sessions between the sites of a lab: as objects of each site's API, or as a configuration of FRR.

Each site has a speaker on its first node. Without a reflector, every site is an autonomous system, 65000 and its
number, and has a session with every other one. With a route reflector, which is in the router between the sites, all
are the system 65000, and the sites are its clients (RFC 4456). It passes routes on with their next hops, so packets go
from site to site all the same.
"""

from netloom.client.resources import of_kind
from netloom.client.session import connect
from netloom.errors import AlreadyExists
from netloom.lab.layout import SITE_ASN, Layout, gateway_ip, router_ip
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import BGP_PEER, BGP_SPEAKER

SPEAKER = "gateway"
"""The name of the BGPSpeaker, the same at every site."""
REFLECTOR = "reflector"
DEFER_SECONDS = 10
"""How long FRR, after its start, waits for the routes of sites that do not answer."""


def sessions(layout: Layout, sites: int, *, reflected: bool) -> dict[str, tuple[str, int]]:
    """Return the peers of a site, or of the reflector, by name: address and autonomous system."""
    if layout.state.site and reflected:
        return {REFLECTOR: (router_ip(layout.state.site), SITE_ASN)}
    others = (number for number in range(1, sites + 1) if number != layout.state.site)
    return {f"site{number}": (gateway_ip(number), _asn(number, reflected=reflected)) for number in others}


def _asn(site: int, *, reflected: bool) -> int:
    return SITE_ASN if reflected else SITE_ASN + site


def objects(layout: Layout, sites: int, *, reflected: bool) -> list[tuple[Kind, Document]]:
    """Return the BGPSpeaker and the BGPPeers of a site, or of the reflector."""
    address = gateway_ip(layout.state.site) if layout.state.site else router_ip(1)
    # The reflector has an address in each site, and listens on all of them.
    listen = {"address": address} if layout.state.site else {}
    speaker = {
        "asn": _asn(layout.state.site, reflected=reflected),
        "routerID": address,
        "node": layout.gateway,
        "listen": listen,
    }
    found = [(BGP_SPEAKER, _document(BGP_SPEAKER, SPEAKER, speaker))]
    for name, (peer, asn) in sessions(layout, sites, reflected=reflected).items():
        spec = {"speaker": SPEAKER, "address": peer, "remoteASN": asn}
        if not layout.state.site:
            spec["routeReflectorClient"] = True
        found.append((BGP_PEER, _document(BGP_PEER, name, spec)))
    return found


def create(layout: Layout, sites: int, *, reflected: bool) -> None:
    """Create these objects; those that exist stay as they are."""
    session = connect(str(layout.kubeconfig))
    try:
        for kind, document in objects(layout, sites, reflected=reflected):
            try:
                session.client.call("POST", of_kind(kind).path(session.namespace), body=document)
            except AlreadyExists:
                continue
    finally:
        session.client.close()


def frr_configuration(layout: Layout) -> str:
    """Return the configuration of FRR's bgpd as a reflector."""
    peers = sessions(layout, layout.state.sites, reflected=True).values()
    lines = [
        f"router bgp {SITE_ASN}",
        f" bgp router-id {router_ip(1)}",
        " no bgp default ipv4-unicast",
        # When it restarts, packets flow: it forwards none itself, so nothing of that is lost.
        " bgp graceful-restart",
        " bgp graceful-restart preserve-fw-state",
        f" bgp graceful-restart select-defer-time {DEFER_SECONDS}",
        *(f" neighbor {address} remote-as {asn}" for address, asn in peers),
        " address-family l2vpn evpn",
        *(f"  neighbor {address} activate" for address, _ in peers),
        *(f"  neighbor {address} route-reflector-client" for address, _ in peers),
        " exit-address-family",
    ]
    return "\n".join([*lines, ""])


def _document(kind: Kind, name: str, spec: Document) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
