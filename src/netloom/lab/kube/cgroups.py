"""The cgroups of a lab's pods: /netloom-lab-ID/NODE, in every hierarchy of the machine.

Containers carry neither the lab's mark in their environment nor its namespaces, but they are in these. A kubelet wants
its own to exist, so they are made before it is started.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from netloom.errors import Internal
from netloom.lab.daemons.processes import LabProcess, started
from netloom.lab.kube.places import cgroup

FOLDER = Path("/sys/fs/cgroup")
_CONTROLLERS = "cgroup.controllers"
"""A file of each folder of a hierarchy of version 2."""


def make(lab_id: str, node: str) -> None:
    """Make the cgroup of a node, with every controller that the machine has."""
    relative = Path(cgroup(lab_id, node).lstrip("/"))
    for hierarchy in _hierarchies():
        (hierarchy / relative).mkdir(mode=0o755, parents=True, exist_ok=True)
        if not (hierarchy / _CONTROLLERS).exists():
            continue
        for folder in (hierarchy, *(hierarchy / parent for parent in reversed(relative.parents[:-1]))):
            for controller in (folder / _CONTROLLERS).read_text().split():
                with suppress(OSError):  # It may be in use by processes beside the lab; a kubelet says what it misses.
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def processes(lab_id: str, node: str = "") -> list[LabProcess]:
    """Return the processes of the pods of a lab, or of one of its nodes."""
    pids: set[int] = set()
    for folder in _existing(lab_id, node):
        for path, _, _ in os.walk(folder):
            with suppress(OSError):  # It was removed meanwhile.
                pids |= {int(line) for line in Path(path, "cgroup.procs").read_text().split()}
    return [LabProcess(pid, "", since) for pid in sorted(pids) if (since := started(pid))]


def remove(lab_id: str, node: str = "") -> None:
    """Remove the cgroups of a lab, or of one of its nodes, whose processes have ended."""
    for folder in _existing(lab_id, node):
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Internal(f"cannot remove the cgroup {path}: {error.strerror}") from None


def _hierarchies() -> list[Path]:
    """Return the roots: one in version 2, one for each controller in version 1, where one more may be of version 2."""
    if (FOLDER / _CONTROLLERS).exists():
        return [FOLDER]
    # Version 1 has links such as cpu -> cpu,cpuacct.
    return [path for path in FOLDER.iterdir() if path.is_dir() and not path.is_symlink()] if FOLDER.is_dir() else []


def _existing(lab_id: str, node: str) -> Iterator[Path]:
    relative = cgroup(lab_id, node).lstrip("/")
    yield from (path for hierarchy in _hierarchies() if (path := hierarchy / relative).is_dir())
