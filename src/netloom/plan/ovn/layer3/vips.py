"""VIPs: conflicts over their addresses, and the logical routers that answer for them.  Pure.

OVN balances packets on a logical switch. But a client sends a packet to a VIP only after an ARP or ND reply for it, and
the packet goes on from there only through a router. Clients reach a VIP outside of the Network's Subnets through their
own router. For VIPs inside there is a *VIP router*: a small logical router in the Network, whose addresses are the
VIPs. It answers for them (and to ping), and sends balanced packets back to the switch, to their endpoint, or to the
Network's Router where the endpoint is elsewhere. A Network has one for all its LoadBalancers, planned with the one of
the smallest name. None is needed where a Router that is in the Network serves the VIP as well: that one answers.

A Router serves a VIP to all traffic through it. OVN balances on a router only where it is the gateway. So traffic from
the Networks it joins is balanced on their switches, before it gets there.

Where two LoadBalancers have the same VIP in the same location, the one with the smaller name gets it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from netloom.model.kinds.networks import Network, Router
from netloom.model.kinds.policy import LoadBalancer, Vip
from netloom.model.values import addresses
from netloom.model.values.addresses import Address, Block
from netloom.plan import names
from netloom.plan.addresses import blocks, reserved
from netloom.plan.ovn.layer3 import router_ports
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Row
from netloom.plan.world.world import World


class Location(NamedTuple):
    """Where a VIP is served: a Network or a Router."""

    kind: str
    name: str


def locations(world: World, balancer: LoadBalancer) -> Iterator[Location]:
    """Yield where a balancer's VIPs are served: the Networks and Routers that it names, and those Routers' Networks."""
    found = dict.fromkeys(balancer.spec.networks)
    for name in balancer.spec.routers:
        router = world.get(Router, balancer.metadata.namespace, name)
        found |= {} if router is None else dict.fromkeys(port.network for port in router.spec.networks)
    yield from (Location("Network", name) for name in found)
    yield from (Location("Router", name) for name in balancer.spec.routers)


def networks(world: World, balancer: LoadBalancer) -> list[str]:
    """Return the Networks that a balancer serves or joins through its Routers."""
    return reserved.networks(balancer, lambda name: world.get(Router, balancer.metadata.namespace, name))


def refusal(world: World, balancer: LoadBalancer, vip: Vip) -> Problem | None:
    """Return why a balancer cannot have a VIP; None if it can."""
    ip = addresses.canonical(vip.ip)
    if _is_no_host(ip) or _is_end(world, balancer, ip):
        return Problem("NotAHost", f"{ip} is not the address of a host: choose one that is")
    if user := _user(world, balancer, vip, ip):
        return Problem("AddressInUse", f"{ip} is {user}: choose another address")
    return None


def _is_no_host(ip: str) -> bool:
    one = addresses.address(ip)
    return one.is_multicast or one.is_unspecified or one.is_loopback or one.is_link_local


class _Claim(NamedTuple):
    """What an address in a Network is already."""

    is_end: bool
    """The network or broadcast address of a Subnet."""
    router: str
    """The address of this Router; "": of none."""


def _claim(world: World, namespace: str, network: str, ip: str) -> _Claim:
    """Return what an address is in a Network: an answer for each, so that only those that changed are read again."""
    one = addresses.address(ip)
    ends = world.shared(_ends, namespace, network)
    return _Claim(one in ends, world.shared(router_ports.holders, namespace, network).get(one, ""))


def _ends(world: World, namespace: str, network: str) -> frozenset[Address]:
    """Return the network and broadcast addresses of a Network's Subnets."""
    found: set[Address] = set()
    for block in world.shared(_blocks, namespace, network):
        if block.num_addresses > 2:
            found.add(block.network_address)
            if block.version == 4:
                found.add(block.broadcast_address)
    return frozenset(found)


def _blocks(world: World, namespace: str, network: str) -> tuple[Block, ...]:
    return tuple(addresses.interface(subnet.spec.cidr).network for subnet in world.subnets(namespace, network))


def _is_end(world: World, balancer: LoadBalancer, ip: str) -> bool:
    """Return whether an address is the network or broadcast address of a block."""
    namespace = balancer.metadata.namespace
    return any(world.shared(_claim, namespace, network, ip).is_end for network in networks(world, balancer))


def _holds(block: Block, ip: Address) -> bool:
    return ip.version == block.version and ip in block


def _user(world: World, balancer: LoadBalancer, vip: Vip, ip: str) -> str:
    """Return the object that has a VIP already, for messages; "" if none does."""
    namespace = balancer.metadata.namespace
    for network in networks(world, balancer):
        if holder := holder_of(world, namespace, network, ip):
            return f"that of NetworkAttachment {holder} in Network {network}"
        router = world.shared(_claim, namespace, network, ip).router
        if router and router not in balancer.spec.routers:
            return f"that of Router {router} in Network {network}"
    return _leader(world, balancer, vip, ip)


def _leader(world: World, balancer: LoadBalancer, vip: Vip, ip: str) -> str:
    """Return the LoadBalancer of a smaller name that has a VIP in a location of this one, for messages, or ""."""
    name = balancer.metadata.name
    all_of_it = world.balancers_of(balancer.metadata.namespace, ip, vip.port, str(vip.protocol))
    before = [one for one in all_of_it if one.metadata.name < name]
    if not before:
        return ""
    own = list(locations(world, balancer))
    for location in own:
        for leader in before:
            if location in locations(world, leader):
                where = f"{location.kind} {location.name}, with port {vip.port} ({vip.protocol})"
                return f"that of LoadBalancer {leader.metadata.name} on {where}"
    return ""


def holder_of(world: World, namespace: str, network: str, ip: str) -> str:
    """Return the attachment that has an address in a Network, or ""."""
    return next((port.name for port in world.holders(namespace, network, ip)), "")


# VIP routers.


class VipRouter(NamedTuple):
    """The VIP router of a Network."""

    leader: str
    """The LoadBalancer that plans it."""
    interfaces: tuple[str, ...]
    hops: tuple[str, ...]
    """The Network's Routers, one for each family, by which endpoints elsewhere are reached."""


def vip_router(world: World, namespace: str, network: str) -> VipRouter | None:
    """Return the VIP router of a Network, or None where it needs none."""
    leader, found = "", set()
    around = {router.metadata.name for router in world.routers(namespace, network)}
    for balancer in world.balancers(namespace):
        if not around.isdisjoint(balancer.spec.routers):
            continue
        own = set(inside(world, balancer, network))
        if own:
            leader = leader or balancer.metadata.name
            found |= own
    if not found:
        return None
    families = {addresses.family(one) for one in found}
    hops = (_hop(world, namespace, network, version) for version in sorted(families))
    return VipRouter(leader, tuple(sorted(found)), tuple(hop for hop in hops if hop))


def _hop(world: World, namespace: str, network: str, version: int) -> str:
    """Return the address of a Router in a Network, or ""."""
    subnets = world.subnets(namespace, network)
    for router in world.routers(namespace, network):
        for port in router.spec.networks:
            for requested in router_ports.requested_addresses(port, subnets, "") if port.network == network else ():
                ip = addresses.interface(requested.text).ip
                if (
                    ip.version == version
                    and world.shared(router_ports.holder, namespace, network, ip) == router.metadata.name
                ):
                    return str(ip)
    return ""


def inside(world: World, balancer: LoadBalancer, network: str) -> Iterator[str]:
    """Yield the VIPs of a balancer that are in a Network it serves and that none of its Routers answers for."""
    namespace = balancer.metadata.namespace
    if network not in balancer.spec.networks:
        return
    around = {router.metadata.name for router in world.routers(namespace, network)}
    if around & set(balancer.spec.routers):
        return
    for vip in balancer.spec.vips:
        ip = addresses.address(vip.ip)
        length = _prefix(world, namespace, network, ip)
        if length and refusal(world, balancer, vip) is None:
            yield f"{ip}/{length}"


def _prefix(world: World, namespace: str, network: str, ip: Address) -> int:
    """Return the prefix length of the Subnet an address is in; 0 if it is in none of the Network."""
    blocks = world.shared(_blocks, namespace, network)
    return next((block.prefixlen for block in blocks if _holds(block, ip)), 0)


def plan_vip_router(network: Network, one: VipRouter, outcome: Outcome) -> None:
    """Add the rows of a Network's VIP router."""
    namespace, name = network.metadata.namespace, network.metadata.name
    router = f"{names.switch(namespace, name)}::vips"
    port_name = f"{router}:port"
    columns: dict[str, Column] = {
        "name": port_name,
        "mac": router_ports.mac(router, name),
        "networks": frozenset(one.interfaces),
    }
    port = Row("Logical_Router_Port", port_name, columns)
    routes = [
        Row("Logical_Router_Static_Route", f"{router}:{prefix}", {"ip_prefix": prefix, "nexthop": hop})
        for hop in one.hops
        for prefix in ("::/0" if ":" in hop else "0.0.0.0/0",)
    ]
    # It forwards to endpoints, whose MACs OVN knows: it need not learn the MAC of each client that asks for a VIP.
    own: dict[str, Column] = {
        "name": router,
        "ports": frozenset((port.ref,)),
        "static_routes": frozenset(route.ref for route in routes),
        "options": {"always_learn_from_arp_request": "false"},
    }
    outcome.rows += [Row("Logical_Router", router, own), port, *routes]
    router_ports.add_peer_port(f"{router}:plug", port_name, names.switch(namespace, name), outcome)


# Health checks.


def checker(world: World, namespace: str, network: str, version: int, ip: str) -> str:
    """Return the source address of OVN's health checks of an endpoint: the highest free one of its Subnet; "": none.

    It must be in the Subnet, and not in use: OVN answers for it with a MAC of its own. If it were the address of a
    router, all packets of the endpoint to that router would be lost.
    """
    vips = {vip.ip for balancer in world.balancers(namespace) for vip in balancer.spec.vips}
    numbers = {int(addresses.address(one)) for one in vips if addresses.family(one) == version}
    for subnet in world.subnets(namespace, network):
        spec = subnet.spec
        if not addresses.within(ip, spec.cidr):
            continue
        block = blocks.pool("", network, spec.cidr, gateway=spec.gateway, exclude=spec.exclude)
        for low, high in reversed(block.ranges):
            for number in range(high, low - 1, -1):
                one = blocks.text(blocks.Address(version, number))
                if number not in numbers and not _taken(world, namespace, network, one):
                    return one
    return ""


def _taken(world: World, namespace: str, network: str, one: str) -> bool:
    if world.holders(namespace, network, one):
        return True
    return bool(world.shared(router_ports.holder, namespace, network, addresses.address(one)))
