"""NetworkAttachment: one interface on one node; PortPool: ports made ahead of need."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.networks import Route
from netloom.model.rules import UNIQUE, Rule, immutable, never_when, only_when, required_when
from netloom.model.scalars import (
    AbsolutePath,
    Argument,
    Count,
    DeviceName,
    Int32,
    Interface,
    Ip,
    Line,
    Mac,
    ObjectName,
    Text,
    Timestamp,
    Uid,
    Vlan,
    Vni,
    says,
)
from netloom.model.status import Status


class PortType(StrEnum):
    """What the interface is made of."""

    INTERNAL = "internal"
    VETH = "veth"
    EXISTING = "existing"
    CHILD = "child"


class AttachmentPort(Value, frozen=True, kw_only=True):
    """The device an attachment is made of."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        required_when("netns", "type", "veth"),
        only_when("netns", "type", "veth"),
        required_when("device", "type", "existing"),
        only_when("device", "type", "existing"),
        required_when("parent", "type", "child"),
        only_when("parent", "type", "child"),
        required_when("vlan", "type", "child"),
        only_when("vlan", "type", "child"),
        never_when("name", "type", "child"),
    )

    type: Annotated[
        PortType,
        says(
            "internal: a device on the switch; veth: a pair, inner end in a namespace; existing: a NIC taken over; "
            "child: a VLAN of another attachment's device.",
            default="internal",
        ),
    ] = PortType.INTERNAL
    netns: Annotated[AbsolutePath, says("The network namespace of the inner end; for veth.")] = ""
    name: Annotated[DeviceName, says("The device's name as the workload sees it; absent: generated.")] = ""
    device: Annotated[DeviceName, says("The device taken over, and given back on deletion; for existing.")] = ""
    parent: Annotated[ObjectName, says("The NetworkAttachment, on the same node, whose VLAN it is; for child.")] = ""
    vlan: Annotated[Vlan | None, says("The VLAN its frames have on the parent's device; for child.")] = None


Exec = Annotated[
    tuple[Argument, ...],
    says(
        "A program by its absolute path, and its arguments, in which ${ifname}, ${ipv4} and ${mac} are filled in. "
        "Only programs the agent's configuration allows.",
        maxItems=64,
        rules=(
            Rule(
                "size(self) == 0 || self[0].startsWith('/')",
                lambda self: not self or self[0].startswith("/"),
                "must start with the absolute path of a program, such as /usr/bin/prog",
            ),
        ),
    ),
]


class NetworkAttachmentSpec(Value, frozen=True, kw_only=True):
    """What is wanted of an interface."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("node"), immutable("network"))

    node: Annotated[ObjectName, says("The Node it is on.")]
    network: Annotated[ObjectName, says("The Network it is in.")]
    subnets: Annotated[
        tuple[ObjectName, ...],
        says(
            "Where its addresses come from; absent: one validated Subnet for each family.", maxItems=16, list_type="set"
        ),
    ] = ()
    ips: Annotated[tuple[Ip, ...], says("The addresses asked for; absent: chosen.", maxItems=16, rules=(UNIQUE,))] = ()
    mac: Annotated[Mac, says("The MAC address asked for; absent: a function of VNI and first address.")] = ""
    port: Annotated[AttachmentPort, says("The device it is made of.", default={"type": "internal"})] = AttachmentPort()
    security_profiles: Annotated[
        tuple[ObjectName, ...], says("SecurityProfiles that cover it.", maxItems=64, list_type="set")
    ] = ()
    allowed_addresses: Annotated[
        tuple[Ip, ...],
        says("Addresses it may send from besides its own; the rest is dropped.", maxItems=64, list_type="set"),
    ] = ()
    routes: Annotated[tuple[Route, ...], says("Routes the workload gets.", maxItems=64)] = ()
    default_route: Annotated[bool, says("Whether the workload's default route goes here.", default=False)] = False
    post_create_exec: Annotated[Exec, says("Run on the node when the interface is made.")] = ()
    post_delete_exec: Annotated[Exec, says("Run on the node when the interface is gone.")] = ()


class AttachmentLock(Value, frozen=True, kw_only=True):
    """An address the attachment holds."""

    ip: Annotated[Ip, says("The address.")]
    uid: Annotated[Uid, says("The IPLock's uid.")]


class AttachmentErrors(Value, frozen=True, kw_only=True):
    """What is amiss, by who found it."""

    ipam: Annotated[tuple[Line, ...], says("Why it has no address.", maxItems=64)] = ()
    host: Annotated[tuple[Line, ...], says("Why the agent could not make it.", maxItems=64)] = ()


class ExecReport(Value, frozen=True, kw_only=True):
    """How running a program went."""

    command: Annotated[tuple[Argument, ...], says("What was run.", maxItems=64)] = ()
    exit_status: Annotated[Int32, says("Its exit status; negative: it could not be run.")] = 0
    start_time: Annotated[Timestamp, says("When it started.")] = ""
    stop_time: Annotated[Timestamp, says("When it ended.")] = ""
    std_out: Annotated[Text, says("What it printed.")] = ""
    std_err: Annotated[Text, says("What it complained of.")] = ""


class NetworkAttachmentStatus(Status, frozen=True, kw_only=True):
    """What was seen of an interface."""

    ips: Annotated[tuple[Interface, ...], says("Its addresses.", maxItems=16)] = ()
    mac: Annotated[Mac, says("Its MAC address.")] = ""
    vni: Annotated[Vni | None, says("Its Network's number.")] = None
    ifc_name: Annotated[DeviceName, says("The device on the node.")] = ""
    host_ip: Annotated[Ip, says("The node's underlay address.")] = field(default="", name="hostIP")
    locks: Annotated[
        tuple[AttachmentLock, ...], says("The addresses it holds.", maxItems=16, list_map_keys=("ip",))
    ] = ()
    errors: Annotated[AttachmentErrors, says("What is amiss.")] = AttachmentErrors()
    post_create_exec_report: Annotated[ExecReport | None, says("How postCreateExec went.")] = None


class NetworkAttachment(Resource, frozen=True, kw_only=True):
    """One interface on one node."""

    spec: NetworkAttachmentSpec
    status: NetworkAttachmentStatus = NetworkAttachmentStatus()


class PortPoolSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a pool."""

    node: Annotated[ObjectName, says("The Node the ports are on.")]
    network: Annotated[ObjectName, says("The Network they are in.")]
    size: Annotated[int, says("How many ports are kept ready.", format="int32", minimum=0, maximum=4096)]
    security_profiles: Annotated[
        tuple[ObjectName, ...], says("SecurityProfiles that cover them.", maxItems=64, list_type="set")
    ] = ()


class PortPoolStatus(Status, frozen=True, kw_only=True):
    """What was seen of a pool."""

    free: Annotated[Count, says("Ports ready to be taken.")] = 0
    used: Annotated[Count, says("Ports taken.")] = 0


class PortPool(Resource, frozen=True, kw_only=True):
    """Ports made ahead of need."""

    spec: PortPoolSpec
    status: PortPoolStatus = PortPoolStatus()
