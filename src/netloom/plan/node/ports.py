"""One node's share: what an attachment means on the machine it is on.  Pure.

Of one attachment, its Network and the Network's Subnets comes one `PortPlan`: which device is on the switch, what the
workload sees and where, and what it is given; or the `Problem` that stands in the way; or nothing yet, while it has no
addresses. What OVN does with the port is planned elsewhere: the two meet in the port's name (`names.port`). So are the
flows of a Network that VXLAN carries (`plan/vxlan/fabric.py`): they meet in the port's number on the switch.

An attachment that is a VLAN of another's port is planned from its `Family` besides: its device is its parent's.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import Struct

from netloom.model import addresses
from netloom.model.attachments import AttachmentPort, NetworkAttachment, PortType
from netloom.model.conditions import ADDRESSED
from netloom.model.document import Resource
from netloom.model.networks import Fabric, Network, Subnet
from netloom.plan import names
from netloom.plan.addresses import blocks as addressing
from netloom.plan.node import children
from netloom.plan.node.grants import NodeGrants
from netloom.plan.node.hooks import Commands, commands
from netloom.plan.problem import Problem

GENEVE = 58
"""What Geneve adds to a packet over IPv4: Ethernet 14, IPv4 20, UDP 8, Geneve 8, OVN's option 8."""
GENEVE_V6 = 78
VXLAN = 50
"""What VXLAN adds: Ethernet 14, IPv4 20, UDP 8, VXLAN 8."""
VXLAN_V6 = 70
_RESERVED = re.compile(
    r"lo$|all$|default$|ovs-|ovn-|genev_sys_|vxlan_sys_|gre_sys$|br-int$|br-vxlan$|nl-vtep$|patch-|n[li][0-9a-f]{12}$"
)
"""Names of devices that the kernel, OVS and OVN make by themselves, and of those made here for others."""
LEAST_MTU = 1280
"""What IPv6 needs; a node whose underlay cannot carry that is told so by IPv6 itself."""


class PlannedRoute(NamedTuple):
    """One route the workload gets."""

    to: str
    via: str
    onlink: bool
    """Whether no address of the port says that `via` is its neighbour."""


class PortPlan(Struct, frozen=True, kw_only=True):
    """One port as it must be on this node."""

    uid: str
    """Of the attachment: one that is deleted and made again is another."""
    namespace: str
    name: str
    type: PortType
    device: str
    """The device on the switch."""
    inner: str
    """The device as the workload sees it: of a veth the other end, otherwise the same."""
    netns: str
    """Where `inner` is; "" is the node."""
    netns_root: str = ""
    """The part of that path that the node's operator wrote: below it no symbolic link is followed."""
    own_netns: str = ""
    """Of a veth: why `inner` may not be in the node's own network namespace, by whatever path; "": it may."""
    takes_used: bool = False
    """Of an existing device: whether it may be taken although another program uses it."""
    mac: str
    mtu: int
    fabric: Fabric = Fabric.OVN
    """What carries its Network."""
    vni: int = 0
    """Its Network's number on the wire; 0 where OVN sees to that."""
    addresses: tuple[str, ...] = ()
    """As 10.0.0.9/24; none for an existing device, whose owner sees to that."""
    routes: tuple[PlannedRoute, ...] = ()
    four_only: bool = False
    """Whether it is given addresses, and nothing that it says over IPv6 is let through."""
    runs: Commands = Commands((), ())
    """What is run when it is made, and when it is gone."""
    parent: str = ""
    """The attachment of whose device it is a VLAN: it has none of its own, and nothing is made for it."""
    parent_uid: str = ""
    vlan: int | None = None

    @property
    def generated(self) -> bool:
        """Whether the device's name was made here, from what nobody else has."""
        return self.device == names.interface(self.mac)

    @property
    def iface_id(self) -> str:
        """The logical port it is."""
        return names.port(self.namespace, self.name)


class Family(Struct, frozen=True):
    """What the plan of a child must know of others on its node."""

    parent: NetworkAttachment | None = None
    plan: "PortPlan | Problem | None" = None
    """What the parent comes to."""
    network: Network | None = None
    """The parent's."""
    rivals: tuple[str, ...] = ()
    """Who says to be the same VLAN of the same port, by name."""


class Host(Struct, frozen=True, kw_only=True):
    """What a plan must know of the node."""

    underlay_mtu: int = 1500
    underlay_v6: bool = False
    physical_networks: frozenset[str] = frozenset()
    """Those the node's bridge mappings name."""
    grants: NodeGrants = NodeGrants()
    """What namespaces may use here."""

    def mtu(self, fabric: Fabric) -> int:
        """Return the largest packet that fits into a tunnel."""
        v4, v6 = (VXLAN, VXLAN_V6) if fabric is Fabric.VXLAN else (GENEVE, GENEVE_V6)
        return max(LEAST_MTU, self.underlay_mtu - (v6 if self.underlay_v6 else v4))


def plan_port(
    attachment: NetworkAttachment,
    network: Network | None,
    subnets: Iterable[Subnet],
    host: Host,
    family: Family | None = None,
) -> PortPlan | Problem | None:
    """Return what an attachment means here; None: nothing yet, for it has no addresses or its Network is not known."""
    if network is None:
        return None
    spec, port, status = attachment.spec, attachment.spec.port, attachment.status
    kind, fabric = port.type, network.spec.fabric
    ours = kind is not PortType.EXISTING
    routes = _routes(attachment, _gateways(status.ips, subnets) if spec.default_route else ()) if ours else ()
    granted = _granted(attachment, routes, host.grants)
    if isinstance(granted, Problem):
        return granted  # Before all else: what was plugged while it was granted goes, whatever else is the matter.
    if fabric is Fabric.LINUX:
        return Problem("FabricNotSupported", f"Network {network.metadata.name} has fabric {fabric.value}")
    addressed = status.condition(ADDRESSED)
    if not status.mac or not status.ips or addressed is None or addressed.status != "True":
        return None
    if fabric is Fabric.VXLAN and status.vni is None:
        return None
    if kind is PortType.CHILD:
        return _child(attachment, network, family or Family())
    generated = names.interface(status.mac)
    problem = _unreachable(network, host.physical_networks) or _reserved(port, generated)
    if problem is not None:
        return problem
    device = {PortType.INTERNAL: port.name or generated, PortType.VETH: generated, PortType.EXISTING: port.device}[kind]
    # A generated name differs from the other end's: the namespace may be the node's own.
    inner = (port.name or "ni" + generated[2:]) if kind is PortType.VETH else device
    return PortPlan(
        uid=attachment.metadata.uid,
        namespace=attachment.metadata.namespace,
        name=attachment.metadata.name,
        type=kind,
        device=device,
        inner=inner,
        netns=port.netns if kind is PortType.VETH else "",
        netns_root=granted.netns_root,
        own_netns=granted.own_netns,
        takes_used=granted.takes_used,
        mac=status.mac,
        mtu=network.spec.mtu or (host.underlay_mtu if network.spec.provider else host.mtu(fabric)),
        fabric=fabric,
        vni=(status.vni or 0) if fabric is Fabric.VXLAN else 0,
        addresses=tuple(sorted(map(_written, status.ips))) if ours else (),
        routes=routes,
        four_only=ours and not any(":" in ip for ip in (*status.ips, *spec.allowed_addresses)),
        runs=commands(spec, device=device, ips=status.ips, mac=status.mac),
    )


def plan_ports(resources: Iterable[Resource], host: Host) -> dict[tuple[str, str], PortPlan | Problem | None]:
    """Return what all attachments among some resources mean on their nodes, of which `host` is what is known."""
    networks: dict[tuple[str, str], Network] = {}
    subnets: dict[tuple[str, str], list[Subnet]] = {}
    attachments: dict[tuple[str, str], NetworkAttachment] = {}
    for one in resources:
        match one:
            case Network():
                networks[one.metadata.namespace, one.metadata.name] = one
            case Subnet():
                subnets.setdefault((one.metadata.namespace, one.spec.network), []).append(one)
            case NetworkAttachment():
                attachments[one.metadata.namespace, one.metadata.name] = one
    found: dict[tuple[str, str], PortPlan | Problem | None] = {}
    ways: dict[tuple[str, ...], list[str]] = {}
    for one in attachments.values():
        ways.setdefault(_way(one), []).append(one.metadata.name)
    # Parents come first.
    for key, one in sorted(attachments.items(), key=lambda item: item[1].spec.port.type is PortType.CHILD):
        namespace, port = one.metadata.namespace, one.spec.port
        family = Family()
        parent = attachments.get((namespace, port.parent)) if port.parent else None
        if parent is not None and parent.spec.node == one.spec.node and not parent.metadata.deletion_timestamp:
            network = networks.get((namespace, parent.spec.network))
            family = Family(parent, found.get((namespace, port.parent)), network, tuple(ways[_way(one)]))
        at = namespace, one.spec.network
        found[key] = plan_port(one, networks.get(at), subnets.get(at, ()), host, family)
    return found


def _way(one: NetworkAttachment) -> tuple[str, ...]:
    port = one.spec.port
    return one.metadata.namespace, one.spec.node, port.parent, str(port.vlan)


def _child(attachment: NetworkAttachment, network: Network, family: Family) -> PortPlan | Problem | None:
    """Return what a VLAN of another attachment's port means here: nothing to make, but something to wait for."""
    spec, port, parent = attachment.spec, attachment.spec.port, family.parent
    if parent is None:
        return children.missing(port.parent, spec.node)
    problem = (
        children.childless(port.parent, parent.spec.port.parent)
        or children.carried("spec.network", network)
        or children.carried("spec.port.parent", family.network)
        or children.taken(port.parent, port.vlan, attachment.metadata.name, family.rivals)
    )
    if problem is not None or family.plan is None:
        return problem
    if isinstance(family.plan, Problem):
        said = f"spec.port.parent: {port.parent} cannot be plugged itself: {family.plan.message}"
        return Problem(children.NOT_PLUGGED, said)
    device = family.plan.device
    return PortPlan(
        uid=attachment.metadata.uid,
        namespace=attachment.metadata.namespace,
        name=attachment.metadata.name,
        type=port.type,
        device=device,
        inner=device,
        netns="",
        mac=attachment.status.mac,
        mtu=family.plan.mtu,
        runs=commands(spec, device=device, ips=attachment.status.ips, mac=attachment.status.mac),
        parent=port.parent,
        parent_uid=parent.metadata.uid,
        vlan=port.vlan,
    )


def gateway(subnet: Subnet) -> str:
    """Return a Subnet's gateway, given or the first host address; "" where the block has no room for one."""
    if subnet.spec.gateway:
        return subnet.spec.gateway
    block = addresses.block(subnet.spec.cidr)
    number = addressing.default_gateway(int(block.network_address), int(block.broadcast_address))
    return "" if number is None else str(type(block.network_address)(number))


def _written(ip: str) -> str:
    """Return an address as the kernel writes it, so that what is seen can be compared with what is wanted."""
    return str(addresses.interface(ip)) if ":" in ip else ip  # IPv4 can be written in one way only.


def _unreachable(network: Network, physical: Collection[str]) -> Problem | None:
    provider = network.spec.provider
    if provider is None or provider.physical_network in physical:
        return None
    return Problem(
        "PhysicalNetworkMissing",
        f"this node has no bridge for physical network {provider.physical_network}: see --bridge-mappings",
    )


def _reserved(port: AttachmentPort, own: str) -> Problem | None:
    """Refuse, for a device on the node, a name that OVS, OVN or another attachment's device may need."""
    name = port.name
    if port.type is not PortType.INTERNAL or name == own or not _RESERVED.match(name):
        return None
    return Problem(
        "NameReserved", f"spec.port.name: {name} is a name that the switch, or another port, may need: choose another"
    )


class _Granted(NamedTuple):
    """By what a port may be, as the plan of it has that."""

    netns_root: str = ""
    own_netns: str = ""
    takes_used: bool = False


def _granted(attachment: NetworkAttachment, routes: Iterable[PlannedRoute], grants: NodeGrants) -> _Granted | Problem:
    """Return what this node's operator grants of a port, or why it is refused."""
    namespace, port, status = attachment.metadata.namespace, attachment.spec.port, attachment.status
    if port.type is PortType.CHILD:
        return _Granted()  # It has no device of its own.
    if port.type is PortType.EXISTING:
        found = grants.device(namespace, port.device)
        return found if isinstance(found, Problem) else _Granted(takes_used=found.used)
    generated = not port.name or (bool(status.mac) and port.name == names.interface(status.mac))
    to = (route.to for route in routes)
    here = grants.internal(namespace, port.name, status.ips, to, generated=generated)
    if port.type is PortType.INTERNAL:
        return here or _Granted()
    root = grants.folder(namespace, port.netns)
    return root if isinstance(root, Problem) else _Granted(root, here.message if here else "")


def _gateways(ips: Iterable[str], subnets: Iterable[Subnet]) -> list[str]:
    """Return the gateways of the Subnets that some addresses are from, at most one of each family."""
    found: dict[int, str] = {}
    for subnet in sorted(subnets, key=lambda one: one.metadata.name):
        family = addresses.family(subnet.spec.cidr)
        if family in found or not subnet.status.validated:
            continue
        if any(addresses.within(ip.partition("/")[0], subnet.spec.cidr) for ip in ips):
            found[family] = gateway(subnet)
    return [found[family] for family in sorted(found) if found[family]]


def _routes(attachment: NetworkAttachment, gateways: Iterable[str]) -> tuple[PlannedRoute, ...]:
    own = {ip.partition("/")[0] for ip in attachment.status.ips}
    wanted = {str(addresses.masked(route.to)): str(addresses.address(route.via)) for route in attachment.spec.routes}
    for via in gateways:
        if via not in own:
            wanted.setdefault("::/0" if addresses.family(via) == 6 else "0.0.0.0/0", via)
    return tuple(
        PlannedRoute(to, via, not any(addresses.within(via, ip) for ip in attachment.status.ips))
        for to, via in sorted(wanted.items())
    )
