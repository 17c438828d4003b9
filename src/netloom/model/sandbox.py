"""Sandbox: a cyber-range topology, and where to put it.

The topology is in the words of the CyberRangeCZ platform, which are snake_case, so that a topology file can be pasted
in. Checks that need the whole topology (names that exist, addresses inside their networks) are the sandbox door's.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from netloom.model.document import Resource, Value
from netloom.model.paths import QUALITY_RULES, Quality
from netloom.model.rules import Rule, at_least_one
from netloom.model.scalars import Cidr, Count, Ip, Line, ObjectName, TopologyName, Word, says
from netloom.model.status import Status


class Backend(StrEnum):
    """What a sandbox is built of."""

    OVN = "ovn"
    LINUX = "linux"


class BaseBox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine is made from."""

    image: Annotated[Word, says("The image.", minLength=1)]
    mgmt_user: Annotated[Word, says("The user management logs in as.")] = ""
    mgmt_protocol: Annotated[Word, says("How management logs in: SSH or WINRM.")] = ""
    mgmt_password: Annotated[Word, says("The password management logs in with.")] = ""
    man_user: Annotated[Word, says("The old name of mgmt_user.")] = ""
    mng_protocol: Annotated[Word, says("The old name of mgmt_protocol.")] = ""


class Volume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A disk."""

    size: Annotated[int, says("Its size in GB.", format="int32", minimum=1, maximum=1048576)]


class TopologyHost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine of a topology."""

    name: Annotated[TopologyName, says("Its name.")]
    base_box: Annotated[BaseBox | None, says("What it is made from.")] = None
    flavor: Annotated[Word, says("How big it is.")] = ""
    block_internet: Annotated[bool, says("Whether the way out is closed to it.")] = False
    hidden: Annotated[bool, says("Whether people do not see it.")] = False
    extra: Annotated[dict[str, Any] | None, says("What other tools want to know.")] = None
    volumes: Annotated[tuple[Volume, ...], says("Its disks.", maxItems=32)] = ()
    visible_by_roles: Annotated[tuple[Word, ...], says("Who sees it.", maxItems=64)] = ()


class TopologyRouter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router of a topology."""

    name: Annotated[TopologyName, says("Its name.")]
    base_box: Annotated[BaseBox | None, says("What it is made from.")] = None
    flavor: Annotated[Word, says("How big it is.")] = ""
    extra: Annotated[dict[str, Any] | None, says("What other tools want to know.")] = None
    hidden: Annotated[bool, says("Whether people do not see it.")] = False


class Wan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The network between the routers."""

    name: Annotated[TopologyName, says("Its name.", default="wan")] = "wan"
    cidr: Annotated[Cidr, says("Its block.", default="100.100.100.0/24")] = "100.100.100.0/24"


class TopologyNetwork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network of a topology."""

    name: Annotated[TopologyName, says("Its name.")]
    cidr: Annotated[Cidr, says("Its block.")]
    accessible_by_user: Annotated[bool, says("Whether people can get into it.", default=True)] = True
    hidden: Annotated[bool, says("Whether people do not see it.")] = False
    accessible_by_roles: Annotated[tuple[Word, ...], says("Who can get into it.", maxItems=64)] = ()


class NetMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host's link to a network."""

    host: Annotated[TopologyName, says("The host.")]
    network: Annotated[TopologyName, says("The network.")]
    ip: Annotated[Ip, says("The host's address.")]


class RouterMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router's link to a network."""

    router: Annotated[TopologyName, says("The router.")]
    network: Annotated[TopologyName, says("The network.")]
    ip: Annotated[Ip, says("The router's address.")]


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machines that belong together."""

    name: Annotated[Word, says("Its name.", minLength=1)]
    nodes: Annotated[tuple[TopologyName, ...], says("Its members.", maxItems=512)] = ()


class Topology(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topology, in the CyberRangeCZ format."""

    name: Annotated[TopologyName, says("Its name.")]
    hosts: Annotated[tuple[TopologyHost, ...], says("The machines.", maxItems=512)] = ()
    routers: Annotated[tuple[TopologyRouter, ...], says("The routers.", maxItems=128)] = ()
    wan: Annotated[Wan | None, says("The network between the routers.")] = None
    networks: Annotated[tuple[TopologyNetwork, ...], says("The networks.", maxItems=256)] = ()
    net_mappings: Annotated[tuple[NetMapping, ...], says("Which host is in which network.", maxItems=1024)] = ()
    router_mappings: Annotated[tuple[RouterMapping, ...], says("Which router is in which network.", maxItems=512)] = ()
    groups: Annotated[tuple[Group, ...], says("Which machines belong together.", maxItems=256)] = ()
    monitoring_targets: Annotated[Any, says("What is monitored.")] = None
    vpn: Annotated[dict[str, Any] | None, says("How people get in.")] = None
    network_forwarding: Annotated[dict[str, Any] | None, says("Which traffic is copied where.")] = None
    roles: Annotated[Any, says("Who people can be.")] = None


class Placement(Value, frozen=True, kw_only=True):
    """Which node a host is put on."""

    default: Annotated[ObjectName, says("Where hosts go that are not named.")] = ""
    hosts: Annotated[dict[Line, ObjectName], says("The Node of each host that is named.", maxProperties=1024)] = field(
        default_factory=dict
    )


class SandboxLink(Quality, frozen=True, kw_only=True):
    """The quality of one host's link to one network."""

    RULES: ClassVar[tuple[Rule, ...]] = (at_least_one("rate", "delay", "loss"), *QUALITY_RULES)

    host: Annotated[TopologyName, says("The host, or the router.")]
    network: Annotated[TopologyName, says("The network of the topology.")]


class SandboxSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a sandbox."""

    backend: Annotated[Backend, says("What it is built of.", default="ovn")] = Backend.OVN
    topology: Annotated[Topology, says("The topology, in the CyberRangeCZ format.")]
    placement: Annotated[Placement | None, says("Which Node each host is put on.")] = None
    links: Annotated[
        tuple[SandboxLink, ...], says("The quality of links.", maxItems=1024, list_map_keys=("host", "network"))
    ] = ()


class SandboxStatus(Status, frozen=True, kw_only=True):
    """What was seen of a sandbox."""

    networks: Annotated[Count, says("Networks made.")] = 0
    routers: Annotated[Count, says("Routers made.")] = 0
    hosts: Annotated[Count, says("Hosts that are attached.")] = 0


class Sandbox(Resource, frozen=True, kw_only=True):
    """A cyber-range topology, and where to put it."""

    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()
