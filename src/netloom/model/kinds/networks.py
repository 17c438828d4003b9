"""Network, Subnet, Router: segments, address blocks, and routing; IPLock, VNILock: allocations."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Document, Resource, Value
from netloom.model.kinds.cluster import NODE_LABELS
from netloom.model.kinds.policy import RouterPolicy
from netloom.model.schemas.rules import UNIQUE, Rule, immutable, once_set, only_when
from netloom.model.selection import LabelSelector
from netloom.model.status import Status
from netloom.model.values import addresses
from netloom.model.values.scalars import (
    Cidr,
    Count,
    Interface,
    Ip,
    IpOrCidr,
    IpRange,
    LabelKey,
    Line,
    Mtu,
    Name,
    ObjectName,
    Seconds,
    Uid,
    Vlan,
    Vni,
    meta,
)


class Fabric(StrEnum):
    """The implementation of a Network."""

    OVN = "ovn"
    VXLAN = "vxlan"
    LINUX = "linux"


def _selects_by_own_labels(provider: Document) -> bool:
    """Whether the provider selects nodes by labels that a node may set itself."""
    nodes = provider.get("nodes") or {}
    keys = [*(nodes.get("matchLabels") or {}), *(one["key"] for one in nodes.get("matchExpressions") or ())]
    return any(key.startswith(NODE_LABELS) for key in keys)


class Provider(Value, frozen=True, kw_only=True):
    """The connection of a Network to a physical network."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nodes) ||"
            f" (!has(self.nodes.matchLabels) || self.nodes.matchLabels.all(key, !key.startsWith('{NODE_LABELS}')))"
            " && (!has(self.nodes.matchExpressions)"
            f" || self.nodes.matchExpressions.all(one, !one.key.startsWith('{NODE_LABELS}')))",
            lambda self: not _selects_by_own_labels(self),
            f"must not select by labels under {NODE_LABELS}, which nodes set themselves: use labels that an "
            "administrator sets",
            path=".nodes",
        ),
    )

    physical_network: Annotated[Name, meta("The name of the physical network in the nodes' bridge mappings.")]
    vlan: Annotated[Vlan | None, meta("The VLAN ID on the physical network. Untagged if absent.")] = None
    nodes: Annotated[
        LabelSelector | None, meta("The Nodes that are connected to the physical network. All Nodes if absent.")
    ] = None


class NetworkSpec(Value, frozen=True, kw_only=True):
    """Desired state of a network."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("fabric"), once_set("vni"), only_when("provider", "fabric", "ovn"))

    fabric: Annotated[
        Fabric,
        meta("The implementation: ovn; vxlan, which needs no OVN; or linux, switches that learn.", default="ovn"),
    ] = Fabric.OVN
    vni: Annotated[
        Vni | None, meta("The VXLAN or Geneve network identifier, unique across namespaces. Allocated if absent.")
    ] = None
    mtu: Annotated[
        Mtu | None, meta("The MTU of attached interfaces. If absent, the MTU of the underlay minus the encapsulation.")
    ] = None
    provider: Annotated[Provider | None, meta("Connects the Network to a physical network. Only for fabric ovn.")] = (
        None
    )


class NetworkStatus(Status, frozen=True, kw_only=True):
    """Observed state of a network."""

    vni: Annotated[Vni | None, meta("The allocated VNI.")] = None


class Network(Resource, frozen=True, kw_only=True):
    """A layer 2 segment."""

    spec: NetworkSpec
    status: NetworkStatus = NetworkStatus()


class Dhcp(Value, frozen=True, kw_only=True):
    """The DHCP configuration of a subnet."""

    enabled: Annotated[bool, meta("Whether DHCP requests are answered.", default=True)] = True
    lease_seconds: Annotated[Seconds, meta("The lease time in seconds.", minimum=60, default=3600)] = 3600
    dns_servers: Annotated[tuple[Ip, ...], meta("DNS servers for clients.", maxItems=16)] = ()
    domain_name: Annotated[
        ObjectName, meta("The DNS domain of clients. If set, names of attachments in this domain are resolved.")
    ] = ""
    options: Annotated[dict[LabelKey, Line], meta("Further DHCP options, by their names in OVN.", maxProperties=64)] = (
        field(default_factory=dict)
    )


def _within(spec: Document, name: str) -> bool:
    """Whether all well-formed addresses of a field are in the block."""
    ends = [end for text in _texts(spec.get(name, ())) for end in text.split("-")]
    if not addresses.is_cidr(spec["cidr"]):
        return True
    return all(addresses.within(end, spec["cidr"]) for end in ends if addresses.is_ip(end))


def _texts(value: str | Iterable[str]) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _gateway_is_a_host(spec: Document) -> bool:
    if "gateway" not in spec or not addresses.is_ip(spec["gateway"]) or not addresses.is_cidr(spec["cidr"]):
        return True
    block = addresses.interface(spec["cidr"]).network
    return block.num_addresses <= 2 or addresses.address(spec["gateway"]) != block.network_address


class SubnetSpec(Value, frozen=True, kw_only=True):
    """Desired state of a subnet."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        immutable("network"),
        immutable("cidr"),
        Rule(
            "!has(self.gateway) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.gateway)",
            lambda self: _within(self, "gateway"),
            "must be an address inside cidr",
            path=".gateway",
        ),
        Rule(
            "!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr)"
            " || cidr(self.cidr).prefixLength() >= (cidr(self.cidr).ip().family() == 4 ? 31 : 127)"
            " || !cidr(self.gateway + (ip(self.gateway).family() == 4 ? '/32' : '/128'))"
            ".containsIP(cidr(self.cidr).ip())",
            _gateway_is_a_host,
            "must not be the address of the block itself",
            path=".gateway",
        ),
        Rule(
            "!has(self.exclude) || !isCIDR(self.cidr)"
            " || self.exclude.all(r, r.split('-').all(a, !isIP(a) || cidr(self.cidr).containsIP(a)))",
            lambda self: _within(self, "exclude"),
            "must be addresses inside cidr",
            path=".exclude",
        ),
    )

    network: Annotated[ObjectName, meta("The Network of the block.")]
    cidr: Annotated[Cidr, meta("The IPv4 or IPv6 address block. Blocks of one Network must not overlap.")]
    gateway: Annotated[Ip, meta("The gateway address of the block. The first host address if absent.")] = ""
    exclude: Annotated[tuple[IpRange, ...], meta("Addresses and ranges that are never allocated.", maxItems=64)] = ()
    dhcp: Annotated[Dhcp | None, meta("The DHCP configuration. If absent, DHCP requests are not answered.")] = None


class SubnetStatus(Status, frozen=True, kw_only=True):
    """Observed state of a subnet."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(oldSelf.validated) || !oldSelf.validated || (has(self.validated) && self.validated)",
            lambda new, old: not old.get("validated") or bool(new.get("validated")),
            "must stay true once it is true",
            path=".validated",
        ),
    )

    validated: Annotated[
        bool, meta("Whether the block overlaps no other block of the Network. Never changes back to false.")
    ] = False
    errors: Annotated[tuple[Line, ...], meta("Why the Subnet is not valid.", maxItems=256)] = ()
    capacity: Annotated[Count | None, meta("The number of addresses that can be allocated.")] = None
    used: Annotated[Count | None, meta("The number of allocated addresses.")] = None


class Subnet(Resource, frozen=True, kw_only=True):
    """An address block of a Network."""

    spec: SubnetSpec
    status: SubnetStatus = SubnetStatus()


def _one_family(value: Document, *names: str) -> bool:
    return len({addresses.family(value[name]) for name in names if name in value}) <= 1


class Route(Value, frozen=True, kw_only=True):
    """A static route."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.to.contains(':') == self.via.contains(':')",
            lambda self: _one_family(self, "to", "via"),
            "must be of the same family as to",
            path=".via",
        ),
    )

    to: Annotated[Cidr, meta("The destination.")]
    via: Annotated[Ip, meta("The next hop.")]


class RouterPort(Value, frozen=True, kw_only=True):
    """A router port: the connection of a router to a Network."""

    network: Annotated[ObjectName, meta("The Network.")]
    ips: Annotated[
        tuple[Interface, ...],
        meta("The addresses of the router port. The gateways of the Network's Subnets if absent.", maxItems=16),
    ] = ()
    link_down: Annotated[bool, meta("Whether the link is down: packets are dropped in both directions.")] = False


def _next_hop_is_near(gateway: Document) -> bool:
    hop = gateway.get("nextHop", "")
    if not addresses.is_ip(hop) or not all(map(addresses.is_cidr, gateway["ips"])):
        return True
    return any(addresses.within(hop, ip) for ip in gateway["ips"])


class Gateway(Value, frozen=True, kw_only=True):
    """The external gateway of a router."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nextHop) || !isIP(self.nextHop) || !self.ips.all(i, isCIDR(i))"
            " || self.ips.exists(i, cidr(i).containsIP(self.nextHop))",
            _next_hop_is_near,
            "must be in the subnet of one of ips",
            path=".nextHop",
        ),
    )

    network: Annotated[ObjectName, meta("The provider Network.")]
    ips: Annotated[
        tuple[Interface, ...], meta("The addresses of the router in the provider Network.", minItems=1, maxItems=16)
    ]
    next_hop: Annotated[Ip, meta("The next hop of the default route.")] = ""
    nodes: Annotated[
        tuple[ObjectName, ...],
        meta(
            "The gateway Nodes in order of priority. If one fails, the next one takes over.",
            maxItems=16,
            rules=(UNIQUE,),
        ),
    ] = ()
    snat: Annotated[
        bool, meta("Whether the source address of outgoing packets becomes the gateway's address.", default=True)
    ] = True


class NatType(StrEnum):
    """The type of an address translation."""

    SNAT = "snat"
    DNAT = "dnat"
    DNAT_AND_SNAT = "dnat_and_snat"


class Nat(Value, frozen=True, kw_only=True):
    """An address translation rule."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.type == 'snat' || !self.logical.contains('/')",
            lambda self: self["type"] == "snat" or "/" not in self["logical"],
            "may be a block only when type is snat",
            path=".logical",
        ),
        Rule(
            "self.external.contains(':') == self.logical.contains(':')",
            lambda self: _one_family(self, "external", "logical"),
            "must be of the same family as external",
            path=".logical",
        ),
    )

    type: Annotated[NatType, meta("The type of translation.")]
    external: Annotated[Ip, meta("The external address.")]
    logical: Annotated[IpOrCidr, meta("The internal address. A block is allowed for type snat.")]


class RouterSpec(Value, frozen=True, kw_only=True):
    """Desired state of a router."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nat) || size(self.nat) == 0 || has(self.gateway)",
            lambda self: not self.get("nat") or "gateway" in self,
            "needs a gateway",
            path=".nat",
        ),
        Rule(
            "!has(self.gateway) || !has(self.networks) || self.networks.all(n, n.network != self.gateway.network)",
            lambda self: (
                "gateway" not in self
                or all(port["network"] != self["gateway"]["network"] for port in self.get("networks", ()))
            ),
            "must not be one of networks: it is the external network",
            path=".gateway",
        ),
    )

    networks: Annotated[
        tuple[RouterPort, ...], meta("The Networks that the router connects.", maxItems=128, list_map_keys=("network",))
    ] = ()
    routes: Annotated[tuple[Route, ...], meta("Static routes.", maxItems=256)] = ()
    policies: Annotated[
        tuple[RouterPolicy, ...],
        meta("Router policies. They are ordered by priority, not by their position in the list.", maxItems=2400),
    ] = ()
    gateway: Annotated[Gateway | None, meta("The external gateway.")] = None
    nat: Annotated[tuple[Nat, ...], meta("Address translation rules at the gateway.", maxItems=512)] = ()


class RouterStatus(Status, frozen=True, kw_only=True):
    """Observed state of a router."""

    gateway_node: Annotated[ObjectName, meta("The Node that is the active gateway.")] = ""


class Router(Resource, frozen=True, kw_only=True):
    """A router between Networks, with an optional external gateway."""

    spec: RouterSpec
    status: RouterStatus = RouterStatus()


class IPLockSpec(Value, frozen=True, kw_only=True):
    """The allocated address."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("network"), immutable("vni"), immutable("ip"))

    network: Annotated[ObjectName, meta("The Network.")]
    vni: Annotated[Vni, meta("The VNI of the Network.")]
    ip: Annotated[Ip, meta("The address.")]


class IPLock(Resource, frozen=True, kw_only=True):
    """The allocation of an address to the attachment that is its first owner."""

    spec: IPLockSpec
    status: Status = Status()


class VNIHolder(Value, frozen=True, kw_only=True):
    """The Network that holds a VNI."""

    namespace: Annotated[Name, meta("The namespace of the Network.")]
    name: Annotated[ObjectName, meta("The name of the Network.")]
    uid: Annotated[Uid, meta("The uid of the Network.")]


class VNILockSpec(Value, frozen=True, kw_only=True):
    """An allocated VNI and its holder."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("vni"), immutable("network"))

    vni: Annotated[Vni, meta("The VNI.")]
    network: Annotated[VNIHolder, meta("The Network that holds it.")]


class VNILock(Resource, frozen=True, kw_only=True):
    """The allocation of a VNI to a Network."""

    spec: VNILockSpec
