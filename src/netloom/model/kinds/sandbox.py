"""Sandbox: a cyber-range topology, and its placement on nodes.  HostDocument: what one node must have for it.

The topology uses the field names of the CyberRangeCZ platform, which are snake_case, so that a topology file can be
pasted in. Checks that need the whole topology (names that exist, addresses inside their networks) are in
model/topology/checks.py; the API and the readers of files apply them. `plan/sandbox` plans the objects of a Sandbox.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from netloom.model.document import Resource, Value
from netloom.model.kinds.networks import Gateway
from netloom.model.kinds.paths import QUALITY_RULES, DesiredQuality
from netloom.model.schemas.rules import Rule, at_least_one, exactly_one, immutable
from netloom.model.status import Status
from netloom.model.values.scalars import Cidr, Count, Ip, Line, Mac, ObjectName, Port, TopologyName, Word, meta


class Backend(StrEnum):
    """The implementation of a sandbox."""

    OVN = "ovn"
    LINUX = "linux"


PROTOCOL_PATTERN = "^([sS][sS][hH]|[wW][iI][nN][rR][mM])$"
PROTOCOL = meta(pattern=PROTOCOL_PATTERN, must="be SSH or WINRM")


class BaseBox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The image of a machine, and how to log in to it."""

    image: Annotated[Word, meta("The name of the image.", minLength=1)]
    mgmt_user: Annotated[Word, meta("The management user.")] = ""
    mgmt_protocol: Annotated[Word, PROTOCOL, meta("The management protocol: SSH or WINRM.")] = ""
    mgmt_password: Annotated[Word, meta("The password of the management user.")] = ""
    man_user: Annotated[Word, meta("Deprecated name of mgmt_user.")] = ""
    mng_protocol: Annotated[Word, PROTOCOL, meta("Deprecated name of mgmt_protocol.")] = ""


class Volume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A disk."""

    size: Annotated[int, meta("The size in GB.", format="int32", minimum=1, maximum=1048576)]


class TopologyHost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine of a topology."""

    name: Annotated[TopologyName, meta("The name.")]
    base_box: Annotated[BaseBox | None, meta("The image, and how to log in to it.")] = None
    flavor: Annotated[Word, meta("The flavor: the size of the machine.")] = ""
    block_internet: Annotated[bool, meta("Whether access to the Internet is blocked.")] = False
    hidden: Annotated[bool, meta("Whether it is hidden from users.")] = False
    extra: Annotated[dict[str, Any] | None, meta("Data for other tools.")] = None
    volumes: Annotated[tuple[Volume, ...], meta("The disks.", minItems=1, maxItems=32)] = ()
    visible_by_roles: Annotated[tuple[Word, ...], meta("The roles that can see it.", maxItems=64)] = ()


class TopologyRouter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router of a topology."""

    name: Annotated[TopologyName, meta("The name.")]
    base_box: Annotated[BaseBox | None, meta("The image, and how to log in to it.")] = None
    flavor: Annotated[Word, meta("The flavor: the size of the machine.")] = ""
    extra: Annotated[dict[str, Any] | None, meta("Data for other tools.")] = None
    hidden: Annotated[bool, meta("Whether it is hidden from users.")] = False


class Wan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The network between the routers."""

    name: Annotated[TopologyName, meta("The name.", default="wan")] = "wan"
    cidr: Annotated[Cidr, meta("The address block.", default="100.100.100.0/24")] = "100.100.100.0/24"


class TopologyNetwork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network of a topology."""

    name: Annotated[TopologyName, meta("The name.")]
    cidr: Annotated[Cidr, meta("The address block.")]
    accessible_by_user: Annotated[bool, meta("Whether users can access the network.", default=True)] = True
    hidden: Annotated[bool, meta("Whether it is hidden from users.")] = False
    accessible_by_roles: Annotated[tuple[Word, ...], meta("The roles that can access the network.", maxItems=64)] = ()


class NetMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host's link to a network."""

    host: Annotated[TopologyName, meta("The host.")]
    network: Annotated[TopologyName, meta("The network.")]
    ip: Annotated[Ip, meta("The address of the host.")]


class RouterMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router's link to a network."""

    router: Annotated[TopologyName, meta("The router.")]
    network: Annotated[TopologyName, meta("The network.")]
    ip: Annotated[Ip, meta("The address of the router.")]


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of machines."""

    name: Annotated[Word, meta("The name.", minLength=1)]
    nodes: Annotated[tuple[TopologyName, ...], meta("The members of the group.", maxItems=512)] = ()


class TcpTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A TCP port to monitor, on an interface or at an address."""

    port: Annotated[Port, meta("The port.")]
    interface: Annotated[Word, meta("The interface. Exactly one of interface and address must be set.")] = ""
    address: Annotated[Word, meta("The address or address block.")] = ""


class TcpMonitoring(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The monitored TCP ports of a machine."""

    node: Annotated[TopologyName, meta("The host or router.")]
    targets: Annotated[tuple[TcpTarget, ...], meta("The ports.", maxItems=64)] = ()


class IcmpTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface or address to ping."""

    interface: Annotated[Word, meta("The interface. Exactly one of interface and address must be set.")] = ""
    address: Annotated[Word, meta("The address or address block.")] = ""


class IcmpMonitoring(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pinged interfaces and addresses of a machine."""

    node: Annotated[TopologyName, meta("The host or router.")]
    targets: Annotated[tuple[IcmpTarget, ...], meta("The interfaces and addresses.", maxItems=64)] = ()


class HttpTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page to fetch."""

    url: Annotated[Line, meta("The URL: http or https.")]
    check_string: Annotated[Line, meta("A text that the page must contain.")] = ""


class HttpMonitoring(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The monitored pages."""

    targets: Annotated[tuple[HttpTarget, ...], meta("The pages.", maxItems=256)] = ()


class MonitoringTargets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is monitored."""

    tcp: Annotated[tuple[TcpMonitoring, ...], meta("TCP ports, by machine.", maxItems=640)] = ()
    icmp: Annotated[
        tuple[IcmpMonitoring, ...], meta("Interfaces and addresses to ping, by machine.", maxItems=640)
    ] = ()
    http: Annotated[HttpMonitoring | None, meta("Pages to fetch.")] = None


class VpnEntrypoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine that is a gateway of the VPN."""

    name: Annotated[TopologyName, meta("The host or router.")]
    routes: Annotated[tuple[Word, ...], meta("The address blocks behind the gateway.", maxItems=64)] = ()


class VpnDns(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The DNS settings of VPN clients."""

    servers: Annotated[tuple[Word, ...], meta("The addresses of the DNS servers.", maxItems=16)] = ()
    search_domains: Annotated[tuple[Word, ...], meta("The search domains.", maxItems=16)] = ()


class Vpn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The VPN into the sandbox."""

    entrypoints: Annotated[tuple[VpnEntrypoint, ...], meta("The gateways.", maxItems=64)] = ()
    dns: Annotated[VpnDns | None, meta("The DNS settings of clients.")] = None


class ForwardingDirection(StrEnum):
    """The direction of mirrored traffic, from the point of view of the source."""

    IN = "in"
    OUT = "out"
    BOTH = "both"


class ForwardingPoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The link of a machine to a network."""

    host: Annotated[TopologyName, meta("The host or router.")]
    network: Annotated[TopologyName, meta("The network.")]


class NetworkForwarding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Copies of traffic: from the links of some machines to a link of another."""

    sources: Annotated[tuple[ForwardingPoint, ...], meta("The links whose traffic is copied.", maxItems=256)] = ()
    destination: Annotated[ForwardingPoint, meta("The link that receives the copies.")]
    direction: Annotated[ForwardingDirection, meta("The direction of the copied traffic.", default="both")] = (
        ForwardingDirection.BOTH
    )


class Topology(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topology, in the CyberRangeCZ format."""

    name: Annotated[TopologyName, meta("The name.")]
    hosts: Annotated[tuple[TopologyHost, ...], meta("The hosts.", maxItems=512)] = ()
    routers: Annotated[tuple[TopologyRouter, ...], meta("The routers.", maxItems=128)] = ()
    wan: Annotated[Wan | None, meta("The network between the routers.")] = None
    networks: Annotated[tuple[TopologyNetwork, ...], meta("The networks.", maxItems=256)] = ()
    net_mappings: Annotated[tuple[NetMapping, ...], meta("The networks of each host.", maxItems=1024)] = ()
    router_mappings: Annotated[tuple[RouterMapping, ...], meta("The networks of each router.", maxItems=512)] = ()
    groups: Annotated[tuple[Group, ...], meta("Groups of machines.", maxItems=256)] = ()
    monitoring_targets: Annotated[MonitoringTargets | None, meta("What is monitored.")] = None
    vpn: Annotated[Vpn | None, meta("The VPN into the sandbox.")] = None
    network_forwarding: Annotated[NetworkForwarding | None, meta("Copies of traffic.")] = None
    roles: Annotated[tuple[Word, ...], meta("The roles of users.", maxItems=64)] = ()


class Placement(Value, frozen=True, kw_only=True):
    """The placement of hosts on Nodes."""

    default: Annotated[ObjectName, meta("The Node of hosts that are not listed in hosts.")] = ""
    hosts: Annotated[
        dict[Line, ObjectName], meta("The Node of each host, by name of the host.", maxProperties=1024)
    ] = field(default_factory=dict)


class SandboxLink(DesiredQuality, frozen=True, kw_only=True):
    """The quality of the link of a host or router to a network."""

    RULES: ClassVar[tuple[Rule, ...]] = (at_least_one("rate", "delay", "loss"), *QUALITY_RULES)

    host: Annotated[TopologyName, meta("The host or router.")]
    network: Annotated[TopologyName, meta("The network of the topology.")]


class SandboxMac(Value, frozen=True, kw_only=True):
    """The MAC address of a host in a network."""

    host: Annotated[TopologyName, meta("The host.")]
    network: Annotated[TopologyName, meta("The network of the topology.")]
    mac: Annotated[Mac, meta("The MAC address.")]


class LinkDown(Value, frozen=True, kw_only=True):
    """A link that is down."""

    host: Annotated[TopologyName, meta("The host or router.")]
    network: Annotated[TopologyName, meta("The network of the topology. All links of the machine if absent.")] = ""


class Partition(Value, frozen=True, kw_only=True):
    """Hosts that cannot reach each other."""

    members: Annotated[tuple[Word, ...], meta("Hosts, networks and groups of the topology.", minItems=1, maxItems=256)]
    from_: Annotated[
        tuple[Word, ...],
        meta("The hosts, networks and groups on the other side. All other hosts if absent.", maxItems=256),
    ] = field(default=(), name="from")


class Fault(Value, frozen=True, kw_only=True):
    """A deliberate fault: exactly one of linkDown and partition."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("linkDown", "partition"),)

    name: Annotated[Word, meta("The name of the fault.", minLength=1)]
    link_down: Annotated[LinkDown | None, meta("The links of a machine are down.")] = None
    partition: Annotated[Partition | None, meta("Hosts cannot reach each other.")] = None


class SandboxSpec(Value, frozen=True, kw_only=True):
    """Desired state of a sandbox."""

    backend: Annotated[Backend, meta("The implementation of the sandbox.", default="ovn")] = Backend.OVN
    topology: Annotated[Topology, meta("The topology, in the CyberRangeCZ format.")]
    placement: Annotated[Placement | None, meta("The placement of hosts on Nodes.")] = None
    links: Annotated[
        tuple[SandboxLink, ...],
        meta("Rate limits and impairments of single links.", maxItems=1024, list_map_keys=("host", "network")),
    ] = ()
    gateway: Annotated[
        Gateway | None,
        meta("The way out of the sandbox: the external gateway of `man`. If absent, nothing leaves the sandbox."),
    ] = None
    run: Annotated[
        bool,
        meta(
            "Whether hosts run as network namespaces. Each is created on its Node as /run/netns/SANDBOX-HOST. If not, "
            "an interface is plugged once a namespace of that name exists."
        ),
    ] = False
    macs: Annotated[
        tuple[SandboxMac, ...],
        meta(
            "The MAC addresses of hosts. Derived if absent. An entry for a link that does not exist has no effect.",
            maxItems=1024,
            list_map_keys=("host", "network"),
        ),
    ] = ()
    faults: Annotated[
        tuple[Fault, ...],
        meta(
            "Deliberate faults. They last until they are removed: netloom sandbox fault.",
            maxItems=64,
            list_map_keys=("name",),
        ),
    ] = ()


class SandboxStatus(Status, frozen=True, kw_only=True):
    """Observed state of a sandbox."""

    networks: Annotated[Count, meta("The number of Networks, the WAN included.")] = 0
    routers: Annotated[Count, meta("The number of Routers, `man` included.")] = 0
    hosts: Annotated[Count, meta("The number of hosts whose attachments are all Ready.")] = 0


class Sandbox(Resource, frozen=True, kw_only=True):
    """A cyber-range topology, and its placement on nodes."""

    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()


REMOVED = "Removed"
"""The condition of a deleted HostDocument whose node has nothing of it any more."""


class HostDocumentSpec(Value, frozen=True, kw_only=True):
    """What a node must have for a Sandbox on the backend `linux`."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("node"),)

    node: Annotated[ObjectName, meta("The Node whose agent applies the document.")]
    hosts: Annotated[
        dict[Line, Word],
        meta("The network namespace of each host that is on the Node, by name of the host.", maxProperties=1024),
    ] = field(default_factory=dict)
    document: Annotated[
        dict[str, Any], meta("Namespaces, bridges, tunnels, interfaces, routes, filters and DHCP servers.")
    ]


class HostDocumentStatus(Status, frozen=True, kw_only=True):
    """What a node has of a document, as its agent reports it."""

    applied_generation: Annotated[Count, meta("The generation whose document the node has.")] = 0
    digest: Annotated[Word, meta("SHA-256 of the document that the node has.")] = ""
    namespaces: Annotated[Count, meta("The number of network namespaces.")] = 0
    networks: Annotated[Count, meta("The number of networks: bridges of the node.")] = 0
    interfaces: Annotated[Count, meta("The number of interfaces in network namespaces.")] = 0
    problems: Annotated[tuple[Line, ...], meta("What the node cannot do; the rest is done.", maxItems=100)] = ()


class HostDocument(Resource, frozen=True, kw_only=True):
    """What one node must have for a Sandbox on the backend `linux`.  The controller creates the object."""

    spec: HostDocumentSpec
    status: HostDocumentStatus = HostDocumentStatus()
