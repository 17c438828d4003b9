"""Node, and the kinds of Kubernetes that clients expect: Lease, Namespace, CustomResourceDefinition."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.status import Conditions, Status
from netloom.model.values.scalars import Ip, LabelKey, Line, Seconds, Timestamp, Word, meta

SYSTEM_NAMESPACE = "netloom-system"
"""The namespace of Netloom's own objects."""
SYSTEM_NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""The namespaces that always exist."""
NAMESPACE_FINALIZER = "kubernetes"
"""The entry of spec.finalizers that keeps a Namespace until its contents are deleted, as in Kubernetes."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label of every Namespace whose value is the name of the Namespace."""

AGENT_SILENT_SECONDS = 40.0
"""How long an agent may send no heartbeat before its Node becomes not Ready: four heartbeats."""
NODE_LABELS = "node.netloom.dev/"
"""A node may set labels of its Node under this prefix; selectors that choose nodes must not use them."""


class Datapath(StrEnum):
    """The datapath of a node's switch."""

    USERSPACE = "userspace"
    KERNEL = "kernel"


class NodeSpec(Value, frozen=True, kw_only=True):
    """Desired state of a node."""

    underlay_ip: Annotated[Ip, meta("The tunnel endpoint address of the node.")] = field(name="underlayIP")


class NodeStatus(Status, frozen=True, kw_only=True):
    """Observed state of a node, as its agent reports it."""

    agent_version: Annotated[Line, meta("The version of the agent.")] = ""
    datapath: Annotated[Datapath | None, meta("The datapath of the node's switch: in the kernel or in user space.")] = (
        None
    )
    capabilities: Annotated[
        dict[LabelKey, bool],
        meta("Features of the node's kernel and switch, such as netem or geneve.", maxProperties=128),
    ] = field(default_factory=dict)
    last_heartbeat: Annotated[Timestamp, meta("When the agent last sent a heartbeat.")] = ""


class Node(Resource, frozen=True, kw_only=True):
    """A machine that runs an agent.  The agent creates the object when it first starts."""

    spec: NodeSpec
    status: NodeStatus = NodeStatus()


class LeaseSpec(Value, frozen=True, kw_only=True):
    """The holder of a lease, and its duration."""

    holder_identity: Annotated[Line, meta("The identity of the holder.")] = ""
    lease_duration_seconds: Annotated[
        Seconds | None, meta("How long after renewTime other candidates must wait.", minimum=1)
    ] = None
    acquire_time: Annotated[Timestamp | None, meta("When the holder acquired the lease.")] = None
    renew_time: Annotated[Timestamp | None, meta("When the holder last renewed the lease.")] = None
    lease_transitions: Annotated[Seconds | None, meta("The number of transitions between holders.")] = None
    strategy: Annotated[
        Line | None, meta("The strategy of coordinated leader election; set and read by Kubernetes only.")
    ] = None
    preferred_holder: Annotated[
        Line | None, meta("The preferred holder in coordinated leader election; set and read by Kubernetes only.")
    ] = None


class Lease(Resource, frozen=True, kw_only=True):
    """A lease, used for leader election."""

    spec: LeaseSpec = LeaseSpec()


class Phase(StrEnum):
    """The lifecycle phase of a namespace."""

    ACTIVE = "Active"
    TERMINATING = "Terminating"


class NamespaceSpec(Value, frozen=True, kw_only=True):
    """What the deletion of a namespace waits for."""

    finalizers: Annotated[
        tuple[Word, ...],
        meta(
            "What must be removed before the namespace is deleted. Changed by the `finalize` sub-resource only.",
            maxItems=32,
        ),
    ] = ()


class NamespaceStatus(Value, frozen=True, kw_only=True):
    """Observed state of a namespace."""

    phase: Annotated[Phase | None, meta("Active, or Terminating once the namespace is deleted. Set by the server.")] = (
        None
    )
    conditions: Conditions = ()


class Namespace(Resource, frozen=True, kw_only=True):
    """A namespace: a scope for names and for access control."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class CustomResourceDefinition(Resource, frozen=True, kw_only=True):
    """The definition of a kind.  Read-only: there is one for each kind of Netloom."""

    spec: Annotated[dict[str, Any], meta("The group, names, scope, versions and schemas of the kind.")] = field(
        default_factory=dict
    )
    status: Annotated[dict[str, Any], meta("Whether the kind is served.")] = field(default_factory=dict)
