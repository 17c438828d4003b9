"""Shaping, Mirror, ServiceChain: rate limits and impairments, copies, and detours of traffic."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.schemas.rules import Rule, at_least_one, exactly_one, needs
from netloom.model.selection import LabelSelector
from netloom.model.status import Status
from netloom.model.values.scalars import Count, DeviceName, Duration, Ip, Line, ObjectName, Percentage, Rate, Size, meta


class Direction(StrEnum):
    """The directions of a path."""

    BOTH = "both"
    FORWARD = "forward"


class MirrorDirection(StrEnum):
    """The direction of mirrored traffic."""

    BOTH = "both"
    INGRESS = "ingress"
    EGRESS = "egress"


class Impairing(StrEnum):
    """What delays and drops packets."""

    KERNEL = "kernel"
    USERSPACE = "userspace"
    AUTO = "auto"


class Place(Value, frozen=True, kw_only=True):
    """One end of a path: exactly one of attachment, network, node and selector; with router, a port of that Router."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one("attachment", "network", "node", "selector"),
        needs("router", "network"),
    )

    attachment: Annotated[ObjectName, meta("A NetworkAttachment.")] = ""
    network: Annotated[ObjectName, meta("All attachments of this Network.")] = ""
    router: Annotated[ObjectName, meta("The port of this Router on the Network, instead of its attachments.")] = ""
    node: Annotated[ObjectName, meta("All attachments on this Node.")] = ""
    selector: Annotated[LabelSelector | None, meta("The attachments with these labels.")] = None


QUALITY_RULES = (needs("burst", "rate"), needs("jitter", "delay"))


class Quality(Value, frozen=True, kw_only=True):
    """The quality of a path."""

    rate: Annotated[Rate, meta("The maximum rate, such as 10mbit.")] = ""
    burst: Annotated[Size, meta("The burst size above the rate, such as 64kb.")] = ""
    delay: Annotated[Duration, meta("The added delay, such as 20ms.")] = ""
    jitter: Annotated[Duration, meta("The variation of the delay, such as 2ms.")] = ""
    loss: Annotated[Percentage, meta("The packet loss, such as 0.5%.")] = ""


class DesiredQuality(Quality, frozen=True, kw_only=True):
    """The desired quality of a path."""

    impairment: Annotated[
        Impairing,
        meta(
            "What delays and drops packets. kernel: netem. userspace: a process of the agent. auto: netem where the "
            "Node's kernel has it, otherwise a process.",
            default="kernel",
        ),
    ] = Impairing.KERNEL


class ShapingSpec(DesiredQuality, frozen=True, kw_only=True):
    """Desired quality of a path."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        at_least_one("rate", "delay", "loss"),
        *QUALITY_RULES,
        Rule(
            "!has(self.to) || !has(self.to.router)",
            lambda self: "router" not in self.get("to", {}),
            "must not be set: a Router's port can only be the start of a path",
            path=".to.router",
        ),
    )

    from_: Annotated[Place, meta("The start of the path.")] = field(name="from")
    to: Annotated[Place | None, meta("The end of the path. Any destination if absent.")] = None
    direction: Annotated[
        Direction, meta("both: shape the return path as well. forward: shape only from start to end.", default="both")
    ] = Direction.BOTH


class Unsupported(Value, frozen=True, kw_only=True):
    """A field of the spec that is not supported."""

    field: Annotated[Line, meta("The field of the spec.")]
    reason: Annotated[Line, meta("Why the field is not supported.")] = ""


class ShapingStatus(Status, frozen=True, kw_only=True):
    """Observed quality of a path."""

    applied: Annotated[Quality | None, meta("The settings in effect.")] = None
    unsupported: Annotated[
        tuple[Unsupported, ...],
        meta("Settings that the nodes involved do not support.", maxItems=32, list_map_keys=("field",)),
    ] = ()


class Shaping(Resource, frozen=True, kw_only=True):
    """Rate limits and impairments of the path between two ends."""

    spec: ShapingSpec
    status: ShapingStatus = ShapingStatus()


class MirrorSource(Value, frozen=True, kw_only=True):
    """Whose traffic is copied: exactly one of attachment and network."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("attachment", "network"),)

    attachment: Annotated[ObjectName, meta("A NetworkAttachment.")] = ""
    network: Annotated[ObjectName, meta("All attachments of this Network, except the destination.")] = ""


class MirrorEnd(Value, frozen=True, kw_only=True):
    """The end of a mirror."""

    attachment: Annotated[ObjectName, meta("The NetworkAttachment.")]


class MirrorSpec(Value, frozen=True, kw_only=True):
    """Desired state of a mirror."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.source.attachment) || self.source.attachment != self.destination.attachment",
            lambda self: self["source"].get("attachment") != self["destination"]["attachment"],
            "must not be the source",
            path=".destination",
        ),
    )

    source: Annotated[MirrorSource, meta("The attachment, or the Network, whose traffic is copied.")]
    destination: Annotated[MirrorEnd, meta("The attachment that receives the copies. What it sends is dropped.")]
    direction: Annotated[
        MirrorDirection, meta("The direction of copied traffic, from the point of view of the source.", default="both")
    ] = MirrorDirection.BOTH


class MirrorTunnel(Value, frozen=True, kw_only=True):
    """A GRE tunnel that carries copies to another node."""

    key: Annotated[Count, meta("The GRE key.")]
    source_ip: Annotated[Ip, meta("The address of a source's node.")] = field(name="sourceIP")
    destination_ip: Annotated[Ip, meta("The address of the destination's node.")] = field(name="destinationIP")


class MirrorStatus(Status, frozen=True, kw_only=True):
    """Observed state of a mirror."""

    tunnels: Annotated[
        tuple[MirrorTunnel, ...],
        meta(
            "The ways of the copies: one from each node that has a source but not the destination.",
            maxItems=4096,
            list_map_keys=("key",),
        ),
    ] = ()


class Mirror(Resource, frozen=True, kw_only=True):
    """A mirror: copies the traffic of an attachment, or of a Network, to another attachment."""

    spec: MirrorSpec
    status: MirrorStatus = MirrorStatus()


class ChainEnd(Value, frozen=True, kw_only=True):
    """An end of a service chain."""

    network: Annotated[ObjectName, meta("The Network.")]
    selector: Annotated[
        LabelSelector | None, meta("Only attachments of the Network with these labels. All if absent.")
    ] = None


class Hop(Value, frozen=True, kw_only=True):
    """One network function of a chain."""

    selector: Annotated[LabelSelector, meta("The workloads that implement the function.")]
    in_: Annotated[DeviceName, meta("The interface on which traffic enters the function.")] = field(name="in")
    out: Annotated[DeviceName, meta("The interface on which traffic leaves the function.")]


class ServiceChainSpec(Value, frozen=True, kw_only=True):
    """Desired state of a chain."""

    left: Annotated[tuple[ChainEnd, ...], meta("The left end of the chain.", minItems=1, maxItems=32)]
    right: Annotated[tuple[ChainEnd, ...], meta("The right end of the chain.", minItems=1, maxItems=32)]
    hops: Annotated[
        tuple[Hop, ...], meta("The network functions, in order from left to right.", minItems=1, maxItems=32)
    ]


class ServiceChainStatus(Status, frozen=True, kw_only=True):
    """Observed state of a chain."""

    ready_hops: Annotated[Count, meta("The number of hops with a workload that is up.")] = 0


class ServiceChain(Resource, frozen=True, kw_only=True):
    """A sequence of network functions that traffic between two ends passes through."""

    spec: ServiceChainSpec
    status: ServiceChainStatus = ServiceChainStatus()
