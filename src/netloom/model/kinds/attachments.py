"""NetworkAttachment: one interface on one node; PortPool: ports created in advance."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.kinds.networks import Route
from netloom.model.schemas.rules import UNIQUE, Rule, immutable, never_when, only_when, required_when
from netloom.model.status import Status
from netloom.model.values.scalars import (
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
    meta,
)


class PortType(StrEnum):
    """The type of device behind an attachment."""

    INTERNAL = "internal"
    VETH = "veth"
    EXISTING = "existing"
    CHILD = "child"
    POD = "pod"


class AttachmentPort(Value, frozen=True, kw_only=True):
    """The device behind an attachment."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        required_when("netns", "type", "veth"),
        only_when("netns", "type", "veth"),
        only_when("createNetns", "type", "veth"),
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
        meta(
            "internal: an internal port of the switch. veth: a veth pair whose inner end is in a network namespace. "
            "existing: an existing device that is moved to the switch. child: a VLAN of another attachment's device. "
            "pod: a veth pair whose inner end goes into the network namespace that a container runtime names by CNI.",
            default="internal",
        ),
    ] = PortType.INTERNAL
    netns: Annotated[AbsolutePath, meta("Path of the network namespace of the inner end. Only for type veth.")] = ""
    create_netns: Annotated[
        bool,
        meta(
            "Whether the agent creates the network namespace if there is none. It removes a namespace that it created "
            "with the last attachment that names it. Only for type veth."
        ),
    ] = False
    name: Annotated[
        DeviceName,
        meta("Name of the device in the workload. Generated if absent; for type pod, the container runtime names it."),
    ] = ""
    device: Annotated[
        DeviceName, meta("The existing device, released when the attachment is deleted. Only for type existing.")
    ] = ""
    parent: Annotated[ObjectName, meta("The parent NetworkAttachment, on the same node. Only for type child.")] = ""
    vlan: Annotated[Vlan | None, meta("The VLAN ID of its frames on the parent's device. Only for type child.")] = None


_COMMAND = (
    "the absolute path of a program, and its arguments, in which ${ifname}, ${ipv4} and ${mac} are replaced. "
    "The agent's configuration must allow the program."
)
Exec = Annotated[
    tuple[Argument, ...],
    meta(
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
    """Desired state of an interface."""

    RULES: ClassVar[tuple[Rule, ...]] = (immutable("node"), immutable("network"))

    node: Annotated[ObjectName, meta("The Node of the interface.")]
    network: Annotated[ObjectName, meta("The Network of the interface.")]
    subnets: Annotated[
        tuple[ObjectName, ...],
        meta(
            "The Subnets to allocate addresses from. If absent, one validated Subnet per address family.",
            maxItems=16,
            list_type="set",
        ),
    ] = ()
    ips: Annotated[
        tuple[Ip, ...],
        meta("The requested addresses. Allocated automatically if absent.", maxItems=16, rules=(UNIQUE,)),
    ] = ()
    mac: Annotated[Mac, meta("The requested MAC address. Derived from the VNI and the first address if absent.")] = ""
    port: Annotated[AttachmentPort, meta("The device behind the attachment.", default={"type": "internal"})] = (
        AttachmentPort()
    )
    security_profiles: Annotated[
        tuple[ObjectName, ...],
        meta("SecurityProfiles that apply to it, besides those that select it.", maxItems=64, list_type="set"),
    ] = ()
    allowed_addresses: Annotated[
        tuple[Ip, ...],
        meta(
            "Source addresses it may use besides its own. Packets from any other address are dropped.",
            maxItems=64,
            list_type="set",
        ),
    ] = ()
    routes: Annotated[tuple[Route, ...], meta("Routes to set in the workload.", maxItems=64)] = ()
    default_route: Annotated[bool, meta("Whether the workload's default route uses this interface.", default=False)] = (
        False
    )
    forwarding: Annotated[
        bool,
        meta(
            "Whether the workload forwards packets of others: what it sends may have any source address, and what is "
            "routed to it any destination. Its MAC address is checked all the same. Only for fabric ovn."
        ),
    ] = False
    link_down: Annotated[
        bool,
        meta(
            "Whether the link is down: packets are dropped in both directions, and the workload's device has no "
            "carrier. An internal or existing device is set down."
        ),
    ] = False
    post_create_exec: Annotated[
        Exec, meta(f"Command to run on the node after the interface is created: {_COMMAND}")
    ] = ()
    post_delete_exec: Annotated[
        Exec, meta(f"Command to run on the node after the interface is removed: {_COMMAND}")
    ] = ()


class AttachmentLock(Value, frozen=True, kw_only=True):
    """An address that the attachment holds."""

    ip: Annotated[Ip, meta("The address.")]
    uid: Annotated[Uid, meta("The uid of the IPLock.")]


class AttachmentErrors(Value, frozen=True, kw_only=True):
    """Errors, by the component that found them."""

    ipam: Annotated[tuple[Line, ...], meta("Why no address was allocated.", maxItems=64)] = ()
    host: Annotated[tuple[Line, ...], meta("Why the agent could not create the interface.", maxItems=64)] = ()


class ExecReport(Value, frozen=True, kw_only=True):
    """The result of running a command."""

    command: Annotated[tuple[Argument, ...], meta("The command that was run.", maxItems=64)] = ()
    exit_status: Annotated[Int32, meta("The exit status. Negative if the command could not be run.")] = 0
    start_time: Annotated[Timestamp, meta("When it started.")] = ""
    stop_time: Annotated[Timestamp, meta("When it ended.")] = ""
    std_out: Annotated[Text, meta("Standard output.")] = ""
    std_err: Annotated[Text, meta("Standard error.")] = ""


class NetworkAttachmentStatus(Status, frozen=True, kw_only=True):
    """Observed state of an interface."""

    ips: Annotated[tuple[Interface, ...], meta("The allocated addresses.", maxItems=16)] = ()
    mac: Annotated[Mac, meta("The MAC address.")] = ""
    vni: Annotated[Vni | None, meta("The VNI of the Network.")] = None
    ifc_name: Annotated[DeviceName, meta("The name of the device on the node.")] = ""
    host_ip: Annotated[Ip, meta("The underlay address of the node.")] = field(default="", name="hostIP")
    locks: Annotated[
        tuple[AttachmentLock, ...],
        meta("The addresses it holds, and their IPLocks.", maxItems=16, list_map_keys=("ip",)),
    ] = ()
    errors: Annotated[AttachmentErrors, meta("Errors, by the component that found them.")] = AttachmentErrors()
    post_create_exec_report: Annotated[ExecReport | None, meta("The result of postCreateExec.")] = None


class NetworkAttachment(Resource, frozen=True, kw_only=True):
    """One interface on one node."""

    spec: NetworkAttachmentSpec
    status: NetworkAttachmentStatus = NetworkAttachmentStatus()


class PortPoolSpec(Value, frozen=True, kw_only=True):
    """Desired state of a pool."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        immutable("node"),
        immutable("network"),
        immutable("defaultRoute"),
        Rule(
            "!has(self.maxSize) || self.maxSize >= self.size",
            lambda self: "maxSize" not in self or self["maxSize"] >= self["size"],
            "must not be less than size",
            path=".maxSize",
        ),
    )

    node: Annotated[ObjectName, meta("The Node of the ports.")]
    network: Annotated[ObjectName, meta("The Network of the ports.")]
    subnets: Annotated[
        tuple[ObjectName, ...],
        meta(
            "The Subnets of their addresses. If absent, one validated Subnet per address family.",
            maxItems=16,
            list_type="set",
        ),
    ] = ()
    size: Annotated[int, meta("The number of free ports to keep ready.", format="int32", minimum=0, maximum=4096)]
    max_size: Annotated[
        int | None,
        meta(
            "The number of free ports may grow up to this, with the number of ports that the node needs in a minute. "
            "It does not grow if absent.",
            format="int32",
            minimum=0,
            maximum=4096,
        ),
    ] = None
    security_profiles: Annotated[
        tuple[ObjectName, ...], meta("SecurityProfiles that apply to the ports.", maxItems=64, list_type="set")
    ] = ()
    default_route: Annotated[bool, meta("Whether the workload's default route uses the port.", default=False)] = False


class PortPoolStatus(Status, frozen=True, kw_only=True):
    """Observed state of a pool."""

    free: Annotated[Count, meta("The number of free ports that are ready for use.")] = 0
    used: Annotated[Count, meta("The number of ports that were taken from the pool and are in use.")] = 0


class PortPool(Resource, frozen=True, kw_only=True):
    """Ports that are created in advance, ready for use."""

    spec: PortPoolSpec
    status: PortPoolStatus = PortPoolStatus()
