"""Network, Subnet, Router: segments, address blocks, and layer 3 between them."""

from enum import StrEnum
from typing import Annotated

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.scalars import (
    Cidr,
    Count,
    Interface,
    Ip,
    IpRange,
    LabelKey,
    Line,
    Mtu,
    Name,
    ObjectName,
    Seconds,
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


class Provider(Value, frozen=True, kw_only=True):
    """Joins a segment to a physical network."""

    physical_network: Annotated[Name, says("The physical network, as the nodes' bridge mappings name it.")]
    vlan: Annotated[Vlan | None, says("The VLAN on the physical network; absent: untagged.")] = None
    nodes: Annotated[LabelSelector | None, says("The nodes that have the physical network; absent: all.")] = None


class NetworkSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a network."""

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


class SubnetSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a subnet."""

    network: Annotated[ObjectName, says("The Network the block belongs to.")]
    cidr: Annotated[Cidr, says("The block, IPv4 or IPv6; blocks of one Network are disjoint.")]
    gateway: Annotated[Ip, says("The routers' address; absent: the first host address.")] = ""
    exclude: Annotated[tuple[IpRange, ...], says("Addresses never given away, and ranges of them.", maxItems=256)] = ()
    dhcp: Annotated[Dhcp | None, says("What machines are told by DHCP; absent: DHCP is not served.")] = None


class SubnetStatus(Status, frozen=True, kw_only=True):
    """What was seen of a subnet."""

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


class Route(Value, frozen=True, kw_only=True):
    """One route."""

    to: Annotated[Cidr, says("Where to.")]
    via: Annotated[Ip, says("Through which next hop.")]


class RouterPort(Value, frozen=True, kw_only=True):
    """A router's foot in a network."""

    network: Annotated[ObjectName, says("The Network.")]
    ips: Annotated[
        tuple[Interface, ...], says("The router's addresses; absent: the Subnets' gateways.", maxItems=16)
    ] = ()


class Gateway(Value, frozen=True, kw_only=True):
    """A router's way out."""

    network: Annotated[ObjectName, says("The provider Network.")]
    ips: Annotated[tuple[Interface, ...], says("The router's addresses there.", minItems=1, maxItems=16)]
    next_hop: Annotated[Ip, says("The router beyond.")] = ""
    nodes: Annotated[
        tuple[ObjectName, ...],
        says("The gateway nodes in order of preference; the next takes over when one is lost.", maxItems=16),
    ] = ()
    snat: Annotated[bool, says("Whether what goes out gets the gateway's address.", default=True)] = True


class NatType(StrEnum):
    """Which way addresses are translated."""

    SNAT = "snat"
    DNAT = "dnat"
    DNAT_AND_SNAT = "dnat_and_snat"


class Nat(Value, frozen=True, kw_only=True):
    """One translation."""

    type: Annotated[NatType, says("Which way.")]
    external: Annotated[Ip, says("The address outside.")]
    logical: Annotated[str, says("The address inside; for snat also a block.", minLength=2, maxLength=49)]


class RouterSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a router."""

    networks: Annotated[
        tuple[RouterPort, ...], says("The Networks it joins.", maxItems=128, list_map_keys=("network",))
    ] = ()
    routes: Annotated[tuple[Route, ...], says("Its static routes.", maxItems=256)] = ()
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

    network: Annotated[ObjectName, says("The Network.")]
    vni: Annotated[Vni, says("The Network's number.")]
    ip: Annotated[Ip, says("The address.")]


class IPLock(Resource, frozen=True, kw_only=True):
    """Hard state: this address belongs to that attachment, its first owner."""

    spec: IPLockSpec
    status: Status = Status()
