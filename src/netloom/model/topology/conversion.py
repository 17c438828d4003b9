"""From the networks, hosts and routes of the old platform to a topology document: `assemble`.

On the old platform each network has a machine that routes, and a route is a cable between two of them. The result has a
router for each network, and a network of two addresses for each cable, so a packet takes the hops of the file. The
router's address is the first one of its network that no host has; so is the address of a host that has none.

Networks that no routes join, directly or through others, do not reach each other there. Here `man` would join them, so
if there are such, users may enter none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from itertools import count, islice

import msgspec
from msgspec import Struct

from netloom.model.codec import Spot
from netloom.model.document import Document
from netloom.model.kinds.sandbox import SandboxLink, Topology, Wan
from netloom.model.topology import checks
from netloom.model.topology.findings import Finding, at, shape
from netloom.model.values import addresses

CABLES = IPv4Network("100.64.0.0/10")
"""The networks between routers are in the first /16 of this block that overlaps no other."""
Item = tuple[Document, Spot]
"""A document, and where it is written."""


class Written(Struct, frozen=True):
    """A text, and where it is written."""

    text: str
    spot: Spot


class OldNetwork(Struct, frozen=True):
    """A network."""

    name: Written
    cidr: Written


class OldPort(Struct, frozen=True):
    """A host's link to a network; the address may be empty."""

    network: Written
    ip: Written


class OldHost(Struct, frozen=True):
    """A host."""

    name: Written
    ports: tuple[OldPort, ...] = ()
    extra: Document = {}


class Converted(Struct, frozen=True):
    """A topology document that was made from another format, and where its parts are written there."""

    document: Document | None
    """None if the file cannot be converted."""
    spot: Spot = Spot(1, 1)
    findings: Sequence[Finding] = ()
    links: Sequence[Item] = ()
    """The qualities of links, as documents."""


def judge_links(converted: Converted, topology: Topology | None) -> tuple[tuple[SandboxLink, ...], list[Finding]]:
    """Return the links of a converted file, and their problems; those are complete only with a topology."""
    found: list[Finding] = []
    for document, spot in converted.links:
        found += shape(document, spot, SandboxLink)[1]
    if found or topology is None:
        return (), found
    links = tuple(msgspec.convert(document, SandboxLink) for document, _ in converted.links)
    spots = Spot(1, 1, inner={"links": Spot(1, 1, inner=[spot for _, spot in converted.links])})
    found += [at(spots, f".{one.path}", one.message) for one in checks.check_links(topology, links)]
    seen = set()
    for (_, spot), link in zip(converted.links, links, strict=True):
        if (link.host, link.network) in seen:
            found.append(
                Finding(spot.line, spot.column, f'the link of "{link.host}" to "{link.network}" is there twice')
            )
        seen.add((link.host, link.network))
    return links, found


class _Pool:
    """The free addresses of a network, from the first one on."""

    def __init__(self, cidr: str) -> None:
        block = addresses.block(cidr)
        single = block.max_prefixlen - block.prefixlen < 2
        self._next = int(block.network_address) + (not single)
        self._last = int(block.broadcast_address) - (not single and block.version == 4)
        self._kind = type(block.network_address)
        self.used: set[str] = set()

    def take(self) -> str:
        """Return the first free address, or an empty text."""
        while self._next <= self._last:
            ip = str(self._kind(self._next))
            self._next += 1
            if ip not in self.used:
                return ip
        return ""


def assemble(
    name: Written,
    networks: Sequence[OldNetwork],
    hosts: Sequence[OldHost],
    routes: Iterable[tuple[Written, Written]],
    findings: Iterable[Finding] = (),
    links: Sequence[Item] = (),
) -> Converted:
    """Return the topology document of a sandbox of the old platform."""
    found = list(findings)
    pools = {one.name.text: _Pool(one.cidr.text) for one in networks if addresses.is_block(one.cidr.text)}
    for host in hosts:
        for port in host.ports:
            if port.network.text in pools:
                pools[port.network.text].used.add(port.ip.text)
    pairs = _pairs(networks, routes, found)
    closed = _components(networks, pairs) > 1
    machines = {host.name.text for host in hosts}
    routers, router_mappings = _routers(networks, machines, pools)
    joints, joint_mappings = _joints(networks, pairs, [one["name"] for one, _ in routers], machines)
    if len(joints) < len(pairs):
        found.append(Finding(name.spot.line, name.spot.column, f"the networks leave no room in {CABLES} for cables"))
    net_mappings = _net_mappings(hosts, {one.name.text for one in networks}, pools, found)
    parts = {
        "hosts": [
            _item({"name": host.name}) if not host.extra else _item({"name": host.name}, {"extra": host.extra})
            for host in hosts
        ],
        "routers": routers,
        "networks": [
            *(
                _item({"name": one.name, "cidr": one.cidr}, {"accessible_by_user": False} if closed else None)
                for one in networks
            ),
            *joints,
        ],
        "net_mappings": net_mappings,
        "router_mappings": [*router_mappings, *joint_mappings],
    }
    document: Document = {"name": name.text} | {key: [item for item, _ in items] for key, items in parts.items()}
    lists = {key: Spot(1, 1, inner=[spot for _, spot in items]) for key, items in parts.items()}
    return Converted(document, Spot(1, 1, inner={"name": name.spot, **lists}), found, links)


def _item(written: dict[str, Written], more: Document | None = None) -> Item:
    """Return an object and its spot: that of its first field."""
    first = next(iter(written.values())).spot
    inner = {key: one.spot for key, one in written.items()}
    values = {key: one.text for key, one in written.items()}
    return {**values, **(more or {})}, Spot(first.line, first.column, inner=inner)


def _pairs(
    networks: Sequence[OldNetwork], routes: Iterable[tuple[Written, Written]], found: list[Finding]
) -> dict[tuple[str, str], tuple[Written, Written]]:
    """Return the pairs of networks that are linked, each once, as their first link is written."""
    known = {one.name.text for one in networks}
    pairs: dict[tuple[str, str], tuple[Written, Written]] = {}
    for ends in routes:
        unknown = [end for end in ends if end.text not in known]
        found += [Finding(one.spot.line, one.spot.column, f'no network "{one.text:.64}"') for one in unknown]
        one, other = ends[0].text, ends[1].text
        if not unknown and one != other:
            pairs.setdefault((min(one, other), max(one, other)), ends)
    return pairs


def _components(networks: Sequence[OldNetwork], pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many groups of networks there are that links join."""
    parent = {one.name.text: one.name.text for one in networks}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for one, other in pairs:
        parent[root(other)] = root(one)
    return len({root(name) for name in parent})


def _free(names: Iterable[str], taken: set[str]) -> Iterator[str]:
    """Yield those of some names that are not taken."""
    return (name for name in names if name not in taken)


def _routers(networks: Sequence[OldNetwork], taken: set[str], pools: dict[str, _Pool]) -> tuple[list[Item], list[Item]]:
    """Return a router for each network, with the first free address there, and its mapping."""
    routers: list[Item] = []
    mappings: list[Item] = []
    names = _free((f"lr-{number}" for number in count()), taken | {one.name.text for one in networks})
    for network in networks:
        spot = network.name.spot
        router = Written(next(names), Spot(spot.line, spot.column))
        routers.append(_item({"name": router}))
        pool = pools.get(network.name.text)
        if pool is not None and (ip := pool.take()):
            mappings.append(_item({"router": router, "network": network.name, "ip": Written(ip, network.cidr.spot)}))
    return routers, mappings


def _joints(
    networks: Sequence[OldNetwork],
    pairs: Mapping[tuple[str, str], tuple[Written, Written]],
    routers: Sequence[str],
    taken: set[str],
) -> tuple[list[Item], list[Item]]:
    """Return a network between the two routers of each link, and its mappings.

    The old platform had point-to-point cables between routers, whose addresses nobody chose.
    """
    router_of = {network.name.text: router for network, router in zip(networks, routers, strict=True)}
    given = [one.cidr.text for one in networks if addresses.is_block(one.cidr.text)]
    avoided = [block for block in map(addresses.block, (*given, Wan().cidr)) if isinstance(block, IPv4Network)]
    room = (one for one in CABLES.subnets(new_prefix=16) if not any(one.overlaps(other) for other in avoided))
    cidrs = (cidr for one in islice(room, 1) for cidr in one.subnets(new_prefix=30))
    names = _free((f"cable-{number}" for number in count()), taken | {*router_of, *routers})
    joints: list[Item] = []
    mappings: list[Item] = []
    for ends, cidr in zip(pairs.values(), cidrs, strict=False):
        spot = Spot(ends[0].spot.line, ends[0].spot.column)
        name = Written(next(names), spot)
        joints.append(_item({"name": name, "cidr": Written(str(cidr), spot)}, {"accessible_by_user": False}))
        for end, ip in zip(ends, cidr.hosts(), strict=True):
            router = Written(router_of[end.text], Spot(end.spot.line, end.spot.column))
            mappings.append(_item({"router": router, "network": name, "ip": Written(str(ip), router.spot)}))
    return joints, mappings


def _net_mappings(
    hosts: Sequence[OldHost], networks: set[str], pools: dict[str, _Pool], found: list[Finding]
) -> list[Item]:
    mappings: list[Item] = []
    for host in hosts:
        for port in host.ports:
            pool = pools.get(port.network.text)
            ip = port.ip.text or (pool.take() if pool else "")
            if ip:
                mappings.append(_item({"host": host.name, "network": port.network, "ip": Written(ip, port.ip.spot)}))
            elif port.network.text not in networks:
                spot = port.network.spot
                found.append(Finding(spot.line, spot.column, f'no network "{port.network.text:.64}"'))
            elif pool is not None:
                spot = port.network.spot
                found.append(Finding(spot.line, spot.column, f'no free address in network "{port.network.text:.64}"'))
    return mappings
