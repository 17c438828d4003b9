"""The certificates of a lab's Kubernetes, and the kubeconfigs that carry them.

    kube          signs kube-apiserver, the kubelets, and every client: people, the control plane, the kubelets, Netloom
    front-proxy   signs kube-apiserver's own certificate for the servers of aggregated APIs

A kubelet is `system:node:NAME`, which kube-apiserver holds to its own node. Netloom's controller has the name of its
service account and its agents are `netloom:node:NAME`, so the roles of `netloom crds --with-roles` are theirs as they
are in any cluster. Valid certificates are kept.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from netloom.lab.kube import naming
from netloom.lab.kube.places import DOMAIN, FIRST_SERVICES, PLACE, PORT, Places
from netloom.lab.layout import Layout
from netloom.run import files
from netloom.run.access import certificates, credentials
from netloom.run.access.certificates import Pair
from netloom.run.access.keeping import authority, client, keep, peer
from netloom.run.cluster.manifests import CONTROLLER, NAMESPACE

AGENTS = "netloom:nodes"
PROXY = "front-proxy-client"
LOCAL = f"https://127.0.0.1:{PORT}"
SERVICE = "kubernetes.default"


def prepare(layout: Layout, *, now: datetime) -> None:
    """Create certificates that are missing or about to expire, and write every kubeconfig."""
    places = Places(layout)
    places.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    issuer = _Issuer(places, authority(places.pki, "kube", title=f"netloom lab {layout.id} kubernetes", now=now), now)
    proxies = authority(places.pki, "front-proxy", title=f"netloom lab {layout.id} front proxy", now=now)
    own = places.pki
    names = {"localhost", "kubernetes", SERVICE, f"{SERVICE}.svc", f"{SERVICE}.svc.{DOMAIN}", PLACE}
    issuer.server(own / "apiserver", "kube-apiserver", {*names, "127.0.0.1", layout.kube_ip, *FIRST_SERVICES})
    issuer.client(own / "kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"])
    keep(own / "front-proxy.crt", own / "front-proxy.key", proxies, client(proxies, PROXY, now), now=now)
    if not (own / "service-accounts.key").exists():
        files.write_whole(own / "service-accounts.key", certificates.new_key())
    key = (own / "service-accounts.key").read_bytes()
    files.write_whole(own / "service-accounts.pub", certificates.public_key(key))
    for name in ("kube-controller-manager", "kube-scheduler"):
        issuer.kubeconfig(places.kubeconfig(name), LOCAL, f"system:{name}")
    issuer.kubeconfig(places.kubeconfig("coredns"), LOCAL, naming.USER)
    issuer.kubeconfig(layout.kubeconfig, layout.url, "kubernetes-admin", ["system:masters"])
    issuer.kubeconfig(layout.controller_kubeconfig, layout.url, f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}")
    for node in layout.nodes:
        folder = layout.node(node)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        issuer.server(folder / "kubelet-server", node, {node, layout.underlay_ip(node)})
        issuer.kubeconfig(places.kubelet_kubeconfig(node), places.url, f"system:node:{node}", ["system:nodes"])
        issuer.kubeconfig(layout.agent_kubeconfig(node), layout.url, f"netloom:node:{node}", [AGENTS])


class _Issuer:
    """The CA of the cluster."""

    def __init__(self, places: Places, ca: Pair, now: datetime) -> None:
        self._places, self._ca, self._now = places, ca, now

    def server(self, path: Path, name: str, hosts: set[str]) -> None:
        """Keep the certificate of a server."""
        certificate, key = _files(path)
        keep(certificate, key, self._ca, peer(self._ca, name, hosts, self._now), hosts=hosts, now=self._now)

    def client(self, path: Path, name: str, groups: Sequence[str] = ()) -> Pair:
        """Keep the certificate of a client."""
        certificate, key = _files(path)
        keep(certificate, key, self._ca, client(self._ca, name, self._now, groups=groups), now=self._now)
        return Pair(certificate.read_bytes(), key.read_bytes())

    def kubeconfig(self, path: Path, server: str, name: str, groups: Sequence[str] = ()) -> None:
        """Write the kubeconfig of a client, with its certificate in it."""
        made = self.client(self._places.pki / name.replace(":", "-"), name, groups)
        pair = {"client-certificate-data": made.certificate, "client-key-data": made.key}
        user = {key: credentials.base64_text(data) for key, data in pair.items()}
        files.write_whole(path, credentials.kubeconfig(server, self._ca.certificate, name, user).encode())


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.crt"), path.with_name(f"{path.name}.key")
