"""Routers: layer 3 between Networks and to the outside.  Pure.

    Router -> Logical_Router
              Logical_Router_Port     one in each Network, and the plug of the Network's switch (feet.py)
              HA_Chassis_Group        the nodes of the gateway (gateways.py)
              Logical_Router_Static_Route
              Logical_Router_Policy   (steering.py)
              NAT                     (nat.py)

A part that cannot be is a problem of the Router and costs what hangs on it: a missing Network its foot, the foot the
routes through it; the rest is planned. A Router whose Networks are all of other fabrics is not OVN's, and nothing is
planned for it.

IPv6 blocks and the router are advertised: a machine that asks is answered at once, one that does not hears of it within
a minute. Advertisements never let a machine make itself an address (SLAAC): it has those that were chosen for it, set
by the agent or got by DHCP. What it sent from another would be dropped, and Linux prefers the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from netloom.model import addresses
from netloom.model.addresses import Block
from netloom.model.networks import Fabric, Network, Route, Router
from netloom.plan import names
from netloom.plan.ovn.layer2.dhcp import TUNNELLED_MTU
from netloom.plan.ovn.layer3 import gateways, nat
from netloom.plan.ovn.layer3 import router_policies as steering
from netloom.plan.ovn.layer3 import router_ports as feet
from netloom.plan.ovn.layer3.router_ports import Foot
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World

ADVERTISE_SECONDS = 60
"""The longest time between two unasked advertisements; OVN's own 600 s is long for somebody who did not ask."""
SMALLEST_V6_MTU = 1280


class _Route(NamedTuple):
    """A route that can be."""

    to: str
    via: str
    port: str


def plan_router(world: World, router: Router) -> Outcome:
    """Return the rows of a Router."""
    outcome = Outcome()
    if _foreign(world, router):
        _say_foreign(world, router, outcome)
        return outcome
    name = names.router(router.metadata.namespace, router.metadata.name)
    # A router learns the neighbours that speak to it, and not all that are heard in its networks: in a big provider
    # Network each ARP request would be a row for each router there.
    options = {"always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true"}
    outcome.rows.append(Row("Logical_Router", name, {"name": name, "options": options}))
    serving: dict[str, dict[str, Column]] = {}
    found = feet.inner(world, router, outcome)
    inner = [foot for foot in found if _stands(world, router, foot, serving, outcome)]
    outer = gateways.outer(world, router, inner, outcome)
    if outer is not None and not _stands(world, router, outer, serving, outcome):
        outer = None
    every = [*inner, outer] if outer is not None else inner
    limits = _limits(every)
    for foot in every:
        advertised = _advertised(foot) if foot is not outer else {}
        columns: dict[str, Column] = {"options": limits[foot.name], "ipv6_ra_configs": advertised}
        feet.planned(router, foot, outcome, columns | serving.get(foot.name, {}))
    routes = list(dict.fromkeys(_routes(router, every, outer, outcome)))
    for route in routes:
        _add_route(name, route, outcome)
    steering.steered(router, every, [addresses.interface(route.to).network for route in routes], outcome)
    if outer is not None:
        nat.translated(world, router, inner, outer, _routed(routes, inner), outcome)
    return outcome


def _stands(world: World, router: Router, foot: Foot, serving: dict[str, dict[str, Column]], outcome: Outcome) -> bool:
    """Whether a foot can be; where it is in a physical network, what its port says of its nodes goes to `serving`."""
    if foot.network.spec.provider is not None:
        serving[foot.name] = gateways.served(world, router, foot, outcome)
    return bool(serving.get(foot.name, True))


def _say_foreign(world: World, router: Router, outcome: Outcome) -> None:
    """Say of each Network that VXLAN carries that nobody routes there."""
    named = [(f"spec.networks[{position}].network", port.network) for position, port in enumerate(router.spec.networks)]
    if router.spec.gateway is not None:
        named.append(("spec.gateway.network", router.spec.gateway.network))
    for at, name in named:
        network = world.get(Network, router.metadata.namespace, name)
        if network is not None and network.spec.fabric is Fabric.VXLAN:
            feet.found(world, router, name, at, outcome)


def _foreign(world: World, router: Router) -> bool:
    """Whether a Router joins Networks, and none of them is OVN's: then there is nothing of it in OVN."""
    named = [port.network for port in router.spec.networks]
    if router.spec.gateway is not None:
        named.append(router.spec.gateway.network)
    known = [found for one in named if (found := world.get(Network, router.metadata.namespace, one)) is not None]
    return bool(known) and all(one.spec.fabric is not Fabric.OVN for one in known)


def _limits(every: Sequence[Foot]) -> dict[str, dict[str, str]]:
    """Return the option that says how big a packet may leave by a port, for the ports that need it.

    Senders learn it by ICMP. Not needed where all Networks take the same: nothing comes in that is too big to go out.
    """
    sizes = {foot.name: foot.network.spec.mtu for foot in every}
    return {
        name: {"gateway_mtu": str(size)} if size is not None and _more(size, sizes.values()) else {}
        for name, size in sizes.items()
    }


def _more(size: int, sizes: Iterable[int | None]) -> bool:
    """Whether a Network takes more than this, or may."""
    return any(other is None or other > size for other in sizes)


def _advertised(foot: Foot) -> dict[str, str]:
    """Return what the router tells machines of a Network about IPv6 there."""
    subnets = [one for one in foot.subnets if addresses.family(one.spec.cidr) == 6]
    if not subnets or not any(one.version == 6 for one in foot.addresses):
        return {}
    told = [one.spec.dhcp for one in subnets if one.spec.dhcp is not None]
    configs = {
        "address_mode": "dhcpv6_stateful",  # The only mode in which the prefix is not for SLAAC.
        "send_periodic": "true",
        "max_interval": str(ADVERTISE_SECONDS),
        "min_interval": str(ADVERTISE_SECONDS // 3),
    }
    mtu = foot.network.spec.mtu
    if mtu is None and foot.network.spec.provider is None and any(dhcp.enabled for dhcp in told):
        mtu = TUNNELLED_MTU  # Who has its address from the agent has the MTU from it too.
    if mtu is not None and mtu >= SMALLEST_V6_MTU:
        configs["mtu"] = str(mtu)
    servers = [server for dhcp in told for server in dhcp.dns_servers if addresses.family(server) == 6]
    if servers:
        configs["rdnss"] = servers[0]  # OVN tells of one.
    if domains := list(dict.fromkeys(dhcp.domain_name for dhcp in told if dhcp.domain_name)):
        configs["dnssl"] = ",".join(domains)
    return configs


def _routes(router: Router, every: Sequence[Foot], outer: Foot | None, outcome: Outcome) -> Iterator[_Route]:
    """Give the routes that can be; what is wrong with the others goes to the problems."""
    default: _Route | None = None
    gateway = router.spec.gateway
    if gateway is not None and outer is not None:
        way_out = gateways.default_route(gateway, outer, outcome)
        if way_out is not None:
            default = _Route(*way_out, outer.name)
            yield default
    for position, wish in enumerate(router.spec.routes):
        route = _route(wish, f"spec.routes[{position}]", every)
        if isinstance(route, _Route) and default is not None and route.to == default.to and route.via != default.via:
            text = f"{route.to} goes to spec.gateway.nextHop {default.via} already: take one of the two out"
            route = Problem("RouteTwice", f"spec.routes[{position}].to: {text}")
        if isinstance(route, Problem):
            outcome.problems.append(route)
        else:
            yield route


def _route(wish: Route, at: str, every: Sequence[Foot]) -> _Route | Problem:
    if not addresses.is_cidr(wish.to):
        return Problem("Malformed", f"{at}.to: {wish.to!r} is not an address block")
    foot = feet.toward(every, wish.via, f"{at}.via")
    if isinstance(foot, Problem):
        return foot
    return _Route(str(addresses.interface(wish.to).network), str(addresses.address(wish.via)), foot.name)


def _routed(routes: Sequence[_Route], inner: Sequence[Foot]) -> Iterator[Block]:
    """Give the blocks that routes lead to through the router's inner feet."""
    inside = {foot.name for foot in inner}
    for route in routes:
        block = addresses.interface(route.to).network
        if route.port in inside and block.prefixlen > 0:
            yield block


def _add_route(router: str, route: _Route, outcome: Outcome) -> None:
    row = Row(
        "Logical_Router_Static_Route",
        f"{router}:{route.to}:{route.via}",
        {"ip_prefix": route.to, "nexthop": route.via, "output_port": route.port, "policy": "dst-ip"},
    )
    outcome.rows.append(row)
    outcome.members.append(Member(Ref("Logical_Router", router), "static_routes", row.ref))
