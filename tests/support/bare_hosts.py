"""Hosts without Netloom on one machine: each a network namespace and a mount namespace with a /run of its own.

They are connected by a bridge, as machines in a rack. The network namespaces have no names, so what a host creates in
/run/netns is all that it has there. A host ends with all its processes, and is gone with everything in it.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

APPLIER = Path(__file__).parents[2] / "src/netloom/drivers/linux/applier.py"
PREFIX = "192.0.2."

# Without the namespaces of this machine, which its own mounts would keep alive.
_PREPARE = """
umount -Rl /run/netns 2>/dev/null
mount -t tmpfs tmpfs /run && sysctl -q net.ipv6.conf.default.accept_dad=0 && echo ready && exec sleep infinity
"""


class BareHost:
    """One host."""

    def __init__(self, name: str, number: int, wire: int) -> None:
        self.name, self.ip = name, f"{PREFIX}{number}"
        argv = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", _PREPARE]
        self._holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        if wire:
            port = f"port{number}"
            inside(wire, f"ip link add {port} type veth peer name eth0 netns {self._holder.pid}")
            inside(wire, f"ip link set {port} master rack up")
            for line in (f"addr add {self.ip}/24 dev eth0", "link set eth0 up", "link set lo up"):
                self.run("ip", *line.split())

    def argv(self, *argv: str, netns: str = "") -> list[str]:
        """Return a command that runs on the host, or in a network namespace of it."""
        inner = ["ip", "netns", "exec", netns] if netns else []
        return ["nsenter", "-t", str(self._holder.pid), "-n", "-m", "--", *inner, *argv]

    def run(self, *argv: str, netns: str = "", check: bool = True, text: str = "") -> str:
        """Run a command to its end; return what it prints."""
        done = subprocess.run(
            self.argv(*argv, netns=netns), input=text, capture_output=True, text=True, check=False, timeout=120
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def pings(self, netns: str, address: str, *options: str) -> bool:
        """Whether an address answers to a namespace of the host."""
        argv = self.argv("ping", "-n", "-c1", "-W2", *options, address, netns=netns)
        return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0

    def applier(self, verb: str, owner: str) -> list[str]:
        """Return the command that runs the program; its input is the document."""
        return self.argv("python3", "-I", str(APPLIER), verb, owner)

    def apply(self, verb: str, owner: str, document: Any = None) -> tuple[list[str], dict[str, Any]]:
        """Run the program; return the steps and the result."""
        argv, data = self.applier(verb, owner), json.dumps(document)
        done = subprocess.run(argv, input=data, capture_output=True, text=True, check=False, timeout=300)
        assert not done.stderr, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == (lines[-1]["result"] != "done")
        return [line["step"] for line in lines if "step" in line], lines[-1]

    def snapshot(self) -> dict[str, Any]:
        """Return all that a program can leave behind on the host."""
        inner = self.run("find", "/run", "-printf", "%p %y %l\n").splitlines()
        links = json.loads(self.run("ip", "-j", "-d", "addr", "show"))
        return {
            "links": [
                (one["ifname"], one["flags"], one["mtu"], [ip["local"] for ip in one["addr_info"]]) for one in links
            ],
            "routes": self.run("ip", "route", "show", "table", "all"),
            "files": sorted(inner),
            "mounts": self.run("cat", "/proc/self/mountinfo").count(" /run"),
            "nft": self.run("nft", "list", "ruleset"),
            "sysctls": self.run("sysctl", "-a", "--pattern", "^net\\.ipv[46]\\.(ip_forward|conf)"),
            "sockets": self.run("ss", "-Hanup"),
            "processes": len(self._processes()),
        }

    def _processes(self) -> list[int]:
        """Return the processes that have this host's /run, in any network namespace."""
        mine, found = os.readlink(f"/proc/{self._holder.pid}/ns/mnt"), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):  # It has ended.
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/mnt") == mine:
                    found.append(int(name))
        return found

    def close(self) -> None:
        """End the host, and all that it runs."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


def inside(pid: int, line: str) -> None:
    """Run a command in the network namespace of a process."""
    subprocess.run(["nsenter", "-t", str(pid), "-n", "--", *line.split()], check=True, capture_output=True, timeout=60)


@contextmanager
def bare_hosts(names: Sequence[str]) -> Iterator[dict[str, BareHost]]:
    """Give hosts on one wire; end them, and all that they run, at the end."""
    argv = ["unshare", "--net", "sh", "-c", "echo ready && exec sleep infinity"]
    wire = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    hosts: dict[str, BareHost] = {}
    try:
        assert wire.stdout is not None
        assert wire.stdout.readline() == "ready\n"
        inside(wire.pid, "ip link add rack type bridge forward_delay 0")
        inside(wire.pid, "ip link set rack up")
        for number, name in enumerate(names, 1):
            hosts[name] = BareHost(name, number, wire.pid)
        yield hosts
    finally:
        for host in hosts.values():
            host.close()
        wire.kill()
        wire.wait()
        if wire.stdout is not None:
            wire.stdout.close()
