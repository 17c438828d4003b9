"""The objects that a Kubernetes cluster needs before Netloom can be part of it.

   netloom crds --with-roles            CRDs, and `common`: namespace, accounts, roles, policies for agents
   netloom apiserver --print-manifests  `common`, and `aggregated`: the address of our API server and its permissions
   --with-kube                          `pod_network` as well: for a controller with the setting kube
   --with-ovn                           `ovn_identities.objects` as well: for OVN's databases in the cluster

Roles are the cluster's own. `netloom:view` is aggregated to the cluster's view, edit and admin: a user who may read
Pods in a namespace may read Networks there. `netloom:edit` and `netloom:admin` are aggregated to edit and admin only
with `--aggregate-edit`, because permission to run Pods in a namespace does not imply permission to connect them.
Otherwise they are bound by name. `netloom:controller` is for the controllers. `netloom:node` is for agents, and is as
far as RBAC goes: RBAC knows kinds and names, neither field selectors nor the contents of an object. An agent with its
own user, `netloom:node:NAME`, can be limited to its Node by name (`--nodes`).

The remaining limits are enforced elsewhere. With our own API server, its rules for nodes (front/api/auth/roles.py,
front/api/admission/node_writes.py) limit an agent's reads and writes to its node. With CRDs,
ValidatingAdmissionPolicies (run/cluster/node_policies.py) limit its writes to its own Node, RemoteVTEPs and Events, and
its part of the status of attachments on that node, of its HostDocuments and of what belongs to the BGPSpeakers on it;
but it can read everything that netloom:node names.
"""

import base64
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from netloom.errors import Invalid
from netloom.front.api.auth.delegated import AGENT, NODE_PREFIX, NODES
from netloom.model.document import Document
from netloom.model.kinds.cluster import SYSTEM_NAMESPACE
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVPN_NETWORK,
    GROUP,
    HOST_DOCUMENT,
    KINDS,
    NETWORK_ATTACHMENT,
    REMOTE_VTEP,
    VERSION,
)

NAMESPACE = SYSTEM_NAMESPACE
APISERVER = "netloom-apiserver"
CONTROLLER = "netloom-controller"
TLS_SECRET = "netloom-apiserver-tls"  # noqa: S105  # its name
AGENT_USER = f"system:serviceaccount:{NAMESPACE}:{AGENT}"
RBAC = "rbac.authorization.k8s.io"
PORT = 8480
READS = ["get", "list", "watch"]
WRITES = ["create", "update", "patch", "delete", "deletecollection"]
READ_BY_NODES = sorted(kind.plural for kind in KINDS if kind.read_by_nodes)
STATUSES_OF_NODES = [
    f"{kind.plural}/status" for kind in (NETWORK_ATTACHMENT, BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, HOST_DOCUMENT)
]
POD_NAMESPACE = "netloom-pods"
"""The namespace of the objects that are made for pods."""
READ_FOR_PODS = {
    "": ["namespaces", "nodes", "pods", "services"],
    "discovery.k8s.io": ["endpointslices"],
    "networking.k8s.io": ["networkpolicies"],
    "policy.networking.k8s.io": ["clusternetworkpolicies"],
}
TLS_FOLDER = "/etc/netloom/tls"
USER = 65532
"""The user and group of the image (deploy/container/Containerfile)."""


class ServerPlacement(Struct, frozen=True, kw_only=True):
    """Where our API server is, and how the cluster verifies it."""

    ca: bytes
    """The CA (PEM) that signed its certificate."""
    address: str = ""
    """Outside the cluster: an IP or a name; "": in the cluster."""
    port: int = PORT
    image: str = ""
    """In the cluster: its image; "": it is deployed by other means."""
    certificate: bytes = b""
    key: bytes = b""
    args: tuple[str, ...] = ()
    """The arguments of the process in the cluster."""


def service_names() -> tuple[str, ...]:
    """Return the names that kube-apiserver uses for our API server."""
    service = f"{APISERVER}.{NAMESPACE}"
    return (f"{service}.svc", f"{service}.svc.cluster.local", service)


def common(nodes: Sequence[str] = (), *, aggregate_edit: bool = False, privileged: bool = False) -> list[Document]:
    """Return what both ways need: the namespace, accounts, and roles; each of `nodes` is a user of its own.

    `aggregate_edit`: users with the cluster's edit or admin in a namespace have netloom:edit or netloom:admin there.
    `privileged`: pods in the namespace may use the host's network and folders, where the cluster restricts that.
    """
    namespace = manifest("v1", "Namespace", NAMESPACE)
    if privileged:
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    return [
        namespace,
        account(CONTROLLER),
        account(AGENT),
        *_people(aggregate_edit=aggregate_edit),
        role("netloom:controller", [_rule(["*"], ["*"]), _events("get", "create", "update", "patch")]),
        binding("netloom:controller", "netloom:controller", [account_subject(CONTROLLER)]),
        *_leases(),
        role("netloom:node", _node_rules()),
        binding("netloom:node", "netloom:node", [account_subject(AGENT), _subject("Group", NODES)]),
        # One account for all agents: its token says which Node is its own, which RBAC cannot evaluate.
        role("netloom:agent", [_own_node()]),
        binding("netloom:agent", "netloom:agent", [account_subject(AGENT)]),
        *(document for node in nodes for document in _node_role(node)),
    ]


def pod_network() -> list[Document]:
    """Return what a cluster needs, with `common`, for Netloom to be the network of its pods."""
    name = "netloom:pod-network"
    rules: list[Document] = [
        {"apiGroups": [group], "resources": resources, "verbs": READS} for group, resources in READ_FOR_PODS.items()
    ]
    # For the condition NetworkUnavailable, which some clouds set.
    rules.append({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["update", "patch"]})
    # For the addresses of Services of type LoadBalancer.
    rules.append({"apiGroups": [""], "resources": ["services/status"], "verbs": ["update", "patch"]})
    return [
        manifest("v1", "Namespace", POD_NAMESPACE),
        role(name, rules),
        binding(name, name, [account_subject(CONTROLLER)]),
    ]


def aggregated(server: ServerPlacement) -> list[Document]:
    """Return what makes our API server part of the cluster's API."""
    subject = [account_subject(APISERVER)]
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    return [
        account(APISERVER),
        binding(f"{APISERVER}:auth-delegator", "system:auth-delegator", subject),
        role("netloom:apiserver", [namespaces]),
        binding("netloom:apiserver", "netloom:apiserver", subject),
        binding(
            f"{APISERVER}-authentication-reader",
            "extension-apiserver-authentication-reader",
            subject,
            namespace="kube-system",
        ),
        *_service(server),
        *(_deployment(server) if server.image else []),
        _api_service(server),
    ]


def _api_service(server: ServerPlacement) -> Document:
    service: dict[str, Any] = {"namespace": NAMESPACE, "name": APISERVER, "port": 443}
    if _is_name(server.address):
        service["port"] = server.port  # There is nothing between kube-apiserver and the name that would translate it.
    made = manifest("apiregistration.k8s.io/v1", "APIService", f"{VERSION}.{GROUP}")
    made["spec"] = {
        "group": GROUP,
        "version": VERSION,
        "service": service,
        "caBundle": _base64(server.ca),
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
    return made


def _service(server: ServerPlacement) -> list[Document]:
    made = manifest("v1", "Service", APISERVER, NAMESPACE)
    if _is_name(server.address):
        made["spec"] = {"type": "ExternalName", "externalName": server.address}
        return [made]
    ports = [{"name": "https", "port": 443, "targetPort": server.port}]
    made["spec"] = {"ports": ports} if server.address else {"ports": ports, "selector": {"app": APISERVER}}
    return [made, *_endpoints(server)] if server.address else [made]


def _endpoints(server: ServerPlacement) -> list[Document]:
    """Return the addresses of the service; in both forms, since kube-apiservers up to 1.32 read the older one."""
    ip = ipaddress.ip_address(server.address)
    if ip.is_loopback or ip.is_unspecified:
        raise Invalid(
            f"a Service cannot have the endpoint {ip}: use an address that others reach, or a name such as localhost"
        )
    older = manifest("v1", "Endpoints", APISERVER, NAMESPACE)
    older["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    ports = [{"name": "https", "port": server.port, "protocol": "TCP"}]
    older["subsets"] = [{"addresses": [{"ip": str(ip)}], "ports": ports}]
    newer = manifest("discovery.k8s.io/v1", "EndpointSlice", f"{APISERVER}-1", NAMESPACE)
    newer["metadata"]["labels"] = {
        "kubernetes.io/service-name": APISERVER,
        "endpointslice.kubernetes.io/managed-by": "netloom",
    }
    newer |= {
        "addressType": f"IPv{ip.version}",
        "endpoints": [{"addresses": [str(ip)], "conditions": {"ready": True}}],
        "ports": ports,
    }
    return [older, newer]


def _deployment(server: ServerPlacement) -> list[Document]:
    secret = manifest("v1", "Secret", TLS_SECRET, NAMESPACE)
    secret |= {
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": _base64(server.certificate), "tls.key": _base64(server.key)},
    }
    container = {
        "name": "apiserver",
        "image": server.image,
        "args": ["apiserver", *server.args],
        "ports": [{"name": "https", "containerPort": server.port}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "https", "scheme": "HTTPS"}},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}],
    }
    pod = {
        "serviceAccountName": APISERVER,
        # The profile `restricted` of Kubernetes' pod security standards; the group may read the key.
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tls", "secret": {"secretName": TLS_SECRET, "defaultMode": 0o440}}],
    }
    labels = {"app": APISERVER}
    made = manifest("apps/v1", "Deployment", APISERVER, NAMESPACE)
    made["spec"] = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return [secret, made]


def _people(*, aggregate_edit: bool) -> list[Document]:
    """Return the roles of people.  Writing includes reading, for a role that is bound alone."""
    own = [kind for kind in KINDS if kind.group == GROUP]
    people = [kind for kind in own if kind.namespaced and not kind.controllers_only]
    written = _rule(sorted(kind.plural for kind in people), [*READS, *WRITES])
    statuses = sorted(f"{kind.plural}/status" for kind in people if kind.has_status)
    return [
        role("netloom:view", [_rule(sorted(kind.plural for kind in own), READS)], into="view"),
        role("netloom:edit", [written], into="edit" if aggregate_edit else ""),
        role(
            "netloom:admin",
            [written, _rule(statuses, ["get", "update", "patch"])],
            into="admin" if aggregate_edit else "",
        ),
    ]


def _leases() -> list[Document]:
    """Return what lets controllers elect a leader, in their own namespace only."""
    name = "netloom:controller"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    role = manifest(f"{RBAC}/v1", "Role", name, NAMESPACE) | {"rules": [rule]}
    return [role, binding(name, name, [account_subject(CONTROLLER)], namespace=NAMESPACE)]


def _node_rules() -> list[Document]:
    return [
        _rule(READ_BY_NODES, READS),
        _rule(STATUSES_OF_NODES, ["get", "update", "patch"]),
        _rule([REMOTE_VTEP.plural], ["create", "update", "patch", "delete"]),
        # RBAC cannot limit a creation by name, which is in the body.
        _rule(["nodes"], ["create"]),
        _rule(["batch"], ["create"]),
        # Neither get nor patch, which returns the object: RBAC cannot tell whose Event it is.
        _events("create", "update"),
    ]


def _own_node(*names: str) -> Document:
    rule = _rule(["nodes", "nodes/status"], ["get", "update", "patch"])
    return rule | {"resourceNames": list(names)} if names else rule


def _node_role(node: str) -> list[Document]:
    name = f"{NODE_PREFIX}{node}"
    return [role(name, [_own_node(node)]), binding(name, name, [_subject("User", name)])]


def _events(*verbs: str) -> Document:
    return {"apiGroups": [""], "resources": ["events"], "verbs": list(verbs)}


def _rule(resources: Iterable[str], verbs: Iterable[str]) -> Document:
    return {"apiGroups": [GROUP], "resources": list(resources), "verbs": list(verbs)}


def role(name: str, rules: Sequence[Document], *, into: str = "") -> Document:
    """Return a ClusterRole; `into`: the role of the cluster that it becomes a part of, with those above it."""
    made = manifest(f"{RBAC}/v1", "ClusterRole", name)
    # Each of the cluster's roles includes the one before it: edit includes view.
    wider = ("view", "edit", "admin")
    if into:
        made["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-{one}": "true" for one in wider[wider.index(into) :]}
    return made | {"rules": list(rules)}


def binding(name: str, role: str, subjects: Sequence[Document], *, namespace: str = "") -> Document:
    """Return the binding of a ClusterRole, or of a Role in its namespace."""
    kind = "Role" if namespace else "ClusterRole"
    made = manifest(f"{RBAC}/v1", f"{kind}Binding", name, namespace)
    return made | {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": role}, "subjects": list(subjects)}


def account(name: str) -> Document:
    """Return a service account of ours."""
    return manifest("v1", "ServiceAccount", name, NAMESPACE)


def account_subject(name: str) -> Document:
    """Return a service account of ours, as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


def _subject(kind: str, name: str) -> Document:
    return {"kind": kind, "name": name, "apiGroup": RBAC}


def manifest(api_version: str, kind: str, name: str, namespace: str = "") -> Document:
    """Return an object without its contents, with the label of all that belongs to Netloom."""
    metadata: Document = {"name": name, "labels": {"app.kubernetes.io/part-of": "netloom"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _is_name(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return bool(address)
    return False


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
