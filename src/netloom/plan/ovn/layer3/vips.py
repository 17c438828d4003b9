"""VIPs: who else wants the address, and who answers for it in a Network.  Pure.

OVN balances what passes a switch, but a packet only comes to pass it when somebody answers who asks for the VIP's MAC,
and goes on from there only by a router. A VIP outside of the Network's Subnets is reached through the clients' own
router. For those inside there is a *stand*: a small logical router of the Network's own, whose addresses are the VIPs.
It answers for them (and to ping), and brings balanced packets back to the switch, to their endpoint or the Network's
Router where the endpoint is elsewhere. A Network has one for all its LoadBalancers, planned with that of the smallest
name. None is needed where a Router that is in the Network serves the VIP as well: that one answers.

A Router serves a VIP to all who come by it. OVN balances on a router only where it is the gateway; so what comes from
the Networks it joins is balanced on their switches, before it gets there.

Where two LoadBalancers want the same VIP in the same place, the one whose name is smaller has it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from netloom.model import addresses
from netloom.model.addresses import Address, Block
from netloom.model.networks import Network, Router
from netloom.model.policy import LoadBalancer, Vip
from netloom.plan import names
from netloom.plan.addresses import reserved as bespoken
from netloom.plan.addresses.blocks import Address as Number
from netloom.plan.addresses.blocks import place, text
from netloom.plan.ovn.layer3 import router_ports as feet
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World


class Spot(NamedTuple):
    """A place where VIPs are served: a Network or a Router."""

    kind: str
    name: str


def served(world: World, balancer: LoadBalancer) -> list[str]:
    """Return the Networks whose switches balance: those named, and those that Routers which are named join."""
    found = dict.fromkeys(balancer.spec.networks)
    for name in balancer.spec.routers:
        router = world.get(Router, balancer.metadata.namespace, name)
        found |= {} if router is None else dict.fromkeys(port.network for port in router.spec.networks)
    return list(found)


def spots(world: World, balancer: LoadBalancer) -> Iterator[Spot]:
    """Give the places where a balancer's VIPs are served."""
    yield from (Spot("Network", name) for name in served(world, balancer))
    yield from (Spot("Router", name) for name in balancer.spec.routers)


def networks(world: World, balancer: LoadBalancer) -> list[str]:
    """Return the Networks a balancer has to do with, in this world."""
    return bespoken.networks(balancer, lambda name: world.get(Router, balancer.metadata.namespace, name))


def refusal(world: World, balancer: LoadBalancer, vip: Vip) -> tuple[str, str] | None:
    """Return why a VIP cannot be had, as a reason and words; None if it can."""
    ip = addresses.address(vip.ip)
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback or ip.is_link_local or _is_end(world, balancer, ip):
        return "NotAHost", f"{ip} is not the address of a host: choose one that is"
    if user := _user(world, balancer, vip, ip):
        return "AddressInUse", f"{ip} is {user}: choose another address"
    return None


def _is_end(world: World, balancer: LoadBalancer, ip: Address) -> bool:
    """Whether an address is that of a block itself, or its broadcast."""
    namespace = balancer.metadata.namespace
    subnets = (subnet for network in networks(world, balancer) for subnet in world.subnets(namespace, network))
    blocks = (addresses.interface(subnet.spec.cidr).network for subnet in subnets)
    return any(feet.unfit(addresses.interface(f"{ip}/{b.prefixlen}"), "") for b in blocks if _holds(b, ip))


def _holds(block: Block, ip: Address) -> bool:
    return ip.version == block.version and ip in block


def _user(world: World, balancer: LoadBalancer, vip: Vip, ip: Address) -> str:
    """Return who has a VIP already, for people; "" if nobody does."""
    namespace, name = balancer.metadata.namespace, balancer.metadata.name
    for network in networks(world, balancer):
        if holder := holder_of(world, namespace, network, str(ip)):
            return f"that of NetworkAttachment {holder} in Network {network}"
        router = world.shared(feet.holder, namespace, network, ip)
        if router and router not in balancer.spec.routers:
            return f"that of Router {router} in Network {network}"
    for spot in spots(world, balancer):
        winner = world.shared(_winner, namespace, spot, str(ip), vip.port, str(vip.protocol))
        if winner != name:
            return f"that of LoadBalancer {winner} on {spot.kind} {spot.name}, with port {vip.port} ({vip.protocol})"
    return ""


def _winner(world: World, namespace: str, spot: Spot, ip: str, port: int, protocol: str) -> str:
    return world.shared(_wanted, namespace).get((spot, ip, port, protocol), "")


def _wanted(world: World, namespace: str) -> dict[tuple[Spot, str, int, str], str]:
    """Return who has which VIP where: of all balancers that want it, the one of the smallest name."""
    found: dict[tuple[Spot, str, int, str], str] = {}
    for balancer in world.balancers(namespace):
        for spot in spots(world, balancer):
            for vip in balancer.spec.vips:
                key = (spot, str(addresses.address(vip.ip)), vip.port, str(vip.protocol))
                found.setdefault(key, balancer.metadata.name)
    return found


def holder_of(world: World, namespace: str, network: str, ip: str) -> str:
    """Return the attachment that has an address in a Network, or ""."""
    return next((port.name for port in world.holders(namespace, network, ip)), "")


# Stands.


class Stand(NamedTuple):
    """What a Network's stand needs."""

    leader: str
    """Who plans it."""
    interfaces: tuple[str, ...]
    hops: tuple[str, ...]
    """The Network's Routers, one for each family, by which endpoints elsewhere are reached."""


def stand(world: World, namespace: str, network: str) -> Stand | None:
    """Return the stand of a Network, or None where it needs none."""
    leader, found = "", set()
    for balancer in world.balancers(namespace):
        own = set(inside(world, balancer, network))
        if own:
            leader = leader or balancer.metadata.name
            found |= own
    if not found:
        return None
    families = {addresses.family(one) for one in found}
    hops = (_hop(world, namespace, network, version) for version in sorted(families))
    return Stand(leader, tuple(sorted(found)), tuple(hop for hop in hops if hop))


def _hop(world: World, namespace: str, network: str, version: int) -> str:
    """Return the address of a Router in a Network, or ""."""
    subnets = world.subnets(namespace, network)
    for router in world.routers(namespace, network):
        for port in router.spec.networks:
            for asked in feet.wished(port, subnets, "") if port.network == network else ():
                ip = addresses.interface(asked.text).ip
                if ip.version == version and world.shared(feet.holder, namespace, network, ip) == router.metadata.name:
                    return str(ip)
    return ""


def inside(world: World, balancer: LoadBalancer, network: str) -> Iterator[str]:
    """Give the VIPs that lie in a Network a balancer serves and that none of its Routers answers for."""
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
    for subnet in world.subnets(namespace, network):
        block = addresses.interface(subnet.spec.cidr).network
        if _holds(block, ip):
            return block.prefixlen
    return 0


def plan_vip_router(network: Network, one: Stand, outcome: Outcome) -> None:
    """Add the rows of a Network's stand."""
    namespace, name = network.metadata.namespace, network.metadata.name
    router = f"{names.switch(namespace, name)}::vips"
    foot, plug = f"{router}:port", f"{router}:plug"
    columns: dict[str, Column] = {"name": foot, "mac": feet.mac(router, name), "networks": frozenset(one.interfaces)}
    port = Row("Logical_Router_Port", foot, columns)
    routes = [
        Row("Logical_Router_Static_Route", f"{router}:{prefix}", {"ip_prefix": prefix, "nexthop": hop})
        for hop in one.hops
        for prefix in ("::/0" if ":" in hop else "0.0.0.0/0",)
    ]
    # It forwards to endpoints, whose MACs OVN knows: it need not remember everybody who asks for a VIP.
    own: dict[str, Column] = {
        "name": router,
        "ports": frozenset((port.ref,)),
        "static_routes": frozenset(route.ref for route in routes),
        "options": {"always_learn_from_arp_request": "false"},
    }
    peer: dict[str, Column] = {
        "name": plug,
        "type": "router",
        "addresses": frozenset({"router"}),
        "options": {"router-port": foot},
    }
    outcome.rows += [Row("Logical_Router", router, own), port, *routes, Row("Logical_Switch_Port", plug, peer)]
    switch = Ref("Logical_Switch", names.switch(namespace, name))
    outcome.members.append(Member(switch, "ports", Ref("Logical_Switch_Port", plug)))


# Who checks the endpoints' health.


def checker(world: World, namespace: str, network: str, version: int, ip: str) -> str:
    """Return the address from which OVN asks an endpoint how it is: the highest free one of its Subnet; "": none is.

    It must be in the Subnet, and nobody's: OVN answers for it with a MAC of its own. Had it a router's, all that an
    endpoint sends to that router would be lost.
    """
    vips = {vip.ip for balancer in world.balancers(namespace) for vip in balancer.spec.vips}
    numbers = {int(addresses.address(one)) for one in vips if addresses.family(one) == version}
    for subnet in world.subnets(namespace, network):
        spec = subnet.spec
        if not addresses.within(ip, spec.cidr):
            continue
        block = place("", network, spec.cidr, gateway=spec.gateway, exclude=spec.exclude)
        for low, high in reversed(block.ranges):
            for number in range(high, low - 1, -1):
                one = text(Number(version, number))
                if number not in numbers and not _taken(world, namespace, network, one):
                    return one
    return ""


def _taken(world: World, namespace: str, network: str, one: str) -> bool:
    if world.holders(namespace, network, one):
        return True
    return bool(world.shared(feet.holder, namespace, network, addresses.address(one)))
