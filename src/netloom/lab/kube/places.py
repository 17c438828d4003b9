"""The addresses and files of a lab's Kubernetes.

    nl-ID-kube                     etcd, kube-apiserver, kube-controller-manager, kube-scheduler, coredns; `eth0`
                                   172.31.1.1/16 on the underlay, which kubelets and pods reach; the user through
                                   127.0.0.1:PORT
    nl-ID-nK                       kubelet, containerd; pods have namespaces of their own

    DIR/kube.kubeconfig            the administrator's
    DIR/kube/etcd/, DIR/kube/pki/  the cluster's objects and its CAs
    DIR/kube/images/               images for every node
    DIR/kube/bin/                  links to the programs, as they were found when the lab was brought up
    DIR/nodes/nK/containerd/       images and containers; state/ is valid only while the node runs
    DIR/nodes/nK/kubelet/          the volumes of pods; mounted at /run/netloom/kubelets/ID-nK, a short path, and
                                   shared, since containerd must see what kubelet mounts
    DIR/nodes/nK/cni/              net.d/ has the configuration of the network, bin/ the plugins

The pods of node K have addresses of 10.244.K.0/24 and fd00:10:244:K::/64.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netloom.lab.layout import Layout

PLACE = "kube"
PORT = 6443
POD_CIDRS = ("10.244.0.0/16", "fd00:10:244::/48")
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
POOLS = ("192.0.2.224-192.0.2.250", "2001:db8::e000/116")
"""Addresses on the network of the outside for Services of type LoadBalancer."""
FIRST_SERVICES = ("10.96.0.1", "fd00:10:96::1")
"""The addresses of the Service `kubernetes`."""
DNS = "10.96.0.10"
"""The address of the cluster's DNS server."""
DOMAIN = "cluster.local"
MOST_NODES = 100
KUBELETS = Path("/run/netloom/kubelets")
SHIM_SOCKETS = "/run/containerd/s/"
"""The folder of the sockets of containerd's shims, which is not configurable."""


class Places:
    """The names and files of the Kubernetes of a lab."""

    def __init__(self, layout: "Layout") -> None:
        self.layout = layout
        self.version = layout.state.kube
        self.folder = layout.folder / "kube"
        self.programs = self.folder / "bin"
        self.pki = self.folder / "pki"
        self.etcd = self.folder / "etcd"
        self.images = self.folder / "images"
        self.crds = self.folder / "crds.json"
        self.objects = self.folder / "objects.json"
        self.probe = self.folder / "probe.json"
        self.nodes = self.folder / "nodes.json"
        self.corefile = self.folder / "Corefile"
        self.url = f"https://{layout.kube_ip}:{PORT}"
        """The URL of the API for nodes and pods."""

    def containerd(self, node: str) -> Path:
        """Return the folder of a node's containerd."""
        return self.layout.node(node) / "containerd"

    def containerd_socket(self, node: str) -> str:
        """Return the short path of the socket of a node's containerd."""
        return str(self.layout.short / "nodes" / node / "containerd.sock")

    def kubelet(self, node: str) -> Path:
        """Return the folder of a node's kubelet."""
        return self.layout.node(node) / "kubelet"

    def kubelet_mount(self, node: str) -> Path:
        """Return where that folder is mounted: the root of the kubelet, which makes sockets below it."""
        return KUBELETS / f"{self.layout.id}-{node}"

    def kernel(self, node: str) -> Path:
        """Return the folder of the kernel settings that a node's kubelet sees."""
        return self.layout.node(node) / "kernel"

    def cni(self, node: str) -> Path:
        """Return the folder of a node's CNI configuration and plugins."""
        return self.layout.node(node) / "cni"

    def cni_socket(self, node: str) -> str:
        """Return the short path of the socket at which a node's agent serves the CNI plugin."""
        return str(self.layout.short / "nodes" / node / "cni.sock")

    def kubeconfig(self, name: str) -> Path:
        """Return the credential of a part of the control plane."""
        return self.folder / f"{name}.kubeconfig"

    def kubelet_kubeconfig(self, node: str) -> Path:
        """Return the credential of a node's kubelet."""
        return self.layout.node(node) / "kubelet.kubeconfig"


def pod_cidrs(node: str) -> tuple[str, str]:
    """Return the addresses of the pods of a node."""
    number = int(node.removeprefix("n"))
    return f"10.244.{number}.0/24", f"fd00:10:244:{number:x}::/64"


def cgroup(lab_id: str, node: str = "") -> str:
    """Return the cgroup of the pods of a lab, or of one of its nodes."""
    return f"/netloom-lab-{lab_id}" + (f"/{node}" if node else "")
