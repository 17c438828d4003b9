"""Kubernetes' own kinds as far as Netloom reads them: Pod, Node, Service, EndpointSlice, NetworkPolicy.

They are views: fields that nothing here needs are not decoded, managedFields and annotations of most kinds among them,
because a cluster has thousands of pods. Of these objects only some statuses are ever written, and never from these
views. `decode` reads whatever a cluster may hold: an enumeration is a text, and a null stands for an absent value, as
it does in Kubernetes.

They are not kinds of Netloom's API: `model/kubernetes.py` has their registry.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import field

from netloom.model.document import ManagedFields, ObjectMeta, OwnerReference, Resource, Value

T = TypeVar("T")

SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice with the name of its Service."""


class AnnotatedMeta(ObjectMeta, frozen=True, kw_only=True):
    """ObjectMeta without what is long and never read."""

    managed_fields: tuple[ManagedFields, ...] = field(default=(), name="not-read-managedFields")
    owner_references: tuple[OwnerReference, ...] = field(default=(), name="not-read-ownerReferences")


class LeanMeta(AnnotatedMeta, frozen=True, kw_only=True):
    """ObjectMeta without annotations as well."""

    annotations: dict[str, str] = field(default_factory=dict, name="not-read-annotations")


class PodAnnotations(Value, frozen=True, kw_only=True):
    """The annotations of a pod that are read."""

    security_profiles: str = field(default="", name="netloom.dev/security-profiles")


class PodMeta(LeanMeta, frozen=True, kw_only=True):
    """ObjectMeta of a pod."""

    read: PodAnnotations = field(default=PodAnnotations(), name="annotations")


class LabelRequirement(Value, frozen=True, kw_only=True):
    """One requirement on one label."""

    key: str = ""
    operator: str = ""
    """In, NotIn, Exists or DoesNotExist."""
    values: tuple[str, ...] = ()


class LabelSelector(Value, frozen=True, kw_only=True):
    """Selects objects by their labels; an empty selector selects all."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()


class ContainerPort(Value, frozen=True, kw_only=True):
    """A port of a container, to which a NetworkPolicy may refer by name, and which the node may have too."""

    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"
    host_port: int = 0
    """The port of the node that leads to it; 0: none."""
    host_ip: str = field(default="", name="hostIP")


class Container(Value, frozen=True, kw_only=True):
    """A container of a pod."""

    ports: tuple[ContainerPort, ...] = ()


class PodSpec(Value, frozen=True, kw_only=True):
    """Where a pod runs, and its named ports."""

    node_name: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class PodStatus(Value, frozen=True, kw_only=True):
    """The phase of a pod."""

    phase: str = ""


class Pod(Resource, frozen=True, kw_only=True):
    """A pod."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ports(self) -> Iterator[ContainerPort]:
        """The named and unnamed ports of all its containers."""
        for container in (*self.spec.containers, *self.spec.init_containers):
            yield from container.ports


class NodeAddress(Value, frozen=True, kw_only=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeCondition(Value, frozen=True, kw_only=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""


class ClusterNodeSpec(Value, frozen=True, kw_only=True):
    """The address blocks of a node's pods."""

    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = field(default=(), name="podCIDRs")

    @property
    def blocks(self) -> tuple[str, ...]:
        """The address blocks, one of each family."""
        return self.pod_cidrs or ((self.pod_cidr,) if self.pod_cidr else ())


class ClusterNodeStatus(Value, frozen=True, kw_only=True):
    """The addresses and conditions of a node."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()


class ClusterNode(Resource, frozen=True, kw_only=True):
    """A node of the cluster.  `Node` of netloom.dev is the machine that runs an agent."""

    metadata: LeanMeta = LeanMeta()
    spec: ClusterNodeSpec = ClusterNodeSpec()
    status: ClusterNodeStatus = ClusterNodeStatus()


class ServicePort(Value, frozen=True, kw_only=True):
    """A port of a Service."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str = 0
    node_port: int = 0


class ClientIPConfig(Value, frozen=True, kw_only=True):
    """How long a client stays with an endpoint."""

    timeout_seconds: int = 10800


class SessionAffinityConfig(Value, frozen=True, kw_only=True):
    """The configuration of session affinity."""

    client_ip: ClientIPConfig = field(default=ClientIPConfig(), name="clientIP")


class ServiceSpec(Value, frozen=True, kw_only=True):
    """How a Service is reached."""

    type: str = "ClusterIP"
    cluster_ip: str = field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = field(default=(), name="clusterIPs")
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str = ""
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = field(default_factory=dict)
    external_ips: tuple[str, ...] = field(default=(), name="externalIPs")
    load_balancer_ip: str = field(default="", name="loadBalancerIP")
    load_balancer_class: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    external_traffic_policy: str = "Cluster"
    internal_traffic_policy: str = "Cluster"
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig = SessionAffinityConfig()
    publish_not_ready_addresses: bool = False
    health_check_node_port: int = 0
    traffic_distribution: str = ""


class LoadBalancerIngress(Value, frozen=True, kw_only=True):
    """An address at which a Service is reached from outside."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str = "VIP"


class LoadBalancerStatus(Value, frozen=True, kw_only=True):
    """The addresses at which a Service is reached from outside."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Value, frozen=True, kw_only=True):
    """Observed state of a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Resource, frozen=True, kw_only=True):
    """A Service."""

    metadata: AnnotatedMeta = AnnotatedMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointConditions(Value, frozen=True, kw_only=True):
    """The state of an endpoint; None: unknown, which consumers take as True for ready and serving."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetReference(Value, frozen=True, kw_only=True):
    """The object behind an endpoint."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class TopologyHint(Value, frozen=True, kw_only=True):
    """A zone or a node that should use an endpoint."""

    name: str = ""


class EndpointHints(Value, frozen=True, kw_only=True):
    """Who should use an endpoint."""

    for_zones: tuple[TopologyHint, ...] = ()
    for_nodes: tuple[TopologyHint, ...] = ()


class SliceEndpoint(Value, frozen=True, kw_only=True):
    """One endpoint of a slice."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    node_name: str = ""
    zone: str = ""
    target_ref: TargetReference | None = None
    hints: EndpointHints | None = None


class EndpointPort(Value, frozen=True, kw_only=True):
    """A port of all endpoints of a slice; port None: all ports."""

    name: str = ""
    protocol: str = "TCP"
    port: int | None = None


class EndpointSlice(Resource, frozen=True, kw_only=True):
    """A part of the endpoints of a Service."""

    metadata: LeanMeta = LeanMeta()
    address_type: str = ""
    """IPv4, IPv6 or FQDN."""
    endpoints: tuple[SliceEndpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()

    @property
    def service(self) -> str:
        """The name of its Service, which is in the same namespace; "": none."""
        return self.metadata.labels.get(SERVICE_NAME, "")


class IPBlock(Value, frozen=True, kw_only=True):
    """An address block with exceptions."""

    cidr: str = ""
    except_: tuple[str, ...] = field(default=(), name="except")


class NetworkPolicyPeer(Value, frozen=True, kw_only=True):
    """The remote end: an address block, or pods."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


class NetworkPolicyPort(Value, frozen=True, kw_only=True):
    """A port, or a range of ports; port None: all ports of the protocol; a text: the name of a container's port."""

    protocol: str = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class NetworkPolicyIngressRule(Value, frozen=True, kw_only=True):
    """Traffic to the selected pods that is allowed."""

    from_: tuple[NetworkPolicyPeer, ...] = field(default=(), name="from")
    ports: tuple[NetworkPolicyPort, ...] = ()


class NetworkPolicyEgressRule(Value, frozen=True, kw_only=True):
    """Traffic from the selected pods that is allowed."""

    to: tuple[NetworkPolicyPeer, ...] = ()
    ports: tuple[NetworkPolicyPort, ...] = ()


class NetworkPolicySpec(Value, frozen=True, kw_only=True):
    """What is allowed to and from the selected pods."""

    pod_selector: LabelSelector = LabelSelector()
    policy_types: tuple[str, ...] = ()
    """Ingress, Egress."""
    ingress: tuple[NetworkPolicyIngressRule, ...] = ()
    egress: tuple[NetworkPolicyEgressRule, ...] = ()


class NetworkPolicy(Resource, frozen=True, kw_only=True):
    """A NetworkPolicy."""

    metadata: LeanMeta = LeanMeta()
    spec: NetworkPolicySpec = NetworkPolicySpec()


class ClusterNamespace(Resource, frozen=True, kw_only=True):
    """A namespace of the cluster: its labels."""

    metadata: LeanMeta = LeanMeta()


def decode(raw: bytes, kind: type[T]) -> T:
    """Return an object; a null is an absent value, also where the type has none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:  # Rare, and slow to look for beforehand.
        return msgspec.convert(_without_nulls(msgspec.json.decode(raw)), kind)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value if one is not None]
    return value
