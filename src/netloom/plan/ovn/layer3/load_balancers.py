"""LoadBalancers as OVN's: one row for each protocol, referred to by switches and routers.  Pure.

Each VIP balances to the endpoints of its own family. A VIP that another object has, an endpoint without a VIP of its
family, a Network or Router that does not exist: each is a problem and costs itself only.

- A VIP without endpoints rejects connections at once instead of letting them time out.
- An endpoint may be its own client: OVN hairpins the packet with the VIP as its source.
- With a health check, an endpoint must be an attachment: OVN checks it on its own chassis. A UDP endpoint is up unless
  it reports that the port is closed. An endpoint that is not checked counts as up.
- With `internalTrafficPolicy: local`, the endpoints are a variable, which has another value on each node
  (`local_endpoints`).
- A client with affinity stays with its endpoint even if that is down (OVN 23.03), until it was silent for that long.

How a VIP is answered for, and which object has it, is in `vips`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netloom.model.kinds.networks import Fabric, Network, Router
from netloom.model.kinds.policy import InternalTrafficPolicy, LoadBalancer, Protocol, Vip
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.ovn.layer3 import local_endpoints, vips
from netloom.plan.ovn.layer3.local_endpoints import with_port
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.world import World

TABLE = "Load_Balancer"
CHECK = "Load_Balancer_Health_Check"


class Target(NamedTuple):
    """An endpoint."""

    ip: str
    port: int | None
    """None: the VIP's port."""
    at: str
    """The field of the spec that names it."""
    network: str = ""
    attachment: str = ""
    """The attachment with this address, if known."""

    @property
    def version(self) -> int:
        """The address family."""
        return addresses.family(self.ip)


def load_balancer_ref(namespace: str, name: str, protocol: Protocol) -> Ref:
    """Return which row is that of a LoadBalancer, for a protocol."""
    return Ref(TABLE, f"{namespace}/{name}:{protocol}")


def plan_load_balancer(world: World, balancer: LoadBalancer) -> Outcome:
    """Plan a LoadBalancer: its rows, the switches and routers that use them, and the VIP routers that its VIPs need."""
    outcome = Outcome()
    users = sorted({*_switches(world, balancer, outcome), *_routers(world, balancer, outcome)})
    free = list(_free(world, balancer, outcome))
    targets = _targets(world, balancer)
    _check_families(balancer, targets, outcome)
    for protocol in Protocol:
        own = [(vip, ip) for vip, ip in free if vip.protocol is protocol]
        if not own:
            continue
        ref = load_balancer_ref(balancer.metadata.namespace, balancer.metadata.name, protocol)
        if balancer.spec.internal_traffic_policy is InternalTrafficPolicy.LOCAL:
            local_endpoints.plan(world, balancer, ref, own, outcome)
            outcome.members += (Member(user, "load_balancer", ref) for user in users)
            continue
        served = {with_port(ip, vip.port): _backends(vip, ip, targets) for vip, ip in own}
        checks, mappings = _health(world, balancer, ref, protocol, served, targets, outcome)
        options = {"reject": "true"}
        if balancer.spec.affinity_seconds:
            options["affinity_timeout"] = str(balancer.spec.affinity_seconds)
        columns: dict[str, Column] = {
            "name": ref.key,
            "protocol": str(protocol),
            "vips": {vip: ",".join(backends) for vip, backends in served.items()},
            "options": options,
            "health_check": frozenset(check.ref for check in checks),
            "ip_port_mappings": mappings,
        }
        outcome.rows += [Row(*ref, columns), *checks]
        outcome.members += (Member(user, "load_balancer", ref) for user in users)
    return outcome


# The switches and routers that balance.


def _switches(world: World, balancer: LoadBalancer, outcome: Outcome) -> Iterator[Ref]:
    namespace = balancer.metadata.namespace
    for position, name in enumerate(balancer.spec.networks):
        at = f"spec.networks[{position}]"
        network = world.get(Network, namespace, name)
        if network is None:
            outcome.report("NetworkMissing", f"{at}: Network {name} does not exist")
            continue
        if network.spec.fabric is not Fabric.OVN:
            said = f"{at}: Network {name} is of fabric {network.spec.fabric}: load balancing needs fabric ovn"
            outcome.report("WrongFabric", said)
            continue
        if (problem := world.ungranted(network)) is not None:
            outcome.report(problem.reason, f"{at}: Network {name}: {problem.message}")
            continue
        vip_router = world.shared(vips.vip_router, namespace, name)
        if vip_router is not None and network.spec.provider is not None:
            # Inside of a physical network all nodes would answer for them at once.
            if inside := sorted(set(vips.inside(world, balancer, name))):
                said = (
                    f"{at}: {', '.join(inside)} is in the provider Network {name}, where nothing answers for it: serve"
                    " it by the Router whose gateway is there"
                )
                outcome.report("RouterNeeded", said)
        elif vip_router is not None and vip_router.leader == balancer.metadata.name:
            vips.plan_vip_router(network, vip_router, outcome)
        yield Ref("Logical_Switch", names.switch(namespace, name))


def _routers(world: World, balancer: LoadBalancer, outcome: Outcome) -> Iterator[Ref]:
    namespace = balancer.metadata.namespace
    for position, name in enumerate(balancer.spec.routers):
        router = world.get(Router, namespace, name)
        if router is None:
            outcome.report("RouterMissing", f"spec.routers[{position}]: Router {name} does not exist")
            continue
        yield Ref("Logical_Router", names.router(namespace, name))
        yield from (Ref("Logical_Switch", names.switch(namespace, port.network)) for port in router.spec.networks)


# VIPs and endpoints.


def _free(world: World, balancer: LoadBalancer, outcome: Outcome) -> Iterator[tuple[Vip, str]]:
    """Yield the VIPs that the balancer can have, with their addresses in canonical form."""
    for position, vip in enumerate(balancer.spec.vips):
        if (refused := vips.refusal(world, balancer, vip)) is not None:
            outcome.report(refused.reason, f"spec.vips[{position}].ip: {refused.message}")
        else:
            yield vip, addresses.canonical(vip.ip)


def _targets(world: World, balancer: LoadBalancer) -> list[Target]:
    namespace, spec = balancer.metadata.namespace, balancer.spec
    if spec.selector is not None:
        return [
            Target(ip.partition("/")[0], None, "spec.selector", port.network, port.name)
            for port in world.selected(namespace, spec.selector)
            for ip in port.ips
        ]
    found = []
    near = vips.networks(world, balancer)
    for position, endpoint in enumerate(spec.endpoints or ()):
        ip = addresses.canonical(endpoint.ip)
        network, attachment = "", ""
        if spec.health_check is not None:
            holders = ((one, vips.holder_of(world, namespace, one, ip)) for one in near)
            network, attachment = next(((one, holder) for one, holder in holders if holder), ("", ""))
        found.append(Target(ip, endpoint.port, f"spec.endpoints[{position}]", network, attachment))
    return found


def _check_families(balancer: LoadBalancer, targets: Sequence[Target], outcome: Outcome) -> None:
    """Report endpoints without a VIP of their family, and VIPs without an endpoint of theirs."""
    if balancer.spec.selector is not None:
        return  # Attachments may have addresses of both families; a VIP of one family is fine.
    families = {addresses.family(vip.ip) for vip in balancer.spec.vips}
    for target in targets:
        if target.version not in families:
            said = f"{target.at}.ip: {target.ip} is IPv{target.version}, and there is no VIP of that family"
            outcome.report("WrongFamily", said)
    have = {target.version for target in targets}
    for position, vip in enumerate(balancer.spec.vips):
        if have and addresses.family(vip.ip) not in have:
            said = f"spec.vips[{position}].ip: {vip.ip} has no endpoint of its family, IPv{addresses.family(vip.ip)}"
            outcome.report("WrongFamily", said)


def _backends(vip: Vip, ip: str, targets: Sequence[Target]) -> list[str]:
    version = addresses.family(ip)
    default = vip.target_port or vip.port
    return sorted({with_port(one.ip, one.port or default) for one in targets if one.version == version})


# Health checks.


def _health(
    world: World,
    balancer: LoadBalancer,
    ref: Ref,
    protocol: Protocol,
    served: dict[str, list[str]],
    targets: Sequence[Target],
    outcome: Outcome,
) -> tuple[list[Row], dict[str, str]]:
    """Return the health checks of a row, and the source address of the checks of each endpoint."""
    check = balancer.spec.health_check
    if check is None:
        return [], {}
    if protocol is Protocol.SCTP:
        outcome.report("Unsupported", "spec.healthCheck: OVN cannot check SCTP endpoints: they count as up")
        return [], {}
    families = {6 if vip.startswith("[") else 4 for vip in served}
    mappings = {}
    for target in targets:
        if target.version not in families:
            continue
        source = _source(world, balancer, target)
        if not isinstance(source, Problem):
            port = names.port(balancer.metadata.namespace, target.attachment)
            mappings[_bracketed(target.ip)] = f"{port}:{_bracketed(source)}"
        elif source not in outcome.problems:
            outcome.problems.append(source)
    options = {
        "interval": str(check.interval_seconds),
        "timeout": str(check.timeout_seconds),
        "success_count": str(check.success_count),
        "failure_count": str(check.failure_count),
    }
    return [Row(CHECK, f"{ref.key}:{vip}", {"vip": vip, "options": options}) for vip in served], mappings


def _source(world: World, balancer: LoadBalancer, target: Target) -> str | Problem:
    """Return the source address of the checks of an endpoint, or why it cannot be checked."""
    if not target.attachment:
        said = (
            f"{target.at}.ip: no attachment in the Networks served has {target.ip}, so its health cannot be checked"
            " and it counts as up"
        )
        return Problem("NotChecked", said)
    namespace = balancer.metadata.namespace
    if source := world.shared(vips.checker, namespace, target.network, target.version, target.ip):
        return source
    said = (
        f"spec.healthCheck: {target.ip} cannot be checked: that needs a free address in its Subnet of Network"
        f" {target.network}, and there is none"
    )
    return Problem("NotChecked", said)


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
