"""Node: a machine with an agent; Lease: who leads, as Kubernetes keeps it."""

from enum import StrEnum
from typing import Annotated

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.scalars import Ip, LabelKey, Line, Seconds, Timestamp, says
from netloom.model.status import Status

AGENT_SILENT_SECONDS = 40.0
"""How long an agent may send no heartbeat, of which four are due by then, before its Node counts as silent."""


class Datapath(StrEnum):
    """Where a node's switch forwards."""

    USERSPACE = "userspace"
    KERNEL = "kernel"


class NodeSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a node."""

    underlay_ip: Annotated[Ip, says("The address other nodes send tunnelled traffic to.")] = field(name="underlayIP")


class NodeStatus(Status, frozen=True, kw_only=True):
    """What a node's agent says of it."""

    agent_version: Annotated[Line, says("The version of the agent.")] = ""
    datapath: Annotated[Datapath | None, says("Where the node's switch forwards.")] = None
    capabilities: Annotated[
        dict[LabelKey, bool], says("What the node's kernel and switch can do, as netem or geneve.", maxProperties=128)
    ] = field(default_factory=dict)
    last_heartbeat: Annotated[Timestamp, says("When the agent last said that it is alive.")] = ""


class Node(Resource, frozen=True, kw_only=True):
    """A machine with an agent.  Made by the agent when it first starts."""

    spec: NodeSpec
    status: NodeStatus = NodeStatus()


class LeaseSpec(Value, frozen=True, kw_only=True):
    """Who holds a lease, since when, for how long."""

    holder_identity: Annotated[Line, says("Who holds the lease.")] = ""
    lease_duration_seconds: Annotated[Seconds | None, says("How long after renewTime others wait.", minimum=1)] = None
    acquire_time: Annotated[Timestamp | None, says("When the holder got it.")] = None
    renew_time: Annotated[Timestamp | None, says("When the holder last said that it is alive.")] = None
    lease_transitions: Annotated[Seconds | None, says("How often the holder changed.")] = None
    strategy: Annotated[Line | None, says("How the holder is chosen, where Kubernetes chooses it.")] = None
    preferred_holder: Annotated[Line | None, says("Who should hold it, where Kubernetes chooses.")] = None


class Lease(Resource, frozen=True, kw_only=True):
    """A lease: leader election by optimistic concurrency."""

    spec: LeaseSpec = LeaseSpec()
