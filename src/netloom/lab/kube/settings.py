"""The configuration files of containerd and the kubelet of a node.

Each value that is not a default has its reason here: several nodes share one machine, which may have its own
containerd, cgroups of version 1, little memory and no registry; and nothing of the machine is changed.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from netloom.lab.kube import images, pki
from netloom.lab.kube.places import DNS, DOMAIN, Places, cgroup
from netloom.run import files

_CRI = "io.containerd.grpc.v1.cri"
_UNUSED = (
    "io.containerd.grpc.v1.introspection",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.tracing",
    "io.containerd.nri.v1.nri",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
)
"""Plugins that a lab does not use; `opt` and `nri` would make folders outside of the lab."""


KERNEL = {
    "vm.overcommit_memory": 1,
    "vm.panic_on_oom": 0,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "kernel.keys.root_maxkeys": 1000000,
    "kernel.keys.root_maxbytes": 25000000,
}
"""What a kubelet wants of the kernel, and would set for the whole machine. It is shown these values instead."""


def prepare(places: Places, node: str, *, snapshotter: str) -> None:
    """Write the configuration of a node's containerd and kubelet."""
    own = places.layout.node(node)
    for folder in (places.containerd(node), places.kubelet(node), own / "kubelet-pki", own / "pod-logs"):
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    places.kernel(node).mkdir(mode=0o700, exist_ok=True)
    for name, value in KERNEL.items():
        (places.kernel(node) / name).write_text(f"{value}\n")
    files.write_whole(own / "containerd.toml", toml(containerd(places, node, snapshotter=snapshotter)).encode())
    files.write_whole(own / "kubelet.json", json.dumps(kubelet(places, node), indent=2).encode())


def containerd(places: Places, node: str, *, snapshotter: str) -> dict[str, object]:
    """Return the configuration of a node's containerd."""
    own, cni = places.containerd(node), places.cni(node)
    runc = {"runtime_type": "io.containerd.runc.v2", "options": {"Root": str(own / "state" / "runc")}}
    return {
        "version": 2,
        "root": str(own / "root"),
        "state": str(own / "state"),
        "disabled_plugins": list(_UNUSED),
        "grpc": {"address": places.containerd_socket(node)},
        "plugins": {
            _CRI: {
                "sandbox_image": images.PAUSE,
                # A process without the capability SYS_RESOURCE, as in a container, may not lower this value.
                "restrict_oom_score_adj": True,
                # In the lab's folder, where they are found when the lab ends.
                "netns_mounts_under_state_dir": True,
                "cni": {"bin_dir": str(cni / "bin"), "conf_dir": str(cni / "net.d")},
                "containerd": {
                    "snapshotter": snapshotter,
                    "default_runtime_name": "runc",
                    "runtimes": {"runc": runc},
                },
            },
        },
    }


def kubelet(places: Places, node: str) -> dict[str, object]:
    """Return the configuration of a node's kubelet."""
    layout = places.layout
    own = layout.node(node)
    disk = ("imagefs.available", "imagefs.inodesFree", "nodefs.available", "nodefs.inodesFree")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(places.pki / "kube-ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(own / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(own / "kubelet-server.key"),
        "clusterDNS": [DNS],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{places.containerd_socket(node)}",
        # Nodes share a machine: each has its own cgroup, and reserves nothing of the machine for itself.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup(layout.id, node),
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        # A full disk or scarce memory of the machine is not a reason to end pods of a lab.
        "evictionHard": {**dict.fromkeys(disk, "0%"), "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        # Outside of the lab's folder by default.
        "podLogsDir": str(own / "pod-logs"),
        "volumePluginDir": str(own / "volume-plugins"),
        "resolvConf": "",
        "registerNode": True,
    }


def kubelet_flags(places: Places, node: str) -> list[str]:
    """Return what a kubelet is told by flags alone."""
    layout = places.layout
    return [
        f"--config={layout.node(node) / 'kubelet.json'}",
        f"--kubeconfig={places.kubelet_kubeconfig(node)}",
        f"--hostname-override={node}",
        f"--node-ip={layout.underlay_ip(node)}",
        f"--root-dir={places.kubelet_mount(node)}",
        f"--cert-dir={layout.node(node) / 'kubelet-pki'}",
    ]


def apiserver_flags(places: Places) -> list[str]:
    """Return kube-apiserver's options."""
    own = places.pki
    return [
        f"--advertise-address={places.layout.kube_ip}",
        "--allow-privileged",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={own / 'kube-ca.crt'}",
        f"--tls-cert-file={own / 'apiserver.crt'}",
        f"--tls-private-key-file={own / 'apiserver.key'}",
        f"--kubelet-certificate-authority={own / 'kube-ca.crt'}",
        f"--kubelet-client-certificate={own / 'kubelet-client.crt'}",
        f"--kubelet-client-key={own / 'kubelet-client.key'}",
        # The names of nodes are in no DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={own / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={pki.PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={own / 'front-proxy.crt'}",
        f"--proxy-client-key-file={own / 'front-proxy.key'}",
        f"--service-account-key-file={own / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={own / 'service-accounts.key'}",
        f"--service-account-issuer=https://{pki.SERVICE}.svc.{DOMAIN}",
        # There is no kube-proxy beside it: an aggregated API is reached at its endpoints.
        "--enable-aggregator-routing",
    ]


def snapshotter(folder: Path) -> str:
    """Return the snapshotter for containers in a folder: overlayfs, or native where an overlay cannot be there."""
    with tempfile.TemporaryDirectory(prefix=".overlay-", dir=folder) as made:
        parts = {name: Path(made, name) for name in ("lower", "upper", "work", "merged")}
        for part in parts.values():
            part.mkdir()
        options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        # In a mount namespace of its own, which ends with it.
        argv = ["unshare", "--mount", "--", "mount", "-t", "overlay", "-o", options, "overlay", str(parts["merged"])]
        ended = subprocess.run(argv, capture_output=True, timeout=20, check=False)
    return "overlayfs" if ended.returncode == 0 else "native"


def toml(document: dict[str, object]) -> str:
    """Return a document as TOML; the values are tables, strings, numbers, booleans and lists of strings."""
    return "\n".join(_lines(document, ())) + "\n"


def _lines(table: dict[str, object], path: tuple[str, ...]) -> list[str]:
    lines = [f"[{'.'.join(map(_value, path))}]"] if path else []
    # Values first: a line after the header of a table belongs to that table.
    lines += [f"{_value(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _lines(value, (*path, key))
    return lines


def _value(value: object) -> str:
    """Return a value as TOML: JSON's are TOML's too, but for pairs of surrogates and for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
