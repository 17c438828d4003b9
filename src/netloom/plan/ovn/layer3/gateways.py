"""Gateways: a router's port in a provider Network, and the chassis that serve it, one at a time.  Pure.

The port is a distributed gateway port: it exists on all chassis, and one chassis of its HA group carries its traffic.
The chassis have the priorities of the order in which the spec lists the nodes. They monitor each other with BFD over
the existing tunnels. The live one with the highest priority claims the port and announces it with gratuitous ARP
(`nat-addresses`: for the router's own address and for all external addresses of NAT). The time to detect a dead chassis
depends on BFD's intervals, which are set for the whole of OVN and not in our rows.

Where the spec names no nodes, all that have the physical network can be the gateway, at most five of them. Each router
ranks them by a digest of both names. So routers spread over the nodes, and adding or removing a node moves few of them.

A node that does not exist, or does not have the physical network, costs that node only: the others keep their rank.

A port in any other physical network is a gateway port too, if possible on the same nodes: if every node sent from the
router's one MAC, the physical switches would see it move between their ports.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Gateway, Network, Router
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.ovn.layer3 import router_ports
from netloom.plan.ovn.layer3.router_ports import LogicalRouterPort, RequestedAddress
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Row
from netloom.plan.world.selector_matches import selector_in
from netloom.plan.world.world import World

FIRST = 100
"""The priority of the first node; each following one has one less."""
UNNAMED = 5
"""How many nodes serve a gateway that names none.  Each further one is one more that all others monitor."""


def redirect_port(router: Router) -> str:
    """Return the name of the southbound port whose chassis is the gateway node; "" where there is no gateway."""
    if router.spec.gateway is None:
        return ""
    return "cr-" + names.router_port(router.metadata.namespace, router.metadata.name, router.spec.gateway.network)


def gateway_port(
    world: World, router: Router, inner: Sequence[LogicalRouterPort], outcome: Outcome
) -> LogicalRouterPort | None:
    """Return the router's gateway port, or None where it has none or cannot have it."""
    gateway = router.spec.gateway
    if gateway is None:
        return None
    network = router_ports.find_network(world, router, gateway.network, "spec.gateway.network", outcome)
    if network is None:
        return None
    if network.spec.provider is None:
        text = (
            f"spec.gateway.network: Network {gateway.network} joins no physical network, so it cannot be the gateway:"
            " give it a provider, or list it in spec.networks"
        )
        outcome.report("NotProvider", text)
        return None
    requested = [RequestedAddress(f"spec.gateway.ips[{position}]", ip) for position, ip in enumerate(gateway.ips)]
    usable = router_ports.usable_addresses(world, router, network, requested, outcome, exact=False)
    own = router_ports.without_overlaps(usable, inner, outcome)
    if not own:
        return None
    name = names.router_port(router.metadata.namespace, router.metadata.name, gateway.network)
    subnets = world.subnets(router.metadata.namespace, gateway.network)
    return LogicalRouterPort(network=network, name=name, at="spec.gateway", addresses=own, subnets=subnets)


def add_chassis_group(world: World, router: Router, port: LogicalRouterPort, outcome: Outcome) -> dict[str, Column]:
    """Add the HA chassis group of a port in a physical network; return the port's column that refers to it.

    Return {} where no node can serve the port.
    """
    rows = [
        Row("HA_Chassis", f"{port.name}:{node}", {"chassis_name": node, "priority": priority})
        for node, priority in _ranked_nodes(world, router, port, outcome)
    ]
    if not rows:
        text = (
            f"{port.at}: no node can serve Network {port.network.metadata.name}: name nodes in spec.gateway.nodes that"
            " exist and have its physical network, or let its spec.provider.nodes select more"
        )
        outcome.report("NoGatewayNode", text)
        return {}
    columns: dict[str, Column] = {"name": port.name, "ha_chassis": frozenset(row.ref for row in rows)}
    group = Row("HA_Chassis_Group", port.name, columns)
    outcome.rows += [group, *rows]
    return {"ha_chassis_group": group.ref}


def default_route(gateway: Gateway, port: LogicalRouterPort, outcome: Outcome) -> tuple[str, str] | None:
    """Return the default route, as block and next hop, if the spec has one that is possible."""
    if not gateway.next_hop:
        return None
    toward = router_ports.NextHops([port]).toward(gateway.next_hop, "spec.gateway.nextHop")
    if isinstance(toward, Problem):
        outcome.problems.append(toward)
        return None
    hop = addresses.address(gateway.next_hop)
    return ("0.0.0.0/0" if hop.version == 4 else "::/0"), str(hop)


def _ranked_nodes(world: World, router: Router, port: LogicalRouterPort, outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Yield the nodes that can serve a port, and their priorities."""
    gateway = router.spec.gateway
    if gateway is not None and gateway.nodes:
        ignored = Outcome()  # Problems of the nodes are reported once, for the gateway.
        of_gateway = port.network.metadata.name == gateway.network
        named = list(_named(world, gateway, port.network, outcome if of_gateway else ignored))
        if named or of_gateway:
            yield from named
            return
    name = names.router(router.metadata.namespace, router.metadata.name)
    able = [one.metadata.name for one in world.all(Node) if _has(one, port.network)]
    able.sort(key=lambda node: blake2b(f"{name}/{node}".encode(), digest_size=8).digest())
    yield from ((node, FIRST - position) for position, node in enumerate(able[:UNNAMED]))


def _named(world: World, gateway: Gateway, network: Network, outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Yield those of the nodes that a gateway names that have a physical network."""
    for position, name in enumerate(gateway.nodes):
        at = f"spec.gateway.nodes[{position}]"
        node = world.get(Node, "", name)
        if node is None:
            outcome.report("NodeMissing", f"{at}: Node {name} does not exist: start its agent, or name another")
        elif not _has(node, network):
            text = (
                f"{at}: Network {network.metadata.name} does not select Node {name} by its spec.provider.nodes:"
                " label the node, or name another"
            )
            outcome.report("NodeUnfit", text)
        else:
            yield name, FIRST - position


def _has(node: Node, network: Network) -> bool:
    """Return whether a node has the physical network of a provider Network."""
    provider = network.spec.provider
    return provider is not None and (
        provider.nodes is None or selector_in("", provider.nodes).matches(node.metadata.labels)
    )
