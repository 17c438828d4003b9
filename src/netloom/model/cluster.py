"""Node: a machine with an agent; and what Kubernetes has and clients look for: Lease, Namespace, the definitions."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.scalars import Ip, LabelKey, Line, Seconds, Timestamp, Word, says
from netloom.model.status import Conditions, Status

SYSTEM_NAMESPACE = "netloom-system"
"""Where Netloom keeps what is its own."""
SYSTEM_NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""The namespaces that are always there."""
NAMESPACE_FINALIZER = "kubernetes"
"""The entry of spec.finalizers that keeps a Namespace until its contents are gone, as Kubernetes calls it."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label of every Namespace that has its name."""

AGENT_SILENT_SECONDS = 40.0
"""How long an agent may send no heartbeat, of which four are due by then, before its Node counts as silent."""
NODE_LABELS = "node.netloom.dev/"
"""Labels of a Node under this prefix are the node's own to set; nothing that chooses nodes may ask for them."""


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


class Phase(StrEnum):
    """Whether a namespace stays."""

    ACTIVE = "Active"
    TERMINATING = "Terminating"


class NamespaceSpec(Value, frozen=True, kw_only=True):
    """What a deletion waits for."""

    finalizers: Annotated[
        tuple[Word, ...],
        says("What must be done before a deleted namespace goes; the server's, see `finalize`.", maxItems=32),
    ] = ()


class NamespaceStatus(Value, frozen=True, kw_only=True):
    """Whether a namespace stays, and what its deletion waits for."""

    phase: Annotated[Phase | None, says("Active, or Terminating from its deletion on; the server's.")] = None
    conditions: Conditions = ()


class Namespace(Resource, frozen=True, kw_only=True):
    """A namespace: where objects of one team or one purpose are, and who may see them is decided."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class CustomResourceDefinition(Resource, frozen=True, kw_only=True):
    """What a kind looks like.  Read-only: one for each kind of Netloom's."""

    spec: Annotated[dict[str, Any], says("Group, names, scope, versions and schemas.")] = field(default_factory=dict)
    status: Annotated[dict[str, Any], says("Whether the kind is served.")] = field(default_factory=dict)
