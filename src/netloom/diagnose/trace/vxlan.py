"""A packet through the vxlan fabric: the flows of the nodes it passes are read, and executed here.

    the sender's node: its flows ──► a port there, nowhere, or the tunnel ──► the other node: its flows ──► a port

Nothing is sent. The first packet of a connection is traced, as for OVN.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import Access, no_switch
from netloom.diagnose.node import fabric as node_fabric
from netloom.diagnose.node.inspection import NodeLook, on_node
from netloom.diagnose.trace.output import Hop
from netloom.diagnose.trace.packet import SOURCE_PORT, Packet, Place, plain
from netloom.drivers.vxlan.bridge import tunnel_number
from netloom.errors import Invalid, Unreachable
from netloom.model import addresses
from netloom.model.attachments import NetworkAttachment
from netloom.model.cluster import Node
from netloom.model.document import Resource
from netloom.model.networks import Fabric, Network
from netloom.openflow import packets
from netloom.openflow.flows import Flow
from netloom.openflow.pipeline import Sent, run
from netloom.plan.addresses.macs import number
from netloom.plan.vxlan import layout as layout
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK


class Seen(NamedTuple):
    """What a node's switch has."""

    flows: list[Flow]
    ports: dict[int, str]
    """The attachments by their ports' numbers, as NAMESPACE/NAME."""
    tunnel: int


def is_carried(place: Place, resources: Iterable[Resource]) -> bool:
    """Whether a place is in a Network that VXLAN carries."""
    return _network(place, resources) is not None


def packet(start: Place, end: Place, *, protocol: str, number: int, v6: bool) -> Packet:
    """Return the packet that one end sends to the other: within a Network, there is nothing else."""
    assert start.attachment is not None
    there = end.attachment
    ends = plain(start.attachment), [end.ip] if end.ip else plain(there) if there is not None else []
    families = [family for family in ((6, 4) if v6 else (4, 6)) if all(_of(family, one) for one in ends)]
    if not families:
        raise Invalid(f"{start.text} and {end.text} have no addresses of the same family")
    return Packet(
        datapath=start.attachment.spec.network,
        inport=start.port,
        eth_src=start.attachment.status.mac,
        eth_dst=there.status.mac if there is not None else "",
        src=_of(families[0], ends[0]),
        dst=_of(families[0], ends[1]),
        protocol=protocol,
        number=number,
    )


def traced(
    look: Callable[[str], Seen], start: Place, sent: Packet, resources: Sequence[Resource]
) -> tuple[list[Hop], bool, str]:
    """Return the packet's way, whether it arrives, and that in words; `look` says what a node's switch has.  Pure."""
    assert start.attachment is not None
    here = start.attachment.spec.node
    if not sent.eth_dst:
        return [], False, f"dropped: nobody in Network {sent.datapath} has {sent.dst}, so nobody answers who it is"
    seen = look(here)
    space = start.attachment.metadata.namespace
    own = f"{space}/{start.attachment.metadata.name}"
    port = next((one for one, name in seen.ports.items() if name == own), 0)
    if not port:
        return [], False, f"not sent: {start.text} has no port on the switch of {here}"
    hops = [Hop(f"node {here}", f"from {start.text}, in Network {sent.datapath}")]
    acted: list[Flow] = []
    out = run(seen.flows, _frame(sent), port, seen=acted)
    found = [one for one in out if one.port == seen.tunnel]
    if not found:
        return _arrived(hops, here, seen, out, acted, space)
    tunnelled = found[0].packet
    remote = _told(tunnelled, resources)
    hops.append(Hop(f"node {here}", f"through the tunnel to {remote}, VNI {tunnelled['tun_id']}"))
    seen, acted = look(remote), []
    arriving = _frame(sent).having(tun_id=tunnelled["tun_id"])
    return _arrived(hops, remote, seen, run(seen.flows, arriving, seen.tunnel, seen=acted), acted, space)


def _arrived(
    hops: list[Hop], node: str, seen: Seen, out: Sequence[Sent], acted: Sequence[Flow], namespace: str
) -> tuple[list[Hop], bool, str]:
    names = [seen.ports.get(one.port, f"port {one.port}").removeprefix(f"{namespace}/") for one in out]
    if names:
        hops.append(Hop(f"node {node}", f"to the port of {', '.join(names)}"))
        return hops, True, f"delivered to {', '.join(names)}"
    last = acted[-1] if acted else None
    words = _WHY.get(last.table, "no flow carries it") if last is not None else "no flow carries it"
    hops.append(Hop(f"node {node}", f"dropped by {last}" if last is not None else "dropped"))
    return hops, False, f"dropped on {node}: {words}"


_SENDING = "a SecurityProfile of the sender does not let it out"
_GETTING = "a SecurityProfile of the receiver does not let it in"
_WHY = {
    layout.ENTRY: "its port is not known to the fabric",
    layout.SOURCE: "the sender may send from its own MAC and addresses only",
    layout.NEIGHBOUR: "the sender may tell of its own MAC and addresses only",
    **dict.fromkeys(range(layout.OUT, layout.OUT_RATE + 1), _SENDING),
    layout.HERE: "nobody in the Network is known to have it",
    layout.ELSEWHERE: "nobody in the Network is known to have it",
    **dict.fromkeys(range(layout.IN, layout.IN_RATE + 1), _GETTING),
    layout.DELIVER: "it is not for an address of the receiver",
}


def _frame(sent: Packet) -> packets.Packet:
    version = 6 if ":" in sent.dst else 4
    ends = {"src": int(addresses.address(sent.src)), "dst": int(addresses.address(sent.dst))}
    macs = {"dl_src": number(sent.eth_src), "dl_dst": number(sent.eth_dst)}
    match sent.protocol:
        case "icmp":
            return packets.echo(version=version, **ends, **macs)
        case "tcp":
            return packets.tcp(version=version, port=sent.number, source=SOURCE_PORT, **ends, **macs)
        case _:
            return packets.udp(version=version, port=sent.number, source=SOURCE_PORT, **ends, **macs)


def _told(tunnelled: packets.Packet, resources: Iterable[Resource]) -> str:
    """Return the node that a tunnelled packet goes to."""
    v4, v6 = tunnelled["tun_dst"], tunnelled["tun_ipv6_dst"]
    for node in everything.of_type(resources, Node):
        if int(addresses.address(node.spec.underlay_ip)) == (v4 or v6):
            return node.metadata.name
    raise Invalid(f"the packet goes to {layout.ip_text(4 if v4 else 6, v4 or v6)}, and no Node has that address")


def on_switch(access: Access, node: str) -> Seen:
    """Return what a node's switch has."""

    async def work(look: NodeLook) -> Seen | None:
        if look.name != node:
            return None
        async with node_fabric.speaking(look.folder) as connection:
            flows = await connection.flows(COOKIE, COOKIE_MASK)
        places = {row.ofport: look.whose(row) for row in look.interfaces() if row.ofport}
        return Seen(flows, places, tunnel_number(look.switch) or 0)

    for switch in access.switches:
        if switch.node in ("", node) and (found := on_node(switch, access.owner, work)) is not None:
            return found
    raise Unreachable(no_switch(node))


def _network(place: Place, resources: Iterable[Resource]) -> Network | None:
    one = place.attachment
    if one is None:
        return None
    for network in everything.of_type(resources, Network):
        same = (network.metadata.namespace, network.metadata.name) == (one.metadata.namespace, one.spec.network)
        if same and network.spec.fabric is Fabric.VXLAN:
            return network
    return None


def _of(family: int, ips: Iterable[str]) -> str:
    return next((ip for ip in ips if addresses.family(ip) == family), "")


def target(start: Place, end: Place, resources: Iterable[Resource]) -> Place:
    """Return who in the sender's own Network the other end is: nobody else is reached from there."""
    one, other = start.attachment, end.attachment
    if one is None or (not end.ip and other is not None and _same(one, other)):
        return end
    ip = end.ip or next(iter(plain(other) if other is not None else ()), "")
    around = [each for each in everything.of_type(resources, NetworkAttachment) if _same(one, each)]
    return Place(end.text, next((each for each in around if ip in plain(each)), None), ip)


def _same(one: NetworkAttachment, other: NetworkAttachment) -> bool:
    return (one.metadata.namespace, one.spec.network) == (other.metadata.namespace, other.spec.network)
