"""A packet through the vxlan fabric: the flows of the nodes on its path are read and executed here.

    flows of the sender's node ──► a port there, drop, or the tunnel ──► flows of the other node ──► a port
                                                                    └──► the VTEP of another site: the end of the trace

Nothing is sent. As for OVN, the first packet of a connection is traced.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from netloom.diagnose import snapshot
from netloom.diagnose.access import Access, no_switch
from netloom.diagnose.node import fabric
from netloom.diagnose.node.inspection import NodeInspection, on_node
from netloom.diagnose.trace.output import Hop
from netloom.diagnose.trace.packet import SOURCE_PORT, Endpoint, Packet, common_addresses, plain
from netloom.drivers.vxlan.bridge import tunnel_ofport
from netloom.errors import Invalid, Unreachable
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import RemoteVTEP
from netloom.model.kinds.cluster import Node
from netloom.model.values import addresses
from netloom.openflow import packets
from netloom.openflow.flows import Flow
from netloom.openflow.pipeline import Sent, run
from netloom.plan.addresses.macs import number
from netloom.plan.vxlan import layout as layout
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK


class SwitchState(NamedTuple):
    """The flows and ports of a node's switch."""

    flows: list[Flow]
    ports: dict[int, str]
    """The attachments, as NAMESPACE/NAME, by their port numbers."""
    tunnel: int


def packet(start: Endpoint, end: Endpoint, *, protocol: str, number: int, v6: bool) -> Packet:
    """Return the packet that one endpoint sends to another in its Network."""
    assert start.attachment is not None
    there = end.attachment
    src, dst = common_addresses(replace(start, ip=""), end, v6=v6)
    return Packet(
        datapath=start.attachment.spec.network,
        inport=start.port,
        eth_src=start.attachment.status.mac,
        eth_dst=there.status.mac if there is not None else "",
        src=src,
        dst=dst,
        protocol=protocol,
        number=number,
    )


def trace(
    read: Callable[[str], SwitchState], start: Endpoint, sent: Packet, resources: Sequence[Resource]
) -> tuple[list[Hop], bool, str]:
    """Return the packet's path, whether it is delivered, and the outcome in words.

    Pure but for `read`, which returns the flows and ports of a node's switch.
    """
    assert start.attachment is not None
    here = start.attachment.spec.node
    space = start.attachment.metadata.namespace
    vteps = [
        one
        for one in snapshot.of_type(resources, RemoteVTEP)
        if (one.metadata.namespace, one.spec.network) == (space, sent.datapath)
    ]
    sent = sent if sent.eth_dst else replace(sent, eth_dst=_mac_of(sent.dst, vteps))
    if not sent.eth_dst:
        return [], False, f"dropped: no attachment of Network {sent.datapath} has {sent.dst}, so its MAC is unknown"
    seen = read(here)
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
    to = (4, tunnelled["tun_dst"]) if tunnelled["tun_dst"] else (6, tunnelled["tun_ipv6_dst"])
    address = layout.ip_text(*to)
    if any(layout.ip_number(one.spec.address) == to for one in vteps):
        hops.append(Hop(f"node {here}", f"through the tunnel to VTEP {address}, VNI {tunnelled['tun_id']}"))
        return hops, True, f"sent to another site, by its VTEP {address}"
    remote = _remote_node(address, resources)
    hops.append(Hop(f"node {here}", f"through the tunnel to {remote}, VNI {tunnelled['tun_id']}"))
    seen, acted = read(remote), []
    arriving = _frame(sent).having(tun_id=tunnelled["tun_id"])
    return _arrived(hops, remote, seen, run(seen.flows, arriving, seen.tunnel, seen=acted), acted, space)


def _arrived(
    hops: list[Hop], node: str, seen: SwitchState, out: Sequence[Sent], acted: Sequence[Flow], namespace: str
) -> tuple[list[Hop], bool, str]:
    names = [seen.ports.get(one.port, f"port {one.port}").removeprefix(f"{namespace}/") for one in out]
    if names:
        hops.append(Hop(f"node {node}", f"to the port of {', '.join(names)}"))
        return hops, True, f"delivered to {', '.join(names)}"
    last = acted[-1] if acted else None
    words = _WHY.get(last.table, _NO_FLOW) if last is not None else _NO_FLOW
    hops.append(Hop(f"node {node}", f"dropped by {last}" if last is not None else "dropped"))
    return hops, False, f"dropped on {node}: {words}"


_NO_FLOW = "no flow forwards it"
_SENDING = "a SecurityProfile of the sender does not allow it"
_GETTING = "a SecurityProfile of the receiver does not allow it"
_WHY = {
    layout.ENTRY: "the fabric does not know its port",
    layout.SOURCE: "the sender may use only its own MAC and addresses",
    layout.NEIGHBOUR: "the sender may announce only its own MAC and addresses",
    **dict.fromkeys(range(layout.OUT, layout.OUT_RATE + 1), _SENDING),
    layout.HERE: "no port of the Network has the destination",
    layout.ELSEWHERE: "no port of the Network has the destination",
    layout.FLOOD: "no other site takes broadcasts of the Network",
    **dict.fromkeys(range(layout.IN, layout.IN_RATE + 1), _GETTING),
    layout.DELIVER: "its destination is not an address of the receiver",
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


def _mac_of(ip: str, vteps: Iterable[RemoteVTEP]) -> str:
    """Return the MAC of the machine of another site that has an address; "" if there is none."""
    return next((machine.mac for one in vteps for machine in one.spec.macs if ip in machine.ips), "")


def _remote_node(address: str, resources: Iterable[Resource]) -> str:
    """Return the node that has an underlay address."""
    for node in snapshot.of_type(resources, Node):
        if layout.ip_number(node.spec.underlay_ip) == layout.ip_number(address):
            return node.metadata.name
    raise Invalid(f"the packet goes to {address}, which is the address of no Node")


def read_switch(access: Access, name: str) -> SwitchState:
    """Return the flows and ports of a node's switch; raise `Unreachable` if they cannot be read."""

    async def work(node: NodeInspection) -> SwitchState | None:
        if node.name != name:
            return None
        async with fabric.connected(node.folder) as connection:
            flows = await connection.flows(COOKIE, COOKIE_MASK)
        attachments = {row.ofport: node.attachment_of(row) for row in node.interfaces() if row.ofport}
        return SwitchState(flows, attachments, tunnel_ofport(node.switch) or 0)

    for switch in access.switches:
        if switch.node in ("", name) and (found := on_node(switch, access.owner, work)) is not None:
            return found
    raise Unreachable(no_switch(name))


def target(start: Endpoint, end: Endpoint, resources: Iterable[Resource]) -> Endpoint:
    """Return the other endpoint with its attachment in the sender's Network: others cannot be reached from there."""
    one, other = start.attachment, end.attachment
    if one is None or (not end.ip and other is not None and _same(one, other)):
        return end
    ip = end.ip or next(iter(plain(other) if other is not None else ()), "")
    around = [each for each in snapshot.of_type(resources, NetworkAttachment) if _same(one, each)]
    return Endpoint(end.text, next((each for each in around if ip in plain(each)), None), ip)


def _same(one: NetworkAttachment, other: NetworkAttachment) -> bool:
    return (one.metadata.namespace, one.spec.network) == (other.metadata.namespace, other.spec.network)
