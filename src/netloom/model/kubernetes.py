"""The registry of Kubernetes' own kinds that the controller of a cluster network reads.

Our API does not serve them, and no CRD is made of them: they are not in `KINDS`.
"""

from netloom.model.document import Resource
from netloom.model.kind import Kind, Registry
from netloom.model.kinds import cluster_policies, kubernetes


def _kind(
    group: str,
    name: str,
    resource: type[Resource],
    plural: str = "",
    *,
    version: str = "v1",
    namespaced: bool = True,
    status: bool = True,
    selectable: tuple[str, ...] = (),
) -> Kind:
    return Kind(
        group=group,
        version=version,
        name=name,
        plural=plural or name.lower() + "s",
        singular=name.lower(),
        type=resource,
        namespaced=namespaced,
        has_status=status,
        selectable=selectable,
        description=(resource.__doc__ or "").partition("\n")[0],
    )


POD = _kind("", "Pod", kubernetes.Pod, selectable=("spec.nodeName", "status.phase"))
CLUSTER_NODE = _kind("", "Node", kubernetes.ClusterNode, namespaced=False)
CLUSTER_NAMESPACE = _kind("", "Namespace", kubernetes.ClusterNamespace, namespaced=False)
SERVICE = _kind("", "Service", kubernetes.Service)
ENDPOINT_SLICE = _kind("discovery.k8s.io", "EndpointSlice", kubernetes.EndpointSlice, status=False)
NETWORK_POLICY = _kind("networking.k8s.io", "NetworkPolicy", kubernetes.NetworkPolicy, "networkpolicies", status=False)
CLUSTER_NETWORK_POLICY = _kind(
    "policy.networking.k8s.io",
    "ClusterNetworkPolicy",
    cluster_policies.ClusterNetworkPolicy,
    "clusternetworkpolicies",
    version="v1alpha2",
    namespaced=False,
)
"""Its CRD is not in every cluster."""

KUBERNETES_KINDS = Registry(
    (POD, CLUSTER_NODE, CLUSTER_NAMESPACE, SERVICE, ENDPOINT_SLICE, NETWORK_POLICY, CLUSTER_NETWORK_POLICY)
)
"""All of the above."""
