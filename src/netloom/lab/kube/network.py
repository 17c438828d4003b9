"""The network of a lab's pods: the one place that says which CNI plugin a node has.

`install` writes a node's `cni/net.d` and `cni/bin`.
"""

import json
from pathlib import Path

from netloom.lab.kube import binaries
from netloom.lab.kube.places import Places, pod_cidrs
from netloom.run import files

CONFLIST = "10-netloom.conflist"


def install(places: Places, node: str) -> None:
    """Write the CNI configuration and the plugins of a node."""
    plugins, configuration = places.cni(node) / "bin", places.cni(node) / "net.d"
    for folder in (plugins, configuration):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    reference = Path(binaries.plugins())
    # containerd brings up the loopback of each pod by the plugin of that name, whatever the network is.
    for name in ("loopback", "bridge", "host-local"):
        link(plugins / name, reference / name)
    files.write_whole(configuration / CONFLIST, json.dumps(_bridge(places, node), indent=2).encode(), mode=0o644)


def _bridge(places: Places, node: str) -> dict[str, object]:
    """Return a configuration of the reference plugins: pods of a node reach each other, and no other node's."""
    ranges = [[{"subnet": cidr}] for cidr in pod_cidrs(node)]
    ipam = {"type": "host-local", "dataDir": str(places.cni(node) / "leases"), "ranges": ranges}
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def link(path: Path, target: Path) -> None:
    """Make a symbolic link, replacing what is there."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)
