"""Finds the programs of a Kubernetes: those that tools/kube/build put into a cache, and those of the distribution."""

import os
import pwd
import shutil
from pathlib import Path

from netloom.errors import Invalid, NotFound

NEWEST = "1.36.3"
"""The newest version that tools/kube builds."""
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "coredns")
INSTALLED = {"etcd": "etcd-server", "containerd": "containerd", "ctr": "containerd", "runc": "runc"}
INSTALLED |= {"nft": "nftables", "busybox": "busybox-static", "findmnt": "util-linux", "mount": "mount"}
PLUGINS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
"""Where distributions install the reference CNI plugins."""
_PARTS = 3


def caches() -> list[Path]:
    """Return the folders that may have Kubernetes' programs, each in a folder vVERSION."""
    if given := os.environ.get("NETLOOM_KUBE_BIN"):
        return [Path(given)]
    homes = [Path.home()]
    # Labs are started with sudo, programs are built without.
    caller = os.environ.get("SUDO_UID", "")
    if caller.isdecimal():
        try:
            homes.append(Path(pwd.getpwuid(int(caller)).pw_dir))
        except KeyError:
            pass
    own = os.environ.get("XDG_CACHE_HOME")
    return [Path(cache, "netloom", "kube") for cache in ([own] if own else []) + [home / ".cache" for home in homes]]


def folder(version: str) -> Path:
    """Return the folder with the programs of a version; `NotFound` names what is missing."""
    if len(version.split(".")) != _PARTS or not all(part.isdecimal() for part in version.split(".")):
        raise Invalid(f"--kube: {version!r} is not a version of Kubernetes: use one such as {NEWEST}")
    found = [cache / f"v{version}" for cache in caches()]
    for one in found:
        if not _missing(one):
            return one
    best = min(found, key=lambda one: len(_missing(one)))
    missing = _missing(best)
    raise NotFound(
        f"programs of Kubernetes {version} not found in {best}: {', '.join(missing)}: build them with "
        f"`tools/kube/build {version} {' '.join(missing)}` in a clone, or copy them there; "
        "NETLOOM_KUBE_BIN names another folder"
    )


def link(version: str, into: Path) -> None:
    """Link the programs of a version into a folder: what runs a lab later may have another cache."""
    found = folder(version)
    into.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in BUILT:
        replace_link(into / name, found / name)


def replace_link(path: Path, target: Path) -> None:
    """Make a symbolic link; what is there is replaced."""
    path.unlink(missing_ok=True)
    path.symlink_to(target.resolve())


def installed() -> None:
    """Refuse a machine without the programs that distributions have; name their packages."""
    missing = {name: package for name, package in INSTALLED.items() if shutil.which(name) is None}
    if not plugins():
        missing["the CNI plugin loopback"] = "containernetworking-plugins"
    if missing:
        raise NotFound(
            f"programs not found: {', '.join(missing)}: install them, as with apt-get install "
            f"{' '.join(sorted(set(missing.values())))}"
        )


def plugins() -> str:
    """Return the folder of the reference CNI plugins, "" if there is none."""
    return next((one for one in PLUGINS if os.access(Path(one, "loopback"), os.X_OK)), "")


def _missing(where: Path) -> list[str]:
    return [name for name in BUILT if not os.access(where / name, os.X_OK)]
