"""What the CyberRangeCZ platform makes of a topology: its management node, its links, the gateway of each network.

Every sandbox has a management node, `man`, and a management network. The addresses there, and in the wan, are given out
in the order of the links, as the platform does where nothing else holds one; the addresses of a sandbox that runs may
be given instead. All functions take a topology without errors.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.kinds.sandbox import BaseBox, Topology, TopologyHost, TopologyRouter, Wan
from netloom.model.schemas import rules
from netloom.model.topology.checks import MAN, MANAGEMENT
from netloom.model.values import addresses

MAN_NETWORK = "_management"
"""Not a name that a network of a topology can have."""


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """What the platform says of a link of a sandbox that runs."""

    ip: str
    mac: str = ""


class Link(Struct, frozen=True):
    """The link of a machine to a network."""

    name: str
    node: str
    network: str
    ip: str
    mac: str = ""


class Instance(Struct, frozen=True):
    """A topology with what the platform adds."""

    topology: Topology
    links: tuple[Link, ...]
    addresses: dict[tuple[str, str], str]
    """The address of a machine in a network."""
    first: dict[str, Link]
    """The first link of a machine to a network of the topology."""
    gateways: dict[str, str]
    """The router of each network that has one: of several, the first by name."""
    accessible: frozenset[str]
    """The machines in networks that users can access."""

    def nodes(self) -> list[TopologyHost | TopologyRouter]:
        """Return hosts and routers."""
        return [*self.topology.hosts, *self.topology.routers]

    def wan_mac(self, node: str) -> str:
        """Return the MAC address of a router, or of the management node, in the wan; "": unknown."""
        wan = (self.topology.wan or Wan()).name
        return next((link.mac for link in self.links if (link.node, link.network) == (node, wan)), "")

    def management_ip(self, node: str) -> str:
        """Return the address of a machine in the management network."""
        return self.addresses[node, MAN_NETWORK]

    def wan_ip(self, node: str) -> str:
        """Return the address of a router, or of the management node, in the wan."""
        return self.addresses[node, (self.topology.wan or Wan()).name]


def is_windows(box: BaseBox | None) -> bool:
    """Whether an image is of Windows."""
    return box is not None and "windows" in box.image.lower()


def known_links(data: bytes) -> dict[str, Known]:
    """Return the links of a links.yml of the platform, by name."""
    try:
        found = msgspec.convert(codec.decode(data, "application/yaml"), dict[str, Known])
    except msgspec.ValidationError as error:
        raise BadRequest(f"not a file of links, each with ip and mac: {error}") from None
    for name, known in found.items():
        if not addresses.is_ip(known.ip):
            raise BadRequest(f"{name}.ip: {known.ip!r} is no IP address")
        if known.mac and not re.fullmatch(rules.MAC_PATTERN, known.mac):
            raise BadRequest(f"{name}.mac: {known.mac!r} is no MAC address, such as 0a:00:00:00:00:01")
    return found


def instance(topology: Topology, known: Mapping[str, Known] | None = None) -> Instance:
    """Return a topology with what the platform adds."""
    links = numbered(topology, known)
    own = {network.name for network in topology.networks}
    first: dict[str, Link] = {}
    for link in links:
        if link.network in own:
            first.setdefault(link.node, link)
    gateways: dict[str, str] = {}
    for one in topology.router_mappings:
        gateways[one.network] = min(one.router, gateways.get(one.network, one.router))
    shared = {network.name for network in topology.networks if network.accessible_by_user}
    return Instance(
        topology,
        links,
        {(link.node, link.network): link.ip for link in links},
        first,
        gateways,
        frozenset(link.node for link in links if link.network in shared),
    )


def numbered(topology: Topology, known: Mapping[str, Known] | None = None) -> tuple[Link, ...]:
    """Return all links, in the order in which the platform numbers them."""
    given = known or {}
    wan = topology.wan or Wan()
    free = defaultdict[str, int](int)
    cidrs = {MAN_NETWORK: MANAGEMENT, wan.name: wan.cidr}
    links: list[Link] = []

    def add(node: str, network: str, ip: str = "") -> None:
        if not ip:
            free[network] += 1
            ip = str(addresses.block(cidrs[network]).network_address + free[network])
        name = f"link-{len(links) + 1}"
        found = given.get(name, Known(ip))
        if network not in cidrs and found.ip != ip:
            raise BadRequest(
                f"{name}: {node} has {ip} in {network}, and not {found.ip}: the links are of another topology"
            )
        links.append(Link(name, node, network, found.ip, found.mac))

    add(MAN, MAN_NETWORK)
    add(MAN, wan.name)
    for host in topology.hosts:
        add(host.name, MAN_NETWORK)
    for one in topology.net_mappings:
        add(one.host, one.network, one.ip)
    for router in topology.routers:
        add(router.name, MAN_NETWORK)
        add(router.name, wan.name)
    for other in topology.router_mappings:
        add(other.router, other.network, other.ip)
    return tuple(links)
