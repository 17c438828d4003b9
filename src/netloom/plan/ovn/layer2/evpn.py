"""Networks that EVPN extends to other sites: remote VTEPs as logical ports, their machines as addresses.  Pure.

A RemoteVTEP is written with the credential of a node. It counts only if that node is the node of the speaker that its
EVPNNetwork names, and if this EVPNNetwork forwards for the Network. Then the VTEP is a port of the Network's switch on
that node, `vxlan_ADDRESS_VNI`, where the agent has a VXLAN port of the same name. A VTEP with many machines has several
objects: the one whose name ends in `.0` has the row, the others add members to its sets. So a machine that comes or
goes is a mutation of one value, however many there are.

OVN answers ARP and neighbour discovery for the machines' addresses, and sends frames for unknown MACs nowhere. What is
local wins: a machine with the MAC of an attachment or a Router of the Network is left out, and so is an address of one.

**Split horizon.** A frame that came from a remote VTEP is never sent to another: its site has sent it to all of them.
An ACL drops it on its way out. OVN's own replies to a remote VTEP come from such a port and go to one; they pass,
because only they have the flag `loopback`. The ACL tracks no connections, so it sends no packet to the connection
tracker.

OVN lets neighbour discovery, router advertisements and MLD pass above all ACLs. A multicast of these that OVN does not
answer itself reaches the other VTEPs, and if several sites did that, it would circulate for ever. Where a Network has
several remote VTEPs, each port accepts frames only from the MACs of its VTEP (port security): the next site drops what
the first one should not have sent. With a single remote VTEP there is nothing to circulate, and no port security: that
of OVN 23.03 drops all neighbour advertisements, which machines need whose IPv6 addresses their site does not announce.
"""

from typing import NamedTuple

from netloom.model.kinds.bgp import BGPSpeaker, EVPNNetwork, RemoteVTEP
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.ovn.layer2.switches import PORT, requested_chassis, switch
from netloom.plan.ovn.layer3.router_ports import holders as router_addresses
from netloom.plan.ovn.layer3.router_ports import mac as router_mac
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World

PRIORITY = 32000
"""Of the ACLs: above those of SecurityProfiles."""
NOBODY = "00:00:00:00:00:00"
"""A MAC that no machine has: without any MAC, port security would let all pass."""


class Extension(NamedTuple):
    """How a Network is extended to other sites."""

    evpn_network: str
    """The EVPNNetwork that forwards."""
    node: str
    """The node of its speaker."""
    vni: int | None
    """The VNI of the Network, which no other Network has."""


def extension(world: World, namespace: str, network: str) -> Extension | None:
    """Return how a Network of fabric ovn is extended; None: it is not."""
    found = world.get(Network, namespace, network)
    if found is None or found.spec.fabric is not Fabric.OVN or world.ungranted(found) is not None:
        return None
    for one in world.evpn_networks(namespace, network):
        speaker = world.get(BGPSpeaker, namespace, one.spec.speaker) if one.status.forwarding else None
        if speaker is not None:
            return Extension(one.metadata.name, speaker.spec.node, found.status.vni)
    return None


def group(namespace: str, network: str) -> Ref:
    """Return which row is the port group of a Network's remote VTEPs."""
    return Ref("Port_Group", f"{namespace}/{network}:evpn")


def plan_evpn_network(world: World, one: EVPNNetwork) -> Outcome:
    """Plan the port group of a Network's remote VTEPs, and the ACL that separates them."""
    namespace, network = one.metadata.namespace, one.spec.network
    extended = world.shared(extension, namespace, network)
    if extended is None or extended.evpn_network != one.metadata.name:
        return Outcome()
    ref, symbol = group(namespace, network), names.symbol("evpn", namespace, network)
    match = f"inport == @{symbol} && outport == @{symbol} && flags.loopback == 0"
    acl = _drop(ref.key, match)
    return Outcome(rows=[acl, Row(*ref, {"name": symbol, "acls": frozenset((acl.ref,))})])


def plan_remote_vtep(world: World, vtep: RemoteVTEP) -> Outcome:
    """Plan the port of a remote VTEP, or more addresses of it."""
    namespace, spec, outcome = vtep.metadata.namespace, vtep.spec, Outcome()
    if not _counts(world, vtep):
        return outcome
    name = names.remote_vtep(spec.address, spec.vni)
    if (node := world.shared(_nodes, addresses.address(spec.address))) != "":
        said = f"RemoteVTEP {vtep.metadata.name}: spec.address {spec.address} is that of Node {node} of this cluster"
        outcome.report("AddressOfNode", f"{said}: a VTEP of another site has another address")
        return outcome
    holder = world.shared(_holder, name)
    if holder is None:
        return outcome  # Its first object is missing.
    if (holder.namespace, holder.network) != (namespace, spec.network):
        said = f"RemoteVTEP {vtep.metadata.name}: VTEP {spec.address} with VNI {spec.vni} belongs to another Network"
        outcome.report("VTEPInUse", f"{said}: choose another VNI at that VTEP, or delete the other EVPNNetwork")
        return outcome
    ref, is_one_of_several = Ref(PORT, name), world.shared(_has_several, namespace, spec.network)
    if holder.name == vtep.metadata.name:
        on = switch(namespace, spec.network)
        columns: dict[str, Column] = {"name": name, "options": requested_chassis(spec.node)}
        outcome.add(Row(PORT, name, columns), on, "ports")
        outcome.members.append(Member(group(namespace, spec.network), "ports", ref))
        if is_one_of_several:
            outcome.members.append(Member(ref, "port_security", NOBODY))
        if not spec.flood:
            outcome.add(_drop(f"{name}:multicast", f'outport == "{name}" && eth.mcast'), on, "acls")
    on_routers = world.shared(router_addresses, namespace, spec.network)
    routers = {router_mac(names.router(namespace, router), spec.network) for router in on_routers.values()}
    for machine in spec.macs:
        if machine.mac in routers or world.holders(namespace, spec.network, machine.mac):
            continue
        found = [machine.mac]
        for ip in sorted(map(addresses.address, machine.ips), key=str):
            local = ip in on_routers or world.holders(namespace, spec.network, str(ip))
            if not (local or ip.is_multicast or ip.is_unspecified):
                found.append(str(ip))
        outcome.members.append(Member(ref, "addresses", " ".join(found)))
        if is_one_of_several:
            outcome.members.append(Member(ref, "port_security", machine.mac))
    return outcome


def _drop(key: str, match: str) -> Row:
    columns: dict[str, Column] = {"direction": "to-lport", "priority": PRIORITY, "match": match, "action": "drop"}
    return Row("ACL", key, columns)


def _counts(world: World, vtep: RemoteVTEP) -> bool:
    """Return whether a RemoteVTEP was learned by the speaker that forwards for its Network."""
    extended = world.shared(extension, vtep.metadata.namespace, vtep.spec.network)
    return extended is not None and extended[:2] == (vtep.spec.evpn_network, vtep.spec.node)


def _has_several(world: World, namespace: str, network: str) -> bool:
    """Return whether a Network has several remote VTEPs."""
    return len({one.spec.address for one in world.remote_vteps_of(namespace, network) if _counts(world, one)}) > 1


class _Holder(NamedTuple):
    """The object that has the port of a remote VTEP."""

    namespace: str
    network: str
    name: str


def _holder(world: World, port: str) -> _Holder | None:
    """Return the object that has a port; None: there is none.

    Names of ports are global in OVN. A Network that has the VTEP's VNI as its own precedes others: it alone has it.
    """
    found = []
    for one in world.remote_vteps(port):
        namespace, spec = one.metadata.namespace, one.spec
        extended = world.shared(extension, namespace, spec.network)
        if extended is not None and one.metadata.name.endswith(".0") and _counts(world, one):
            found.append((extended.vni != spec.vni, _Holder(namespace, spec.network, one.metadata.name)))
    return min(found)[1] if found else None


def _nodes(world: World, address: addresses.Address) -> str:
    """Return the Node with an underlay address; "" where there is none."""
    return world.shared(_underlay).get(address, "")


def _underlay(world: World) -> dict[addresses.Address, str]:
    found = [one for one in world.all(Node) if addresses.is_ip(one.spec.underlay_ip)]
    return {addresses.address(one.spec.underlay_ip): one.metadata.name for one in found}
