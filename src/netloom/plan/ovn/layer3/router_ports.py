"""A Router's ports in Networks, their addresses, and conflicts over those with other Routers.  Pure.

A port has the addresses given in the spec, or the gateways of the Network's validated Subnets. Each address is checked
by itself. One that cannot be used is a problem that costs this address and no other: it is not the address of a host,
it is outside of the Network's Subnets, another Router has it, or its block overlaps that of an earlier port, so that
the way of a packet would be ambiguous. Where two Routers claim one address in a Network, the one with the smaller name
has it, whichever was created first.

A router answers for more than the addresses of its ports: it claims the external addresses of its NAT rules in the
gateway's Network too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.networks import Fabric, Network, Router, RouterPort, Subnet
from netloom.model.values import addresses
from netloom.model.values.addresses import Address, Block, Interface
from netloom.plan import names
from netloom.plan.addresses import macs
from netloom.plan.addresses.blocks import default_gateway, overlap
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Ref, Row
from netloom.plan.world.world import World

LISTED = 16
"""Blocks that a message names."""


class LogicalRouterPort(Struct, frozen=True, kw_only=True):
    """A router's port in a Network, as planned."""

    network: Network
    name: str
    """The name of the port, on the router's side."""
    at: str
    """The field of the spec that asks for it."""
    addresses: tuple[Interface, ...]
    subnets: tuple[Subnet, ...] = ()
    link_down: bool = False


class NextHops:
    """The ports of a router, searched by the next hops that they reach.

    The router of a cluster has thousands of blocks and as many policies, each with a next hop.
    """

    def __init__(self, ports: Sequence[LogicalRouterPort]) -> None:
        self._ports = ports
        self._own: set[Address] = set()
        self._reached: dict[tuple[int, int], dict[int, int]] = {}
        """The position of the port, by family and prefix length, and by the first address of the block."""
        for position, port in enumerate(ports):
            for one in port.addresses:
                self._own.add(one.ip)
                blocks = self._reached.setdefault((one.version, one.network.prefixlen), {})
                blocks.setdefault(int(one.network.network_address), position)

    def toward(self, hop: str, at: str) -> LogicalRouterPort | Problem:
        """Return the port through which a next hop is reached, or why there is none."""
        if not addresses.is_ip(hop):
            return Problem("Malformed", f"{at}: {hop!r} is not an address")
        ip = addresses.address(hop)
        if ip in self._own:
            return Problem("NextHopOwn", f"{at}: {hop} is the router's own address: name the next router's")
        found = [
            blocks[first]
            for (version, length), blocks in self._reached.items()
            if version == ip.version and (first := int(ip) >> (bits := ip.max_prefixlen - length) << bits) in blocks
        ]
        if found:
            return self._ports[min(found)]
        listed = [str(one.network) for port in self._ports for one in port.addresses]
        blocks = ", ".join(listed[:LISTED]) + ("" if len(listed) <= LISTED else f" and {len(listed) - LISTED} more")
        text = f"{at}: {hop} is in no network of the router (it has {blocks or 'none'}): name a router that is in one"
        return Problem("NextHopFar", text)


class RequestedAddress(NamedTuple):
    """An address that a spec asks for, and the field that does."""

    at: str
    text: str


def mac(router: str, network: str) -> str:
    """Return the MAC of a router's port: always the same, unicast and locally administered."""
    return macs.digest(f"router/{router}/{network}")


def inner_ports(world: World, router: Router, outcome: Outcome) -> list[LogicalRouterPort]:
    """Return the router's ports in the Networks of `spec.networks`; report those that cannot be planned as problems."""
    ports: list[LogicalRouterPort] = []
    for position, spec in enumerate(router.spec.networks):
        at = f"spec.networks[{position}]"
        network = find_network(world, router, spec.network, f"{at}.network", outcome)
        if network is None:
            continue
        subnets = world.subnets(router.metadata.namespace, spec.network)
        requested = list(requested_addresses(spec, subnets, at))
        if not requested:
            text = (
                f"{at}: Network {spec.network} has no validated Subnet with a gateway, so there is no address for the"
                " router: create one, or give ips"
            )
            outcome.report("SubnetMissing", text)
            continue
        usable = usable_addresses(world, router, network, requested, outcome, exact=True)
        own = without_overlaps(usable, ports, outcome)
        if own:
            name = names.router_port(router.metadata.namespace, router.metadata.name, spec.network)
            port = LogicalRouterPort(
                network=network, name=name, at=at, addresses=own, subnets=subnets, link_down=spec.link_down
            )
            ports.append(port)
    return ports


def find_network(world: World, router: Router, name: str, at: str, outcome: Outcome) -> Network | None:
    """Return a Network of fabric ovn, or None and add a problem."""
    network = world.get(Network, router.metadata.namespace, name)
    if network is None:
        text = f"{at}: Network {name} does not exist: create it, or remove it here"
        outcome.report("NetworkMissing", text)
    elif network.spec.fabric is not Fabric.OVN:
        text = f"{at}: Network {name} is of fabric {network.spec.fabric}: a Router joins Networks of fabric ovn only"
        outcome.report("WrongFabric", text)
        return None
    elif (problem := world.ungranted(network)) is not None:
        outcome.report(problem.reason, f"{at}: Network {name}: {problem.message}")
        return None
    return network


def requested_addresses(port: RouterPort, subnets: Iterable[Subnet], at: str) -> Iterator[RequestedAddress]:
    """Yield the addresses of a router in a Network: those given, or its Subnets' gateways."""
    if port.ips:
        yield from (RequestedAddress(f"{at}.ips[{position}]", ip) for position, ip in enumerate(port.ips))
        return
    for subnet in subnets:
        block = addresses.interface(subnet.spec.cidr).network
        where = f"{at}: gateway of Subnet {subnet.metadata.name}"
        if subnet.spec.gateway:
            yield RequestedAddress(where, f"{subnet.spec.gateway}/{block.prefixlen}")
        elif first := default_gateway(int(block.network_address), int(block.broadcast_address)):
            gateway = block.network_address + (first - int(block.network_address))
            yield RequestedAddress(where, f"{gateway}/{block.prefixlen}")


def usable_addresses(
    world: World,
    router: Router,
    network: Network,
    requested: Iterable[RequestedAddress],
    outcome: Outcome,
    *,
    exact: bool,
) -> list[tuple[RequestedAddress, Interface]]:
    """Return the requested addresses that the router can have; `exact`: with the prefix length of their Subnet."""
    namespace, name = router.metadata.namespace, network.metadata.name
    subnets = world.subnets(namespace, name)
    blocks = _blocks(subnets)
    usable: dict[Address, tuple[RequestedAddress, Interface]] = {}
    for one in requested:
        if not addresses.is_cidr(one.text):
            outcome.report("Malformed", f"{one.at}: {one.text!r} is not an address with a prefix length")
            continue
        own = addresses.interface(one.text)
        problem = not_a_host(own, one.at) or _outside(own, one.at, blocks[own.version], exact=exact)
        if problem is None and (other := other_holder(world, router, name, own.ip)):
            text = f"{one.at}: Router {other} has {own.ip} in Network {name}: choose another address"
            problem = Problem("AddressTaken", text)
        if problem is not None:
            outcome.problems.append(problem)
        else:
            usable.setdefault(own.ip, (one, own))
    return list(usable.values())


def not_a_host(own: Interface, at: str) -> Problem | None:
    """Return a problem if no host can have an address."""
    ip, block = own.ip, own.network
    ends = {block.network_address} if ip.version == 6 else {block.network_address, block.broadcast_address}
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback or (block.num_addresses > 2 and ip in ends):
        return Problem("NotAHost", f"{at}: {own} is not the address of a host: choose one inside the block")
    return None


def without_overlaps(
    usable: Sequence[tuple[RequestedAddress, Interface]], ports: Iterable[LogicalRouterPort], outcome: Outcome
) -> tuple[Interface, ...]:
    """Return those of a port's addresses whose blocks overlap with no other port of the router."""
    taken = [(other, one.network) for other in ports for one in other.addresses]
    own = []
    for requested, one in usable:
        other, block = next((pair for pair in taken if overlap(pair[1], one.network)), (None, None))
        if other is None or one.ip.is_link_local:
            own.append(one)
            continue
        text = (
            f"{requested.at}: {one.network} overlaps {block} of Network {other.network.metadata.name} ({other.at}):"
            " a Router can join only one of them"
        )
        outcome.report("Overlap", text)
    return tuple(own)


def other_holder(world: World, router: Router, network: str, one: Address) -> str:
    """Return the name of another Router that has an address in a Network; "" where there is none."""
    has = world.shared(holder, router.metadata.namespace, network, one)
    return has if has != router.metadata.name else ""


def holder(world: World, namespace: str, network: str, one: Address) -> str:
    """Return the name of the Router that has an address in a Network; "" where there is none."""
    # A question for each address: a Router is planned again when one of its own addresses changes hands only.
    return world.shared(holders, namespace, network).get(one, "")


def holders(world: World, namespace: str, network: str) -> dict[Address, str]:
    """Return the Router of each address in a Network: of all that claim it, the one with the smallest name."""
    found: dict[Address, str] = {}
    for router in world.routers(namespace, network):
        for one in _claims(world, router, network):
            found.setdefault(one, router.metadata.name)
    return found


def _claims(world: World, router: Router, network: str) -> Iterator[Address]:
    """Yield the addresses that a router claims in a Network, whether it can have them or not."""
    spec = router.spec
    for port in spec.networks:
        if port.network == network:
            requested = requested_addresses(port, world.subnets(router.metadata.namespace, network), "")
            yield from (addresses.interface(one.text).ip for one in requested if addresses.is_cidr(one.text))
    if spec.gateway is not None and spec.gateway.network == network:
        yield from (addresses.interface(ip).ip for ip in spec.gateway.ips if addresses.is_cidr(ip))
        yield from (addresses.address(one.external) for one in spec.nat if addresses.is_ip(one.external))


def add_rows(router: Router, port: LogicalRouterPort, outcome: Outcome, columns: Mapping[str, Column]) -> None:
    """Add the rows of a port: the router port, with these further columns, and its peer port on the switch."""
    namespace, name, network = router.metadata.namespace, router.metadata.name, port.network.metadata.name
    own: dict[str, Column] = {
        "name": port.name,
        "mac": mac(names.router(namespace, name), network),
        "networks": frozenset(str(one) for one in port.addresses),
        "ha_chassis_group": None,
        "ipv6_ra_configs": {},
        "options": {},
    }
    row = Row("Logical_Router_Port", port.name, {**own, **columns})
    # A gateway chassis that takes over announces the router's address and all external addresses to the neighbours.
    announced = {} if row.columns["ha_chassis_group"] is None else {"nat-addresses": "router"}
    peer_name = names.peer_port(namespace, name, network)
    outcome.add(row, Ref("Logical_Router", names.router(namespace, name)), "ports")
    switch = names.switch(namespace, network)
    add_peer_port(peer_name, port.name, switch, outcome, announced, link_down=port.link_down)


def add_peer_port(
    name: str,
    port: str,
    switch: str,
    outcome: Outcome,
    options: Mapping[str, str] | None = None,
    *,
    link_down: bool = False,
) -> None:
    """Add the port on a switch that leads to a router port.

    It is the one that is disabled, and not the router port: without the router port's route, the router would send
    packets to that network by its default route, and two routers could send them to each other.
    """
    columns: dict[str, Column] = {
        "name": name,
        "type": "router",
        "addresses": frozenset({"router"}),
        "enabled": False if link_down else None,
        "options": {"router-port": port, **(options or {})},
    }
    outcome.add(Row("Logical_Switch_Port", name, columns), Ref("Logical_Switch", switch), "ports")


def _blocks(subnets: Iterable[Subnet]) -> dict[int, dict[Block, str]]:
    """Return the blocks of Subnets, by family, and their names."""
    found: dict[int, dict[Block, str]] = {4: {}, 6: {}}
    for one in subnets:
        block = addresses.interface(one.spec.cidr).network
        found[block.version].setdefault(block, one.metadata.name)
    return found


def _outside(own: Interface, at: str, blocks: Mapping[Block, str], *, exact: bool) -> Problem | None:
    """Return a problem if an address is in no Subnet of a Network that has Subnets of its family."""
    if not blocks or own.ip.is_link_local or own.network in blocks:
        return None
    for block, name in blocks.items():
        if own.ip in block:
            if not exact:
                return None
            text = (
                f"the prefix length of {own} is not that of Subnet {name} ({block}): write {own.ip}/{block.prefixlen}"
            )
            return Problem("PrefixDiffers", f"{at}: {text}")
    listed = ", ".join(f"{name} ({block})" for block, name in list(blocks.items())[:LISTED])
    return Problem("AddressOutside", f"{at}: {own.ip} is outside Subnet {listed}: choose an address inside")
