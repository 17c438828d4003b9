"""The network of a lab's pods: the one place that says which CNI plugin a node has.

`install` writes what a node has from the beginning. With the network `netloom`, the agent is asked to serve the plugin
(`agent_flags`), the controller to make objects for pods (`controller_flags`), and `install_commands` install the plugin
as on any node: its configuration is written when the agent is ready.
"""

import json
import os
import sys
from pathlib import Path

from netloom.lab.kube import binaries
from netloom.lab.kube.places import POD_CIDRS, POOLS, SERVICE_CIDRS, Places, pod_cidrs
from netloom.run import files
from netloom.run.cluster.manifests import POD_NAMESPACE

_BRIDGE = "10-bridge.conflist"
_SECONDS = "30"


def install(places: Places, node: str) -> None:
    """Write the plugins of a node, and the configuration of one that does not depend on an agent."""
    plugins, configuration = places.cni(node) / "bin", places.cni(node) / "net.d"
    for folder in (plugins, configuration):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    reference = Path(binaries.plugins())
    # containerd brings up the loopback of each pod by the plugin of that name, whatever the network is.
    for name in ("loopback", "bridge", "host-local"):
        binaries.replace_link(plugins / name, reference / name)
    for old in configuration.iterdir():
        old.unlink()
    if places.layout.state.cni == "bridge":
        files.write_whole(configuration / _BRIDGE, json.dumps(_bridge(places, node), indent=2).encode(), mode=0o644)


def agent_flags(places: Places, node: str) -> list[str]:
    """Return what a node's agent is told about pods; without a cluster, others may call the plugin."""
    if places.layout.state.cni != "netloom":
        return []
    flags = ["--cni", places.cni_socket(node)]
    return [*flags, "--kube-namespace", POD_NAMESPACE] if places.layout.state.kube else flags


def needs(places: Places, node: str) -> tuple[str, ...]:
    """Return the processes that must be ready before a node's kubelet is started the first time.

    A kubelet reports its node with its network some seconds sooner, when that is there from the beginning.
    """
    return (f"agent-{node}",) if places.layout.state.cni == "netloom" else ()


def controller_flags(places: Places) -> list[str]:
    """Return what the controller is told about the cluster."""
    if places.layout.state.cni != "netloom":
        return []
    outside = ["--kube-load-balancer-pools", ",".join(POOLS)] if places.layout.state.outside else []
    return [
        "--kube",
        *("--kube-pod-cidrs", ",".join(POD_CIDRS)),
        *("--kube-service-cidrs", ",".join(SERVICE_CIDRS)),
        *outside,
    ]


def install_commands(places: Places, node: str, netloom: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that install the plugin once the node's agent runs."""
    if places.layout.state.cni != "netloom":
        return ()
    cni = places.cni(node)
    where = ("--bin", str(cni / "bin"), "--conf", str(cni / "net.d"), "--socket", places.cni_socket(node))
    return ((*netloom, "cni", "install", *where, "--python", os.path.realpath(sys.executable), "--timeout", _SECONDS),)


def _bridge(places: Places, node: str) -> dict[str, object]:
    """Return a configuration of the reference plugins: pods of a node reach each other, and no other node's."""
    ranges = [[{"subnet": cidr}] for cidr in pod_cidrs(node)]
    ipam = {"type": "host-local", "dataDir": str(places.cni(node) / "leases"), "ranges": ranges}
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
