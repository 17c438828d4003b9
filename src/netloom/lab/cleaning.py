"""Ending a lab, whatever state it is in: processes, namespaces, the note of it; its data stay.

One way for all: a lab that is up, one that came up half, one whose supervisor was killed, one whose folder somebody
removed. What is the lab's is found by the lab's id (see `processes`), so nobody else's process or namespace is
touched.
"""

import os
from pathlib import Path

from netloom.lab import state, wiring
from netloom.lab.processes import Found, end, of_lab

WATCHERS = ("keeper", "supervisor")
GENTLE = ("serve", "controller", "agent-")


def clean(lab_id: str) -> None:
    """End all processes of a lab and remove its namespaces."""
    namespaces = wiring.namespaces(lab_id)

    def watchers() -> list[Found]:
        return [found for found in of_lab(lab_id, ()) if found.name in WATCHERS]

    # First those who would start the others again.
    end(watchers, gently=lambda _: True)
    end(lambda: of_lab(lab_id, namespaces), gently=lambda found: found.name.startswith(GENTLE))
    wiring.demolish(lab_id)
    state.forget(lab_id)


def sweep_folder(folder: Path) -> None:
    """Remove from a lab's folder what is only true while it runs."""
    for name in ("pids", "ready", "off"):
        for left in (folder / name).glob("*"):
            left.unlink(missing_ok=True)
    for pattern in ("ovn/*", "nodes/*/*"):
        for left in folder.glob(pattern):
            if left.suffix in (".sock", ".ctl", ".pid", ".mgmt", ".snoop"):
                left.unlink(missing_ok=True)


def sweep_machine() -> list[str]:
    """End labs whose folder is gone, and return what was in the way: nobody else could ever end them."""
    swept = []
    for lab_id, folder in state.registered().items():
        if os.path.lexists(folder / state.FILE):
            continue
        clean(lab_id)
        swept.append(str(folder))
    return swept
