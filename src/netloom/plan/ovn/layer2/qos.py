"""Shapings as OVN's QoS rules.  Pure.

Each attachment that `from` selects gets rules, and so meters, of its own: a rate on a Network is the rate of each of
its attachments, not one that they share. A rule belongs to the attachment's switch and applies to what the attachment
sends to the other end; with direction `both` another one applies to what it receives from there. Meters count IP only,
so they never drop ARP. A Shaping of one attachment plans its rules itself. For a Shaping of many, each attachment plans
its own rules (`shares`), so that one more attachment costs one more set of rules.

A Router's port has rules like an attachment, at its peer port on the switch. Packets of a distributed router pass them
on the node of the machine that sends them, so each node has the rate for itself.
"""

from typing import NamedTuple

from msgspec import Struct, structs

from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network, Router
from netloom.model.kinds.paths import Direction, Place, Shaping
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.policy import matches
from netloom.plan.policy.shaping import bandwidth, impairment_problem, priority, rate_problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row
from netloom.plan.world.selector_index import SelectorIndex, index_by_selector
from netloom.plan.world.selector_matches import ScopedSelector, selector_in
from netloom.plan.world.world import Port, World


class Way(NamedTuple):
    """One of the two directions, as seen from the attachment."""

    name: str
    direction: str
    port: str
    end: str


FORWARD = Way("forward", "from-lport", "inport", "dst")
BACK = Way("back", "to-lport", "outport", "src")


def plan_shaping(world: World, shaping: Shaping) -> Outcome:
    """Plan a Shaping: the rules of a single attachment, and the address sets of its other end."""
    outcome, spec, namespace = Outcome(), shaping.spec, shaping.metadata.namespace
    _missing(world, namespace, spec.from_, "spec.from", outcome)
    if spec.to is not None:
        _missing(world, namespace, spec.to, "spec.to", outcome)
    if (problem := impairment_problem(world, shaping)) is not None:
        outcome.problems.append(problem)
    if (problem := rate_problem(world, shaping)) is not None:
        outcome.problems.append(problem)
    if not spec.rate:
        return outcome
    if _of_many(spec.to):
        key = f"{namespace}/{shaping.metadata.name}"
        outcome.rows += [Row(*_set(key, version), {"name": _set_name(key, version)}) for version in (4, 6)]
    port = world.port(namespace, spec.from_.attachment) if spec.from_.attachment else None
    share = _share(world, shaping)
    if port is not None and share is not None and port.ips and _carried(world, namespace, port.network):
        _apply(share, _attached(port), outcome)
    start = spec.from_
    if start.router and share is not None and _carried(world, namespace, start.network):
        _apply(share, _routed(world, namespace, start, outcome), outcome)
    return outcome


def shares(world: World, port: Port) -> Outcome:
    """Return an attachment's part in Shapings of many: its own rules, and its memberships in address sets."""
    scheme, outcome = world.shared(_scheme, port.namespace), Outcome()
    if scheme is None:
        return outcome
    own = {*scheme.by_network.get(port.network, ()), *scheme.by_node.get(port.node, ())}
    for share in sorted(own.union(scheme.selected.matching(port.labels))):
        _apply(share, _attached(port), outcome)
    sets = {*scheme.sets_by_node.get(port.node, ()), *scheme.sets.matching(port.labels)}
    for key in sorted(sets):
        for ip in (one.partition("/")[0] for one in port.ips):
            outcome.members.append(Member(_set(key, addresses.family(ip)), "addresses", ip))
    return outcome


def _carried(world: World, namespace: str, name: str) -> bool:
    network = world.get(Network, namespace, name)
    return network is not None and network.spec.fabric is Fabric.OVN and world.ungranted(network) is None


# Which attachments a Shaping applies to.


class Rule(NamedTuple):
    """An attachment's meter for one direction."""

    way: Way
    far: str
    """The match of the other end."""
    priority: int
    rate: int
    burst: int


class Share(NamedTuple):
    """The rules that each attachment has of a Shaping."""

    shaping: str
    rules: tuple[Rule, ...]


class Scheme(Struct, frozen=True):
    """The Shapings of many in a namespace, and the address sets of their other ends, by the Shaping's name."""

    by_network: dict[str, list[Share]]
    by_node: dict[str, list[Share]]
    selected: SelectorIndex[Share]
    sets_by_node: dict[str, list[str]]
    sets: SelectorIndex[str]


def _scheme(world: World, namespace: str) -> Scheme | None:
    """Return the Shapings of many in a namespace; None where there are none."""
    scheme = Scheme({}, {}, index_by_selector(()), {}, index_by_selector(()))
    selected: list[tuple[ScopedSelector, Share]] = []
    sets: list[tuple[ScopedSelector, str]] = []
    wide = False
    for shaping in world.all(Shaping, namespace):
        share = _share(world, shaping)
        if share is None:
            continue
        start, to, key = shaping.spec.from_, shaping.spec.to, f"{namespace}/{shaping.metadata.name}"
        wide = wide or not (start.attachment or start.router) or _of_many(to)
        if start.router:
            pass  # Its own plan has the rules.
        elif start.network:
            scheme.by_network.setdefault(start.network, []).append(share)
        elif start.node:
            scheme.by_node.setdefault(start.node, []).append(share)
        elif start.selector is not None:
            selected.append((selector_in(namespace, start.selector), share))
        if to is not None and to.node:
            scheme.sets_by_node.setdefault(to.node, []).append(key)
        elif to is not None and to.selector is not None:
            sets.append((selector_in(namespace, to.selector), key))
    return structs.replace(scheme, selected=index_by_selector(selected), sets=index_by_selector(sets)) if wide else None


def _share(world: World, shaping: Shaping) -> Share | None:
    """Return the rules of each attachment; None where the Shaping has no rate, or its other end matches nothing."""
    spec = shaping.spec
    if not spec.rate:
        return None
    rate, burst = bandwidth(spec)
    rules = []
    for way in (FORWARD, BACK) if spec.direction is Direction.BOTH else (FORWARD,):
        far = _far(world, shaping, way)
        if not far:
            return None
        rules.append(Rule(way, far, priority(spec, rate), rate, burst))
    return Share(shaping.metadata.name, tuple(rules))


def _far(world: World, shaping: Shaping, way: Way) -> str:
    """Return the match of the other end; "" where it matches nothing."""
    namespace, to = shaping.metadata.namespace, shaping.spec.to
    if to is None:
        return "ip"
    found: dict[int, list[str]] = {4: [], 6: []}
    if to.network:
        for subnet in world.subnets(namespace, to.network):
            found[addresses.family(subnet.spec.cidr)].append(str(addresses.interface(subnet.spec.cidr).network))
    elif to.attachment:
        port = world.port(namespace, to.attachment)
        for ip in (one.partition("/")[0] for one in (() if port is None else port.ips)):
            found[addresses.family(ip)].append(ip)
    else:
        for version in found:
            found[version].append(f"${_set_name(f'{namespace}/{shaping.metadata.name}', version)}")
    terms = [matches.addressed(version, way.end, sorted(values)) for version, values in found.items() if values]
    return matches.either(terms) if terms else ""


def _missing(world: World, namespace: str, place: Place, at: str, outcome: Outcome) -> None:
    """Report the objects that do not exist."""
    if place.attachment and world.port(namespace, place.attachment) is None:
        outcome.report("AttachmentMissing", f"{at}.attachment: NetworkAttachment {place.attachment} does not exist")
    if place.network and world.get(Network, namespace, place.network) is None:
        outcome.report("NetworkMissing", f"{at}.network: Network {place.network} does not exist")
    if place.router and world.get(Router, namespace, place.router) is None:
        outcome.report("RouterMissing", f"{at}.router: Router {place.router} does not exist")
    if place.node and world.get(Node, "", place.node) is None:
        outcome.report("NodeMissing", f"{at}.node: Node {place.node} does not exist")


# Address sets of the other end: one more attachment there does not change every rule.


def _of_many(place: Place | None) -> bool:
    return place is not None and bool(place.node or place.selector is not None)


def _set(key: str, version: int) -> Ref:
    return Ref("Address_Set", f"shaping/{key}:v{version}")


def _set_name(key: str, version: int) -> str:
    return names.symbol(f"to{version}", key)


# The rules.


class Metered(NamedTuple):
    """A port on a switch that rules apply to."""

    namespace: str
    network: str
    port: str
    """Its name on the switch."""
    key: str
    """What tells its rules from those of other ports."""


def _attached(port: Port) -> Metered:
    return Metered(port.namespace, port.network, names.port(port.namespace, port.name), port.name)


def _routed(world: World, namespace: str, place: Place, outcome: Outcome) -> Metered | None:
    """Return the port of a Router in a Network; None, and a problem, if it has none there."""
    router = world.get(Router, namespace, place.router)
    if router is None:
        return None
    gateway = router.spec.gateway
    has = {one.network for one in router.spec.networks} | ({gateway.network} if gateway is not None else set())
    if place.network not in has:
        outcome.report(
            "RouterPortMissing",
            f"spec.from: Router {place.router} has no port on Network {place.network}: name another",
        )
        return None
    port = names.peer_port(namespace, place.router, place.network)
    return Metered(namespace, place.network, port, f"{place.router}:{place.network}")


def _apply(share: Share, port: Metered | None, outcome: Outcome) -> None:
    """Add the rules of a port."""
    if port is None:
        return
    switch = Ref("Logical_Switch", names.switch(port.namespace, port.network))
    for rule in share.rules:
        columns: dict[str, Column] = {
            "direction": rule.way.direction,
            "priority": rule.priority,
            "match": f'{rule.way.port} == "{port.port}" && {rule.far}',
            "bandwidth": {"rate": rule.rate, "burst": rule.burst},
        }
        row = Row("QoS", f"{port.namespace}/{share.shaping}:{port.key}:{rule.way.name}", columns)
        outcome.add(row, switch, "qos_rules")
