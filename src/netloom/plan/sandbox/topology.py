"""The usable parts of a topology: networks, routers with their addresses, and the links of hosts.  Pure.

A topology may be invalid: no admission of ours checks a Sandbox in a Kubernetes cluster's own API. A part that cannot
be used is a problem, and costs what depends on it. Where two parts exclude each other (two networks of one name, two
machines with one address), the choice does not depend on their order in the lists. Order has a meaning only among the
links of one host, the first of which has the default route, and among the routers, whose addresses on the WAN follow
it as on the CyberRangeCZ platform.
"""

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from netloom.model.kinds.sandbox import Topology, TopologyHost, TopologyNetwork, Wan
from netloom.model.values import addresses
from netloom.model.values.addresses import Address, Block
from netloom.plan.ovn.layer3.router_ports import not_a_host
from netloom.plan.problem import Problem

INVALID = "TopologyInvalid"
MAN = "man"
"""The router between the routers of a topology, as on the CyberRangeCZ platform."""
MOST_NETWORKS = 127
"""Networks of a router besides the WAN: a Router has at most 128 ports."""
MOST_ADDRESSES = 16
"""Addresses of a router in a network."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Segment(Struct, frozen=True, kw_only=True):
    """A network that can be used."""

    name: str
    block: Block
    accessible: bool
    routers: tuple[tuple[str, str], ...] = ()
    """The routers on it, each with its first address there, by name of the router."""
    taken: frozenset[Address] = frozenset()
    """The addresses of hosts and routers."""


class RouterLinks(Struct, frozen=True, kw_only=True):
    """A router that can be used."""

    name: str
    wan: str
    """Its address on the WAN; "": the WAN has none left."""
    networks: tuple[tuple[str, tuple[str, ...]], ...]
    """Its addresses in each network, as 10.0.0.1/24."""


class HostLink(Struct, frozen=True, kw_only=True, order=True):
    """The link of a host to a network."""

    host: str
    position: int
    """Its number among the links of the host; the first is 0."""
    network: str
    ip: str


class Usable(Struct, frozen=True, kw_only=True):
    """The parts of a topology that can be used."""

    segments: dict[str, Segment]
    routers: tuple[RouterLinks, ...]
    """By name."""
    wan: Wan
    wan_block: Block | None
    """None: there is no WAN."""
    man: str
    """The address of the router `man` on the WAN; "": there is none."""
    hosts: dict[str, TopologyHost]
    links: tuple[HostLink, ...]
    groups: dict[str, tuple[str, ...]]
    """The groups of each machine, sorted."""
    problems: tuple[Problem, ...]


def usable(topology: Topology) -> Usable:
    """Return the parts of a topology that can be used, and the problems of the others."""
    problems: list[Problem] = []
    wan = topology.wan or Wan()
    names = _unique([one.name for one in topology.routers], "routers", problems)
    wan_block = _block(wan.cidr, "wan.cidr", problems) if names else None
    blocks = _networks(topology, wan if wan_block is not None else None, problems)
    given = _router_addresses(topology, names, blocks, problems)
    man, *rest = _wan_addresses(wan_block, names, problems)
    routers = tuple(
        RouterLinks(name=name, wan=ip, networks=given.get(name, ()))
        for name, ip in sorted(zip(names, rest, strict=True))
    )
    hosts = _chosen(topology.hosts, lambda one: one.name, "hosts", problems)
    links, taken = _links(topology, hosts, blocks, routers, problems)
    joined: dict[str, list[tuple[str, str]]] = {}
    for router in routers:
        for network, ips in router.networks:
            joined.setdefault(network, []).append((router.name, ips[0].partition("/")[0]))
    segments = {
        name: Segment(
            name=name,
            block=block,
            accessible=declared.accessible_by_user,
            routers=tuple(joined.get(name, ())),
            taken=frozenset(taken.get(name, ())),
        )
        for name, (declared, block) in sorted(blocks.items())
    }
    return Usable(
        segments=segments,
        routers=routers,
        wan=wan,
        wan_block=wan_block,
        man=man,
        hosts=hosts,
        links=links,
        groups=_groups(topology),
        problems=tuple(problems),
    )


def routes_of_man(parts: Usable) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Return the routes of `man`, each a block and the next hop, and networks that the WAN cannot carry."""
    routes: list[tuple[str, str]] = []
    problems: list[Problem] = []
    hops = {one.name: one.wan for one in parts.routers if one.wan}
    for segment in parts.segments.values():
        via = next((hops[router] for router, _ in segment.routers if router in hops), "")
        if not via or parts.wan_block is None:
            continue
        if segment.block.version == parts.wan_block.version:
            routes.append((str(segment.block), via))
            continue
        text = f"the WAN {parts.wan_block} cannot carry packets of {segment.block}: choose blocks of one address family"
        _report(problems, f"networks: {segment.name}", text)
    return routes, problems


def closed_blocks(parts: Usable) -> list[str]:
    """Return the blocks of the networks that nothing enters through `man`."""
    version = None if parts.wan_block is None else parts.wan_block.version
    closed = (one for one in parts.segments.values() if not one.accessible and one.routers)
    return sorted(str(one.block) for one in closed if one.block.version == version)


def spare_address(segment: Segment) -> str:
    """Return the last address of a network that no machine has; "": there is none."""
    block = segment.block
    last = int(block.broadcast_address) - (block.version == 4)
    kind = type(block.network_address)
    every = (kind(number) for number in range(last, int(block.network_address), -1))
    return str(next((ip for ip in every if ip not in segment.taken), ""))


def _report(problems: list[Problem], field: str, text: str) -> None:
    problems.append(Problem(INVALID, f"spec.topology.{field}: {text}"))


def _unique(names: Iterable[str], field: str, problems: list[Problem]) -> list[str]:
    """Return the names in their order, each once."""
    found: dict[str, None] = {}
    for name in names:
        if name in found:
            _report(problems, field, f"{name} is declared twice: choose another name")
        found.setdefault(name)
    return list(found)


def _chosen(items: Iterable[T], key: Callable[[T], K], field: str, problems: list[Problem]) -> dict[K, T]:
    """Return the items by key; of several with one key, the one that is first in order, whatever its position."""
    found: dict[K, T] = {}
    for one in sorted(items, key=lambda item: (str(key(item)), repr(item))):
        if key(one) in found:
            _report(problems, field, f"{key(one)} is declared twice: choose another name")
        found.setdefault(key(one), one)
    return found


def _block(cidr: str, field: str, problems: list[Problem]) -> Block | None:
    if addresses.is_block(cidr):
        return addresses.block(cidr)
    _report(problems, field, f"{cidr!r} is not an address block")
    return None


def _networks(topology: Topology, wan: Wan | None, problems: list[Problem]) -> dict[str, tuple[TopologyNetwork, Block]]:
    """Return the networks whose blocks are valid and overlap neither the WAN nor each other."""
    chosen = _chosen(topology.networks, lambda one: one.name, "networks", problems)
    blocks = {name: _block(one.cidr, f"networks: {name}", problems) for name, one in chosen.items()}
    found = {name: (chosen[name], block) for name, block in blocks.items() if block is not None}
    # The WAN comes first among equals: without it no router has a way to another.
    every = [(block, 1, name) for name, (_, block) in found.items()]
    every += [(addresses.block(wan.cidr), 0, wan.name)] if wan is not None else []
    every.sort(key=lambda one: (one[0].version, int(one[0].network_address), one[0].prefixlen, one[1:]))
    last: tuple[Block, int, str] | None = None
    for one in every:
        # Two blocks are disjoint, or one is inside the other: only the last one that others may be inside matters.
        if last is None or last[0].version != one[0].version or one[0].network_address not in last[0]:
            last = one
            continue
        loser = one if one[1] else last
        _report(problems, "networks", f'Network "{loser[2]}" overlaps with network "{(last, one)[loser is last][2]}".')
        found.pop(loser[2], None)
        last = last if loser is one else one
    return found


def _router_addresses(
    topology: Topology,
    names: Iterable[str],
    blocks: dict[str, tuple[TopologyNetwork, Block]],
    problems: list[Problem],
) -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the addresses of each router in each of its networks."""
    known = set(names)
    given: dict[str, dict[str, list[str]]] = {}
    holders: dict[tuple[str, Address], str] = {}
    for one in sorted(topology.router_mappings, key=lambda one: (one.router, one.network, one.ip)):
        field = f"router_mappings: {one.router} on {one.network}"
        if one.router not in known:
            text = f'Invalid router mapping with ip "{one.ip}". Cannot find router with name "{one.router}".'
            _report(problems, field, text)
            continue
        ip = _address(one.network, one.ip, blocks, field, problems)
        if ip is None:
            continue
        holder = holders.setdefault((one.network, ip), one.router)
        if holder != one.router:
            _report(problems, field, f"router {holder} has {ip} as well: choose another address")
            continue
        mine = given.setdefault(one.router, {})
        if one.network not in mine and len(mine) >= MOST_NETWORKS:
            _report(problems, field, f"a router joins at most {MOST_NETWORKS} networks: use another router")
            continue
        own = f"{ip}/{blocks[one.network][1].prefixlen}"
        ips = mine.setdefault(one.network, [])
        if own not in ips and len(ips) >= MOST_ADDRESSES:
            _report(problems, field, f"a router has at most {MOST_ADDRESSES} addresses in a network")
        elif own not in ips:
            ips.append(own)
    return {router: tuple((name, tuple(ips)) for name, ips in sorted(own.items())) for router, own in given.items()}


def _wan_addresses(block: Block | None, names: list[str], problems: list[Problem]) -> list[str]:
    """Return the addresses of `man` and of the routers, in this order, on the WAN."""
    if block is None:
        return [""] * (1 + len(names))
    found = [str(ip) for ip in islice(block.hosts(), 1 + len(names))]
    for name in names[max(0, len(found) - 1) :]:
        _report(problems, "wan.cidr", f"{block} has no address left for router {name}: choose a larger block")
    return found + [""] * (1 + len(names) - len(found))


def _links(
    topology: Topology,
    hosts: dict[str, TopologyHost],
    blocks: dict[str, tuple[TopologyNetwork, Block]],
    routers: Iterable[RouterLinks],
    problems: list[Problem],
) -> tuple[tuple[HostLink, ...], dict[str, set[Address]]]:
    """Return the links of hosts, and all addresses in use in each network."""
    taken: dict[str, set[Address]] = {}
    for router in routers:
        for network, ips in router.networks:
            taken.setdefault(network, set()).update(addresses.interface(ip).ip for ip in ips)
    positions: dict[str, int] = {}
    wanted: list[HostLink] = []
    for one in topology.net_mappings:
        position = positions[one.host] = positions.get(one.host, -1) + 1
        wanted.append(HostLink(host=one.host, position=position, network=one.network, ip=one.ip))
    links = []
    for link in sorted(wanted):
        field = f"net_mappings: {link.host} on {link.network}"
        if link.host not in hosts:
            text = f'Invalid network mapping with ip "{link.ip}". Cannot find host with name "{link.host}".'
            _report(problems, field, text)
            continue
        ip = _address(link.network, link.ip, blocks, field, problems)
        if ip is None:
            continue
        here = taken.setdefault(link.network, set())
        if ip in here:
            _report(problems, field, f"another machine has {ip} as well: choose another address")
            continue
        here.add(ip)
        links.append(HostLink(host=link.host, position=link.position, network=link.network, ip=str(ip)))
    return tuple(links), taken


def _address(
    network: str,
    text: str,
    blocks: dict[str, tuple[TopologyNetwork, Block]],
    field: str,
    problems: list[Problem],
) -> Address | None:
    """Return an address in a network, or None and add a problem."""
    if network not in blocks:
        _report(problems, field, f'Invalid mapping with ip "{text}". Cannot find network with name "{network}".')
        return None
    block = blocks[network][1]
    if addresses.is_ip(text) and addresses.within(text, str(block)):
        problem = not_a_host(addresses.interface(f"{text}/{block.prefixlen}"), field)
        if problem is None:
            return addresses.address(text)
    _report(problems, field, f'IP address "{text}" is not valid host address of "{block}".')
    return None


def _groups(topology: Topology) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for group in topology.groups:
        for node in group.nodes:
            found.setdefault(node, set()).add(group.name)
    return {node: tuple(sorted(names)) for node, names in found.items()}
