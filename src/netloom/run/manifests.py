"""What a Kubernetes cluster must be told before Netloom can be a part of it.

    netloom crds --with-roles            CRDs, and `common`: namespace, accounts, roles, what agents may write
    netloom apiserver --print-manifests  `common`, and `aggregated`: where our API server is and what it may ask

Roles are the cluster's own. `netloom:view` becomes a part of the cluster's view, edit and admin: with the right to read
Pods in a namespace comes the right to read Networks there. `netloom:edit` and `netloom:admin` become parts of edit and
admin only with `--aggregate-edit`: to run Pods in a namespace is not yet to connect what is in it. Otherwise they are
bound by name. `netloom:controller` is for the controllers.
`netloom:node` is for agents, and is as far as RBAC goes: it knows kinds and names, neither field selectors nor what is
in an object. An agent that is a user of its own, `netloom:node:NAME`, can be held to its Node by name (`--nodes`).

What is left is said elsewhere. With our own API server, by its rules for nodes (front/api/auth/roles.py,
front/api/admission/node_writes.py): an agent reads and writes what concerns its node. With CRDs, by
ValidatingAdmissionPolicies (run/node_policies.py): it writes its own Node, its part of the status of attachments on it
and its own Events; but it can read all of what netloom:node names.
"""

import base64
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from netloom.errors import Invalid
from netloom.front.api.auth.delegated import AGENT, NODE_PREFIX, NODES
from netloom.model.cluster import SYSTEM_NAMESPACE
from netloom.model.document import Document
from netloom.model.registry import GROUP, KINDS, VERSION

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
TLS_FOLDER = "/etc/netloom/tls"
USER = 65532
"""The user and group of the image (deploy/container/Containerfile)."""


class Place(Struct, frozen=True, kw_only=True):
    """Where our API server is, and how it is believed to be it."""

    ca: bytes
    """The CA (PEM) that signed its certificate."""
    address: str = ""
    """Outside the cluster: an IP, or a name; "": in the cluster."""
    port: int = PORT
    image: str = ""
    """In the cluster: the image it runs from; "": somebody else runs it."""
    certificate: bytes = b""
    key: bytes = b""
    args: tuple[str, ...] = ()
    """What the process in the cluster is told."""


def service_names() -> tuple[str, ...]:
    """Return the names under which kube-apiserver knows our API server."""
    service = f"{APISERVER}.{NAMESPACE}"
    return (f"{service}.svc", f"{service}.svc.cluster.local", service)


def common(nodes: Sequence[str] = (), *, aggregate_edit: bool = False) -> list[Document]:
    """Return what both ways need: the namespace, accounts, and roles; `nodes` are users of their own.

    `aggregate_edit`: whoever has the cluster's edit or admin in a namespace has netloom:edit or netloom:admin there.
    """
    accounts = [_account(name) for name in (CONTROLLER, AGENT)]
    people = [_people(), _editors(aggregate=aggregate_edit), _administrators(aggregate=aggregate_edit)]
    return [
        _object("v1", "Namespace", NAMESPACE),
        *accounts,
        *people,
        _role("netloom:controller", _controller_rules()),
        _binding("netloom:controller", "netloom:controller", [_account_subject(CONTROLLER)]),
        *_leases(),
        _role("netloom:node", _node_rules()),
        _binding("netloom:node", "netloom:node", [_account_subject(AGENT), _subject("Group", NODES)]),
        # One account for all: which Node is its own, its token says, which RBAC cannot look at.
        _role("netloom:agent", [_own_node()]),
        _binding("netloom:agent", "netloom:agent", [_account_subject(AGENT)]),
        *(document for node in nodes for document in _node_role(node)),
    ]


def aggregated(place: Place) -> list[Document]:
    """Return what makes our API server a part of the cluster's API."""
    subject = [_account_subject(APISERVER)]
    reader = _object(f"{RBAC}/v1", "RoleBinding", f"{APISERVER}-authentication-reader", "kube-system")
    reader |= {
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
        "subjects": subject,
    }
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    return [
        _account(APISERVER),
        _binding(f"{APISERVER}:auth-delegator", "system:auth-delegator", subject),
        _role("netloom:apiserver", [namespaces]),
        _binding("netloom:apiserver", "netloom:apiserver", subject),
        reader,
        *_service(place),
        *(_deployment(place) if place.image else []),
        _api_service(place),
    ]


def _api_service(place: Place) -> Document:
    service: dict[str, Any] = {"namespace": NAMESPACE, "name": APISERVER, "port": 443}
    if _is_name(place.address):
        service["port"] = place.port  # There is nothing between kube-apiserver and the name that would change it.
    made = _object("apiregistration.k8s.io/v1", "APIService", f"{VERSION}.{GROUP}")
    made["spec"] = {
        "group": GROUP,
        "version": VERSION,
        "service": service,
        "caBundle": _base64(place.ca),
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
    return made


def _service(place: Place) -> list[Document]:
    made = _object("v1", "Service", APISERVER, NAMESPACE)
    if _is_name(place.address):
        made["spec"] = {"type": "ExternalName", "externalName": place.address}
        return [made]
    ports = [{"name": "https", "port": 443, "targetPort": place.port}]
    made["spec"] = {"ports": ports} if place.address else {"ports": ports, "selector": {"app": APISERVER}}
    return [made, *_endpoints(place)] if place.address else [made]


def _endpoints(place: Place) -> list[Document]:
    """Return where the service leads; in both forms, since kube-apiservers up to 1.32 look at the older one."""
    ip = ipaddress.ip_address(place.address)
    if ip.is_loopback or ip.is_unspecified:
        raise Invalid(f"a Service cannot lead to {ip}: give an address others reach, or a name, as localhost")
    older = _object("v1", "Endpoints", APISERVER, NAMESPACE)
    older["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    ports = [{"name": "https", "port": place.port, "protocol": "TCP"}]
    older["subsets"] = [{"addresses": [{"ip": str(ip)}], "ports": ports}]
    newer = _object("discovery.k8s.io/v1", "EndpointSlice", f"{APISERVER}-1", NAMESPACE)
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


def _deployment(place: Place) -> list[Document]:
    secret = _object("v1", "Secret", TLS_SECRET, NAMESPACE)
    secret |= {
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": _base64(place.certificate), "tls.key": _base64(place.key)},
    }
    container = {
        "name": "apiserver",
        "image": place.image,
        "args": ["apiserver", *place.args],
        "ports": [{"name": "https", "containerPort": place.port}],
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
        # The profile `restricted` of Kubernetes' pod security standards; the group reads the key.
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
    made = _object("apps/v1", "Deployment", APISERVER, NAMESPACE)
    made["spec"] = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return [secret, made]


def _people() -> Document:
    return _role("netloom:view", [_rule(_kinds(), READS)], into="view")


def _editors(*, aggregate: bool) -> Document:
    return _role("netloom:edit", [_edited()], into="edit" if aggregate else "")


def _edited() -> Document:
    """Return the rule of who writes: that includes reading, for a role that is bound alone."""
    return _rule(_namespaced(), [*READS, *WRITES])


def _administrators(*, aggregate: bool) -> Document:
    statuses = [
        f"{kind.plural}/status" for kind in KINDS if kind.group == GROUP and kind.namespaced and kind.has_status
    ]
    rules = [_edited(), _rule(sorted(statuses), ["get", "update", "patch"])]
    return _role("netloom:admin", rules, into="admin" if aggregate else "")


def _controller_rules() -> list[Document]:
    return [_rule(["*"], ["*"]), _events("get", "create", "update", "patch")]


def _leases() -> list[Document]:
    """Return what lets controllers elect a leader, in their own namespace and nowhere else."""
    name = "netloom:controller"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    role = _object(f"{RBAC}/v1", "Role", name, NAMESPACE) | {"rules": [rule]}
    binding = _object(f"{RBAC}/v1", "RoleBinding", name, NAMESPACE)
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    return [role, binding | {"roleRef": reference, "subjects": [_account_subject(CONTROLLER)]}]


def _node_rules() -> list[Document]:
    return [
        _rule(READ_BY_NODES, READS),
        _rule(["networkattachments/status"], ["get", "update", "patch"]),
        # RBAC cannot limit a creation by name, which stands in the body.
        _rule(["nodes"], ["create"]),
        _rule(["batch"], ["create"]),
        # Neither get nor patch, which answers with the object: whose Event it is RBAC cannot tell.
        _events("create", "update"),
    ]


def _own_node(*names: str) -> Document:
    rule = _rule(["nodes", "nodes/status"], ["get", "update", "patch"])
    return rule | {"resourceNames": list(names)} if names else rule


def _node_role(node: str) -> list[Document]:
    name = f"{NODE_PREFIX}{node}"
    return [_role(name, [_own_node(node)]), _binding(name, name, [_subject("User", name)])]


def _events(*verbs: str) -> Document:
    return {"apiGroups": [""], "resources": ["events"], "verbs": list(verbs)}


def _kinds() -> list[str]:
    return sorted(kind.plural for kind in KINDS if kind.group == GROUP)


def _namespaced() -> list[str]:
    return sorted(kind.plural for kind in KINDS if kind.group == GROUP and kind.namespaced)


def _rule(resources: Iterable[str], verbs: Iterable[str]) -> Document:
    return {"apiGroups": [GROUP], "resources": list(resources), "verbs": list(verbs)}


def _role(name: str, rules: Sequence[Document], *, into: str = "") -> Document:
    made = _object(f"{RBAC}/v1", "ClusterRole", name)
    # Each of the cluster's roles is a part of the next: what views also edits.
    wider = ("view", "edit", "admin")
    if into:
        made["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-{one}": "true" for one in wider[wider.index(into) :]}
    return made | {"rules": list(rules)}


def _binding(name: str, role: str, subjects: Sequence[Document]) -> Document:
    made = _object(f"{RBAC}/v1", "ClusterRoleBinding", name)
    return made | {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": list(subjects)}


def _account(name: str) -> Document:
    return _object("v1", "ServiceAccount", name, NAMESPACE)


def _account_subject(name: str) -> Document:
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


def _subject(kind: str, name: str) -> Document:
    return {"kind": kind, "name": name, "apiGroup": RBAC}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Document:
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
