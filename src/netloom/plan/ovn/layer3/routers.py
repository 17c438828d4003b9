"""Routers: layer 3 between Networks and to the outside.  Pure.

    Router -> Logical_Router
              Logical_Router_Port     one in each Network, with its peer port on the switch (router_ports.py)
              HA_Chassis_Group        the nodes of the gateway (gateways.py)
              Logical_Router_Static_Route
              Logical_Router_Policy   (router_policies.py)
              NAT                     (nat.py)

A part that is not possible is a problem of the Router and costs what depends on it: a missing Network costs its port, a
missing port the routes through it. The rest is planned. A Router whose Networks are all of other fabrics has no rows in
OVN.

The router advertises itself and the IPv6 blocks: it answers solicitations at once, and advertises every minute unasked.
Advertisements never allow SLAAC: a host has the addresses that IPAM allocated, set by the agent or by DHCP. Port
security would drop what it sends from a SLAAC address, and Linux prefers those.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netloom.model.kinds.networks import Fabric, Network, Route, Router
from netloom.model.values import addresses
from netloom.model.values.addresses import Block
from netloom.plan import names
from netloom.plan.ovn.layer2.dhcp import TUNNELLED_MTU
from netloom.plan.ovn.layer3 import gateways, nat, router_policies, router_ports
from netloom.plan.ovn.layer3.router_ports import LogicalRouterPort, NextHops
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Ref, Row
from netloom.plan.world.world import World

ADVERTISE_SECONDS = 60
"""The longest time between two unsolicited advertisements; OVN's default is 600 s."""
SMALLEST_V6_MTU = 1280


class _Route(NamedTuple):
    """A route that is possible."""

    to: str
    via: str
    port: str


def plan_router(world: World, router: Router) -> Outcome:
    """Return the rows of a Router."""
    outcome = Outcome()
    if _is_foreign(world, router, outcome):
        return outcome
    name = names.router(router.metadata.namespace, router.metadata.name)
    # A router learns the neighbours that talk to it only. In a big provider Network each ARP request would otherwise be
    # a row for each router there.
    options = {"always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true"}
    outcome.rows.append(Row("Logical_Router", name, {"name": name, "options": options}))
    serving: dict[str, dict[str, Column]] = {}
    found = router_ports.inner_ports(world, router, outcome)
    inner = [port for port in found if _is_served(world, router, port, serving, outcome)]
    outer = gateways.gateway_port(world, router, inner, outcome)
    if outer is not None and not _is_served(world, router, outer, serving, outcome):
        outer = None
    every = [*inner, outer] if outer is not None else inner
    limits = _limits(every)
    for port in every:
        advertised = _advertised(port) if port is not outer else {}
        columns: dict[str, Column] = {"options": limits[port.name], "ipv6_ra_configs": advertised}
        router_ports.add_rows(router, port, outcome, columns | serving.get(port.name, {}))
    routes = list(dict.fromkeys(_routes(router, every, outer, outcome)))
    for route in routes:
        _add_route(name, route, outcome)
    router_policies.add_policies(router, every, [addresses.interface(route.to).network for route in routes], outcome)
    if outer is not None:
        nat.add_nat(world, router, inner, outer, _routed(routes, inner), outcome)
    return outcome


def _is_served(
    world: World, router: Router, port: LogicalRouterPort, serving: dict[str, dict[str, Column]], outcome: Outcome
) -> bool:
    """Return whether a port is possible.  For one in a physical network, put its chassis column in `serving`."""
    if port.network.spec.provider is not None:
        serving[port.name] = gateways.add_chassis_group(world, router, port, outcome)
    return bool(serving.get(port.name, True))


def _is_foreign(world: World, router: Router, outcome: Outcome) -> bool:
    """Return whether a Router joins Networks, and none of them is of fabric ovn: then it has no rows in OVN.

    Report each of them: there are no routers on other fabrics.
    """
    named = [(f"spec.networks[{position}].network", port.network) for position, port in enumerate(router.spec.networks)]
    if router.spec.gateway is not None:
        named.append(("spec.gateway.network", router.spec.gateway.network))
    fabrics = [
        (at, name, network)
        for at, name in named
        if (network := world.get(Network, router.metadata.namespace, name)) is not None
    ]
    if not fabrics or any(network.spec.fabric is Fabric.OVN for _, _, network in fabrics):
        return False
    for at, name, _ in fabrics:
        router_ports.find_network(world, router, name, at, outcome)
    return True


def _limits(every: Sequence[LogicalRouterPort]) -> dict[str, dict[str, str]]:
    """Return the `gateway_mtu` option of the ports that need it.

    Senders learn it by ICMP. Where all Networks have the same MTU, no packet that comes in is too big to go out.
    """
    sizes = {port.name: port.network.spec.mtu for port in every}
    largest = None if None in sizes.values() else max((size for size in sizes.values() if size is not None), default=0)
    return {
        name: {"gateway_mtu": str(size)} if size is not None and (largest is None or largest > size) else {}
        for name, size in sizes.items()
    }


def _advertised(port: LogicalRouterPort) -> dict[str, str]:
    """Return the router advertisements of a port: its `ipv6_ra_configs`."""
    subnets = [one for one in port.subnets if addresses.family(one.spec.cidr) == 6]
    if not subnets or not any(one.version == 6 for one in port.addresses):
        return {}
    configured = [one.spec.dhcp for one in subnets if one.spec.dhcp is not None]
    configs = {
        "address_mode": "dhcpv6_stateful",  # The only mode that does not allow SLAAC with the prefix.
        "send_periodic": "true",
        "max_interval": str(ADVERTISE_SECONDS),
        "min_interval": str(ADVERTISE_SECONDS // 3),
    }
    mtu = port.network.spec.mtu
    if mtu is None and port.network.spec.provider is None and any(dhcp.enabled for dhcp in configured):
        mtu = TUNNELLED_MTU  # A host whose address the agent set has the MTU from it too.
    if mtu is not None and mtu >= SMALLEST_V6_MTU:
        configs["mtu"] = str(mtu)
    servers = [server for dhcp in configured for server in dhcp.dns_servers if addresses.family(server) == 6]
    if servers:
        configs["rdnss"] = servers[0]  # OVN advertises one.
    if domains := list(dict.fromkeys(dhcp.domain_name for dhcp in configured if dhcp.domain_name)):
        configs["dnssl"] = ",".join(domains)
    return configs


def _routes(
    router: Router, every: Sequence[LogicalRouterPort], outer: LogicalRouterPort | None, outcome: Outcome
) -> Iterator[_Route]:
    """Yield the routes that are possible; report the others as problems."""
    default: _Route | None = None
    hops = NextHops(every)
    gateway = router.spec.gateway
    if gateway is not None and outer is not None:
        found = gateways.default_route(gateway, outer, outcome)
        if found is not None:
            default = _Route(*found, outer.name)
            yield default
    for position, spec in enumerate(router.spec.routes):
        route = _route(spec, f"spec.routes[{position}]", hops)
        if isinstance(route, _Route) and default is not None and route.to == default.to and route.via != default.via:
            text = f"{route.to} goes to spec.gateway.nextHop {default.via} already: remove one of the two"
            route = Problem("RouteTwice", f"spec.routes[{position}].to: {text}")
        if isinstance(route, Problem):
            outcome.problems.append(route)
        else:
            yield route


def _route(spec: Route, at: str, hops: NextHops) -> _Route | Problem:
    if not addresses.is_cidr(spec.to):
        return Problem("Malformed", f"{at}.to: {spec.to!r} is not an address block")
    port = hops.toward(spec.via, f"{at}.via")
    if isinstance(port, Problem):
        return port
    return _Route(str(addresses.interface(spec.to).network), str(addresses.address(spec.via)), port.name)


def _routed(routes: Sequence[_Route], inner: Sequence[LogicalRouterPort]) -> Iterator[Block]:
    """Yield the blocks that routes lead to through the router's inner ports."""
    inside = {port.name for port in inner}
    for route in routes:
        block = addresses.interface(route.to).network
        if route.port in inside and block.prefixlen > 0:
            yield block


def _add_route(router: str, route: _Route, outcome: Outcome) -> None:
    columns = {"ip_prefix": route.to, "nexthop": route.via, "output_port": route.port, "policy": "dst-ip"}
    row = Row("Logical_Router_Static_Route", f"{router}:{route.to}:{route.via}", columns)
    outcome.add(row, Ref("Logical_Router", router), "static_routes")
