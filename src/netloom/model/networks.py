"""Network, Subnet, Router: segments, address blocks, and layer 3 between them; IPLock, VNILock: what is taken."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model import addresses
from netloom.model.cluster import NODE_LABELS
from netloom.model.document import Document, Resource, Value
from netloom.model.policy import RouterPolicy
from netloom.model.rules import UNIQUE, Rule, immutable, once_set, only_when
from netloom.model.scalars import (
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
    says,
)
from netloom.model.selection import LabelSelector
from netloom.model.status import Status


class Fabric(StrEnum):
    """What carries a segment."""

    OVN = "ovn"
    VXLAN = "vxlan"
    LINUX = "linux"


def _selects_by_own_labels(provider: Document) -> bool:
    """Whether nodes are chosen by labels that a node may set itself."""
    nodes = provider.get("nodes") or {}
    keys = [*(nodes.get("matchLabels") or {}), *(one["key"] for one in nodes.get("matchExpressions") or ())]
    return any(key.startswith(NODE_LABELS) for key in keys)


class Provider(Value, frozen=True, kw_only=True):
    """Joins a segment to a physical network."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nodes) ||"
            f" (!has(self.nodes.matchLabels) || self.nodes.matchLabels.all(key, !key.startsWith('{NODE_LABELS}')))"
            " && (!has(self.nodes.matchExpressions)"
            f" || self.nodes.matchExpressions.all(one, !one.key.startsWith('{NODE_LABELS}')))",
            lambda self: not _selects_by_own_labels(self),
            f"must not select by labels under {NODE_LABELS}, which nodes set themselves: choose labels that an "
            "administrator sets",
            path=".nodes",
        ),
    )

    physical_network: Annotated[Name, says("The physical network, as the nodes' bridge mappings name it.")]
    vlan: Annotated[Vlan | None, says("The VLAN on the physical network; absent: untagged.")] = None
    nodes: Annotated[LabelSelector | None, says("The nodes that have the physical network; absent: all.")] = None


class NetworkSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a network."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("fabric"), once_set("vni"), only_when("provider", "fabric", "ovn"))

    fabric: Annotated[Fabric, says("What carries the segment.", default="ovn")] = Fabric.OVN
    vni: Annotated[Vni | None, says("Its number on the wire, unique over all namespaces; chosen when absent.")] = None
    mtu: Annotated[Mtu | None, says("The largest packet; absent: the underlay's, less the encapsulation.")] = None
    provider: Annotated[Provider | None, says("Joins the segment to a physical network; only with fabric ovn.")] = None


class NetworkStatus(Status, frozen=True, kw_only=True):
    """What was seen of a network."""

    vni: Annotated[Vni | None, says("The number the segment has on the wire.")] = None


class Network(Resource, frozen=True, kw_only=True):
    """One layer-2 segment."""

    spec: NetworkSpec
    status: NetworkStatus = NetworkStatus()


class Dhcp(Value, frozen=True, kw_only=True):
    """What machines are told by DHCP."""

    enabled: Annotated[bool, says("Whether DHCP is served.", default=True)] = True
    lease_seconds: Annotated[Seconds, says("How long a lease lasts.", minimum=60, default=3600)] = 3600
    dns_servers: Annotated[tuple[Ip, ...], says("The name servers.", maxItems=16)] = ()
    domain_name: Annotated[ObjectName, says("The domain.")] = ""
    options: Annotated[dict[LabelKey, Line], says("Further options, by OVN's names for them.", maxProperties=64)] = (
        field(default_factory=dict)
    )


def _within(spec: Document, name: str) -> bool:
    """Whether all addresses of a field are in the block, as far as they can be read."""
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
    """What is wanted of a subnet."""

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

    network: Annotated[ObjectName, says("The Network the block belongs to.")]
    cidr: Annotated[Cidr, says("The block, IPv4 or IPv6; blocks of one Network are disjoint.")]
    gateway: Annotated[Ip, says("The routers' address; absent: the first host address.")] = ""
    exclude: Annotated[tuple[IpRange, ...], says("Addresses never given away, and ranges of them.", maxItems=64)] = ()
    dhcp: Annotated[Dhcp | None, says("What machines are told by DHCP; absent: DHCP is not served.")] = None


class SubnetStatus(Status, frozen=True, kw_only=True):
    """What was seen of a subnet."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(oldSelf.validated) || !oldSelf.validated || (has(self.validated) && self.validated)",
            lambda new, old: not old.get("validated") or bool(new.get("validated")),
            "stays true once it is true",
            path=".validated",
        ),
    )

    validated: Annotated[bool, says("Whether the block was found to overlap no other; once true, it stays true.")] = (
        False
    )
    errors: Annotated[tuple[Line, ...], says("Why it is not validated.", maxItems=256)] = ()
    capacity: Annotated[Count | None, says("How many addresses can be given away.")] = None
    used: Annotated[Count | None, says("How many are given away.")] = None


class Subnet(Resource, frozen=True, kw_only=True):
    """An address block on a Network."""

    spec: SubnetSpec
    status: SubnetStatus = SubnetStatus()


def _one_family(value: Document, *names: str) -> bool:
    return len({addresses.family(value[name]) for name in names if name in value}) <= 1


class Route(Value, frozen=True, kw_only=True):
    """One route."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.to.contains(':') == self.via.contains(':')",
            lambda self: _one_family(self, "to", "via"),
            "must be of the same family as to",
            path=".via",
        ),
    )

    to: Annotated[Cidr, says("Where to.")]
    via: Annotated[Ip, says("Through which next hop.")]


class RouterPort(Value, frozen=True, kw_only=True):
    """A router's foot in a network."""

    network: Annotated[ObjectName, says("The Network.")]
    ips: Annotated[
        tuple[Interface, ...], says("The router's addresses; absent: the Subnets' gateways.", maxItems=16)
    ] = ()


def _next_hop_is_near(gateway: Document) -> bool:
    hop = gateway.get("nextHop", "")
    if not addresses.is_ip(hop) or not all(map(addresses.is_cidr, gateway["ips"])):
        return True
    return any(addresses.within(hop, ip) for ip in gateway["ips"])


class Gateway(Value, frozen=True, kw_only=True):
    """A router's way out."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.nextHop) || !isIP(self.nextHop) || !self.ips.all(i, isCIDR(i))"
            " || self.ips.exists(i, cidr(i).containsIP(self.nextHop))",
            _next_hop_is_near,
            "must be in the subnet of one of ips",
            path=".nextHop",
        ),
    )

    network: Annotated[ObjectName, says("The provider Network.")]
    ips: Annotated[tuple[Interface, ...], says("The router's addresses there.", minItems=1, maxItems=16)]
    next_hop: Annotated[Ip, says("The router beyond.")] = ""
    nodes: Annotated[
        tuple[ObjectName, ...],
        says(
            "The gateway nodes in order of preference; the next takes over when one is lost.",
            maxItems=16,
            rules=(UNIQUE,),
        ),
    ] = ()
    snat: Annotated[bool, says("Whether what goes out gets the gateway's address.", default=True)] = True


class NatType(StrEnum):
    """Which way addresses are translated."""

    SNAT = "snat"
    DNAT = "dnat"
    DNAT_AND_SNAT = "dnat_and_snat"


class Nat(Value, frozen=True, kw_only=True):
    """One translation."""

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

    type: Annotated[NatType, says("Which way.")]
    external: Annotated[Ip, says("The address outside.")]
    logical: Annotated[IpOrCidr, says("The address inside; for snat also a block.")]


class RouterSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a router."""

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
            "must not be one of networks: it is the way out",
            path=".gateway",
        ),
    )

    networks: Annotated[
        tuple[RouterPort, ...], says("The Networks it joins.", maxItems=128, list_map_keys=("network",))
    ] = ()
    routes: Annotated[tuple[Route, ...], says("Its static routes.", maxItems=256)] = ()
    policies: Annotated[
        tuple[RouterPolicy, ...],
        says("What is done with some packets instead; the order of the list means nothing.", maxItems=256),
    ] = ()
    gateway: Annotated[Gateway | None, says("The way out.")] = None
    nat: Annotated[tuple[Nat, ...], says("Address translations.", maxItems=512)] = ()


class RouterStatus(Status, frozen=True, kw_only=True):
    """What was seen of a router."""

    gateway_node: Annotated[ObjectName, says("The node that is the gateway now.")] = ""


class Router(Resource, frozen=True, kw_only=True):
    """Layer 3 between Networks, and to the outside."""

    spec: RouterSpec
    status: RouterStatus = RouterStatus()


class IPLockSpec(Value, frozen=True, kw_only=True):
    """Which address is taken."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("network"), immutable("vni"), immutable("ip"))

    network: Annotated[ObjectName, says("The Network.")]
    vni: Annotated[Vni, says("The Network's number.")]
    ip: Annotated[Ip, says("The address.")]


class IPLock(Resource, frozen=True, kw_only=True):
    """Hard state: this address belongs to that attachment, its first owner."""

    spec: IPLockSpec
    status: Status = Status()


class VNIHolder(Value, frozen=True, kw_only=True):
    """The Network that has a VNI."""

    namespace: Annotated[Name, says("The Network's namespace.")]
    name: Annotated[ObjectName, says("The Network's name.")]
    uid: Annotated[Uid, says("The Network's uid.")]


class VNILockSpec(Value, frozen=True, kw_only=True):
    """Which VNI is taken, and by whom."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("vni"), immutable("network"))

    vni: Annotated[Vni, says("The number.")]
    network: Annotated[VNIHolder, says("The Network that has it.")]


class VNILock(Resource, frozen=True, kw_only=True):
    """Hard state: this VNI belongs to that Network."""

    spec: VNILockSpec
