"""Removes what pods leave behind: cgroups, mounts, and files that are valid only while they run.

Mounts are found in /proc/self/mountinfo by their path below the lab's folder. So nothing depends on containerd, which
may have been killed.
"""

import ctypes
import os
import re
import shutil
from pathlib import Path

from netloom.errors import Internal
from netloom.lab.kube import cgroups
from netloom.lab.kube.places import SHIM_SOCKETS

MOUNTS = Path("/proc/self/mountinfo")
_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH_NOFOLLOW = 0x2 | 0x8
_FOLDERS = ("containerd", "kubelet")
_SHIM_SOCKET = re.compile(re.escape(SHIM_SOCKETS) + "[0-9a-f]{64}")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_BUNDLES = "containerd/state/io.containerd.runtime.v2.task/*/*"


def remove(lab_id: str, folder: Path) -> None:
    """Remove cgroups and mounts of a lab whose processes have ended."""
    cgroups.remove(lab_id)
    _unmount(folder / "nodes")
    for node in folder.glob("nodes/*"):
        _sweep(node)


def power_off(lab_id: str, folder: Path, node: str) -> None:
    """Remove what is left of a node whose processes have ended, as a machine that is off has no mounts."""
    cgroups.remove(lab_id, node)
    _unmount(folder / "nodes" / node)
    _sweep(folder / "nodes" / node)


def mounts(below: Path) -> list[str]:
    """Return the mount points of containerd and kubelets below a folder; those mounted last first."""
    prefix = f"{below.resolve()}/"
    lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    points = [_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines]
    ours = [point for point in points if point.startswith(prefix) and set(_FOLDERS) & set(point.split("/"))]
    return ours[::-1]


def _unmount(below: Path) -> None:
    for point in mounts(below):
        # Detached, so that one that is still in use by a process outside of the lab does not keep the others.
        if _LIBC.umount2(os.fsencode(point), _DETACH_NOFOLLOW):
            number = ctypes.get_errno()
            if point in mounts(below):  # It may have gone with one that it was in.
                raise Internal(f"cannot unmount {point}: {os.strerror(number)}")


def _sweep(node: Path) -> None:
    """Remove the state of a node's containerd, which is valid only until its machine stops."""
    for bundle in node.glob(_BUNDLES):
        for name in ("address", "bootstrap.json"):
            _remove_socket(bundle / name)
    if (node / "containerd" / "state").exists():
        if mounts(node):
            raise Internal(f"there are mounts below {node}: unmount them, then run `netloom lab down` again")
        shutil.rmtree(node / "containerd" / "state")


def _remove_socket(named_in: Path) -> None:
    try:
        found = _SHIM_SOCKET.search(named_in.read_text(errors="replace"))
    except OSError:
        return
    if found:
        Path(found[0]).unlink(missing_ok=True)
