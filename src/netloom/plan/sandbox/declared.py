"""What a topology declares: who must and may reach whom.  It knows nothing of objects.  Pure.

For a host A and an address of a host B:

    must reach   A and B are on the address's network; or neither is on the other's first network, the address is B's
                 first, and the gateways of these networks lead to each other
    may reach    A is on the address's network, or one of A's networks and the address's are joined
    users        must reach first addresses, and may reach others, of networks with a router and `accessible_by_user`
    outside      a host may reach it through the Sandbox's own objects, unless it has `block_internet`

Two networks are joined if a router is on both, or a router on one and a router on the other are connected by networks
that only routers are in; or if each has a router and is accessible by users: then `man` joins them. The gateway of a
network is its first router by name; it leads to the networks it is on, to those of the routers it is connected to, and
through `man` to those that users may enter. The first network of a host is that of its default route: the other
addresses of a host answer on their own networks only.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from netloom.model.kinds.sandbox import Topology, Wan
from netloom.model.values import addresses


class Target(Struct, frozen=True, kw_only=True, order=True):
    """An address that a topology gives to a host."""

    host: str
    ip: str
    network: str
    is_first: bool
    """Whether it is the host's first, and so has the default route."""
    is_first_there: bool
    """Whether it is the first of the host in its network."""

    def __str__(self) -> str:
        """Return the host and the address."""
        return f"{self.host} {self.ip}"


class Declared:
    """What a topology declares.  It knows nothing of objects."""

    def __init__(self, topology: Topology) -> None:
        self.networks = {one.name: one for one in topology.networks if addresses.is_block(one.cidr)}
        known = {one.name for one in topology.routers}
        hosts = {one.name: one for one in topology.hosts}
        self._routers: dict[str, set[str]] = {}
        for mapping in topology.router_mappings:
            if mapping.router in known and mapping.network in self.networks:
                self._routers.setdefault(mapping.network, set()).add(mapping.router)
        wan = (topology.wan or Wan()).cidr
        self._wan = addresses.family(wan)
        self.links: dict[str, list[Target]] = {name: [] for name in sorted(hosts)}
        begun: set[str] = set()
        for link in topology.net_mappings:
            first = link.host not in begun
            begun.add(link.host)
            if link.host in hosts and link.network in self.networks and addresses.is_ip(link.ip):
                mine = self.links[link.host]
                there = all(one.network != link.network for one in mine)
                ip = str(addresses.address(link.ip))
                target = Target(host=link.host, ip=ip, network=link.network, is_first=first, is_first_there=there)
                mine.append(target)
        self.networks_of = {host: {one.network for one in mine} for host, mine in self.links.items()}
        self.without_internet = {name for name, one in hosts.items() if one.block_internet}
        self._connected = self._connections()
        self._joined: dict[tuple[str, str], bool] = {}
        self._leading: dict[tuple[str, str], bool] = {}

    def _connections(self) -> dict[int, dict[str, str]]:
        """Return one router for all that networks of routers alone connect, by address family and router."""
        used = {target.network for mine in self.links.values() for target in mine}
        found: dict[int, dict[str, str]] = {}
        for name, routers in self._routers.items():
            if name in used or len(routers) < 2:
                continue
            first = found.setdefault(addresses.family(self.networks[name].cidr), {})
            heads = {first.get(one, one) for one in routers}
            head = min(heads)
            first.update(dict.fromkeys(routers, head))
            first.update({one: head for one, other in first.items() if other in heads})
        return found

    def _reached(self, routers: Collection[str], family: int) -> set[str]:
        """Return one router for each group of connected ones that some routers are of."""
        first = self._connected.get(family, {})
        return {first.get(one, one) for one in routers}

    def targets(self) -> list[Target]:
        """Return all addresses of hosts."""
        return [one for mine in self.links.values() for one in mine]

    def for_users(self, network: str) -> bool:
        """Whether users may enter a network."""
        one = self.networks[network]
        return one.accessible_by_user and network in self._routers and addresses.family(one.cidr) == self._wan

    def are_joined(self, one: str, other: str) -> bool:
        """Whether packets pass between two networks, by routers."""
        key = (one, other) if one <= other else (other, one)
        if key not in self._joined:
            version = addresses.family(self.networks[one].cidr)
            mine, others = (self._reached(self._routers.get(name, ()), version) for name in key)
            same = version == addresses.family(self.networks[other].cidr)
            self._joined[key] = same and (bool(mine & others) or (self.for_users(one) and self.for_users(other)))
        return self._joined[key]

    def must(self, host: str, target: Target) -> bool:
        """Whether a host must reach an address."""
        if target.network in self.networks_of[host]:
            return target.is_first_there
        first = next((one for one in self.links[host] if one.is_first), None)
        if first is None or not target.is_first or first.network in self.networks_of[target.host]:
            return False
        return self._leads(first.network, target.network) and self._leads(target.network, first.network)

    def _leads(self, one: str, other: str) -> bool:
        """Whether the gateway of a network leads to another network."""
        if (one, other) not in self._leading:
            gateway = min(self._routers.get(one, ()), default="")
            version = addresses.family(self.networks[one].cidr)
            same = version == addresses.family(self.networks[other].cidr)
            mine, others = self._reached((gateway,), version), self._reached(self._routers.get(other, ()), version)
            self._leading[one, other] = bool(gateway) and same and (bool(mine & others) or self.for_users(other))
        return self._leading[one, other]

    def may(self, host: str, target: Target) -> bool:
        """Whether a host may reach an address."""
        mine = self.networks_of[host]
        return target.network in mine or any(self.are_joined(one, target.network) for one in mine)

    def warnings(self) -> Iterator[str]:
        """Yield hosts that could pass packets on between networks that nothing else joins."""
        for host, mine in self.networks_of.items():
            apart = [
                (one, other) for one in sorted(mine) for other in sorted(mine) if one < other
                if not self.are_joined(one, other)
            ]  # fmt: skip
            if apart:
                text = f"host {host} is on {apart[0][0]} and {apart[0][1]}, which no router joins"
                yield f"{text}: whoever controls it reaches both"
