"""The way out: a router's port in a provider Network, and the nodes that serve it, one at a time.  Pure.

The port is a distributed gateway port: it is everywhere, and one node of its HA group carries what goes through it. The
nodes are ranked as the wish lists them, by priority; nodes watch each other with BFD over the tunnels that are there
anyway, and the best that is alive claims the port and tells the neighbours with gratuitous ARP (`nat-addresses`: for
the router's own address and for all it translates). How fast a dead one is noticed is a matter of BFD's intervals,
which are set for the whole of OVN and not in our rows.

Where no nodes are named, all that have the physical network can be the gateway, at most five of them. Each router
ranks them by a digest of both names: so routers spread over the nodes, and a node more or less moves few of them.

A node that does not exist, or has not the physical network, costs that node: the others keep their rank.

A foot in any other physical network is such a port too, if possible on the same nodes: if every node sent from the
router's one MAC, the physical switches would see it jump.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from netloom.model import addresses
from netloom.model.cluster import Node
from netloom.model.networks import Gateway, Network, Router
from netloom.plan import names
from netloom.plan.ovn.layer3 import router_ports as feet
from netloom.plan.ovn.layer3.router_ports import Asked, Foot
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Row
from netloom.plan.world.selector_matches import selector_in
from netloom.plan.world.world import World

FIRST = 100
"""The priority of the first node; every next one has one less."""
UNNAMED = 5
"""How many nodes serve a gateway that names none: each one more is one more for all others to watch."""


def redirect_port(router: Router) -> str:
    """Return the name of the southbound port whose chassis is the gateway node; "" where there is no gateway."""
    if router.spec.gateway is None:
        return ""
    return "cr-" + names.router_port(router.metadata.namespace, router.metadata.name, router.spec.gateway.network)


def outer(world: World, router: Router, inner: Sequence[Foot], outcome: Outcome) -> Foot | None:
    """Return the router's foot outside, or None where it has none or what is wrong costs the whole of it."""
    gateway = router.spec.gateway
    if gateway is None:
        return None
    network = feet.found(world, router, gateway.network, "spec.gateway.network", outcome)
    if network is None:
        return None
    if network.spec.provider is None:
        text = (
            f"spec.gateway.network: Network {gateway.network} joins no physical network, so it is no way out: give it a"
            " provider, or list it in spec.networks"
        )
        outcome.problems.append(Problem("NotProvider", text))
        return None
    asked = [Asked(f"spec.gateway.ips[{position}]", ip) for position, ip in enumerate(gateway.ips)]
    fit = feet.fitting(world, router, network, asked, outcome, exact=False)
    own = feet.apart(fit, inner, outcome)
    if not own:
        return None
    name = names.router_port(router.metadata.namespace, router.metadata.name, gateway.network)
    return Foot(network, name, "spec.gateway", own, world.subnets(router.metadata.namespace, gateway.network))


def served(world: World, router: Router, foot: Foot, outcome: Outcome) -> dict[str, Column]:
    """Add the rows that say which nodes serve a foot in a physical network, and return what its port refers to them by.

    That is {} where no node can.
    """
    rows = [
        Row("HA_Chassis", f"{foot.name}:{node}", {"chassis_name": node, "priority": priority})
        for node, priority in _ranked(world, router, foot, outcome)
    ]
    if not rows:
        text = (
            f"{foot.at}: no node can serve Network {foot.network.metadata.name}: name nodes in spec.gateway.nodes that"
            " exist and have its physical network, or widen its spec.provider.nodes"
        )
        outcome.problems.append(Problem("NoGatewayNode", text))
        return {}
    columns: dict[str, Column] = {"name": foot.name, "ha_chassis": frozenset(row.ref for row in rows)}
    group = Row("HA_Chassis_Group", foot.name, columns)
    outcome.rows += [group, *rows]
    return {"ha_chassis_group": group.ref}


def default_route(gateway: Gateway, foot: Foot, outcome: Outcome) -> tuple[str, str] | None:
    """Return the route to everywhere, as block and next hop, where the wish has one that can be."""
    if not gateway.next_hop:
        return None
    toward = feet.toward([foot], gateway.next_hop, "spec.gateway.nextHop")
    if isinstance(toward, Problem):
        outcome.problems.append(toward)
        return None
    hop = addresses.address(gateway.next_hop)
    return ("0.0.0.0/0" if hop.version == 4 else "::/0"), str(hop)


def _ranked(world: World, router: Router, foot: Foot, outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Give the nodes that can serve a foot, and their priorities."""
    gateway = router.spec.gateway
    if gateway is not None and gateway.nodes:
        told = Outcome()  # What is wrong with the nodes is told once, of the gateway.
        of_gateway = foot.network.metadata.name == gateway.network
        named = list(_named(world, gateway, foot.network, outcome if of_gateway else told))
        if named or of_gateway:
            yield from named
            return
    name = names.router(router.metadata.namespace, router.metadata.name)
    fit = [one.metadata.name for one in world.nodes() if _has(one, foot.network)]
    fit.sort(key=lambda node: blake2b(f"{name}/{node}".encode(), digest_size=8).digest())
    yield from ((node, FIRST - position) for position, node in enumerate(fit[:UNNAMED]))


def _named(world: World, gateway: Gateway, network: Network, outcome: Outcome) -> Iterator[tuple[str, int]]:
    """Give those of the nodes a gateway names that have a physical network."""
    for position, name in enumerate(gateway.nodes):
        at = f"spec.gateway.nodes[{position}]"
        node = world.get(Node, "", name)
        if node is None:
            text = f"{at}: Node {name} does not exist: start its agent, or name another"
            outcome.problems.append(Problem("NodeMissing", text))
        elif not _has(node, network):
            text = (
                f"{at}: Node {name} is not one that Network {network.metadata.name} selects by spec.provider.nodes:"
                " label the node, or name another"
            )
            outcome.problems.append(Problem("NodeUnfit", text))
        else:
            yield name, FIRST - position


def _has(node: Node, network: Network) -> bool:
    """Whether a node has the physical network of a provider Network."""
    provider = network.spec.provider
    return provider is not None and (
        provider.nodes is None or selector_in("", provider.nodes).matches(node.metadata.labels)
    )
