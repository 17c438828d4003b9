"""Restarts the supervisor, which restarts everything else.

The keeper is itself one of the supervisor's processes, so each restarts the other. It does nothing else and imports
little, because every lab has one.
"""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

from netloom.lab.daemons.processes import is_of, read_pid
from netloom.lab.layout import MARK, MARK_NAME

RETRY_SECONDS = 0.1


def start_supervisor(folder: Path, lab_id: str) -> "subprocess.Popen[bytes]":
    """Start the lab's supervisor, detached; it writes its own pid file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NETLOOM_")}
    environment |= {MARK: lab_id, MARK_NAME: "supervisor"}
    with (folder / "log" / "supervisor").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "netloom.lab.daemons.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment,
            cwd="/",
        )


def keep(folder: Path, lab_id: str) -> None:
    """Wait for the supervisor's end and start it again, for ever."""
    child: subprocess.Popen[bytes] | None = None
    while True:
        pid = read_pid(folder / "pids", "supervisor")
        if pid and is_of(pid, lab_id, "supervisor"):
            _wait(pid)
        if child is not None:
            child.wait()
        if not (folder / "lab.json").exists():
            return
        child = start_supervisor(folder, lab_id)
        time.sleep(RETRY_SECONDS)  # Do not restart one that fails at once in a tight loop.


def _wait(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), os.environ[MARK])
