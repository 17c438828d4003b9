"""The names, paths and addresses of a lab: computed from the folder and its state, never looked up.

    root namespace                 serve on 127.0.0.1:PORT, supervisor (relays the API into the nodes), keeper
    nl-ID-central                  ovn-nb, ovn-sb, ovn-northd; `mgmt0` 172.30.1.1/16
    nl-ID-central-2, -3            with --ovn 3: the other servers; `central0` 172.29.0.J/24 among the three
    nl-ID-underlay                 bridges: `underlay` (the nodes' uplinks), `management`, `central` with --ovn 3,
                                   `physnet1` with --outside
    nl-ID-nK                       br-phys: `uplink` and 172.31.0.K/16; br-int; br-ex: `ex0` with --outside;
                                   `mgmt0` 172.30.0.K/16, for ovn-controller's connection to the southbound
    nl-ID-kube                     with --kube: the control plane of Kubernetes; see kube/places.py
    nl-ID-outside                  `eth0` on physnet1, 192.0.2.1/24 and 2001:db8::1/64; the world on its loopback.
                                   With --kube nodes have addresses there, 192.0.2.(100+K) and 2001:db8::(100+K)
    nl-ID-router                   with --sites: the router between the sites, `siteK` with 172.31.K.254/24. Each site
                                   is a lab of its own, with the underlay 172.31.K.0/24 and an id of its own

    DIR/lab.json                   the state
    DIR/admin.kubeconfig, ...      the data directory of `netloom serve`
    DIR/ovn/                       OVN's databases, their sockets nb.sock and sb.sock (nb-2.sock, ... with --ovn 3)
    DIR/ovn/tls/                   the two CAs of OVN, certificates of its servers, of northd and of the control plane
    DIR/nodes/nK/                  a node's switch database, its sockets, its agent's credential, its OVN certificate
   DIR/pids/NAME, DIR/log/NAME    one file for each process; DIR/ready/NAME exists while it is ready
   DIR/off/PLACE                  exists while a host is powered off
   DIR/siteK/                     with --sites: a site's own folder, as above

Sockets are addressed through the lab's link under /run/netloom/labs, so that the path of the folder may be long: the
kernel allows 107 characters, and a test's folder may have more.
"""

from ipaddress import IPv4Address, ip_interface
from pathlib import Path

from netloom.lab import state as states
from netloom.lab.kube.places import PLACE as KUBE
from netloom.lab.state import State

UNDERLAY_NET = int(IPv4Address("172.31.0.0"))
UNDERLAY_BITS = 16
SITE_BITS = 24
"""The underlay of one of several sites: 172.31.K.0/24."""
ROUTER = "router"
ROUTER_HOST = 254
SITE_ASN = 65000
"""The autonomous system of a reflector and its clients; without a reflector, that of site K is greater by K."""
MANAGEMENT_NET = int(IPv4Address("172.30.0.0"))
MANAGEMENT_BITS = 16
CENTRAL_NET = int(IPv4Address("172.29.0.0"))
CENTRAL_BITS = 24
CENTRALS = 256
"""The first address of the central in the management network: after those of all nodes."""
NODES_PORT = 6642
"""The southbound's port for nodes, on which OVN's role for them applies."""
NORTHBOUND_PORT = 6641
SOUTHBOUND_PORT = 16642
"""The southbound's port for programs of the central: without a role, on a network without nodes."""
PHYSICAL_NETWORK = "physnet1"
OUTSIDE_ADDRESSES = ("192.0.2.1/24", "2001:db8::1/64")
OUTSIDE_NODES = 100
"""The host part of the first node there less 1."""
WORLD_ADDRESSES = ("198.51.100.1/32", "2001:db8:ffff::1/128")
"""The addresses behind the outside router: targets beyond the next hop."""
KUBE_HOST = 256 + 1
"""The host part of the underlay address of Kubernetes' control plane: after those of all nodes."""
MARK = "NETLOOM_LAB"
"""The environment variable with the lab's id, set in every process of a lab."""
MARK_NAME = "NETLOOM_LAB_PROCESS"


class Layout:
    """The names and places of a lab."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state
        self.id = states.identity(folder)
        self.prefix = prefix(self.id)
        self.url = f"https://127.0.0.1:{state.port}"
        """The URL of the API, here and on every node."""
        self.kubeconfig = folder / ("kube.kubeconfig" if state.kube else "admin.kubeconfig")
        self.controller_kubeconfig = folder / "controller.kubeconfig"
        """For a lab without its own API."""
        self.ovn = folder / "ovn"
        self.tls = self.ovn / "tls"
        self.pids, self.log = folder / "pids", folder / "log"
        self.ready, self.off = folder / "ready", folder / "off"
        self.short = states.LABS / self.id
        """A short path of the lab's folder."""

    @property
    def nodes(self) -> list[str]:
        """The nodes' names."""
        return [f"n{number}" for number in range(1, self.state.nodes + 1)] if not self.state.sites else []

    @property
    def gateway(self) -> str:
        """The node with the BGP speaker."""
        return ROUTER if self.state.sites else "n1"

    @property
    def on_cluster(self) -> bool:
        """Whether the API is that of a Kubernetes cluster, the lab's own or another."""
        return bool(self.state.cluster or self.state.kube)

    @property
    def kube_ip(self) -> str:
        """The underlay address of Kubernetes' control plane."""
        return str(IPv4Address(UNDERLAY_NET + KUBE_HOST))

    @property
    def has_api(self) -> bool:
        """Whether there is a control plane: between sites, only that of a reflector."""
        return not self.state.sites or self.state.reflector == "netloom"

    @property
    def clients(self) -> list[str]:
        """The places with a credential for the API."""
        return [ROUTER] if self.state.sites and self.has_api else self.nodes

    @property
    def places(self) -> list[str]:
        """All places with a namespace."""
        if self.state.sites:
            return [ROUTER]
        central = self.centrals if self.state.ovn else []
        kube = [KUBE] if self.state.kube else []
        outside = ["outside"] if self.state.outside else []
        return ["underlay", *central, *kube, *outside, *self.nodes]

    @property
    def secure(self) -> bool:
        """Whether OVN uses TLS."""
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
        """Return the address of a place in the network of the central, which nodes cannot reach."""
        return "127.0.0.1" if self.state.ovn == 1 else str(IPv4Address(CENTRAL_NET + self._number(place)))

    def _number(self, place: str) -> int:
        return self.centrals.index(place) + 1

    def netns(self, place: str) -> str:
        """Return the name of a place's namespace."""
        return self.prefix + place

    def underlay_ip(self, node: str) -> str:
        """Return a node's underlay address."""
        return _underlay_ip(self.state.site, int(node.removeprefix("n")))

    def outside_ips(self, node: str) -> tuple[str, ...]:
        """Return a node's addresses on the network of the outside, with prefix lengths, if it has any."""
        if not (self.state.kube and self.state.outside):
            return ()
        number = OUTSIDE_NODES + int(node.removeprefix("n"))
        found = (ip_interface(address) for address in OUTSIDE_ADDRESSES)
        return tuple(f"{one.network.network_address + number}/{one.network.prefixlen}" for one in found)

    @property
    def underlay_bits(self) -> int:
        """The length of the prefix of the underlay."""
        return SITE_BITS if self.state.site else UNDERLAY_BITS

    def root(self, place: str) -> str:
        """Return the folder from which a place's OVS and OVN run, "" for this machine's own."""
        return self.state.roots.get("central" if place in self.centrals else place, "")

    def node(self, name: str) -> Path:
        """Return a node's own folder."""
        return self.folder / "nodes" / name

    def sandbox_state(self, node: str) -> Path:
        """Return the folder of what a node's agent has applied for Sandboxes with the backend linux."""
        return self.node(node) / "sandboxes"

    def agent_kubeconfig(self, node: str) -> Path:
        """Return the credential of a node's agent."""
        return self.node(node) / "agent.kubeconfig"

    def is_off(self, place: str) -> bool:
        """Whether a host is powered off."""
        return bool(place) and (self.off / place).exists()

    def database_socket(self, database: str, number: int = 1) -> str:
        """Return the short path of the socket of a server of `nb` or `sb`."""
        return str(self.short / "ovn" / f"{database}{suffix(number)}.sock")

    def remotes(self, database: str) -> str:
        """Return the remotes of `nb` or `sb` for an administrator of this machine."""
        count = self.state.ovn
        return ",".join(f"unix:{self.database_socket(database, number)}" for number in range(1, count + 1))

    def controller_remotes(self, database: str) -> str:
        """Return the remotes of `nb` or `sb` for the control plane."""
        if not self.secure:
            return self.remotes(database)
        count = self.state.ovn
        ports = self.state.ovn_ports[:count] if database == "nb" else self.state.ovn_ports[count:]
        return ",".join(f"ssl:127.0.0.1:{port}" for port in ports)

    def central_remotes(self, database: str) -> str:
        """Return the remotes of `nb` or `sb` for ovn-northd.

        With a single server that is its socket. The servers of a cluster are in other places.
        """
        if not self.secure or self.state.ovn == 1:
            return self._long_sockets(database)
        port = NORTHBOUND_PORT if database == "nb" else SOUTHBOUND_PORT
        return ",".join(f"ssl:{self.central_ip(place)}:{port}" for place in self.centrals)

    def node_remotes(self) -> str:
        """Return the remotes of the southbound for ovn-controller."""
        if not self.secure:
            return self._long_sockets("sb")
        return ",".join(f"ssl:{self.management_ip(place)}:{NODES_PORT}" for place in self.centrals)

    def _long_sockets(self, database: str) -> str:
        """Return the sockets of a database for OVN's programs, which may run in a chroot."""
        sockets = (self.ovn / f"{database}{suffix(number)}.sock" for number in range(1, self.state.ovn + 1))
        return ",".join(f"unix:{socket}" for socket in sockets)

    def switch_socket(self, node: str) -> str:
        """Return the short path of the socket of a node's switch database."""
        return str(self.short / "nodes" / node / "db.sock")


def prefix(lab_id: str) -> str:
    """Return the prefix of a lab's namespaces."""
    return f"nl-{lab_id}-"


def router_ip(site: int) -> str:
    """Return the address of the router between sites in the underlay of a site."""
    return _underlay_ip(site, ROUTER_HOST)


def gateway_ip(site: int) -> str:
    """Return the underlay address of the node of a site that has its BGP speaker."""
    return _underlay_ip(site, 1)


def _underlay_ip(site: int, host: int) -> str:
    return str(IPv4Address(UNDERLAY_NET + (site << 32 - SITE_BITS) + host))


def suffix(number: int) -> str:
    """Return the suffix of the second and third server of a database."""
    return "" if number == 1 else f"-{number}"
