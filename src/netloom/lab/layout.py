"""Where everything of a lab is: computed from the folder and its state, never looked up.

    root namespace                 serve on 127.0.0.1:PORT, supervisor (relays the API into the nodes), keeper
    nl-ID-central                  ovn-nb, ovn-sb, ovn-northd (three of each with --ovn 3; raft over this loopback)
    nl-ID-underlay                 bridge `underlay` (the nodes' uplinks); bridge `physnet1` with --outside
    nl-ID-nK                       br-phys: `uplink` and 172.31.0.K/16; br-int; br-ex: `ex0` with --outside
    nl-ID-outside                  `eth0` on physnet1, 192.0.2.1/24 and 2001:db8::1/64; the world on its loopback

    DIR/lab.json                   the state
    DIR/admin.kubeconfig, ...      the data directory of `netloom serve`
    DIR/ovn/                       OVN's databases, their sockets nb.sock and sb.sock (nb-2.sock, ... with --ovn 3)
    DIR/nodes/nK/                  a node's switch database, its sockets, its agent's credential
    DIR/pids/NAME, DIR/log/NAME    one file for each process; DIR/ready/NAME is there while it is ready
    DIR/off/PLACE                  is there while a host is switched off

Sockets are named by way of the lab's link under /run/netloom/labs, where a path may be as long as it likes: the
kernel takes 107 characters, and the folder of a test may have more.
"""

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path

from netloom.lab import state as states
from netloom.lab.state import State

UNDERLAY_NET = int(IPv4Address("172.31.0.0"))
UNDERLAY_BITS = 16
PHYSICAL_NETWORK = "physnet1"
OUTSIDE_ADDRESSES = ("192.0.2.1/24", "2001:db8::1/64")
WORLD_ADDRESSES = ("198.51.100.1/32", "2001:db8:ffff::1/128")
"""What lies behind the outside router: somebody to reach by way of the next hop."""
MARK = "NETLOOM_LAB"
"""In the environment of every process of a lab: the lab's id."""
MARK_NAME = "NETLOOM_LAB_PROCESS"


@dataclass(frozen=True)
class Layout:
    """A lab's names and places."""

    folder: Path
    state: State

    @cached_property
    def id(self) -> str:
        """The lab's id."""
        return states.identity(self.folder)

    @property
    def prefix(self) -> str:
        """How the names of the lab's namespaces begin."""
        return prefix(self.id)

    @property
    def nodes(self) -> list[str]:
        """The nodes' names."""
        return [f"n{number}" for number in range(1, self.state.nodes + 1)]

    @property
    def places(self) -> list[str]:
        """Everything that is a namespace."""
        central = ["central"] if self.state.ovn else []
        outside = ["outside"] if self.state.outside else []
        return ["underlay", *central, *outside, *self.nodes]

    def netns(self, place: str) -> str:
        """Return the name of a place's namespace."""
        return self.prefix + place

    def underlay_ip(self, node: str) -> str:
        """Return a node's underlay address."""
        return str(IPv4Address(UNDERLAY_NET + int(node.removeprefix("n"))))

    def root(self, place: str) -> str:
        """Return the folder from which a place's OVS and OVN are run, "" for this machine's own."""
        return self.state.roots.get(place, "")

    @property
    def url(self) -> str:
        """Where the API is, here and on every node."""
        return f"https://127.0.0.1:{self.state.port}"

    @property
    def kubeconfig(self) -> Path:
        """How an administrator reaches the API."""
        return self.folder / "admin.kubeconfig"

    @property
    def controller_kubeconfig(self) -> Path:
        """The credential of the controller of a lab that has no API of its own."""
        return self.folder / "controller.kubeconfig"

    @property
    def ovn(self) -> Path:
        """OVN's databases and sockets."""
        return self.folder / "ovn"

    def node(self, name: str) -> Path:
        """Return a node's own folder."""
        return self.folder / "nodes" / name

    def agent_kubeconfig(self, node: str) -> Path:
        """Return the credential of a node's agent."""
        return self.node(node) / "agent.kubeconfig"

    @property
    def pids(self) -> Path:
        """One file for each process, with its pid."""
        return self.folder / "pids"

    @property
    def log(self) -> Path:
        """One file for each process, with what it says."""
        return self.folder / "log"

    @property
    def ready(self) -> Path:
        """One file for each process that is ready for others."""
        return self.folder / "ready"

    @property
    def off(self) -> Path:
        """One file for each host that is switched off."""
        return self.folder / "off"

    def is_off(self, place: str) -> bool:
        """Whether somebody pulled a host's plug."""
        return bool(place) and (self.off / place).exists()

    @property
    def short(self) -> Path:
        """The lab's folder by a short name."""
        return states.LABS / self.id

    def database_socket(self, database: str, number: int = 1) -> str:
        """Return the short path of the socket of a server of `nb` or `sb`."""
        return str(self.short / "ovn" / f"{database}{suffix(number)}.sock")

    def remotes(self, database: str) -> str:
        """Return where `nb` or `sb` is reached, as OVN's programs and ours take it."""
        count = self.state.ovn
        return ",".join(f"unix:{self.database_socket(database, number)}" for number in range(1, count + 1))

    def switch_socket(self, node: str) -> str:
        """Return the short path of the socket of a node's switch database."""
        return str(self.short / "nodes" / node / "db.sock")


def prefix(lab_id: str) -> str:
    """Return how the names of a lab's namespaces begin."""
    return f"nl-{lab_id}-"


def suffix(number: int) -> str:
    """Return what tells the second and third server of a database from the first."""
    return "" if number == 1 else f"-{number}"
