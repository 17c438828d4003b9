"""LoadBalancers whose connections stay on the client's node.  Pure.

A row of OVN's has the same endpoints everywhere, but it may name variables instead (`options:template`), and each
chassis has values of its own for them (`Chassis_Template_Var`). So a VIP has one row, with a variable for its
endpoints. Where a node has no value, it has none of the VIP's flows, and the packet goes on to the VIP as to any other
address, which nobody has.

OVN wants a variable for an IPv6 VIP as well (23.03): its value is the same on all nodes with endpoints.

The row of a chassis is planned with the LoadBalancer of the smallest name that has an endpoint there.
"""

from collections.abc import Iterable, Iterator, Sequence

from netloom.model.kinds.policy import LoadBalancer, Vip
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer3 import vips
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World

TABLE = "Chassis_Template_Var"


def plan(world: World, balancer: LoadBalancer, ref: Ref, own: Sequence[tuple[Vip, str]], outcome: Outcome) -> None:
    """Add the row of a balancer for a protocol, and on each node the values of its variables."""
    version = addresses.family(own[0][1])
    targets = sorted({one for one in _targets(world, balancer) if one[0]})
    _check_nodes(world, balancer, outcome)
    templates: dict[str, str] = {}
    for vip, ip in own:
        key = with_port(ip, vip.port)
        variable = names.symbol("lb", ref.key, key)
        address = names.symbol("vip", ref.key, key)
        default = vip.target_port or vip.port
        found: dict[str, set[str]] = {}
        for node, target, port in targets:
            if addresses.family(target) == version:
                found.setdefault(node, set()).add(with_port(target, port or default))
        for node, backends in found.items():
            row = Ref(TABLE, node)
            outcome.members.append(Member(row, "variables", ",".join(sorted(backends)), variable))
            if version == 6:
                outcome.members.append(Member(row, "variables", ip, address))
        templates[f"^{address}:{vip.port}" if version == 6 else key] = f"^{variable}"
    columns: dict[str, Column] = {
        "name": ref.key,
        "protocol": str(own[0][0].protocol),
        "vips": templates,
        "options": {"reject": "true", "template": "true", "address-family": f"ipv{version}"},
        "health_check": frozenset(),
        "ip_port_mappings": {},
    }
    outcome.rows.append(Row(*ref, columns))
    unit = _unit(balancer)
    planned = {row.ref for row in outcome.rows}
    for node in sorted({node for node, _, _ in targets}):
        if world.shared(_leader, node) == unit and Ref(TABLE, node) not in planned:
            outcome.rows.append(Row(TABLE, node, {"chassis": node}))


def resolved(desired: DesiredRows, endpoints: Iterable[str]) -> set[str]:
    """Return the endpoints of VIPs, as rows have them: those that are variables on all nodes together."""
    found = {one for several in endpoints for one in several.split(",") if one}
    variables = {one.removeprefix("^") for one in found if one.startswith("^")}
    if not variables:
        return found
    chassis = [desired.members(ref).get("variables", {}) for ref in desired.rows if ref.table == TABLE]
    values = (str(some[name]) for some in chassis for name in variables & some.keys())
    return {one for several in values for one in several.split(",")}


def _targets(world: World, balancer: LoadBalancer) -> Iterator[tuple[str, str, int]]:
    """Yield the endpoints with the nodes they are on ("": unknown), and their ports; 0: that of the VIP."""
    namespace, spec = balancer.metadata.namespace, balancer.spec
    if spec.selector is not None:
        for port in world.selected(namespace, spec.selector):
            yield from ((port.node, ip.partition("/")[0], 0) for ip in port.ips)
        return
    near = vips.networks(world, balancer)
    for endpoint in spec.endpoints or ():
        ip = addresses.canonical(endpoint.ip)
        node = endpoint.node or next(
            (port.node for network in near for port in world.holders(namespace, network, ip)), ""
        )
        yield node, ip, endpoint.port or 0


def _check_nodes(world: World, balancer: LoadBalancer, outcome: Outcome) -> None:
    if balancer.spec.endpoints is None:
        return
    for position, (node, ip, _) in enumerate(_targets(world, balancer)):
        if not node:
            said = f"spec.endpoints[{position}]: no attachment in the Networks served has {ip}: give its node"
            problem = Problem("NodeUnknown", said)
            if problem not in outcome.problems:
                outcome.problems.append(problem)


def _leader(world: World, node: str) -> Unit | None:
    """Return the LoadBalancer with which the row of a chassis is planned."""
    return world.shared(_leaders).get(node)


def _leaders(world: World) -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for balancer in world.local_balancers():
        for node in {node for node, _, _ in _targets(world, balancer) if node}:
            found.setdefault(node, _unit(balancer))
    return found


def _unit(balancer: LoadBalancer) -> Unit:
    return Unit(LoadBalancer.__name__, balancer.metadata.namespace, balancer.metadata.name)


def with_port(ip: str, port: int) -> str:
    """Return an address and a port as OVN writes them."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
