"""LoadBalancers as OVN's: one row for each protocol, joined to switches and routers.  Pure.

Each VIP stands for the endpoints of its own family. A VIP that somebody else has, an endpoint no VIP can stand for, a
place that is not there: each is a problem and costs itself only.

- A VIP without endpoints refuses connections at once instead of letting them wait.
- An endpoint may be its own client: OVN sends it back with the VIP as its source.
- With a health check, an endpoint must be an attachment: OVN asks it on its own node. A port answers or it does not:
  for UDP, an endpoint is up unless it says that the port is closed. What is not checked is taken to be up.
- A client that stays with its endpoint (affinity) does so although that is down (OVN 23.03), until it was silent for
  that long.

How a VIP is answered for, and whose it is, is in `vips`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netloom.model import addresses
from netloom.model.networks import Fabric, Network, Router
from netloom.model.policy import HealthCheck, LoadBalancer, Protocol, Vip
from netloom.plan import names
from netloom.plan.ovn.layer3 import vips
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World

TABLE = "Load_Balancer"
CHECK = "Load_Balancer_Health_Check"


class Target(NamedTuple):
    """An endpoint."""

    ip: str
    port: int | None
    """None: the VIP's."""
    at: str
    """Which field it is of."""
    network: str = ""
    attachment: str = ""
    """Whose address it is, as far as that is known."""

    @property
    def version(self) -> int:
        """Its family."""
        return addresses.family(self.ip)


def balancer(namespace: str, name: str, protocol: Protocol) -> Ref:
    """Return which row is a LoadBalancer's, for a protocol."""
    return Ref(TABLE, f"{namespace}/{name}:{protocol}")


def plan_load_balancer(world: World, wish: LoadBalancer) -> Outcome:
    """Plan a LoadBalancer: its rows, the places they serve, and the stands its VIPs need."""
    outcome = Outcome()
    joined = sorted({*_switches(world, wish, outcome), *_routers(world, wish, outcome)})
    free = list(_free(world, wish, outcome))
    targets = _targets(world, wish)
    _check_families(wish, targets, outcome)
    for protocol in Protocol:
        own = [(vip, ip) for vip, ip in free if vip.protocol is protocol]
        if not own:
            continue
        ref = _plan_row(world, wish, protocol, own, targets, outcome)
        outcome.members += (Member(place, "load_balancer", ref) for place in joined)
    return outcome


# Where.


def _switches(world: World, wish: LoadBalancer, outcome: Outcome) -> Iterator[Ref]:
    namespace = wish.metadata.namespace
    for position, name in enumerate(wish.spec.networks):
        at = f"spec.networks[{position}]"
        network = world.get(Network, namespace, name)
        if network is None:
            outcome.problems.append(Problem("NetworkMissing", f"{at}: Network {name} does not exist"))
            continue
        if network.spec.fabric is not Fabric.OVN:
            said = f"{at}: Network {name} is carried by {network.spec.fabric}: only one of fabric ovn can balance"
            outcome.problems.append(Problem("WrongFabric", said))
            continue
        if (problem := world.ungranted(network)) is not None:
            outcome.problems.append(Problem(problem.reason, f"{at}: Network {name}: {problem.message}"))
            continue
        stand = world.shared(vips.stand, namespace, name)
        if stand is not None and network.spec.provider is not None:
            outcome.problems += _on_wire(world, wish, network, at)
        elif stand is not None and stand.leader == wish.metadata.name:
            vips.plan_vip_router(network, stand, outcome)
        yield Ref("Logical_Switch", names.switch(namespace, name))


def _on_wire(world: World, wish: LoadBalancer, network: Network, at: str) -> Iterator[Problem]:
    """Give what is wrong with VIPs inside of a physical network, where all nodes would answer for them at once."""
    inside = sorted(set(vips.inside(world, wish, network.metadata.name)))
    if inside:
        said = (
            f"{at}: {', '.join(inside)} is in the provider Network {network.metadata.name}, where nobody would answer"
            " for it: serve it by the Router whose gateway is there"
        )
        yield Problem("RouterNeeded", said)


def _routers(world: World, wish: LoadBalancer, outcome: Outcome) -> Iterator[Ref]:
    namespace = wish.metadata.namespace
    for position, name in enumerate(wish.spec.routers):
        router = world.get(Router, namespace, name)
        if router is None:
            said = f"spec.routers[{position}]: Router {name} does not exist"
            outcome.problems.append(Problem("RouterMissing", said))
            continue
        yield Ref("Logical_Router", names.router(namespace, name))
        yield from (Ref("Logical_Switch", names.switch(namespace, port.network)) for port in router.spec.networks)


# What.


def _free(world: World, wish: LoadBalancer, outcome: Outcome) -> Iterator[tuple[Vip, str]]:
    """Give the VIPs that can be had, with their addresses in the usual notation."""
    for position, vip in enumerate(wish.spec.vips):
        if (refused := vips.refusal(world, wish, vip)) is not None:
            reason, said = refused
            outcome.problems.append(Problem(reason, f"spec.vips[{position}].ip: {said}"))
        else:
            yield vip, str(addresses.address(vip.ip))


def _targets(world: World, wish: LoadBalancer) -> list[Target]:
    namespace, spec = wish.metadata.namespace, wish.spec
    if spec.selector is not None:
        return [
            Target(ip.partition("/")[0], None, "spec.selector", port.network, port.name)
            for port in world.selected(namespace, spec.selector)
            for ip in port.ips
        ]
    found = []
    near = vips.networks(world, wish)
    for position, endpoint in enumerate(spec.endpoints or ()):
        ip = str(addresses.address(endpoint.ip))
        network, attachment = "", ""
        if spec.health_check is not None:
            holders = ((one, vips.holder_of(world, namespace, one, ip)) for one in near)
            network, attachment = next(((one, holder) for one, holder in holders if holder), ("", ""))
        found.append(Target(ip, endpoint.port, f"spec.endpoints[{position}]", network, attachment))
    return found


def _check_families(wish: LoadBalancer, targets: Sequence[Target], outcome: Outcome) -> None:
    """Say which endpoints no VIP can stand for, and which VIPs have only endpoints they cannot stand for."""
    if wish.spec.selector is not None:
        return  # An attachment has addresses of both families, and a VIP of one is no mistake.
    families = {addresses.family(vip.ip) for vip in wish.spec.vips}
    for target in targets:
        if target.version not in families:
            said = f"{target.at}.ip: {target.ip} is IPv{target.version}, and there is no such VIP to stand for it"
            outcome.problems.append(Problem("WrongFamily", said))
    have = {target.version for target in targets}
    for position, vip in enumerate(wish.spec.vips):
        if have and addresses.family(vip.ip) not in have:
            said = f"spec.vips[{position}].ip: {vip.ip} has no endpoint of its family, IPv{addresses.family(vip.ip)}"
            outcome.problems.append(Problem("WrongFamily", said))


def _plan_row(
    world: World,
    wish: LoadBalancer,
    protocol: Protocol,
    own: Sequence[tuple[Vip, str]],
    targets: Sequence[Target],
    outcome: Outcome,
) -> Ref:
    ref = balancer(wish.metadata.namespace, wish.metadata.name, protocol)
    served = {with_port(ip, vip.port): _backends(vip, ip, targets) for vip, ip in own}
    checks, mappings = _health(world, wish, ref, protocol, served, targets, outcome)
    options = {"reject": "true"}
    if wish.spec.affinity_seconds:
        options["affinity_timeout"] = str(wish.spec.affinity_seconds)
    columns: dict[str, Column] = {
        "name": ref.key,
        "protocol": str(protocol),
        "vips": {vip: ",".join(backends) for vip, backends in served.items()},
        "options": options,
        "health_check": frozenset(check.ref for check in checks),
        "ip_port_mappings": mappings,
    }
    outcome.rows += [Row(ref.table, ref.key, columns), *checks]
    return ref


def _backends(vip: Vip, ip: str, targets: Sequence[Target]) -> list[str]:
    version = addresses.family(ip)
    default = vip.target_port or vip.port
    return sorted({with_port(one.ip, one.port or default) for one in targets if one.version == version})


def with_port(ip: str, port: int) -> str:
    """Return an address and a port as OVN writes them."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


# How endpoints are watched.


def _health(
    world: World,
    wish: LoadBalancer,
    ref: Ref,
    protocol: Protocol,
    served: dict[str, list[str]],
    targets: Sequence[Target],
    outcome: Outcome,
) -> tuple[list[Row], dict[str, str]]:
    """Return the health checks of a row, and from where each endpoint is asked."""
    check = wish.spec.health_check
    if check is None:
        return [], {}
    if protocol is Protocol.SCTP:
        said = "spec.healthCheck: OVN cannot check endpoints of SCTP, and takes them to be up"
        outcome.problems.append(Problem("Unsupported", said))
        return [], {}
    families = {6 if vip.startswith("[") else 4 for vip in served}
    mappings = {}
    for target in targets:
        if target.version not in families:
            continue
        source, problem = _source(world, wish, target)
        if problem is None:
            port = names.port(wish.metadata.namespace, target.attachment)
            mappings[_bracketed(target.ip)] = f"{port}:{_bracketed(source)}"
        elif problem not in outcome.problems:
            outcome.problems.append(problem)
    return [Row(CHECK, f"{ref.key}:{vip}", {"vip": vip, "options": _options(check)}) for vip in served], mappings


def _source(world: World, wish: LoadBalancer, target: Target) -> tuple[str, Problem | None]:
    """Return the address an endpoint is asked from, or why it cannot be asked."""
    namespace = wish.metadata.namespace
    if not target.attachment:
        said = (
            f"{target.at}.ip: {target.ip} is no attachment's in the Networks served, so its health cannot be checked,"
            " and it is taken to be up"
        )
        return "", Problem("NotChecked", said)
    source = world.shared(vips.checker, namespace, target.network, target.version, target.ip)
    if source:
        return source, None
    said = (
        f"spec.healthCheck: {target.ip} cannot be checked: it takes a free address in its Subnet of Network"
        f" {target.network}, and there is none"
    )
    return "", Problem("NotChecked", said)


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def _options(check: HealthCheck) -> dict[str, str]:
    return {
        "interval": str(check.interval_seconds),
        "timeout": str(check.timeout_seconds),
        "success_count": str(check.success_count),
        "failure_count": str(check.failure_count),
    }
