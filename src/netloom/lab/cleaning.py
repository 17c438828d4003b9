"""Ends a lab in any state: its processes, its namespaces, its registration; its data stay.

It works for a lab that is up, one that came up partly, one whose supervisor was killed, one whose folder was removed.
The lab's id identifies what belongs to it (see `processes`), so other processes and namespaces are not touched.
"""

import os
from pathlib import Path

from netloom.lab import state, wiring
from netloom.lab.daemons.processes import LabProcess, end, of_lab

WATCHERS = ("keeper", "supervisor")
GENTLE = ("serve", "controller", "agent-")


def clean(lab_id: str) -> None:
    """End all processes of a lab and remove its namespaces."""
    namespaces = wiring.namespaces(lab_id)

    def watchers() -> list[LabProcess]:
        return [found for found in of_lab(lab_id, ()) if found.name in WATCHERS]

    # First the processes that would restart the others.
    end(watchers, gently=lambda _: True)
    end(lambda: of_lab(lab_id, namespaces), gently=lambda found: found.name.startswith(GENTLE))
    wiring.remove_namespaces(lab_id)
    state.forget(lab_id)


def sweep_folder(folder: Path) -> None:
    """Remove the files from a lab's folder that are only valid while it runs."""
    for name in ("pids", "ready", "off"):
        for left in (folder / name).glob("*"):
            left.unlink(missing_ok=True)
    for pattern in ("ovn/*", "nodes/*/*"):
        for left in folder.glob(pattern):
            if left.suffix in (".sock", ".ctl", ".pid", ".mgmt", ".snoop"):
                left.unlink(missing_ok=True)


def sweep_machine() -> list[str]:
    """End labs whose folder is gone, and return the folders: nothing else could ever end them."""
    swept = []
    for lab_id, folder in state.registered().items():
        if os.path.lexists(folder / state.FILE):
            continue
        clean(lab_id)
        swept.append(str(folder))
    return swept
