"""A real FRR bgpd in a network namespace, beside another namespace that is joined to it by a cable.

with frr(config) as (ours, daemon):
    ...                     # `ours` is a namespace with 10.9.0.1, FRR is at 10.9.0.2
    daemon.json("show bgp l2vpn evpn route json")

FRR is the machine's own, or that of a root folder (tools/ovn-root).
"""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from netloom.lab.daemons.entering import entered, mountpoints
from tests.support.ovn import namespace, own, run
from tests.support.process import Program, fail_missing, scratch

OURS, THEIRS = "10.9.0.1", "10.9.0.2"
BGPD = Path("/usr/lib/frr/bgpd")


def vty(terminal: Path, *commands: str) -> str:
    """Run commands at the terminal of a daemon, and return what the last one prints."""
    printed = ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(120)
        client.connect(str(terminal))
        for command in ("enable", *commands):
            client.sendall(command.encode() + b"\0")
            data = b""
            while data[-4:-1] != b"\0\0\0":
                data += client.recv(65536)
            # After the text there are three zeros and the status: 0 is success, 1 a warning.
            printed = data[:-4].decode()
            assert data[-1] in (0, 1), f"{command}: {printed}"
    return printed


class Bgpd:
    """A running bgpd, without zebra."""

    def __init__(self, folder: Path, netns: str, config: str, root: str = "") -> None:
        self.folder = folder
        self.netns = netns
        self.root = root
        (folder / "bgpd.conf").write_text(config)
        os.chown(folder, *_account(root))  # It gives up being root.
        self.program = Program(self._argv(), log=folder / "bgpd.log")
        self.program.wait_ready((folder / "bgpd.vty").exists)

    def _argv(self) -> list[str | Path]:
        folder = self.folder
        files: list[str | Path] = ["-f", folder / "bgpd.conf", "-i", folder / "bgpd.pid", "--vty_socket", folder]
        argv = [str(word) for word in (BGPD, "-Z", "-n", "-P", "0", *files)]
        return [*entered(argv, netns=self.netns, root=self.root, folder=folder)]

    def vty(self, *commands: str) -> str:
        """Run commands, each in the terminal's first mode, and return what they print."""
        return vty(self.folder / "bgpd.vty", *commands)

    def json(self, command: str) -> Any:
        """Run a command that prints JSON."""
        return json.loads(self.vty(command))

    def kill(self) -> None:
        """End it like a crash."""
        self.program.kill()
        (self.folder / "bgpd.vty").unlink()

    def start(self) -> None:
        """Start it again."""
        self.program = Program(self._argv(), log=self.folder / "bgpd.log")
        self.program.wait_ready((self.folder / "bgpd.vty").exists)


def _account(root: str) -> tuple[int, int]:
    """Return the user and the group of FRR in a root."""
    lines = Path(root or "/", "etc/passwd").read_text().splitlines()
    _, _, user, group, *_ = next(line.split(":") for line in lines if line.startswith("frr:"))
    return int(user), int(group)


def newer_root(generation: str) -> str:
    """Return the root folder with the FRR of a generation of OVN; "": the machine's own."""
    if not generation:
        return ""
    tool = Path(__file__).parents[2] / "tools" / "ovn-root"
    return subprocess.run([tool, generation], capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def cabled() -> Iterator[tuple[str, str]]:
    """Yield two namespaces that are joined by a cable: one with our address, one with theirs."""
    ours, theirs = own("netloom-bgp"), own("netloom-bgp")
    with namespace(ours), namespace(theirs):
        run("ip", "link", "add", "veth0", "netns", ours, "type", "veth", "peer", "name", "veth0", "netns", theirs)
        for netns, address in ((ours, OURS), (theirs, THEIRS)):
            run("ip", "-n", netns, "address", "add", f"{address}/24", "dev", "veth0")
            run("ip", "-n", netns, "link", "set", "veth0", "up")
        yield ours, theirs


@contextlib.contextmanager
def frr(config: str, root: str = "") -> Iterator[tuple[str, Bgpd]]:
    """Yield a namespace of ours and a bgpd in another one."""
    if not Path(root + str(BGPD)).exists():
        fail_missing("bgpd", "tools/ovn-root GENERATION" if root else "tools/system-packages test")
    with cabled() as (ours, theirs), scratch("frr") as folder:
        made = mountpoints(folder, [root] if root else [])
        daemon = Bgpd(folder, theirs, config, root)
        try:
            yield ours, daemon
        finally:
            daemon.program.stop()
            for path in made:
                Path(path).rmdir()
