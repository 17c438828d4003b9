"""Sandbox: a cyber-range topology, and where to put it."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.paths import Quality
from netloom.model.scalars import Count, Name, ObjectName, says
from netloom.model.status import Status


class Backend(StrEnum):
    """What a sandbox is built of."""

    OVN = "ovn"
    LINUX = "linux"


class Placement(Value, frozen=True, kw_only=True):
    """Which node a host is put on."""

    default: Annotated[ObjectName, says("Where hosts go that are not named.")] = ""
    hosts: Annotated[dict[Name, ObjectName], says("The Node of each host that is named.", maxProperties=1024)] = field(
        default_factory=dict
    )


class SandboxLink(Quality, frozen=True, kw_only=True):
    """The quality of one host's link to one network."""

    host: Annotated[Name, says("The host, or the router.")]
    network: Annotated[Name, says("The network of the topology.")]


class SandboxSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a sandbox."""

    backend: Annotated[Backend, says("What it is built of.", default="ovn")] = Backend.OVN
    topology: Annotated[dict[str, Any], says("The topology, in the CyberRangeCZ format.")]
    placement: Annotated[Placement | None, says("Which Node each host is put on.")] = None
    links: Annotated[tuple[SandboxLink, ...], says("The quality of links.", maxItems=1024)] = ()


class SandboxStatus(Status, frozen=True, kw_only=True):
    """What was seen of a sandbox."""

    networks: Annotated[Count, says("Networks made.")] = 0
    routers: Annotated[Count, says("Routers made.")] = 0
    hosts: Annotated[Count, says("Hosts that are attached.")] = 0


class Sandbox(Resource, frozen=True, kw_only=True):
    """A cyber-range topology, and where to put it."""

    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()
