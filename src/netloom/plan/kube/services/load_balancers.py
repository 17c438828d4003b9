"""Services and their EndpointSlices as LoadBalancers.  Pure.

A Service becomes one LoadBalancer for each address family: its VIPs are the Service's ports, its endpoints the pods.
Only where the endpoints of two ports differ is there one for each: a named target port may have another number in each
pod, and a pod may be in the slice of one port only. So an endpoint that comes or goes changes one LoadBalancer.

Which endpoints are used is kube-proxy's choice: those that are ready; if none is, those that still serve while they
terminate. A Service without endpoints has a LoadBalancer without endpoints, which refuses connections.

With `internalTrafficPolicy: Local` this is chosen on each node from its own endpoints. Where endpoints have hints, each
node uses those that are for it or for its zone, as kube-proxy does: then an endpoint is listed once for each node that
uses it. Hints by which some endpoint would be used nowhere are out of date, or odd, and are ignored.

Left alone: Services without a cluster IP (headless), with type ExternalName, and those with a label that tells every
proxy of the cluster to leave them alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from netloom.model.kinds.kubernetes import EndpointSlice, Service, ServicePort, SliceEndpoint
from netloom.model.kinds.policy import (
    Endpoint,
    ExternalAddress,
    ExternalTrafficPolicy,
    InternalTrafficPolicy,
    LoadBalancer,
    LoadBalancerSpec,
    Protocol,
    Vip,
)
from netloom.model.registry import LOAD_BALANCER
from netloom.model.values import addresses
from netloom.plan.kube import names
from netloom.plan.kube.blocks import BlockError, block
from netloom.plan.kube.planned import NOTHING, ClusterSettings, Planned, meta
from netloom.plan.problem import Problem

FAMILIES = {4: "IPv4", 6: "IPv6"}
OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
HEADLESS = "service.kubernetes.io/headless"
"""Labels of Services that every proxy of the cluster leaves alone."""
MOST_ENDPOINTS = 8192
MOST_VIPS = 64
MOST_EXTERNAL = 64
MOST_RANGES = 64
LONGEST_AFFINITY = 65535
"""The limits of a LoadBalancer. Kubernetes allows an affinity of a day; OVN ends it after 18 hours."""
REACHED_BY_PORT = ("NodePort", "LoadBalancer")
"""The types of Services that nodes serve at a port of their own."""
_PROTOCOLS = {"TCP": Protocol.TCP, "UDP": Protocol.UDP, "SCTP": Protocol.SCTP}


class Backend(NamedTuple):
    """An endpoint of one port of a Service."""

    ip: str
    port: int
    node: str = ""
    """The node whose clients use it; "": all."""


class _Part(NamedTuple):
    """Ports of a Service that have the same endpoints."""

    ports: tuple[tuple[ServicePort, int | None], ...]
    """Each with the number of its port in the endpoints; None: the endpoints have it."""
    endpoints: tuple[Endpoint, ...]


def plan_service(
    settings: ClusterSettings,
    service: Service,
    slices: Iterable[EndpointSlice],
    zones: Mapping[str, str] | None = None,
) -> Planned:
    """Return the LoadBalancers of a Service; `slices` are its EndpointSlices, `zones` those of all nodes ("": none)."""
    vips = cluster_ips(service)
    if not vips:
        return NOTHING
    problems: list[Problem] = []
    local = is_local(service, problems)
    ports = list(_ports(service, problems))
    given = tuple(slices)
    balancers = []
    for family, vip in vips.items():
        used = [(port, _used(service, given, port, family, zones, local=local, problems=problems)) for port in ports]
        for position, part in enumerate(_parts(used)):
            port = part.ports[0][0].name if position else ""
            name = names.service(service.metadata.namespace, service.metadata.name, family, port)
            balancers.append(_balancer(settings, service, name, vip, part, local=local, problems=problems))
    return Planned(objects=tuple(balancers), problems=tuple(dict.fromkeys(problems)))


def cluster_ips(service: Service) -> dict[int, str]:
    """Return the cluster IPs of a Service by family; {} where nothing is to be balanced."""
    spec, labels = service.spec, service.metadata.labels
    if spec.type == "ExternalName" or OTHER_PROXY in labels or HEADLESS in labels:
        return {}
    given = spec.cluster_ips or ((spec.cluster_ip,) if spec.cluster_ip else ())
    return {addresses.family(ip): ip for ip in reversed(given) if addresses.is_ip(ip)}


def is_local(service: Service, problems: list[Problem]) -> bool:
    """Return whether pods reach the endpoints of a Service on their own node only."""
    spec = service.spec
    if spec.internal_traffic_policy != "Local":
        return False
    outside = spec.external_ips or spec.type in REACHED_BY_PORT
    if outside and spec.external_traffic_policy != "Local":
        why = "connections from outside go through its cluster IP: set externalTrafficPolicy Local as well"
    elif spec.session_affinity == "ClientIP":
        why = "OVN has no session affinity for one node"
    else:
        return True
    problems.append(Problem("NotLocal", f"{_title(service)}: internalTrafficPolicy Local has no effect: {why}"))
    return False


def backends(
    slices: Iterable[EndpointSlice], port: ServicePort, *, family: int, local: bool = False
) -> frozenset[Backend]:
    """Return the endpoints that are used of a port: the ready ones, else those that serve while they terminate.

    With `local` they are chosen on each node by itself, and only endpoints on a node are.
    """
    ready: dict[str, set[Backend]] = {}
    serving: dict[str, set[Backend]] = {}
    for one, endpoint in _endpoints(slices, port, family):
        group = ready if _is_ready(endpoint) else serving if _is_serving(endpoint) else None
        node = endpoint.node_name if local else ""
        if group is not None and (node or not local):
            group.setdefault(node, set()).add(one._replace(node=node))
    return frozenset(one for some in (serving | ready).values() for one in some)


def has_hints(one: EndpointSlice) -> bool:
    """Whether endpoints of a slice say who should use them."""
    return any(endpoint.hints is not None for endpoint in one.endpoints)


def _used(
    service: Service,
    slices: Sequence[EndpointSlice],
    port: ServicePort,
    family: int,
    zones: Mapping[str, str] | None,
    *,
    local: bool,
    problems: list[Problem],
) -> list[Backend]:
    """Return the endpoints of a port, in order."""
    near = None if local or not zones else _near(service, slices, port, family, zones, problems)
    return _limited(service, near or backends(slices, port, family=family, local=local), problems)


def _near(
    service: Service,
    slices: Iterable[EndpointSlice],
    port: ServicePort,
    family: int,
    zones: Mapping[str, str],
    problems: list[Problem],
) -> frozenset[Backend] | None:
    """Return the endpoints of a port for each node, by their hints; None: every node uses all."""
    by_node = _hinted(slices, port, family, zones)
    if not by_node:
        return None
    count, said = sum(map(len, by_node.values())), ""
    if service.spec.session_affinity == "ClientIP":
        said = "OVN has no session affinity for one node"
    elif count > MOST_ENDPOINTS:
        said = f"{count} endpoints for {len(zones)} nodes are too many: at most {MOST_ENDPOINTS}"
    if said:
        problems.append(Problem("HintsIgnored", f"{_title(service)}: all nodes use all endpoints: {said}"))
        return None
    return frozenset(one._replace(node=node) for node, found in by_node.items() for one in found)


def _hinted(
    slices: Iterable[EndpointSlice], port: ServicePort, family: int, zones: Mapping[str, str]
) -> dict[str, Collection[Backend]]:
    """Return the endpoints that each node uses; {} where hints make no difference.

    As for kube-proxy, hints count only if every ready endpoint has them, and for a node with an endpoint by them.
    """
    of_node: dict[str, set[Backend]] = {}
    of_zone: dict[str, set[Backend]] = {}
    ready: set[Backend] = set()
    for_nodes = for_zones = True
    for one, endpoint in _endpoints(slices, port, family):
        if not _is_ready(endpoint):
            continue
        ready.add(one)
        nodes = endpoint.hints.for_nodes if endpoint.hints is not None else ()
        places = endpoint.hints.for_zones if endpoint.hints is not None else ()
        for_nodes, for_zones = for_nodes and bool(nodes), for_zones and bool(places)
        for hint in nodes:
            of_node.setdefault(hint.name, set()).add(one)
        for hint in places:
            of_zone.setdefault(hint.name, set()).add(one)
    if not ready or not (for_nodes or for_zones):
        return {}
    found: dict[str, Collection[Backend]] = {}
    for node, zone in zones.items():
        near = of_node.get(node) if for_nodes else None
        far = of_zone.get(zone) if for_zones and zone else None
        found[node] = near or far or ready
    used = {id(some): some for some in found.values()}
    if all(some == ready for some in used.values()) or set().union(*used.values()) != ready:
        return {}
    return found


def _endpoints(
    slices: Iterable[EndpointSlice], port: ServicePort, family: int
) -> Iterator[tuple[Backend, SliceEndpoint]]:
    """Yield the endpoints of a port."""
    for one in slices:
        if one.address_type != FAMILIES[family]:
            continue
        numbers = [
            given.port
            for given in one.ports
            if given.name == port.name and given.protocol == port.protocol and given.port and given.port < 65536
        ]
        for endpoint in one.endpoints if numbers else ():
            if ip := _address(endpoint, family):
                yield from ((Backend(ip, number), endpoint) for number in numbers)


def _is_ready(endpoint: SliceEndpoint) -> bool:
    return endpoint.conditions.ready is not False


def _is_serving(endpoint: SliceEndpoint) -> bool:
    return endpoint.conditions.serving is not False and endpoint.conditions.terminating is True


def _address(endpoint: SliceEndpoint, family: int) -> str:
    """Return the address of an endpoint: the first, as for every consumer; "" if it is not one of the family."""
    ip = endpoint.addresses[0] if endpoint.addresses else ""
    return ip if _is_of(ip, family) else ""


def _ports(service: Service, problems: list[Problem]) -> Iterator[ServicePort]:
    for port in service.spec.ports:
        if port.protocol in _PROTOCOLS:
            yield port
        else:
            said = f"{_title(service)}: port {port.port}: protocol {port.protocol!r:.64} cannot be balanced"
            problems.append(Problem("Unsupported", said))


def _limited(service: Service, found: frozenset[Backend], problems: list[Problem]) -> list[Backend]:
    """Return endpoints in order, at most as many as a LoadBalancer can have."""
    ordered = sorted(found)
    if len(ordered) > MOST_ENDPOINTS:
        said = f"{_title(service)} has {len(ordered)} endpoints: only {MOST_ENDPOINTS} of them are used"
        problems.append(Problem("TooManyEndpoints", said))
    return ordered[:MOST_ENDPOINTS]


def _parts(used: Sequence[tuple[ServicePort, list[Backend]]]) -> Iterator[_Part]:
    """Yield the ports in groups of the same endpoints, the group of the first port first."""
    groups: dict[tuple[object, ...], list[tuple[ServicePort, int | None, list[Backend]]]] = {}
    for port, found in used:
        numbers = {one.port for one in found}
        if len(numbers) > 1:
            groups["each", port.name] = [(port, None, found)]
            continue
        number = min(numbers, default=port.port)
        groups.setdefault(("same", *((one.ip, one.node) for one in found)), []).append((port, number, found))
    for (how, *_), members in groups.items():
        found = members[0][2]
        endpoints = tuple(Endpoint(ip=one.ip, port=one.port if how == "each" else None, node=one.node) for one in found)
        for first in range(0, len(members), MOST_VIPS):
            some = members[first : first + MOST_VIPS]
            yield _Part(tuple((port, number) for port, number, _ in some), endpoints)


def _balancer(
    settings: ClusterSettings,
    service: Service,
    name: str,
    vip: str,
    part: _Part,
    *,
    local: bool,
    problems: list[Problem],
) -> LoadBalancer:
    vips = tuple(
        Vip(
            ip=vip,
            port=port.port,
            protocol=_PROTOCOLS[port.protocol],
            target_port=None if number is None or number == port.port else number,
            node_port=port.node_port or None if service.spec.type in REACHED_BY_PORT else None,
        )
        for port, number in part.ports
    )
    near = local or any(one.node for one in part.endpoints)
    outside = tuple(external_addresses(service, addresses.family(vip), problems))
    spec = LoadBalancerSpec(
        networks=(names.NETWORK,),
        routers=(names.ROUTER,),
        vips=vips,
        endpoints=part.endpoints,
        affinity_seconds=_affinity(service, problems),
        internal_traffic_policy=InternalTrafficPolicy.LOCAL if near else InternalTrafficPolicy.CLUSTER,
        external_addresses=outside,
        external_traffic_policy=_policy(service) if outside or any(one.node_port for one in vips) else None,
    )
    labels = {names.OF_NAMESPACE: service.metadata.namespace}
    return LoadBalancer(
        api_version=LOAD_BALANCER.api_version,
        kind=LOAD_BALANCER.name,
        metadata=meta(settings, name, labels),
        spec=spec,
    )


def _policy(service: Service) -> ExternalTrafficPolicy:
    local = service.spec.external_traffic_policy == "Local"
    return ExternalTrafficPolicy.LOCAL if local else ExternalTrafficPolicy.CLUSTER


def external_addresses(service: Service, family: int, problems: list[Problem]) -> Iterator[ExternalAddress]:
    """Yield the addresses of a family at which nodes accept connections for a Service."""
    spec = service.spec
    found: dict[str, ExternalAddress] = {}
    if spec.type == "LoadBalancer":
        ranges = _source_ranges(service, problems)
        if spec.load_balancer_source_ranges and not ranges:
            return  # Nobody may use it.
        for one in service.status.load_balancer.ingress:
            if one.ip_mode != "Proxy" and _is_of(one.ip, family):
                found[one.ip] = ExternalAddress(ip=one.ip, source_ranges=ranges)
    for ip in spec.external_ips:
        if _is_of(ip, family):
            found[ip] = ExternalAddress(ip=ip)
    if len(found) > MOST_EXTERNAL:
        said = f"{_title(service)} has {len(found)} external addresses: only {MOST_EXTERNAL} of them are used"
        problems.append(Problem("TooManyAddresses", said))
    yield from list(found.values())[:MOST_EXTERNAL]


def _source_ranges(service: Service, problems: list[Problem]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in service.spec.load_balancer_source_ranges:
        try:
            found[str(block(text.strip()))] = None
        except BlockError as error:
            problems.append(Problem("NotABlock", f"{_title(service)}: spec.loadBalancerSourceRanges: {error}"))
    if len(found) > MOST_RANGES:
        said = f"{_title(service)} has {len(found)} source ranges: only {MOST_RANGES} of them may use it"
        problems.append(Problem("TooManyRanges", said))
    return tuple(sorted(found))[:MOST_RANGES]


def _is_of(ip: str, family: int) -> bool:
    return addresses.is_ip(ip) and addresses.family(ip) == family


def _affinity(service: Service, problems: list[Problem]) -> int:
    if service.spec.session_affinity != "ClientIP":
        return 0
    seconds = service.spec.session_affinity_config.client_ip.timeout_seconds
    if seconds > LONGEST_AFFINITY:
        said = f"{_title(service)}: session affinity lasts {LONGEST_AFFINITY} seconds, not {seconds}: OVN has no more"
        problems.append(Problem("AffinityTooLong", said))
    return max(1, min(seconds, LONGEST_AFFINITY))


def _title(service: Service) -> str:
    return f"Service {service.metadata.namespace}/{service.metadata.name}"
