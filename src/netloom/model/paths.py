"""Shaping, Mirror, ServiceChain: what happens to traffic on its way."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.rules import Rule, at_least_one, exactly_one, needs
from netloom.model.scalars import Count, DeviceName, Duration, Line, ObjectName, Percentage, Rate, Size, says
from netloom.model.selection import LabelSelector
from netloom.model.status import Status


class Direction(StrEnum):
    """Which ways of a path."""

    BOTH = "both"
    FORWARD = "forward"


class MirrorDirection(StrEnum):
    """Which traffic of a port is copied."""

    BOTH = "both"
    INGRESS = "ingress"
    EGRESS = "egress"


class Place(Value, frozen=True, kw_only=True):
    """One end of a way.  Exactly one of these."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("attachment", "network", "node", "selector"),)

    attachment: Annotated[ObjectName, says("A NetworkAttachment.")] = ""
    network: Annotated[ObjectName, says("All of a Network.")] = ""
    node: Annotated[ObjectName, says("All attachments of a Node.")] = ""
    selector: Annotated[LabelSelector | None, says("The attachments with these labels.")] = None


QUALITY_RULES = (needs("burst", "rate"), needs("jitter", "delay"))


class Quality(Value, frozen=True, kw_only=True):
    """How good a way is."""

    rate: Annotated[Rate, says("How much goes through, as 10mbit.")] = ""
    burst: Annotated[Size, says("How much may go at once above the rate, as 64kb.")] = ""
    delay: Annotated[Duration, says("How long it takes, as 20ms.")] = ""
    jitter: Annotated[Duration, says("By how much the delay varies, as 2ms.")] = ""
    loss: Annotated[Percentage, says("How much is lost, as 0.5%.")] = ""


class ShapingSpec(Quality, frozen=True, kw_only=True):
    """What is wanted of a way."""

    RULES: ClassVar[tuple[Rule, ...]] = (at_least_one("rate", "delay", "loss"), *QUALITY_RULES)

    from_: Annotated[Place, says("Where the way begins.")] = field(name="from")
    to: Annotated[Place | None, says("Where it ends; absent: anywhere.")] = None
    direction: Annotated[Direction, says("Whether the way back is shaped too.", default="both")] = Direction.BOTH


class Unsupported(Value, frozen=True, kw_only=True):
    """Something asked for that cannot be had."""

    field: Annotated[Line, says("Which field of the spec.")]
    reason: Annotated[Line, says("Why.")] = ""


class ShapingStatus(Status, frozen=True, kw_only=True):
    """What was done to a way."""

    applied: Annotated[Quality | None, says("What is in force.")] = None
    unsupported: Annotated[
        tuple[Unsupported, ...], says("What the nodes concerned cannot do.", maxItems=32, list_map_keys=("field",))
    ] = ()


class Shaping(Resource, frozen=True, kw_only=True):
    """The quality of the way from one place to another."""

    spec: ShapingSpec
    status: ShapingStatus = ShapingStatus()


class MirrorEnd(Value, frozen=True, kw_only=True):
    """One end of a mirror."""

    attachment: Annotated[ObjectName, says("The NetworkAttachment.")]


class MirrorSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a mirror."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.source.attachment != self.destination.attachment",
            lambda self: self["source"]["attachment"] != self["destination"]["attachment"],
            "must not be the source",
            path=".destination",
        ),
    )

    source: Annotated[MirrorEnd, says("Whose traffic is copied.")]
    destination: Annotated[MirrorEnd, says("Who gets the copies.")]
    direction: Annotated[MirrorDirection, says("Which traffic, as the source sees it.", default="both")] = (
        MirrorDirection.BOTH
    )


class Mirror(Resource, frozen=True, kw_only=True):
    """A tap."""

    spec: MirrorSpec
    status: Status = Status()


class ChainEnd(Value, frozen=True, kw_only=True):
    """Where traffic enters or leaves a chain."""

    network: Annotated[ObjectName, says("The Network.")]
    selector: Annotated[LabelSelector | None, says("Only its attachments with these labels; absent: all.")] = None


class Hop(Value, frozen=True, kw_only=True):
    """One function traffic goes through."""

    selector: Annotated[LabelSelector, says("The workloads that are the function.")]
    in_: Annotated[DeviceName, says("The interface traffic enters by.")] = field(name="in")
    out: Annotated[DeviceName, says("The interface traffic leaves by.")]


class ServiceChainSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a chain."""

    left: Annotated[tuple[ChainEnd, ...], says("Where traffic comes from.", minItems=1, maxItems=32)]
    right: Annotated[tuple[ChainEnd, ...], says("Where traffic goes to.", minItems=1, maxItems=32)]
    hops: Annotated[tuple[Hop, ...], says("The functions, in order from left to right.", minItems=1, maxItems=32)]


class ServiceChainStatus(Status, frozen=True, kw_only=True):
    """What was seen of a chain."""

    ready_hops: Annotated[Count, says("How many hops have a workload that is up.")] = 0


class ServiceChain(Resource, frozen=True, kw_only=True):
    """Traffic through a row of functions."""

    spec: ServiceChainSpec
    status: ServiceChainStatus = ServiceChainStatus()
