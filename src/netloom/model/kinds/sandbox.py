"""Sandbox: a cyber-range topology, and its placement on nodes.

The topology uses the field names of the CyberRangeCZ platform, which are snake_case, so that a topology file can be
pasted in. Checks that need the whole topology (names that exist, addresses inside their networks) belong to the
frontend for sandboxes, which does not exist yet.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from netloom.model.document import Resource, Value
from netloom.model.kinds.paths import QUALITY_RULES, Quality
from netloom.model.schemas.rules import Rule, at_least_one
from netloom.model.status import Status
from netloom.model.values.scalars import Cidr, Count, Ip, Line, ObjectName, TopologyName, Word, meta


class Backend(StrEnum):
    """The implementation of a sandbox."""

    OVN = "ovn"
    LINUX = "linux"


class BaseBox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The image of a machine, and how to log in to it."""

    image: Annotated[Word, meta("The name of the image.", minLength=1)]
    mgmt_user: Annotated[Word, meta("The management user.")] = ""
    mgmt_protocol: Annotated[Word, meta("The management protocol: SSH or WINRM.")] = ""
    mgmt_password: Annotated[Word, meta("The password of the management user.")] = ""
    man_user: Annotated[Word, meta("Deprecated name of mgmt_user.")] = ""
    mng_protocol: Annotated[Word, meta("Deprecated name of mgmt_protocol.")] = ""


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
    volumes: Annotated[tuple[Volume, ...], meta("The disks.", maxItems=32)] = ()
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
    monitoring_targets: Annotated[Any, meta("The monitoring targets.")] = None
    vpn: Annotated[dict[str, Any] | None, meta("The VPN configuration.")] = None
    network_forwarding: Annotated[dict[str, Any] | None, meta("The traffic forwarding configuration.")] = None
    roles: Annotated[Any, meta("The roles of users.")] = None


class Placement(Value, frozen=True, kw_only=True):
    """The placement of hosts on Nodes."""

    default: Annotated[ObjectName, meta("The Node of hosts that are not listed in hosts.")] = ""
    hosts: Annotated[
        dict[Line, ObjectName], meta("The Node of each host, by name of the host.", maxProperties=1024)
    ] = field(default_factory=dict)


class SandboxLink(Quality, frozen=True, kw_only=True):
    """The quality of the link of a host to a network."""

    RULES: ClassVar[tuple[Rule, ...]] = (at_least_one("rate", "delay", "loss"), *QUALITY_RULES)

    host: Annotated[TopologyName, meta("The host or router.")]
    network: Annotated[TopologyName, meta("The network of the topology.")]


class SandboxSpec(Value, frozen=True, kw_only=True):
    """Desired state of a sandbox."""

    backend: Annotated[Backend, meta("The implementation of the sandbox.", default="ovn")] = Backend.OVN
    topology: Annotated[Topology, meta("The topology, in the CyberRangeCZ format.")]
    placement: Annotated[Placement | None, meta("The placement of hosts on Nodes.")] = None
    links: Annotated[
        tuple[SandboxLink, ...],
        meta("Rate limits and impairments of single links.", maxItems=1024, list_map_keys=("host", "network")),
    ] = ()


class SandboxStatus(Status, frozen=True, kw_only=True):
    """Observed state of a sandbox."""

    networks: Annotated[Count, meta("The number of networks created.")] = 0
    routers: Annotated[Count, meta("The number of routers created.")] = 0
    hosts: Annotated[Count, meta("The number of hosts attached.")] = 0


class Sandbox(Resource, frozen=True, kw_only=True):
    """A cyber-range topology, and its placement on nodes."""

    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()
