"""ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2), as far as Netloom reads it.

Its CRD is the cluster's. As the views of `kubernetes.py`, it is never written. A field that is not known here leaves
the value without any: consumers must then fail closed.
"""

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.kinds.kubernetes import LabelSelector, LeanMeta


class NamespacedPods(Value, frozen=True, kw_only=True):
    """Pods in namespaces."""

    namespace_selector: LabelSelector = LabelSelector()
    pod_selector: LabelSelector = LabelSelector()


class Subject(Value, frozen=True, kw_only=True):
    """The pods to which a policy applies."""

    namespaces: LabelSelector | None = None
    pods: NamespacedPods | None = None


class ClusterPolicyPeer(Value, frozen=True, kw_only=True):
    """The remote end; nodes and networks for egress only."""

    namespaces: LabelSelector | None = None
    pods: NamespacedPods | None = None
    nodes: LabelSelector | None = None
    networks: tuple[str, ...] = ()


class PortSpan(Value, frozen=True, kw_only=True):
    """Adjacent ports."""

    start: int = 0
    end: int = 0


class DestinationPort(Value, frozen=True, kw_only=True):
    """A port, or a range of ports."""

    number: int = 0
    range: PortSpan | None = None


class PortMatch(Value, frozen=True, kw_only=True):
    """The attributes of a protocol with ports; none of them: all its ports."""

    destination_port: DestinationPort | None = None


class ProtocolMatch(Value, frozen=True, kw_only=True):
    """A protocol, or the name of a container's port."""

    tcp: PortMatch | None = None
    udp: PortMatch | None = None
    sctp: PortMatch | None = None
    destination_named_port: str = ""


class ClusterPolicyRule(Value, frozen=True, kw_only=True):
    """What happens to some traffic."""

    action: str = ""
    """Accept, Deny or Pass."""
    from_: tuple[ClusterPolicyPeer, ...] = field(default=(), name="from")
    to: tuple[ClusterPolicyPeer, ...] = ()
    protocols: tuple[ProtocolMatch, ...] = ()


class ClusterNetworkPolicySpec(Value, frozen=True, kw_only=True):
    """The rules of a policy, in order."""

    tier: str = ""
    """Admin or Baseline."""
    priority: int = 0
    """From 0 to 1000; the lowest applies first."""
    subject: Subject = Subject()
    ingress: tuple[ClusterPolicyRule, ...] = ()
    egress: tuple[ClusterPolicyRule, ...] = ()


class ClusterNetworkPolicy(Resource, frozen=True, kw_only=True):
    """A ClusterNetworkPolicy."""

    metadata: LeanMeta = LeanMeta()
    spec: ClusterNetworkPolicySpec = ClusterNetworkPolicySpec()
