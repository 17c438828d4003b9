"""Short ways to make the objects of a Kubernetes cluster, for tests of plans and of the controller."""

from typing import Any

import msgspec

from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.kubernetes import ClusterNode, Pod, decode
from netloom.model.kubernetes import (
    CLUSTER_NAMESPACE,
    CLUSTER_NODE,
    ENDPOINT_SLICE,
    NETWORK_POLICY,
    POD,
    SERVICE,
)
from netloom.plan.kube.planned import ClusterSettings

SETTINGS = ClusterSettings(
    pod_blocks=("10.128.0.0/14", "fd10:128::/48"), service_blocks=("10.96.0.0/12", "fd10:96::/112"), mtu=1400
)
FOUR = ClusterSettings(pod_blocks=("10.128.0.0/14",), service_blocks=("10.96.0.0/12",))


def document(kind: Kind, name: str, namespace: str = "", /, **rest: Any) -> Document:
    """Return an object of the cluster; `labels` and `uid` are metadata."""
    metadata: Document = {key: rest.pop(key) for key in ("labels", "uid", "annotations") if key in rest}
    if kind.namespaced:
        metadata["namespace"] = namespace or "default"
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, **metadata}, **rest}


def node_document(name: str, *blocks: str, **rest: Any) -> Document:
    spec = {"podCIDR": blocks[0], "podCIDRs": list(blocks)} if blocks else {}
    return document(CLUSTER_NODE, name, spec=spec, **rest)


def pod_document(
    name: str, node: str = "n1", *, namespace: str = "default", phase: str = "Running", host: bool = False, **rest: Any
) -> Document:
    container = {"name": "main", "image": "none", "ports": rest.pop("ports", [])}
    spec: Document = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    if host:
        spec["hostNetwork"] = True
    return document(POD, name, namespace, spec=spec, status={"phase": phase}, **rest)


def service_document(name: str, ip: str, port: int = 80, **rest: Any) -> Document:
    ports = [{"name": "http", "port": port, "protocol": "TCP", "targetPort": 8080}]
    spec = {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": ports, "ipFamilies": ["IPv4"]}
    return document(SERVICE, name, spec=spec, **rest)


def slice_document(name: str, service: str, *ips: str) -> Document:
    return document(
        ENDPOINT_SLICE,
        name,
        labels={"kubernetes.io/service-name": service},
        addressType="IPv4",
        endpoints=[{"addresses": [ip], "conditions": {"ready": True}} for ip in ips],
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
    )


def policy_document(name: str, spec: Document, **rest: Any) -> Document:
    return document(NETWORK_POLICY, name, spec=spec, **rest)


def namespace_document(name: str, **labels: str) -> Document:
    return document(CLUSTER_NAMESPACE, name, labels=labels)


def node(name: str, *blocks: str) -> ClusterNode:
    return decode(msgspec.json.encode(node_document(name, *blocks)), ClusterNode)


def pod(name: str, node_name: str = "n1", **rest: Any) -> Pod:
    return decode(msgspec.json.encode(pod_document(name, node_name, **rest)), Pod)
