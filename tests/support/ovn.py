"""Real Open vSwitch and OVN, started by the tests and always stopped.

    with ovn_central(folder, "nlt-ag-x") as central:          northbound, southbound, northd, by unix sockets
        with ovn_node(folder, "nlt-ag-x", "n1", central) as node:   a namespace with its own OVS and ovn-controller
            central.nbctl("ls-add", "blue")
            node.vsctl("list", "interface")

An OVS runs only inside its own namespace: otherwise the devices of its userspace switch would appear among the
machine's own. All namespaces begin with the prefix of the test (`nlt-…`), and are removed at the end, including those
of a killed test.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.process import Program, find_program, wait_until

OVS_SHARE = Path("/usr/share/openvswitch")
OVN_SHARE = Path("/usr/share/ovn")
_INSTALL = "apt-get install openvswitch-switch ovn-central ovn-host"
_NUMBERS = itertools.count(1)  # One test process may run two switches at once.


def run(*argv: str | Path, timeout: float = 120.0, check: bool = True) -> str:
    """Run a program and return its output."""
    words = [str(word) for word in argv]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or ended.returncode == 0, f"{words} failed: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def own(prefix: str) -> str:
    """Return a unique name for namespaces; those of dead test processes are removed."""
    for name in Path("/run/netns").glob(f"{prefix}.*"):
        pid = name.name.removeprefix(f"{prefix}.").partition("-")[0]
        if not Path("/proc", pid).exists():
            remove_namespace(name.name)
    return f"{prefix}.{os.getpid()}-{next(_NUMBERS)}"


@contextlib.contextmanager
def namespace(name: str) -> Iterator[Path]:
    """Yield a new network namespace with its loopback up, and remove it afterwards."""
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield Path("/run/netns", name)
    finally:
        remove_namespace(name)


def remove_namespace(name: str) -> None:
    """Remove a network namespace if it exists."""
    run("ip", "netns", "del", name, check=False)


def within(name: str, *argv: str | Path) -> list[str]:
    """Return a command line that runs in a namespace."""
    return ["ip", "netns", "exec", name, *(str(word) for word in argv)]


@dataclass
class Database:
    """One real ovsdb-server with one database, which can be killed and restarted."""

    folder: Path
    name: str
    schema: Path
    argv: Sequence[str] = ()
    """The prefix of the command, such as `ip netns exec NAME`."""
    program: Program | None = None

    @property
    def socket(self) -> Path:
        """Its unix socket."""
        return self.folder / f"{self.name}.sock"

    @property
    def remote(self) -> str:
        """Its remote, in OVSDB's notation."""
        return f"unix:{self.socket}"

    def start(self) -> None:
        """Create the database if there is none, and serve it."""
        find_program("ovsdb-server", install=_INSTALL)
        file = self.folder / f"{self.name}.db"
        if not file.exists():
            run("ovsdb-tool", "create", file, self.schema)
        self.program = Program(
            [
                *self.argv, "ovsdb-server", file, f"--remote=punix:{self.socket}",
                f"--pidfile={self.folder}/{self.name}.pid", f"--unixctl={self.folder}/{self.name}.ctl",
                "--no-chdir", "-vconsole:warn",
            ],
            log=self.folder / f"{self.name}.log",
            env=_environment(self.folder),
        )  # fmt: skip
        self.program.wait_ready(self.answers)

    def answers(self) -> bool:
        """Whether it answers."""
        if not self.socket.exists():
            return False
        listed = subprocess.run(
            ["ovsdb-client", "--timeout=5", "list-dbs", self.remote], capture_output=True, text=True, check=False
        )
        return listed.returncode == 0

    def kill(self) -> None:
        """Stop it like a crash."""
        if self.program is not None:
            self.program.kill()

    def stop(self) -> None:
        """Stop it."""
        if self.program is not None:
            self.program.stop()


@dataclass
class Central:
    """A northbound, a southbound, and northd between them."""

    folder: Path
    northbound: Database
    southbound: Database
    northd: Program | None = None

    def nbctl(self, *argv: str, timeout: int = 20) -> str:
        """Run ovn-nbctl."""
        return run("ovn-nbctl", f"--timeout={timeout}", f"--db={self.northbound.remote}", *argv)

    def sbctl(self, *argv: str, timeout: int = 20) -> str:
        """Run ovn-sbctl."""
        return run("ovn-sbctl", f"--timeout={timeout}", f"--db={self.southbound.remote}", *argv)

    def start_northd(self) -> None:
        """Start northd."""
        find_program("ovn-northd", install=_INSTALL)
        self.northd = Program(
            [
                "ovn-northd", f"--ovnnb-db={self.northbound.remote}", f"--ovnsb-db={self.southbound.remote}",
                f"--unixctl={self.folder}/northd.ctl", "--no-chdir", "-vconsole:warn",
            ],
            log=self.folder / "northd.log",
            env=_environment(self.folder),
        )  # fmt: skip


@contextlib.contextmanager
def ovn_central(folder: Path) -> Iterator[Central]:
    """Yield an OVN central on unix sockets in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    central = Central(
        folder,
        Database(folder, "nb", OVN_SHARE / "ovn-nb.ovsschema"),
        Database(folder, "sb", OVN_SHARE / "ovn-sb.ovsschema"),
    )
    try:
        central.northbound.start()
        central.southbound.start()
        central.nbctl("init")
        central.sbctl("init")
        central.start_northd()
        yield central
    finally:
        if central.northd is not None:
            central.northd.stop()
        central.northbound.stop()
        central.southbound.stop()


@dataclass
class OvnNode:
    """A namespace with its own Open vSwitch and, with a central, ovn-controller."""

    folder: Path
    netns: str
    name: str
    underlay: str
    database: Database
    vswitchd: Program | None = None
    controller: Program | None = None
    extra: list[Program] = field(default_factory=list)

    def exec(self, *argv: str | Path, timeout: float = 120.0, check: bool = True) -> str:
        """Run a program in the node's namespace."""
        return run(*within(self.netns, *argv), timeout=timeout, check=check)

    def vsctl(self, *argv: str, timeout: int = 20, check: bool = True) -> str:
        """Run ovs-vsctl; it does not wait for the switch."""
        return run("ovs-vsctl", f"--timeout={timeout}", f"--db={self.database.remote}", "--no-wait", *argv, check=check)

    def appctl(self, *argv: str) -> str:
        """Run a command of ovs-vswitchd."""
        return run("ovs-appctl", "-t", f"{self.folder}/vswitchd.ctl", *argv)

    def start_vswitchd(self) -> None:
        """Start ovs-vswitchd."""
        find_program("ovs-vswitchd", install=_INSTALL)
        self.vswitchd = Program(
            within(
                self.netns, "ovs-vswitchd", self.database.remote, f"--unixctl={self.folder}/vswitchd.ctl",
                f"--pidfile={self.folder}/vswitchd.pid", "--no-chdir", "-vconsole:warn", "--disable-system",
            ),
            log=self.folder / "vswitchd.log",
            env=_environment(self.folder),
        )  # fmt: skip

    def start_controller(self) -> None:
        """Start ovn-controller."""
        find_program("ovn-controller", install=_INSTALL)
        self.controller = Program(
            within(
                self.netns, "ovn-controller", self.database.remote, f"--pidfile={self.folder}/controller.pid",
                "--no-chdir", "-vconsole:warn",
            ),
            log=self.folder / "controller.log",
            env=_environment(self.folder),
        )  # fmt: skip

    def prepare(self, central: Central) -> None:
        """Write the settings of `netloom agent --prepare`, for tests of other things."""
        pairs = {
            "system-id": self.name, "ovn-remote": central.southbound.remote, "ovn-encap-type": "geneve",
            "ovn-encap-ip": self.underlay, "ovn-bridge-datapath-type": "netdev", "hostname": self.name,
        }  # fmt: skip
        self.vsctl("set", "open", ".", *(f'external_ids:{key}="{value}"' for key, value in pairs.items()))
        self.vsctl("--may-exist", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev",
                   "fail-mode=secure", "other_config:disable-in-band=true")  # fmt: skip


@contextlib.contextmanager
def ovn_node(
    folder: Path, netns: str, name: str, central: Central | None = None, *, underlay: str = "172.31.0.1",
    prepared: bool = True,
) -> Iterator[OvnNode]:  # fmt: skip
    """Yield a node: its namespace, ovsdb-server, ovs-vswitchd and, with a central, ovn-controller.

    The underlay address is on a bridge of the same OVS, as a userspace tunnel requires.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with namespace(netns):
        database = Database(folder, "db", OVS_SHARE / "vswitch.ovsschema", within(netns))
        node = OvnNode(folder, netns, name, underlay, database)
        try:
            database.start()
            node.vsctl("init")
            node.start_vswitchd()
            node.vsctl("--may-exist", "add-br", "br-phys", "--", "set", "bridge", "br-phys", "datapath_type=netdev")
            wait_until(lambda: "br-phys" in node.exec("ip", "-br", "link"), what="br-phys")
            node.exec("ip", "addr", "add", f"{underlay}/24", "dev", "br-phys")
            node.exec("ip", "link", "set", "br-phys", "up")
            if central is not None:
                if prepared:
                    node.prepare(central)
                node.start_controller()
            yield node
        finally:
            for program in (*node.extra, node.controller, node.vswitchd, database.program):
                if program is not None:
                    program.stop()


def _environment(folder: Path) -> dict[str, str]:
    own = {"OVS_RUNDIR": str(folder), "OVN_RUNDIR": str(folder), "OVS_LOGDIR": str(folder), "OVN_LOGDIR": str(folder)}
    return {**os.environ, **own}
