"""From the networks, hosts and routes of the old platform to a topology document: `assemble`.

On the old platform the networks themselves route, and a route joins two of them. The result has one router for all
networks that routes join, directly or through others, as the old platform's client for OVN had. The router's address is
the first one of each network that no host has; so is the address of a host that has none.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from netloom.model.codec import Spot
from netloom.model.document import Document
from netloom.model.kinds.sandbox import SandboxLink, Topology
from netloom.model.topology import checks
from netloom.model.topology.findings import Finding, at, shape
from netloom.model.values import addresses

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
    joined = _joined(networks, routes, found)
    pools = {one.name.text: _Pool(one.cidr.text) for one in networks if addresses.is_block(one.cidr.text)}
    for host in hosts:
        for port in host.ports:
            if port.network.text in pools:
                pools[port.network.text].used.add(port.ip.text)
    routers, router_mappings = _routers(joined, {host.name.text for host in hosts}, pools)
    net_mappings = _net_mappings(hosts, {one.name.text for one in networks}, pools, found)
    parts = {
        "hosts": [
            _item({"name": host.name}) if not host.extra else _item({"name": host.name}, {"extra": host.extra})
            for host in hosts
        ],
        "routers": routers,
        "networks": [_item({"name": one.name, "cidr": one.cidr}) for one in networks],
        "net_mappings": net_mappings,
        "router_mappings": router_mappings,
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


def _joined(
    networks: Sequence[OldNetwork], routes: Iterable[tuple[Written, Written]], found: list[Finding]
) -> list[list[OldNetwork]]:
    """Return the networks in groups that routes join."""
    parent = {one.name.text: one.name.text for one in networks}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for ends in routes:
        unknown = [end for end in ends if end.text not in parent]
        found += [Finding(one.spot.line, one.spot.column, f'no network "{one.text:.64}"') for one in unknown]
        if not unknown:
            parent[root(ends[1].text)] = root(ends[0].text)
    groups: dict[str, list[OldNetwork]] = {}
    for one in networks:
        groups.setdefault(root(one.name.text), []).append(one)
    return list(groups.values())


def _routers(joined: list[list[OldNetwork]], taken: set[str], pools: dict[str, _Pool]) -> tuple[list[Item], list[Item]]:
    routers: list[Item] = []
    mappings: list[Item] = []
    number = 0
    for group in joined:
        while f"lr-{number}" in taken:
            number += 1
        spot = group[0].name.spot
        router = Written(f"lr-{number}", Spot(spot.line, spot.column))
        number += 1
        routers.append(_item({"name": router}))
        for network in group:
            pool = pools.get(network.name.text)
            if pool is not None and (ip := pool.take()):
                at_cidr = Written(ip, network.cidr.spot)
                mappings.append(_item({"router": router, "network": network.name, "ip": at_cidr}))
    return routers, mappings


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
