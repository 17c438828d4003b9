"""An overview of all objects and their problems.  Pure: the time is an argument.

An object is `ready`, `pending` (its controller has not processed its current spec) or `failed`. A problem names the
object and the obstacle; if several objects have the same cause, each has a problem of its own.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct

from netloom.model import registry
from netloom.model.document import Condition, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import BGPPeer, BGPSpeaker, EVPNNetwork, RemoteVTEP
from netloom.model.kinds.cluster import AGENT_SILENT_SECONDS, Node
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.paths import Mirror, Place, Shaping
from netloom.model.kinds.policy import LoadBalancer, SecurityProfile
from netloom.model.values.ages import age
from netloom.plan.audit import evpn
from netloom.plan.problem import Unit

READY, PENDING, FAILED = "ready", "pending", "failed"
LISTED: tuple[type[Resource], ...] = (*(kind.type for kind in registry.PLANNED), BGPPeer)
"""The kinds of an overview."""
FEW = 5
"""Up to this many objects with the same problem are listed one by one."""
PATIENCE_SECONDS = 10.0
"""How long an object may be pending before that is a problem."""


class Item(Struct, frozen=True, kw_only=True):
    """One object, as a line."""

    kind: str
    name: str
    state: str
    about: tuple[str, ...] = ()
    """Details, the most important first."""
    items: tuple["Item", ...] = ()


class ObjectProblem(Struct, frozen=True):
    """A problem of one object."""

    kind: str
    namespace: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}: {self.message}"


class Section(Struct, frozen=True):
    """The objects of one kind."""

    title: str
    items: tuple[Item, ...]


class Overview(Struct, frozen=True, kw_only=True):
    """All objects and problems."""

    problems: tuple[ObjectProblem, ...]
    nodes: tuple[Item, ...]
    namespaces: dict[str, tuple[Section, ...]]


def overview(resources: Iterable[Resource], now: datetime, namespace: str = "") -> Overview:
    """Return an overview of resources, which with a `namespace` are those of that namespace only."""
    every = sorted(resources, key=lambda one: (one.metadata.namespace, one.metadata.name))
    nodes = {one.metadata.name: one for one in every if isinstance(one, Node)}
    attachments = [one for one in every if isinstance(one, NetworkAttachment)]
    problems = [problem for one in every for problem in problems_of(one, nodes, now)]
    problems += _evpn_problems(every, now)
    rank = {kind: place for place, kind in enumerate(("Node", "Network", "Subnet", "Router"))}
    problems.sort(key=lambda one: (rank.get(one.kind, len(rank)), one.kind, one.namespace, one.name))
    spaces = sorted({one.metadata.namespace for one in every if one.metadata.namespace})
    return Overview(
        problems=tuple(problems),
        nodes=tuple(_node(one, attachments, now, namespace) for one in nodes.values()),
        namespaces={space: tuple(_sections(space, every)) for space in spaces},
    )


def state(one: Any) -> str:  # noqa: ANN401  # a resource of any kind that has a status
    """Return the state of an object: ready, pending or failed."""
    conditions: tuple[Condition, ...] = one.status.conditions
    generation = one.metadata.generation
    found = {condition.type: condition for condition in conditions}
    if any(found[name].status == "False" for name in ("Programmed", "Ready") if name in found):
        return FAILED
    ready = found.get("Ready")
    if isinstance(one, RemoteVTEP):
        return READY  # It has a condition only if there is a problem.
    if ready is None or ready.status != "True" or (ready.observed_generation or generation) < generation:
        return PENDING
    return READY


# Problems.


def problems_of(one: Resource, nodes: dict[str, Node], now: datetime) -> Iterator[ObjectProblem]:
    """Yield the problems of one object."""
    if one.metadata.deletion_timestamp:
        if _seconds(one.metadata.deletion_timestamp, now) > PATIENCE_SECONDS:
            waits = ", ".join(one.metadata.finalizers) or "the objects that use it"
            yield _problem(one, f"its deletion waits for {waits}")
        return
    if isinstance(one, BGPSpeaker | BGPPeer | EVPNNetwork):
        return  # They depend on each other: see `_evpn_problems`.
    special = list(_kind(one, nodes, now))
    nowhere = isinstance(one, NetworkAttachment) and bool(special)  # Without its Node it cannot be plugged.
    for words in dict.fromkeys([*(() if nowhere else _conditions(one, now)), *special]):
        yield _problem(one, words)


def _evpn_problems(every: list[Resource], now: datetime) -> Iterator[ObjectProblem]:
    """Yield the problems of speakers, peers and EVPNNetworks."""
    fresh = {
        Unit(one.kind, one.metadata.namespace, one.metadata.name)
        for one in every
        if isinstance(one, BGPSpeaker | BGPPeer | EVPNNetwork)
        and not one.status.conditions
        and _seconds(one.metadata.creation_timestamp or "", now) <= PATIENCE_SECONDS
    }
    for found in evpn.audit(one for one in every if not one.metadata.deletion_timestamp):
        if found.unit not in fresh:
            yield ObjectProblem(found.kind, found.namespace, found.name, found.message)


def gathered(problems: Iterable[ObjectProblem]) -> Iterator[str]:
    """Yield problems as text; many objects of a kind with the same problem share a line."""
    alike: dict[tuple[str, str], list[ObjectProblem]] = {}
    for problem in problems:
        alike.setdefault((problem.kind, problem.message), []).append(problem)
    for several in alike.values():
        if len(several) <= FEW:
            yield from map(str, several)
            continue
        first = several[0]
        where = f"{first.namespace}/{first.name}" if first.namespace else first.name
        yield f"{first.kind} {where} and {len(several) - 1} others: {first.message}"


def _problem(one: Resource, words: str) -> ObjectProblem:
    return ObjectProblem(one.kind, one.metadata.namespace, one.metadata.name, words)


def _conditions(one: Any, now: datetime) -> Iterator[str]:  # noqa: ANN401  # as above
    found = {condition.type: condition for condition in one.status.conditions}
    if found and state(one) == FAILED:
        bad = [condition for condition in found.values() if condition.status == "False"]
        # Ready summarizes the others: it is shown only if no other condition gives the reason.
        others = [condition for condition in bad if condition.type != "Ready"] or bad
        yield from (condition.message or f"{condition.type} is False ({condition.reason})" for condition in others)
    elif state(one) == PENDING and _seconds(one.metadata.creation_timestamp, now) > PATIENCE_SECONDS:
        waiting = next((c for c in found.values() if c.status == "Unknown" and c.message), None)
        yield waiting.message if waiting else "no controller has processed its current spec: check that one runs"


def _kind(one: Resource, nodes: dict[str, Node], now: datetime) -> Iterator[str]:
    match one:
        case Node():
            silent = _silent(one, now)
            if silent is not None:
                yield f"its agent sent its last heartbeat {silent} ago"
        case Subnet():
            status = one.status
            yield from status.errors if not status.validated else ()
            if status.capacity is not None and status.used is not None and status.used >= status.capacity:
                yield f"all of its {status.capacity} addresses are in use"
        case NetworkAttachment() if one.spec.node not in nodes:
            yield f"there is no Node {one.spec.node}"
        case Router() if one.spec.gateway is not None and not one.status.gateway_node and state(one) == READY:
            yield "its gateway is on no node"
        case LoadBalancer() if one.status.endpoints_down:
            down, whole = one.status.endpoints_down, one.status.endpoints_up + one.status.endpoints_down
            yield f"{down} of {whole} endpoints {'does' if down == 1 else 'do'} not answer"
        case Shaping():
            for unsupported in one.status.unsupported:
                yield f"{unsupported.field} has no effect: {unsupported.reason}"


def _silent(one: Node, now: datetime) -> str | None:
    """Return the time since an agent's last heartbeat, if that is too long."""
    if not one.status.last_heartbeat:
        return None
    seconds = _seconds(one.status.last_heartbeat, now)
    return age(seconds) if seconds > AGENT_SILENT_SECONDS else None


def _seconds(stamp: str, now: datetime) -> float:
    try:
        return (now - datetime.fromisoformat(stamp)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


# Objects.


def _node(one: Node, attachments: list[NetworkAttachment], now: datetime, namespace: str) -> Item:
    mine = sum(attachment.spec.node == one.metadata.name for attachment in attachments)
    silent = _silent(one, now)
    datapath = one.status.datapath.value if one.status.datapath else ""
    count = f"{mine} attachment{'s' * (mine != 1)}" + (f" in {namespace}" if namespace else "")
    about = (one.spec.underlay_ip, datapath, count, f"no heartbeat for {silent}" if silent else "")
    return _item(one, *about, failed=bool(silent))


def _sections(namespace: str, every: list[Resource]) -> Iterator[Section]:
    mine = [one for one in every if one.metadata.namespace == namespace]
    networks = [_network(one, mine) for one in mine if isinstance(one, Network)]
    known = {one.name for one in networks}
    strays = [
        _item(one, f"names Network {one.spec.network}, which does not exist", failed=True)
        for one in mine
        if isinstance(one, NetworkAttachment | Subnet) and one.spec.network not in known
    ]
    sections = (
        Section("Networks", tuple(networks)),
        Section("Without a Network", tuple(strays)),
        Section("Routers", tuple(_router(one) for one in mine if isinstance(one, Router))),
        Section("Security profiles", tuple(_profile(one) for one in mine if isinstance(one, SecurityProfile))),
        Section("Load balancers", tuple(_balancer(one) for one in mine if isinstance(one, LoadBalancer))),
        Section("Shapings", tuple(_shaping(one) for one in mine if isinstance(one, Shaping))),
        Section("BGP speakers", tuple(_speakers(mine))),
        Section("EVPN networks", tuple(_evpn_networks(mine))),
        Section("Mirrors", tuple(_mirror(one) for one in mine if isinstance(one, Mirror))),
    )
    yield from (section for section in sections if section.items)


def _item(one: Resource, *about: str, failed: bool = False, items: tuple[Item, ...] = ()) -> Item:
    """Return an object as a line, with those of the details that are not empty."""
    found = FAILED if failed else state(one)
    return Item(kind=one.kind, name=one.metadata.name, state=found, about=tuple(filter(None, about)), items=items)


def _network(one: Network, mine: list[Resource]) -> Item:
    name = one.metadata.name
    subnets = [_subnet(s) for s in mine if isinstance(s, Subnet) and s.spec.network == name]
    attachments = [a for a in mine if isinstance(a, NetworkAttachment) and a.spec.network == name]
    on = {
        node: tuple(_attachment(a) for a in attachments if a.spec.node == node)
        for node in sorted({a.spec.node for a in attachments})
    }
    nodes = [Item(kind="Node", name=f"on {node}", state=READY, items=items) for node, items in on.items()]
    provider = one.spec.provider
    physical = ""
    if provider is not None:
        physical = f"on {provider.physical_network}" + (f", VLAN {provider.vlan}" if provider.vlan else "")
    vni = f"VNI {one.status.vni}" if one.status.vni else ""
    fabric = "" if one.spec.fabric.value == "ovn" else f"fabric {one.spec.fabric.value}"
    return _item(one, vni, fabric, physical, items=(*subnets, *nodes))


def _subnet(one: Subnet) -> Item:
    status = one.status
    used = ""
    if status.used is not None and status.capacity is not None:
        capacity = str(status.capacity) if status.capacity < 1 << 32 else "very many"
        used = f"{status.used} of {capacity} used"
    dhcp = "DHCP" if one.spec.dhcp is not None and one.spec.dhcp.enabled else ""
    return _item(one, one.spec.cidr, used, dhcp)


def _attachment(one: NetworkAttachment) -> Item:
    ips = " ".join(ip.partition("/")[0] for ip in one.status.ips) or "no address yet"
    port = one.spec.port
    where = f"VLAN {port.vlan} of {port.parent}" if port.parent else one.status.ifc_name
    return _item(one, ips, where)


def _router(one: Router) -> Item:
    joins = "joins " + ", ".join(port.network for port in one.spec.networks) if one.spec.networks else ""
    gateway = one.spec.gateway
    way_out = ""
    if gateway is not None:
        ips = ", ".join(ip.partition("/")[0] for ip in gateway.ips)
        way_out = f"external network {gateway.network} as {ips}, gateway on {one.status.gateway_node or 'no node'}"
    nat = f"{len(one.spec.nat)} NAT rule{'s' * (len(one.spec.nat) != 1)}" if one.spec.nat else ""
    return _item(one, joins, way_out, nat)


def _profile(one: SecurityProfile) -> Item:
    covers = f"covers {one.status.ports} port{'s' * (one.status.ports != 1)}"
    sides = (("ingress", one.spec.ingress), ("egress", one.spec.egress))
    rules = [
        f"{name} {'open' if some is None else f'{len(some)} rule' + 's' * (len(some) != 1)}" for name, some in sides
    ]
    return _item(one, covers, *rules)


def _balancer(one: LoadBalancer) -> Item:
    pairs = ((f"[{vip.ip}]" if ":" in vip.ip else vip.ip, vip) for vip in one.spec.vips)
    vips = ", ".join(f"{ip}:{vip.port}/{vip.protocol.value}" for ip, vip in pairs)
    ends = f"{one.status.endpoints_up} endpoints up, {one.status.endpoints_down} down"
    where = "in " + ", ".join((*one.spec.networks, *one.spec.routers))
    return _item(one, vips, ends, where, failed=one.status.endpoints_down > 0 and state(one) == READY)


def _shaping(one: Shaping) -> Item:
    applied = one.status.applied
    fields = ("rate", "burst", "delay", "jitter", "loss")
    asked = ", ".join(f"{name} {getattr(one.spec, name)}" for name in fields if getattr(one.spec, name))
    way = f"from {_place(one.spec.from_)}" + (f" to {_place(one.spec.to)}" if one.spec.to else "")
    both = "" if one.spec.direction.value == "forward" else "and back"
    force = "" if applied is not None else "not applied"
    return _item(one, f"{way} {both}".rstrip(), asked, force, failed=bool(one.status.unsupported))


def _mirror(one: Mirror) -> Item:
    source = one.spec.source
    what = f"network {source.network}" if source.network else source.attachment
    way = f"copies {what} to {one.spec.destination.attachment}"
    return _item(one, way, one.spec.direction.value)


def _speakers(mine: list[Resource]) -> Iterator[Item]:
    peers = [one for one in mine if isinstance(one, BGPPeer)]
    speakers = [one for one in mine if isinstance(one, BGPSpeaker)]
    for one in speakers:
        sessions = f"{one.status.established} of {one.status.peers} sessions established"
        items = tuple(_peer(peer) for peer in peers if peer.spec.speaker == one.metadata.name)
        yield _item(one, f"AS {one.spec.asn}", one.spec.router_id, f"on {one.spec.node}", sessions, items=items)
    known = {one.metadata.name for one in speakers}
    for peer in peers:
        if peer.spec.speaker not in known:
            yield _item(peer, f"names BGPSpeaker {peer.spec.speaker}, which does not exist", failed=True)


def _peer(one: BGPPeer) -> Item:
    state = one.status.state.value if one.status.state is not None else ""
    routes = f"{one.status.received} routes received, {one.status.sent} sent" if state == "Established" else ""
    return _item(one, one.spec.address, f"AS {one.spec.remote_asn}", state, routes)


def _evpn_networks(mine: list[Resource]) -> Iterator[Item]:
    networks = [one for one in mine if isinstance(one, EVPNNetwork)]
    vteps = [one for one in mine if isinstance(one, RemoteVTEP)]
    waiting = evpn.standby(networks)
    for one in networks:
        status, key = one.status, (one.metadata.namespace, one.metadata.name)
        vni = f"VNI {status.vni}" if status.vni is not None else ""
        items = tuple(_remote_vtep(vtep) for vtep in vteps if vtep.spec.evpn_network == one.metadata.name)
        counts = f"{status.local_macs} local and {status.remote_macs} remote MACs"
        found = _item(one, f"extends {one.spec.network}", vni, f"by {one.spec.speaker}", counts, items=items)
        if key in waiting:
            about = (*found.about[:-1], "on standby")
            found = Item(kind=found.kind, name=found.name, state=READY, about=about, items=items)
        yield found
    known = {one.metadata.name for one in networks}
    for vtep in vteps:
        if vtep.spec.evpn_network not in known:
            yield _item(vtep, f"names EVPNNetwork {vtep.spec.evpn_network}, which does not exist", failed=True)


def _remote_vtep(one: RemoteVTEP) -> Item:
    count = f"{len(one.spec.macs)} MAC{'s' * (len(one.spec.macs) != 1)}"
    return _item(one, one.spec.address, f"VNI {one.spec.vni}", count, "takes broadcasts" if one.spec.flood else "")


def _place(one: Place) -> str:
    if one.selector is not None:
        return "selected attachments"
    if one.router:
        return f"router {one.router} on network {one.network}"
    word = "" if one.attachment else "network " if one.network else "node "
    return word + (one.attachment or one.network or one.node)
