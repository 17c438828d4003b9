"""Hosts with a real sshd, each in namespaces of its own: network, mounts, and processes.

    with ssh_hosts(8, folder) as hosts:
        hosts.netloom("sandbox", "apply", …)      the command line, in the namespace of the operator
        hosts["h1"].run("ip", "link")             a command on a host
        hosts["h1"].traces()                      all that a program may have changed there

A host has the files of this machine, in an overlay, so that what it writes is its own; `/run` is empty. All hosts have
an address in one network, which the operator reaches by a bridge. The namespaces and the processes of a host end with
its first process, which ends with the test.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.ovn import namespace, own, remove_namespace, run, within
from tests.support.process import Program, find_program, wait_until

_INSTALL = "run tools/system-packages test"
OPERATOR = "10.99.0.254"

# $1: a folder for the mounts. The upper layer is in memory: it must not be below the lower one, which is /.
_HOST = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t tmpfs tmpfs run
mkdir -p run/sshd run/upper
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount --bind "$1/upper" run/upper
shift
exec chroot . "$@"
"""


class SshHost:
    """A host, and its sshd."""

    def __init__(self, name: str, netns: str, address: str, folder: Path) -> None:
        self.name, self.netns, self.address, self.folder = name, netns, address, folder
        self.folder.mkdir()
        self._program: Program | None = None

    def start(self) -> None:
        """Start it."""
        (self.folder / "mounts").mkdir(exist_ok=True)
        sshd = [find_program("sshd", install=_INSTALL), "-D", "-e", "-f", self.folder / "sshd_config"]
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--"]
        prepare = ["sh", "-c", _HOST, "host", self.folder / "mounts"]
        self._program = Program(
            [str(word) for word in ("nsenter", f"--net=/run/netns/{self.netns}", "--", *unshare, *prepare, *sshd)],
            log=self.folder / "log",
        )
        self._program.wait_ready(lambda: "Server listening" in self.folder.joinpath("log").read_text())

    def stop(self) -> None:
        """Stop it with all that runs there; what it wrote is gone."""
        if self._program is not None:
            self._program.kill()  # unshare ignores SIGTERM
            (self.folder / "log").write_text("")

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        assert self._program is not None
        parent = self._program.pid
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a command there and return its output."""
        enter = ("nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--root", "--wd")
        return run(*enter, "env", "-i", "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", *argv, check=check)

    def traces(self) -> dict[str, str]:
        """Return what a program may have changed: devices, addresses, routes, files, processes and more."""
        commands = {
            "links": "ip -d -o link",
            "addresses": "ip -o address",
            "routes": "ip route show table all; ip -6 route show table all",
            "rules": "ip rule",
            "fdb": "bridge fdb",
            "qdiscs": "tc qdisc",
            "filters": "if command -v nft; then nft list ruleset; fi",
            "namespaces": "ls /run/netns 2>&1 || true",
            "sysctls": "sysctl -a 2>/dev/null | grep -E '^net.ipv[46].*(forwarding|ip_forward|rp_filter|disable_ipv6)'",
            "run": "find /run -xdev -not -path '/run/upper*' -not -path '/run/netloom*' -not -path /run | sort",
            "state": "find /run/netloom -type f 2>/dev/null | sort",
            "files": "cd /run/upper && find . -not -type d -not -path './var/log/*' -not -name '*.pyc' | sort",
            "processes": "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null "
            "| grep -v -e '^$' -e sshd -e cmdline -e '^sh -c' -e '^tr ' -e '^grep ' -e '^sort ' | sort",
        }
        # What the kernel counts or draws by lot is none of a program's doing.
        return {name: self.run("sh", "-c", f"{command} || true") for name, command in commands.items()}


class SshHosts:
    """Hosts, and the operator who reaches them."""

    def __init__(self, folder: Path, netns: str) -> None:
        self.folder, self.netns = folder, netns
        self.hosts: dict[str, SshHost] = {}
        self.key = folder / "id"
        self.config = folder / "ssh_config"
        self.known = folder / "known_hosts"
        _new_key(self.key)

    def __getitem__(self, name: str) -> SshHost:
        """Return a host by name."""
        return self.hosts[name]

    def add(self, number: int) -> SshHost:
        """Create a host with its keys and its cable."""
        name, address = f"h{number}", f"10.99.0.{number}"
        host = SshHost(name, f"{self.netns}-{name}", address, self.folder / name)
        run("ip", "netns", "add", host.netns)
        self.hosts[name] = host
        far = ("peer", "name", name, "netns", self.netns)
        run("ip", "link", "add", "mgmt", "netns", host.netns, "type", "veth", *far)
        run("ip", "-n", host.netns, "address", "add", f"{address}/24", "dev", "mgmt")
        run("ip", "-n", self.netns, "link", "set", name, "master", "mgmt", "up")
        run("ip", "-n", host.netns, "link", "set", "mgmt", "addrgenmode", "none")  # An address that settles is a trace.
        for device in ("lo", "mgmt"):
            run("ip", "-n", host.netns, "link", "set", device, "up")
        _new_key(host.folder / "host_key")
        lines = [
            f"ListenAddress {address}", f"HostKey {host.folder}/host_key", "UsePAM no",
            f"AuthorizedKeysFile {self.key}.pub /run/authorized_keys",
            "StrictModes no", "PermitRootLogin prohibit-password", f"PidFile {host.folder}/none",
            "MaxStartups 100",
        ]  # fmt: skip
        (host.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        host.start()
        return host

    def write(self, *, extra: str = "", **options: Mapping[str, str]) -> None:
        """Write the SSH config and the known keys; options of a host replace the usual ones."""
        blocks, known = [], []
        for name, host in self.hosts.items():
            chosen = {
                "HostName": host.address, "User": "root", "IdentityFile": str(self.key), "IdentitiesOnly": "yes",
                "UserKnownHostsFile": str(self.known), **options.get(name, {}),
            }  # fmt: skip
            blocks.append("\n  ".join([f"Host {name}", *(f"{key} {value}" for key, value in chosen.items())]))
            known.append(f"{host.address} {(host.folder / 'host_key.pub').read_text()}")
        self.config.write_text("\n".join([*blocks, extra]) + "\n")
        self.known.write_text("".join(known))

    def command(self, *argv: str | Path) -> list[str]:
        """Return the command line of `netloom`, in the namespace of the operator."""
        return within(self.netns, Path(sys.executable).with_name("netloom"), *argv)

    def netloom(self, *argv: str | Path, home: str = "/nonexistent") -> "subprocess.CompletedProcess[str]":
        """Run `netloom`, without a kubeconfig and without the keys of the user."""
        env = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "SSH_AUTH_SOCK")}
        env["HOME"] = home
        return subprocess.run(
            self.command(*argv),
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Stop all hosts."""
        for host in self.hosts.values():
            host.stop()
            remove_namespace(host.netns)


@contextlib.contextmanager
def ssh_hosts(count: int, folder: Path) -> Iterator[SshHosts]:
    """Yield `count` hosts, h1 and up, with an SSH config for them."""
    netns = own("netloom-ssh")
    with namespace(netns):
        run("ip", "-n", netns, "link", "add", "mgmt", "type", "bridge")
        run("ip", "-n", netns, "address", "add", f"{OPERATOR}/24", "dev", "mgmt")
        run("ip", "-n", netns, "link", "set", "mgmt", "up")
        hosts = SshHosts(folder, netns)
        try:
            for number in range(1, count + 1):
                hosts.add(number)
            hosts.write()
            yield hosts
        finally:
            hosts.close()


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the lines of traces that came or went, each with a sign."""
    found = []
    for name in before:
        old, new = before[name].splitlines(), after[name].splitlines()
        found += [f"{name}: -{line}" for line in old if line not in new]
        found += [f"{name}: +{line}" for line in new if line not in old]
    return found


def devices(host: SshHost) -> set[str]:
    """Return the names of the devices of a host."""
    return {link["ifname"] for link in json.loads(host.run("ip", "-j", "link"))}


def programs(host: SshHost) -> list[int]:
    """Return the processes on a host that run a program which came over SSH, by their number there."""
    listing = host.run("sh", "-c", r"for p in /proc/[0-9]*; do echo $p $(tr '\0' ' ' <$p/cmdline); done 2>/dev/null")
    found = (line.split() for line in listing.splitlines())
    return [int(words[0].rpartition("/")[2]) for words in found if words[2:4] == ["-I", "-c"]]


def wait_until_quiet(host: SshHost) -> None:
    """Wait until no program runs on a host over SSH."""
    wait_until(lambda: not programs(host), what=f"the programs on {host.name} to end")


def _new_key(path: Path) -> None:
    find_program("ssh-keygen", install=_INSTALL)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
