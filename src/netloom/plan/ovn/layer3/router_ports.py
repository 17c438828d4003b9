"""A router's feet: its ports in Networks, their addresses, and who else wants those.  Pure.

A foot's addresses are those given, or the gateways of the Network's validated Subnets. Each is looked at by itself, and
one that cannot be is a problem that costs this address and no other: it is no host's, it is outside of the Network's
Subnets, it is another Router's, or its block overlaps that of an earlier foot, so that nobody could say which way a
packet goes. Where two Routers claim one address in a Network, the one whose name is smaller has it, whoever came first.

A router answers for more than its own addresses: what it translates from is claimed in the gateway's Network too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from netloom.model import addresses
from netloom.model.addresses import Address, Block, Interface
from netloom.model.networks import Fabric, Network, Router, RouterPort, Subnet
from netloom.plan import names
from netloom.plan.addresses.blocks import default_gateway
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World


class Foot(Struct, frozen=True):
    """A router's port in a Network."""

    network: Network
    name: str
    """What the port is called, on the router's side."""
    at: str
    """Which field it is of."""
    addresses: tuple[Interface, ...]
    subnets: tuple[Subnet, ...] = ()

    def near(self, one: Address) -> bool:
        """Whether an address is in one of the foot's blocks."""
        return any(one.version == own.version and one in own.network for own in self.addresses)


class Asked(NamedTuple):
    """An address somebody asks for, and in which field."""

    at: str
    text: str


def mac(router: str, network: str) -> str:
    """Return the MAC of a router's port: the same whenever it is made, unicast and nobody's hardware."""
    number = int.from_bytes(blake2b(f"router/{router}/{network}".encode(), digest_size=6).digest(), "big")
    return (number & ~(0x01 << 40) | (0x02 << 40)).to_bytes(6, "big").hex(":")


def inner(world: World, router: Router, outcome: Outcome) -> list[Foot]:
    """Return the router's feet in the Networks it joins; what is wrong with the others goes to the problems."""
    feet: list[Foot] = []
    for position, port in enumerate(router.spec.networks):
        at = f"spec.networks[{position}]"
        network = found(world, router, port.network, f"{at}.network", outcome)
        if network is None:
            continue
        subnets = world.subnets(router.metadata.namespace, port.network)
        asked = list(wished(port, subnets, at))
        if not asked:
            outcome.problems.append(_no_address(port.network, at))
            continue
        fit = fitting(world, router, network, asked, outcome, exact=True)
        own = apart(fit, feet, outcome)
        if own:
            feet.append(Foot(network, _name(router, port.network), at, own, subnets))
    return feet


def found(world: World, router: Router, name: str, at: str, outcome: Outcome) -> Network | None:
    """Return a Network that OVN can carry, or None and a problem."""
    network = world.get(Network, router.metadata.namespace, name)
    if network is None:
        text = f"{at}: Network {name} does not exist: create it, or take it out here"
        outcome.problems.append(Problem("NetworkMissing", text))
    elif network.spec.fabric is not Fabric.OVN:
        text = f"{at}: Network {name} is of fabric {network.spec.fabric}: a Router joins Networks of fabric ovn only"
        outcome.problems.append(Problem("WrongFabric", text))
        return None
    elif (problem := world.ungranted(network)) is not None:
        outcome.problems.append(Problem(problem.reason, f"{at}: Network {name}: {problem.message}"))
        return None
    return network


def wished(port: RouterPort, subnets: Iterable[Subnet], at: str) -> Iterator[Asked]:
    """Give the addresses a router is to have in a Network: those given, or its Subnets' gateways."""
    if port.ips:
        yield from (Asked(f"{at}.ips[{position}]", ip) for position, ip in enumerate(port.ips))
        return
    for subnet in subnets:
        block = addresses.interface(subnet.spec.cidr).network
        if subnet.spec.gateway:
            yield Asked(f"{at}: gateway of Subnet {subnet.metadata.name}", f"{subnet.spec.gateway}/{block.prefixlen}")
        elif first := default_gateway(int(block.network_address), int(block.broadcast_address)):
            gateway = block.network_address + (first - int(block.network_address))
            yield Asked(f"{at}: gateway of Subnet {subnet.metadata.name}", f"{gateway}/{block.prefixlen}")


def fitting(
    world: World, router: Router, network: Network, asked: Iterable[Asked], outcome: Outcome, *, exact: bool
) -> list[tuple[Asked, Interface]]:
    """Return the addresses that can be had in a Network; `exact`: with the prefix length of their Subnet."""
    namespace, name = router.metadata.namespace, network.metadata.name
    subnets = world.subnets(namespace, name)
    fit: dict[Address, tuple[Asked, Interface]] = {}
    for one in asked:
        if not addresses.is_cidr(one.text):
            outcome.problems.append(Problem("Malformed", f"{one.at}: {one.text!r} is not an address with a length"))
            continue
        own = addresses.interface(one.text)
        problem = unfit(own, one.at) or _outside(own, one.at, subnets, exact=exact)
        if problem is None and (other := rival(world, router, name, own.ip)):
            text = f"{one.at}: {own.ip} is that of Router {other} in Network {name}: choose another address"
            problem = Problem("AddressTaken", text)
        if problem is not None:
            outcome.problems.append(problem)
        else:
            fit.setdefault(own.ip, (one, own))
    return list(fit.values())


def unfit(own: Interface, at: str) -> Problem | None:
    """Return why an address can be nobody's, if so."""
    ip, block = own.ip, own.network
    ends = {block.network_address} if ip.version == 6 else {block.network_address, block.broadcast_address}
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback or (block.num_addresses > 2 and ip in ends):
        return Problem("NotAHost", f"{at}: {own} is not the address of a host: choose one inside the block")
    return None


def apart(fit: Sequence[tuple[Asked, Interface]], feet: Iterable[Foot], outcome: Outcome) -> tuple[Interface, ...]:
    """Return those of a foot's addresses whose blocks no other foot of the router has a part of."""
    taken = [(other, one.network) for other in feet for one in other.addresses]
    own = []
    for asked, one in fit:
        met = next((pair for pair in taken if overlap(pair[1], one.network)), None)
        if met is None or one.ip.is_link_local:
            own.append(one)
            continue
        other, block = met
        text = (
            f"{asked.at}: {one.network} overlaps {block} of Network {other.network.metadata.name} ({other.at}):"
            " a Router can join only one of them"
        )
        outcome.problems.append(Problem("Overlap", text))
    return tuple(own)


def toward(feet: Sequence[Foot], hop: str, at: str) -> Foot | Problem:
    """Return the foot by which a next hop is reached, or why there is none."""
    if not addresses.is_ip(hop):
        return Problem("Malformed", f"{at}: {hop!r} is not an address")
    ip = addresses.address(hop)
    if any(ip == one.ip for foot in feet for one in foot.addresses):
        return Problem("NextHopOwn", f"{at}: {hop} is the router's own address: name the next router's")
    for foot in feet:
        if foot.near(ip):
            return foot
    blocks = ", ".join(str(one.network) for foot in feet for one in foot.addresses) or "none"
    text = f"{at}: {hop} is not in a network of the router (there is {blocks}): name a router that is in one"
    return Problem("NextHopFar", text)


def overlap(one: Block, other: Block) -> bool:
    """Whether two blocks have an address in common."""
    return one.version == other.version and (one.network_address in other or other.network_address in one)


def rival(world: World, router: Router, network: str, one: Address) -> str:
    """Return the name of the Router that has an address in a Network before this one; "" where there is none."""
    has = world.shared(holder, router.metadata.namespace, network, one)
    return has if has != router.metadata.name else ""


def holder(world: World, namespace: str, network: str, one: Address) -> str:
    """Return the name of the Router that has an address in a Network; "" where there is none."""
    # Asked for each address by itself: a Router is planned again when one of its own changes hands, not when any does.
    return world.shared(_holders, namespace, network).get(one, "")


def _holders(world: World, namespace: str, network: str) -> dict[Address, str]:
    """Return who has which address in a Network: of all Routers that claim it, the one of the smallest name."""
    holders: dict[Address, str] = {}
    for router in world.routers(namespace, network):
        for one in _claims(world, router, network):
            holders.setdefault(one, router.metadata.name)
    return holders


def _claims(world: World, router: Router, network: str) -> Iterator[Address]:
    """Give the addresses a router wants to answer for in a Network, fit or not."""
    spec = router.spec
    for port in spec.networks:
        if port.network == network:
            asked = wished(port, world.subnets(router.metadata.namespace, network), "")
            yield from (addresses.interface(one.text).ip for one in asked if addresses.is_cidr(one.text))
    if spec.gateway is not None and spec.gateway.network == network:
        yield from (addresses.interface(ip).ip for ip in spec.gateway.ips if addresses.is_cidr(ip))
        yield from (addresses.address(one.external) for one in spec.nat if addresses.is_ip(one.external))


def planned(router: Router, foot: Foot, outcome: Outcome, columns: Mapping[str, Column]) -> None:
    """Add the rows of a foot: the router's port, with these further columns, and the switch's."""
    namespace, name, network = router.metadata.namespace, router.metadata.name, foot.network.metadata.name
    port: dict[str, Column] = {
        "name": foot.name,
        "mac": mac(names.router(namespace, name), network),
        "networks": frozenset(str(one) for one in foot.addresses),
        "ha_chassis_group": None,
        "ipv6_ra_configs": {},
        "options": {},
    }
    row = Row("Logical_Router_Port", foot.name, {**port, **columns})
    # Where one node serves the foot, a new one tells the neighbours: of the router's address and all it translates.
    told = {} if row.columns["ha_chassis_group"] is None else {"nat-addresses": "router"}
    other = names.peer_port(namespace, name, network)
    peer: dict[str, Column] = {
        "name": other,
        "type": "router",
        "addresses": frozenset({"router"}),
        "options": {"router-port": foot.name} | told,
    }
    outcome.rows += [row, Row("Logical_Switch_Port", other, peer)]
    outcome.members.append(Member(Ref("Logical_Router", names.router(namespace, name)), "ports", row.ref))
    switch = Ref("Logical_Switch", names.switch(namespace, network))
    outcome.members.append(Member(switch, "ports", Ref("Logical_Switch_Port", other)))


def _name(router: Router, network: str) -> str:
    return names.router_port(router.metadata.namespace, router.metadata.name, network)


def _no_address(network: str, at: str) -> Problem:
    text = (
        f"{at}: Network {network} has no validated Subnet with a gateway, so there is no address for the router:"
        " create one, or give ips"
    )
    return Problem("SubnetMissing", text)


def _outside(own: Interface, at: str, subnets: Iterable[Subnet], *, exact: bool) -> Problem | None:
    """Return why an address does not belong to a Network, if so.  A family without Subnets is anybody's."""
    blocks = [(one.metadata.name, addresses.interface(one.spec.cidr).network) for one in subnets]
    blocks = [(name, block) for name, block in blocks if block.version == own.version]
    if not blocks or own.ip.is_link_local:
        return None
    for name, block in blocks:
        if own.ip in block:
            if exact and own.network != block:
                text = f"{at}: {own} has another length than Subnet {name} ({block}): write {own.ip}/{block.prefixlen}"
                return Problem("PrefixDiffers", text)
            return None
    near = ", ".join(f"{name} ({block})" for name, block in blocks)
    return Problem("AddressOutside", f"{at}: {own.ip} is outside Subnet {near}: choose an address inside")
