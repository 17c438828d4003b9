"""Labs for tests: brought up, taken down whatever happens, and looked for afterwards.

with running(nodes=2, outside=True) as lab:
    lab.exec("n1", ["ping", "-c1", "172.31.0.2"])
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netloom.lab import Lab, down, state, wiring
from netloom.lab.daemons.processes import of_lab
from netloom.lab.kube import cgroups
from tests.run.serving import environment
from tests.support.process import wait_until

NETLOOM = [sys.executable, "-m", "netloom.cli.main"]


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder for a lab; whatever of a lab is in it or came of it is ended and removed afterwards."""
    made = Path(tempfile.mkdtemp(prefix="netloom-lab-"))
    data = made / "lab"
    try:
        yield data
    finally:
        if (data / state.FILE).exists() or state.identity(data) in state.registered():
            down(data)
        shutil.rmtree(made)


@contextmanager
def running(**options: Any) -> Iterator[Lab]:
    """Give a lab that is up; `options` as for `Lab.up`."""
    with folder() as data:
        yield Lab.up(data, **options)


def left_of(data: Path) -> list[str]:
    """Return what is on this machine of the lab in `data`: processes, namespaces, cgroups, mounts, the note of it."""
    lab_id = state.identity(data)
    mounts = [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if lab_id in line or str(data) in line
    ]
    processes = [f"{found.pid} {found.name}" for found in of_lab(lab_id, ())]
    processes += [f"{found.pid} of a pod" for found in cgroups.processes(lab_id)]
    processes += [str(path) for path in cgroups.FOLDER.glob(f"*/*{lab_id}*")]
    return [*processes, *wiring.namespaces(lab_id), *mounts, *(key for key in state.registered() if key == lab_id)]


def command(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run `netloom lab ...` to its end."""
    return subprocess.run(
        [*NETLOOM, "lab", *map(str, args)], capture_output=True, text=True, timeout=120, env=environment(), check=False
    )


def is_ready(lab: Lab, name: str) -> bool:
    """Return whether a process runs and is ready."""
    return bool(lab.pid(name)) and (lab.layout.ready / name).exists()


def killed_comes_back(lab: Lab, name: str) -> None:
    """Kill a process with -9 and wait until another one is there and ready."""
    comes_back(lab, name, lab.kill(name))


def comes_back(lab: Lab, name: str, before: int) -> None:
    """Wait until there is another process than the one with the pid `before`, and it is ready."""
    wait_until(lambda: lab.pid(name) not in (0, before) and is_ready(lab, name), what=f"{name} to be started again")


def switch_port(lab: Lab, node: str, port: str, *, number: int) -> None:
    """Make a device on a node's switch for a logical port: 10.9.0.NUMBER, by hand, as an agent would."""
    mac = f"02:00:00:00:09:{number:02x}"
    lab.exec(node, ["ovs-vsctl", "add-port", "br-int", port, "--", "set", "Interface", port, "type=internal",
                    f'mac="{mac}"', f"external_ids:iface-id={port}", "mtu_request=1400"])  # fmt: skip
    lab.exec(node, ["ethtool", "-K", port, "tx", "off"])
    lab.exec(node, ["ip", "address", "add", f"10.9.0.{number}/24", "dev", port])
    lab.exec(node, ["ip", "link", "set", port, "up"])


def logical_switch(lab: Lab, name: str, ports: dict[str, int]) -> None:
    """Make a logical switch with ports, by hand."""
    argv = ["ovn-nbctl", "ls-add", name]
    for port, number in ports.items():
        argv += ["--", "lsp-add", name, port]
        argv += ["--", "lsp-set-addresses", port, f"02:00:00:00:09:{number:02x} 10.9.0.{number}"]
    lab.exec("central", argv)


def pings(lab: Lab, node: str, address: str, *, count: int = 1) -> bool:
    """Whether an address answers within a second or so."""
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-W", "1", address]
    return lab.exec(node, argv, check=False).returncode == 0
