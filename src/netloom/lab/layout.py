"""Where everything of a lab is: computed from the folder and its state, never looked up.

    root namespace                 serve on 127.0.0.1:PORT, supervisor (relays the API into the nodes), keeper
    nl-ID-central                  ovn-nb, ovn-sb, ovn-northd; `mgmt0` 172.30.1.1/16
    nl-ID-central-2, -3            with --ovn 3: the other servers; `central0` 172.29.0.J/24 among the three
    nl-ID-underlay                 bridges: `underlay` (the nodes' uplinks), `management`, `central` with --ovn 3,
                                   `physnet1` with --outside
    nl-ID-nK                       br-phys: `uplink` and 172.31.0.K/16; br-int; br-ex: `ex0` with --outside;
                                   `mgmt0` 172.30.0.K/16, by which ovn-controller reaches the southbound
    nl-ID-outside                  `eth0` on physnet1, 192.0.2.1/24 and 2001:db8::1/64; the world on its loopback

    DIR/lab.json                   the state
    DIR/admin.kubeconfig, ...      the data directory of `netloom serve`
    DIR/ovn/                       OVN's databases, their sockets nb.sock and sb.sock (nb-2.sock, ... with --ovn 3)
    DIR/ovn/tls/                   the two CAs of OVN, certificates of its servers, of northd and of the control plane
    DIR/nodes/nK/                  a node's switch database, its sockets, its agent's credential, its OVN certificate
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
MANAGEMENT_NET = int(IPv4Address("172.30.0.0"))
MANAGEMENT_BITS = 16
CENTRAL_NET = int(IPv4Address("172.29.0.0"))
CENTRAL_BITS = 24
CENTRALS = 256
"""Where the addresses of the central begin in the management network: beyond those of all nodes."""
NODES_PORT = 6642
"""Where nodes reach the southbound: there OVN's role for them holds."""
NORTHBOUND_PORT = 6641
SOUTHBOUND_PORT = 16642
"""Where programs of the central reach the southbound: without a role, on a network that no node is on."""
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
        central = self.centrals if self.state.ovn else []
        outside = ["outside"] if self.state.outside else []
        return ["underlay", *central, *outside, *self.nodes]

    @property
    def secure(self) -> bool:
        """Whether OVN is reached by TLS."""
        return bool(self.state.ovn) and not self.state.plain_ovn

    @property
    def centrals(self) -> list[str]:
        """The places of OVN's databases: one, or with TLS one for each server."""
        return [f"central{suffix(number)}" for number in range(1, self.state.ovn + 1 if self.secure else 2)]

    def central(self, number: int) -> str:
        """Return the place of a server of OVN's databases."""
        return f"central{suffix(number)}" if self.secure else "central"

    def management_ip(self, place: str) -> str:
        """Return the address of a node, or of a place of OVN's databases, in the management network."""
        if place in self.nodes:
            return str(IPv4Address(MANAGEMENT_NET + int(place.removeprefix("n"))))
        return str(IPv4Address(MANAGEMENT_NET + CENTRALS + self._number(place)))

    def central_ip(self, place: str) -> str:
        """Return the address by which programs of the central reach each other: no node can."""
        return "127.0.0.1" if self.state.ovn == 1 else str(IPv4Address(CENTRAL_NET + self._number(place)))

    def _number(self, place: str) -> int:
        return self.centrals.index(place) + 1

    def netns(self, place: str) -> str:
        """Return the name of a place's namespace."""
        return self.prefix + place

    def underlay_ip(self, node: str) -> str:
        """Return a node's underlay address."""
        return str(IPv4Address(UNDERLAY_NET + int(node.removeprefix("n"))))

    def root(self, place: str) -> str:
        """Return the folder from which a place's OVS and OVN are run, "" for this machine's own."""
        return self.state.roots.get("central" if place in self.centrals else place, "")

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

    @property
    def tls(self) -> Path:
        """The CAs of OVN, and the certificates of the central's programs."""
        return self.ovn / "tls"

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
        """Return where an administrator of this machine reaches `nb` or `sb`."""
        count = self.state.ovn
        return ",".join(f"unix:{self.database_socket(database, number)}" for number in range(1, count + 1))

    def controller_remotes(self, database: str) -> str:
        """Return where the control plane reaches `nb` or `sb`."""
        if not self.secure:
            return self.remotes(database)
        count = self.state.ovn
        ports = self.state.ovn_ports[:count] if database == "nb" else self.state.ovn_ports[count:]
        return ",".join(f"ssl:127.0.0.1:{port}" for port in ports)

    def central_remotes(self, database: str) -> str:
        """Return where ovn-northd reaches `nb` or `sb`.

        Beside the only server that is its socket. The servers of a cluster are elsewhere.
        """
        if not self.secure or self.state.ovn == 1:
            return self._long_sockets(database)
        port = NORTHBOUND_PORT if database == "nb" else SOUTHBOUND_PORT
        return ",".join(f"ssl:{self.central_ip(place)}:{port}" for place in self.centrals)

    def node_remotes(self) -> str:
        """Return where ovn-controller reaches the southbound."""
        if not self.secure:
            return self._long_sockets("sb")
        return ",".join(f"ssl:{self.management_ip(place)}:{NODES_PORT}" for place in self.centrals)

    def _long_sockets(self, database: str) -> str:
        """Return the sockets of a database as OVN's programs take them, which may run in a chroot."""
        sockets = (self.ovn / f"{database}{suffix(number)}.sock" for number in range(1, self.state.ovn + 1))
        return ",".join(f"unix:{socket}" for socket in sockets)

    def switch_socket(self, node: str) -> str:
        """Return the short path of the socket of a node's switch database."""
        return str(self.short / "nodes" / node / "db.sock")


def prefix(lab_id: str) -> str:
    """Return how the names of a lab's namespaces begin."""
    return f"nl-{lab_id}-"


def suffix(number: int) -> str:
    """Return what tells the second and third server of a database from the first."""
    return "" if number == 1 else f"-{number}"
