"""Plans the VXLAN ports of a node that is the VTEP of its site: one for each remote VTEP and VNI.  Pure.

An agent may read the objects of its own node only. So it makes a port for a RemoteVTEP of this node if the namespace
has a BGPSpeaker here with the source address that the RemoteVTEP names. Whether the speaker forwards for the Network is
decided by the controller: without a logical port of that name on this node, OVN gives the VXLAN port no flows.

A port is more specific than the tunnels between the nodes of this cluster, and would take their packets. So an address
of a node is never that of a remote VTEP.
"""

from collections.abc import Container, Iterable

from msgspec import Struct

from netloom.plan import names


class VtepView(Struct, frozen=True):
    """What an agent reads of a RemoteVTEP: not its machines."""

    namespace: str
    name: str
    address: str
    vni: int
    local_vni: int
    local_address: str


class VxlanPort(Struct, frozen=True):
    """A VXLAN port, which leads to one VTEP."""

    of: VtepView
    """One of the objects that it is made for."""
    options: dict[str, str]


def plan_vxlan_ports(
    vteps: Iterable[VtepView], sources: Container[tuple[str, str]], nodes: Container[str]
) -> dict[str, VxlanPort]:
    """Return the ports of a node by name, which is also that of the logical port.

    `sources` are the namespaces and addresses of the node's speakers, `nodes` the addresses of this cluster's nodes. Of
    several Networks with the same VTEP and VNI, one that has this VNI at both ends has the port, then the first. So it
    is with several VNIs of a VTEP for one Network, which a route with the next hop of another site can make: Open
    vSwitch refuses a port that differs from another only in the VNI to the VTEP, whichever of them is there first.
    """
    found: dict[str, VxlanPort] = {}
    ends: set[tuple[str, str, int]] = set()
    """The two ends of each port, and the VNI from the VTEP."""
    for one in sorted(vteps, key=lambda one: (one.vni != one.local_vni, one.namespace, one.name)):
        if (one.namespace, one.local_address) not in sources or one.address in nodes:
            continue
        name, end = names.remote_vtep(one.address, one.vni), (one.address, one.local_address, one.local_vni)
        if name in found or end in ends:
            continue
        ends.add(end)
        options = {
            "remote_ip": one.address,
            "local_ip": one.local_address,
            "in_key": str(one.local_vni),
            "out_key": str(one.vni),
            "dst_port": "4789",
        }
        if one.vni == one.local_vni:
            options |= {"key": options.pop("in_key")}
            del options["out_key"]
        found[name] = VxlanPort(one, options)
    return found
