"""The answers of the operations: objects in the envelopes of the old systems, with keys in alphabetical order.

ryu shows the ports of clients as OpenFlow numbers, evpn-for-ovn as names. A speaker that was added with a dpid is one
of ryu's clients.
"""

from collections.abc import Iterable, Mapping

from netloom.model.document import Document
from netloom.model.kinds.bgp import BGPPeer, BGPSpeaker, BGPState, EVPNClient, EVPNNetwork, RemoteVTEP
from netloom.plan.evpn.evi import distinguisher_text

DPID = "netloom.dev/vtep-dpid"
"""The annotation of a BGPSpeaker with the dpid that it was added with."""


def dpid_of(speaker: BGPSpeaker) -> int | None:
    """Return the dpid that a speaker was added with; None if it was added without one."""
    text = speaker.metadata.annotations.get(DPID, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


def speaker(found: BGPSpeaker, peers: Iterable[BGPPeer]) -> Document:
    """Return a speaker with its neighbors."""
    dpid = dpid_of(found)
    shown: Document = {"as_number": found.spec.asn}
    if dpid is not None:
        shown["dpid"] = dpid
    shown |= {"neighbors": neighbors(peers), "router_id": found.spec.router_id}
    return {found.spec.router_id: {"EvpnSpeaker": shown}}


def neighbors(peers: Iterable[BGPPeer]) -> Document:
    """Return neighbors by address."""
    return {
        peer.spec.address: {
            "EvpnNeighbor": {
                "address": peer.spec.address,
                "remote_as": peer.spec.remote_asn,
                "state": "up" if peer.status.state is BGPState.ESTABLISHED else "down",
            }
        }
        for peer in peers
    }


def vni_of(network: EVPNNetwork) -> int | None:
    """Return the VNI between sites; None while it is not known."""
    return network.spec.vni or network.status.vni


def name_of(vni: int) -> str:
    """Return the name of the EVPNNetwork of a VNI, and of its Network if the client names none."""
    return f"vni-{vni}"


def network(found: EVPNNetwork, by: BGPSpeaker, clients: Document) -> Document:
    """Return a network with these clients."""
    vni = vni_of(found) or 0
    shown: Document = {"clients": clients, "ethernet_tag_id": 0}
    if found.spec.network != name_of(vni):
        shown["logical_switch"] = found.spec.network
    shown |= {"route_dist": distinguisher_text(by, found, vni), "vni": vni}
    return {str(vni): {"EvpnNetwork": shown}}


def number(port: str) -> int | None:
    """Return the name of a port as a number; None if it is not one."""
    return int(port) if port.isascii() and port.isdecimal() and len(port) <= 10 else None


def local_client(found: EVPNClient, by: BGPSpeaker, numbers: Mapping[str, int]) -> Document:
    """Return a client of this site; `numbers` are those of known ports."""
    port: int | str = numbers.get(found.port, found.port)
    if dpid_of(by) is not None and (given := number(found.port)) is not None:
        port = given
    return _client(found.ip, found.mac, by.spec.router_id, port)


def remote_clients(found: Iterable[RemoteVTEP], numbers: Mapping[str, int]) -> Document:
    """Return the clients of other sites, by MAC address."""
    clients: Document = {}
    for vtep in found:
        name = f"vxlan_{vtep.spec.address}_{vtep.spec.vni}"
        port = numbers.get(name, name)
        for machine in vtep.spec.macs:
            ip = min(machine.ips, key=lambda ip: (":" in ip, ip), default="")
            clients[machine.mac] = _client(ip, machine.mac, vtep.spec.address, port)
    return clients


def _client(ip: str, mac: str, next_hop: str, port: int | str) -> Document:
    return {"EvpnClient": {"ip": ip, "mac": mac, "next_hop": next_hop, "port": port}}
