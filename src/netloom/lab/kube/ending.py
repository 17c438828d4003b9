"""Removes what pods leave behind: cgroups, mounts, and files that are valid only while they run.

Mounts are found in /proc/self/mountinfo by their path, below the lab's folder or with the lab's id. So nothing depends
on containerd, which may have been killed.
"""

import ctypes
import os
import re
import shutil
from pathlib import Path

from netloom.errors import Internal
from netloom.lab.kube import cgroups
from netloom.lab.kube.places import KUBELETS, SHIM_SOCKETS

MOUNTS = Path("/proc/self/mountinfo")
_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH_NOFOLLOW = 0x2 | 0x8
_CONTAINERD = "containerd"
_SHIM_SOCKET = re.compile(re.escape(SHIM_SOCKETS) + "[0-9a-f]{64}")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_BUNDLES = "containerd/state/io.containerd.runtime.v2.task/*/*"


def remove(lab_id: str, folder: Path) -> None:
    """Remove cgroups and mounts of a lab whose processes have ended."""
    cgroups.remove(lab_id)
    _unmount(lab_id, folder / "nodes")
    for node in folder.glob("nodes/*"):
        _sweep(lab_id, node)


def power_off(lab_id: str, folder: Path, node: str) -> None:
    """Remove what is left of a node whose processes have ended, as a machine that is off has no mounts."""
    cgroups.remove(lab_id, node)
    _unmount(lab_id, folder / "nodes" / node, node)
    _sweep(lab_id, folder / "nodes" / node)


def mounts(lab_id: str, below: Path, node: str = "") -> list[str]:
    """Return the mounts of containerd below a folder, and those of the kubelets of a lab or of one of its nodes.

    Those mounted last come first.
    """
    prefix, kubelets = f"{below.resolve()}/", f"{KUBELETS}/{lab_id}-"
    lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    points = [_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines]

    def is_ours(point: str) -> bool:
        if point.startswith(kubelets):
            return node in ("", point.removeprefix(kubelets).split("/")[0])
        return point.startswith(prefix) and _CONTAINERD in point.split("/")

    return [point for point in reversed(points) if is_ours(point)]


def _unmount(lab_id: str, below: Path, node: str = "") -> None:
    left = mounts(lab_id, below, node)
    while points := left:
        for point in points:
            # Detached, so that one that is still in use by a process outside of the lab does not keep the others. One
            # that has gone with another, or is below another, fails: the next round tells.
            _LIBC.umount2(os.fsencode(point), _DETACH_NOFOLLOW)
        left = mounts(lab_id, below, node)
        if len(left) >= len(points):
            raise Internal(f"cannot unmount {left[0]}: {os.strerror(ctypes.get_errno())}")
    for mounted in KUBELETS.glob(f"{lab_id}-{node or '*'}"):
        mounted.rmdir()


def _sweep(lab_id: str, node: Path) -> None:
    """Remove the state of a node's containerd, which is valid only until its machine stops."""
    for bundle in node.glob(_BUNDLES):
        for name in ("address", "bootstrap.json"):
            _remove_socket(bundle / name)
    if (node / "containerd" / "state").exists():
        if mounts(lab_id, node, node.name):
            raise Internal(f"there are mounts below {node}: unmount them, then run `netloom lab down` again")
        shutil.rmtree(node / "containerd" / "state")


def _remove_socket(named_in: Path) -> None:
    try:
        found = _SHIM_SOCKET.search(named_in.read_text(errors="replace"))
    except OSError:
        return
    if found:
        Path(found[0]).unlink(missing_ok=True)
