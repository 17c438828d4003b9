"""The DNS of a lab's cluster: CoreDNS, a process beside kube-apiserver, behind the Service that pods are told to ask.

It answers names of the cluster alone; a lab need not reach any other DNS server.
"""

from netloom.lab.kube.places import DNS, DOMAIN, Places
from netloom.model.document import Document
from netloom.run import files
from netloom.run.cluster.manifests import RBAC, READS, manifest

USER = "system:coredns"
READY = "127.0.0.1:8181"
_PORT = 53
_SERVICE = "kube-dns"
_NAMESPACE = "kube-system"
_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def prepare(places: Places) -> None:
    """Write the configuration of CoreDNS."""
    files.write_whole(places.corefile, _corefile(places).encode())


def objects(places: Places) -> list[Document]:
    """Return the Service, its endpoint outside of the pods' network, and what CoreDNS may read."""
    service = manifest("v1", "Service", _SERVICE, _NAMESPACE)
    ports = [{"name": name, "port": _PORT, "protocol": protocol} for name, protocol in _PORTS]
    slice_ = manifest("discovery.k8s.io/v1", "EndpointSlice", f"{_SERVICE}-lab", _NAMESPACE)
    slice_["metadata"]["labels"]["kubernetes.io/service-name"] = _SERVICE
    rules = [
        {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": READS},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READS},
    ]
    return [
        service | {"spec": {"clusterIP": DNS, "ports": ports}},
        slice_ | {"addressType": "IPv4", "endpoints": [{"addresses": [places.layout.kube_ip]}], "ports": ports},
        manifest(f"{RBAC}/v1", "ClusterRole", USER) | {"rules": rules},
        manifest(f"{RBAC}/v1", "ClusterRoleBinding", USER)
        | {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
        },
    ]


def _corefile(places: Places) -> str:
    return f"""\
.:{_PORT} {{
    bind {places.layout.kube_ip}
    errors
    ready {READY}
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig "{places.kubeconfig("coredns")}"
        pods verified
    }}
    loadbalance
}}
"""
