"""Ends a lab in any state: its processes, its namespaces, its registration; its data stay.

It works for a lab that is up, one that came up partly, one whose supervisor was killed, one whose folder was removed.
The lab's id identifies what belongs to it (see `processes`), so other processes and namespaces are not touched.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from netloom.drivers.link import kernel
from netloom.drivers.linux.host import APPLIER
from netloom.drivers.vswitch.driver import NETNS
from netloom.errors import Internal
from netloom.lab import state, wiring
from netloom.lab.daemons.processes import LabProcess, end, of_lab
from netloom.lab.kube import cgroups, ending
from netloom.plan.node.namespaces import read_record

WATCHERS = ("keeper", "supervisor")
_BRIDGES = '["Open_vSwitch", {"op": "select", "table": "Bridge", "where": [], "columns": ["external_ids"]}]'
GENTLE = ("serve", "controller", "agent-")


def clean(lab_id: str) -> None:
    """End all processes of a lab and remove its namespaces."""
    namespaces = wiring.namespaces(lab_id)
    folder = state.registered().get(lab_id)

    def watchers() -> list[LabProcess]:
        return [found for found in of_lab(lab_id, ()) if found.name in WATCHERS]

    # First the processes that would restart the others.
    end(watchers, gently=lambda _: True)
    end(
        lambda: [*of_lab(lab_id, namespaces), *cgroups.processes(lab_id)],
        gently=lambda found: found.name.startswith(GENTLE),
    )
    if folder is not None:
        ending.remove(lab_id, folder)
    wiring.remove_namespaces(lab_id)
    state.forget(lab_id)


def sweep_folder(folder: Path) -> None:
    """Remove the files from a lab's folder that are only valid while it runs."""
    for name in ("pids", "ready", "off"):
        for left in (folder / name).glob("*"):
            left.unlink(missing_ok=True)
    for pattern in ("ovn/*", "nodes/*/*", "frr/*"):
        for left in folder.glob(pattern):
            if left.suffix in (".sock", ".ctl", ".pid", ".mgmt", ".snoop", ".vty"):
                left.unlink(missing_ok=True)


def remove_created_namespaces(folder: Path) -> None:
    """Remove the network namespaces that the agents of a lab that has ended created, which they have recorded."""
    for database in folder.glob("nodes/*/conf.db"):
        with suppress(Internal):  # Of another version, or damaged.
            rows = msgspec.json.decode(wiring.run(["ovsdb-tool", "query", str(database), _BRIDGES]))[0]["rows"]
            for key, value in (entry for row in rows for entry in row["external_ids"][1]):
                record = read_record(value) if key.startswith(f"{NETNS}/") else None
                if record is not None:
                    path = "/" + key.split("/", 3)[3]
                    kernel.remove_path(path, record.identity, root=record.root)
    for state_file in folder.glob("nodes/*/sandboxes/*.json"):
        with suppress(Internal):  # Damaged.
            wiring.run([sys.executable, "-I", str(APPLIER), "remove", state_file.stem, str(state_file.parent)])


def sweep_machine() -> list[str]:
    """End labs whose folder is gone, and return the folders: nothing else could ever end them."""
    swept = []
    for lab_id, folder in state.registered().items():
        if os.path.lexists(folder / state.FILE):
            continue
        clean(lab_id)
        swept.append(str(folder))
    return swept
