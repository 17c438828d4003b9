"""Plans the port of an attachment on its node.  Pure.

An attachment, its Network and the Network's Subnets give one `PortPlan`: the device on the switch, what the workload
sees and where, and its addresses and routes; or the `Problem` that prevents it; or nothing yet, while it has no
addresses. A pod's port has a plan while a container runtime has named the pod's network namespace to the agent
(`plan/node/pods.py`); until then it is `Waiting`, or `staged` if it is a free port of a PortPool. OVN's part of the
port is planned in `plan/ovn`: the two meet in the port's name (`names.port`). The flows of a vxlan Network are planned
in `plan/vxlan/fabric.py`: they meet in the port's OpenFlow number. The bridge of a linux Network is planned in
`plan/node/bridges.py`: they meet in its VNI.

A child, which is a VLAN of another attachment's port, is also planned from its `ParentPort`: it uses its parent's
device.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import Struct

from netloom.model.conditions import ADDRESSED
from netloom.model.document import Resource
from netloom.model.kinds.attachments import AttachmentPort, NetworkAttachment, PortType
from netloom.model.kinds.networks import Fabric, Network, Subnet
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.addresses import blocks as addressing
from netloom.plan.node import children
from netloom.plan.node.bridges import restricted
from netloom.plan.node.grants import NodeGrants
from netloom.plan.node.hooks import Commands, commands
from netloom.plan.node.pods import PodSandbox, is_for
from netloom.plan.policy.impairment import PortImpairment, port_impairment
from netloom.plan.pools import is_free
from netloom.plan.problem import Problem, Waiting

GENEVE = 58
"""Bytes that Geneve adds to a packet over IPv4: Ethernet 14, IPv4 20, UDP 8, Geneve 8, OVN's option 8."""
GENEVE_V6 = 78
VXLAN = 50
"""Bytes that VXLAN adds: Ethernet 14, IPv4 20, UDP 8, VXLAN 8."""
VXLAN_V6 = 70
_RESERVED = re.compile(
    r"lo$|all$|default$|ovs-|ovn-|genev_sys_|vxlan_sys_|gre_sys$|br-int$|br-vxlan$|br-nl|nl-vtep$|patch-|n[lipr][0-9a-f]{12}$"
)
"""Names of devices that the kernel, OVS and OVN create, and of those that the agent creates for other ports."""
LEAST_MTU = 1280
"""The least MTU of IPv6 (RFC 8200, section 5)."""
NO_SANDBOX = Waiting("NoSandbox", "waiting for the container runtime to add the pod's interface")


PAIRED = (PortType.VETH, PortType.POD)
"""The types of ports that are pairs of veths."""


class PlannedRoute(NamedTuple):
    """One route of the workload."""

    to: str
    via: str
    onlink: bool
    """Whether `via` is outside the blocks of all addresses of the port."""


class PortPlan(Struct, frozen=True, kw_only=True):
    """The desired state of one port on this node."""

    uid: str
    """The uid of the attachment: one that is deleted and made again is another."""
    namespace: str
    name: str
    type: PortType
    device: str
    """The device on the switch."""
    inner: str
    """The device that the workload sees: the other end of a veth, otherwise `device`."""
    netns: str
    """The network namespace of `inner`; "" is the node's own."""
    creates_netns: bool = False
    """Whether that namespace is created if there is none."""
    netns_root: str = ""
    """The part of that path that the node's operator set: below it no symbolic link is followed."""
    netns_identity: str = ""
    """The identity of that namespace, if only this very one will do; "": whichever is at the path."""
    own_netns: str = ""
    """For a pair: why `inner` may not be in the node's own network namespace, whatever the path; "": it may."""
    takes_used: bool = False
    """For an existing device: whether it may be taken although another program uses it."""
    mac: str
    mtu: int
    fabric: Fabric = Fabric.OVN
    """The fabric of its Network."""
    vni: int = 0
    """The VNI of its Network; 0 where OVN chooses the number on the wire."""
    addresses: tuple[str, ...] = ()
    """As 10.0.0.9/24; none for an existing device, which its owner configures."""
    routes: tuple[PlannedRoute, ...] = ()
    four_only: bool = False
    """Whether it has IPv4 addresses only, so that all IPv6 that it sends is dropped."""
    runs: Commands = Commands((), ())
    """The programs to run after it is made, and after it is removed."""
    parent: str = ""
    """For a child: the attachment whose device carries it; a child has no device of its own."""
    parent_uid: str = ""
    vlan: int | None = None
    link_down: bool = False
    """Whether `device` is down; the other end of a veth then has no carrier."""
    impairment: PortImpairment | None = None
    """What happens to its packets besides being carried."""
    staged: bool = False
    """Whether it is made ahead, for a pod that is to come: `inner` waits in the node's own namespace, down and without
    addresses."""

    @property
    def paired(self) -> bool:
        """Whether it is a veth pair, with its inner end in a network namespace of the workload."""
        return self.type in PAIRED

    @property
    def relayed(self) -> bool:
        """Whether a process passes its packets between the workload's pair and the switch."""
        return self.impairment is not None and self.impairment.userspace

    @property
    def outer(self) -> str:
        """The outer end of the workload's pair: the device on the switch, or behind the relay."""
        return names.interface(self.mac) if self.relayed else self.device

    @property
    def generated(self) -> bool:
        """Whether the device's name is derived from its MAC, and so is unique."""
        return self.device == names.interface(self.mac)

    @property
    def iface_id(self) -> str:
        """The name of its logical port."""
        return names.port(self.namespace, self.name)


class ParentPort(Struct, frozen=True, kw_only=True):
    """What the plan of a child needs to know of its parent, and of other attachments on its node."""

    attachment: NetworkAttachment | None = None
    plan: "PortPlan | Problem | Waiting | None" = None
    network: Network | None = None
    rivals: tuple[str, ...] = ()
    """The names of the attachments that ask for the same VLAN of the same port."""


class Host(Struct, frozen=True, kw_only=True):
    """What plans need to know of the node."""

    underlay_mtu: int = 1500
    underlay_v6: bool = False
    physical_networks: frozenset[str] = frozenset()
    """The physical networks in the node's bridge mappings."""
    capabilities: frozenset[str] = frozenset()
    """The features of its kernel and its agent."""
    grants: NodeGrants = NodeGrants()
    """What the node's operator grants to namespaces."""

    def mtu(self, fabric: Fabric) -> int:
        """Return the MTU of ports whose packets go through a tunnel."""
        v4, v6 = (GENEVE, GENEVE_V6) if fabric is Fabric.OVN else (VXLAN, VXLAN_V6)
        return max(LEAST_MTU, self.underlay_mtu - (v6 if self.underlay_v6 else v4))


def host_of(
    underlay: str,
    *,
    mtu: int | None,
    physical_networks: Iterable[str],
    grants: NodeGrants,
    capabilities: Iterable[str] = (),
) -> Host:
    """Return what plans need to know of a node; `mtu` is that of the device with the underlay address."""
    return Host(
        underlay_mtu=1500 if mtu is None else mtu,
        underlay_v6=":" in underlay,
        physical_networks=frozenset(physical_networks),
        capabilities=frozenset(capabilities),
        grants=grants,
    )


def plan_port(
    attachment: NetworkAttachment,
    network: Network | None,
    subnets: Iterable[Subnet],
    host: Host,
    parent: ParentPort | None = None,
    shapings: Iterable[Shaping] = (),
    sandbox: PodSandbox | None = None,
    profiles: Iterable[SecurityProfile] = (),
) -> PortPlan | Problem | Waiting | None:
    """Return the port of an attachment, or what prevents it; None while it has no addresses or no known Network.

    `shapings` are those that name the attachment as their start; `sandbox` is that of its pod, if there is one;
    `profiles` are those of the namespace, which matter on fabric linux.
    """
    if network is None:
        return None
    spec, port, status = attachment.spec, attachment.spec.port, attachment.status
    kind, fabric = port.type, network.spec.fabric
    ours = kind is not PortType.EXISTING
    routes = _routes(attachment, _gateways(status.ips, subnets) if spec.default_route else ()) if ours else ()
    granted = _granted(attachment, routes, host.grants)
    if isinstance(granted, Problem):
        return granted  # First: a port that was plugged while it was granted is removed, whatever else is wrong.
    if fabric is Fabric.LINUX and (problem := restricted(attachment, profiles)) is not None:
        return problem
    addressed = status.condition(ADDRESSED)
    if not status.mac or not status.ips or addressed is None or addressed.status != "True":
        return None
    if fabric is not Fabric.OVN and status.vni is None:
        return None
    if kind is PortType.CHILD:
        return _child(attachment, network, parent or ParentPort())
    generated = names.interface(status.mac)
    problem = _unreachable(network, host.physical_networks) or _reserved(port, generated)
    if problem is not None:
        return problem
    staged = kind is PortType.POD and sandbox is None
    if staged and not is_free(attachment.metadata):
        return NO_SANDBOX
    paired = kind in PAIRED
    impairment = port_impairment(shapings, host.capabilities) if paired and not staged else None
    device = generated if paired else port.device if kind is PortType.EXISTING else port.name or generated
    runs = commands(spec, device=device, ips=status.ips, mac=status.mac)
    if impairment is not None and impairment.userspace:
        device, _ = names.relay(status.mac)
    # The two generated names differ: both ends may be in the node's own namespace.
    inner = (port.name or names.inner(status.mac)) if kind is PortType.VETH else device
    netns = port.netns
    if kind is PortType.POD and sandbox is not None:
        inner, netns = sandbox.device, sandbox.netns
    if staged:
        inner = names.inner(status.mac)
    return PortPlan(
        uid=attachment.metadata.uid,
        namespace=attachment.metadata.namespace,
        name=attachment.metadata.name,
        type=kind,
        device=device,
        inner=inner,
        netns=netns,
        creates_netns=port.create_netns,
        netns_root=granted.netns_root,
        netns_identity=sandbox.identity if kind is PortType.POD and sandbox is not None else "",
        own_netns="" if staged else granted.own_netns,
        takes_used=granted.takes_used,
        mac=status.mac,
        mtu=network.spec.mtu or (host.underlay_mtu if network.spec.provider else host.mtu(fabric)),
        fabric=fabric,
        vni=(status.vni or 0) if fabric is not Fabric.OVN else 0,
        addresses=tuple(sorted(map(_written, status.ips))) if ours else (),
        routes=routes,
        four_only=ours and not any(":" in ip for ip in (*status.ips, *spec.allowed_addresses)),
        runs=runs,
        impairment=impairment,
        link_down=spec.link_down,
        staged=staged,
    )


def plan_ports(
    resources: Iterable[Resource], host: Host, sandboxes: Iterable[PodSandbox] = ()
) -> dict[tuple[str, str], PortPlan | Problem | Waiting | None]:
    """Return the plans of all attachments among some resources, for a node like `host` with these pods."""
    pods = {(one.namespace, one.name): one for one in sandboxes}
    networks: dict[tuple[str, str], Network] = {}
    subnets: dict[tuple[str, str], list[Subnet]] = {}
    attachments: dict[tuple[str, str], NetworkAttachment] = {}
    shapings: dict[tuple[str, str], list[Shaping]] = {}
    profiles: dict[str, list[SecurityProfile]] = {}
    for one in resources:
        match one:
            case Network():
                networks[one.metadata.namespace, one.metadata.name] = one
            case Subnet():
                subnets.setdefault((one.metadata.namespace, one.spec.network), []).append(one)
            case Shaping():
                shapings.setdefault((one.metadata.namespace, one.spec.from_.attachment), []).append(one)
            case SecurityProfile():
                profiles.setdefault(one.metadata.namespace, []).append(one)
            case NetworkAttachment():
                attachments[one.metadata.namespace, one.metadata.name] = one
    found: dict[tuple[str, str], PortPlan | Problem | Waiting | None] = {}
    rivals: dict[tuple[str, ...], list[str]] = {}
    for one in attachments.values():
        rivals.setdefault(_parent_vlan(one), []).append(one.metadata.name)
    # Parents come first.
    for key, one in sorted(attachments.items(), key=lambda item: item[1].spec.port.type is PortType.CHILD):
        namespace, port = one.metadata.namespace, one.spec.port
        parent_port = ParentPort()
        parent = attachments.get((namespace, port.parent)) if port.parent else None
        if parent is not None and parent.spec.node == one.spec.node and not parent.metadata.deletion_timestamp:
            parent_port = ParentPort(
                attachment=parent,
                plan=found.get((namespace, port.parent)),
                network=networks.get((namespace, parent.spec.network)),
                rivals=tuple(rivals[_parent_vlan(one)]),
            )
        at = namespace, one.spec.network
        pod = pods.get(key)
        sandbox = pod if pod is not None and is_for(pod, one) else None
        mine = shapings.get(key, ())
        rules = profiles.get(namespace, ())
        found[key] = plan_port(one, networks.get(at), subnets.get(at, ()), host, parent_port, mine, sandbox, rules)
    return found


def _parent_vlan(one: NetworkAttachment) -> tuple[str, ...]:
    port = one.spec.port
    return one.metadata.namespace, one.spec.node, port.parent, str(port.vlan)


def _child(attachment: NetworkAttachment, network: Network, parent: ParentPort) -> PortPlan | Problem | Waiting | None:
    """Return the plan of a child: nothing has to be made for it, but its parent's device must be there."""
    spec, port = attachment.spec, attachment.spec.port
    if parent.attachment is None:
        return children.missing(port.parent, spec.node)
    problem = (
        children.childless(port.parent, parent.attachment.spec.port.parent)
        or children.carried("spec.network", network)
        or children.carried("spec.port.parent", parent.network)
        or children.taken(port.parent, port.vlan, attachment.metadata.name, parent.rivals)
    )
    if problem is not None or parent.plan is None:
        return problem
    if isinstance(parent.plan, Waiting):
        return parent.plan
    if isinstance(parent.plan, Problem):
        message = f"spec.port.parent: {port.parent} cannot be plugged itself: {parent.plan.message}"
        return Problem(children.NOT_PLUGGED, message)
    device = parent.plan.device
    return PortPlan(
        uid=attachment.metadata.uid,
        namespace=attachment.metadata.namespace,
        name=attachment.metadata.name,
        type=port.type,
        device=device,
        inner=device,
        netns="",
        mac=attachment.status.mac,
        mtu=parent.plan.mtu,
        runs=commands(spec, device=device, ips=attachment.status.ips, mac=attachment.status.mac),
        parent=port.parent,
        parent_uid=parent.attachment.metadata.uid,
        vlan=port.vlan,
    )


def gateway(subnet: Subnet) -> str:
    """Return a Subnet's gateway, by default its first host address; "" if the block is too small for one."""
    if subnet.spec.gateway:
        return subnet.spec.gateway
    block = addresses.block(subnet.spec.cidr)
    number = addressing.default_gateway(int(block.network_address), int(block.broadcast_address))
    return "" if number is None else str(type(block.network_address)(number))


def _written(ip: str) -> str:
    """Return an address as the kernel writes it, so that observed and desired addresses can be compared."""
    return str(addresses.interface(ip)) if ":" in ip else ip  # There is one notation of IPv4.


def _unreachable(network: Network, physical: Collection[str]) -> Problem | None:
    provider = network.spec.provider
    if provider is None or provider.physical_network in physical:
        return None
    return Problem(
        "PhysicalNetworkMissing",
        f"this node has no bridge for physical network {provider.physical_network}: see --bridge-mappings",
    )


def _reserved(port: AttachmentPort, own: str) -> Problem | None:
    """Refuse a device name on the node that OVS, OVN or another attachment's device may need."""
    name = port.name
    if port.type is not PortType.INTERNAL or name == own or not _RESERVED.match(name):
        return None
    return Problem(
        "NameReserved", f"spec.port.name: {name} is reserved for the switch and for other ports: choose another"
    )


class _Granted(NamedTuple):
    """What the operator's grants mean for one port."""

    netns_root: str = ""
    own_netns: str = ""
    takes_used: bool = False


def _granted(attachment: NetworkAttachment, routes: Iterable[PlannedRoute], grants: NodeGrants) -> _Granted | Problem:
    """Return what this node's operator grants to a port, or why the port is refused."""
    namespace, port, status = attachment.metadata.namespace, attachment.spec.port, attachment.status
    if port.type is PortType.CHILD:
        return _Granted()  # It has no device of its own.
    if port.type is PortType.POD:
        # The container runtime, which is root on the node, names the namespace.
        return _Granted(own_netns="a pod's interface is in the pod's own network namespace")
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
    """Return the gateways of the Subnets of some addresses, at most one per address family."""
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
