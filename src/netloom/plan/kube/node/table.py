"""The nftables table of a node of a cluster: the ways between pods and everything outside.  Pure.

    prerouting ─┬─ not from nl-host ─► outside ── no client of it: drop
                │                         │ ──── policy local ─► local4-K ─► slot4-N: an endpoint here; or drop
                ▼                         ▼
    output ─► services ─┬─ hostPort ─► the pod, which is on this node
                        └─ nodePort, external address ─► the VIP, which OVN balances on the port of nl-host

    postrouting ── to a Service through nl-host: masquerade, so that the reply returns to this node
                ├─ from a pod to another through nl-host, by a hostPort: masquerade, for the same reason
                └─ from a pod, not to pods or Services: masquerade, because nobody else has a route to pods

Pods and the node itself reach a LoadBalancer of policy `local` as any other, by its VIP: only connections from outside
are limited to this node's endpoints, as with kube-proxy. Connections to 127.0.0.1 are left alone: their replies could
not return.

A Service is one element of a map for each of its ports and families, never a rule. What differs between LoadBalancers
of policy `local` is the number K of endpoints on this node: the chain `local4-K` chooses a number N below K, at random
or, with affinity, by the client's address (`sticky4-K`), and the chain `slot4-N` has the N-th endpoint of each. So the
number of rules grows with the largest K, which is less than the number of pods on a node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.policy import ExternalTrafficPolicy, LoadBalancer, Vip
from netloom.model.values import addresses
from netloom.plan.kube.names import HOST, HOST_DEVICE
from netloom.plan.kube.node import nftables
from netloom.plan.kube.node.host_ports import HostPort
from netloom.plan.kube.node.nftables import Chain, Expression, Hook, NamedSet, Rule, Table, element, rule
from netloom.plan.problem import Problem, Unit

TABLE = "netloom"
"""The name of the table, of family inet."""
MOST = 512
"""Endpoints of one LoadBalancer on a node; more than a node has pods. Others get no connections."""
SEED = 0x6E65746C
"""Of the hash that gives a client its endpoint: with another seed, every client would change its endpoint."""
FAMILIES = {4: "ip", 6: "ip6"}

PROTOCOL, PORT = nftables.meta("l4proto"), nftables.payload("th", "dport")
INPUT, OUTPUT = nftables.meta("iifname"), nftables.meta("oifname")
TO_THE_NODE = nftables.equal(
    Expression("fib daddr type", {"fib": {"result": "type", "flags": ["daddr"]}}), nftables.constant("local")
)
NODE_PORT, EXTERNAL = "node-port", "external"
HOST_PORT, EVERY_ADDRESS = "host-ports", "host-ports-any"


class ClusterNode(Struct, frozen=True, kw_only=True):
    """What the attachment of a node says of its cluster."""

    pods: tuple[str, ...]
    """The blocks of all pods."""
    services: tuple[str, ...]
    """The blocks of Services: all others that are routed into the Network of pods."""
    own: tuple[str, ...]
    """Blocks on this node: its slices of the pods' blocks, and its underlay address."""
    device: str = HOST_DEVICE
    """The node's own port in the Network of pods."""

    @property
    def families(self) -> tuple[int, ...]:
        """The address families of the cluster."""
        return tuple(sorted({addresses.family(one) for one in self.pods}))

    def has(self, ip: str) -> bool:
        """Whether an endpoint is on this node."""
        return any(addresses.within(ip, one) for one in self.own)


def is_host(attachment: NetworkAttachment) -> bool:
    """Whether an attachment is that of a node."""
    return attachment.metadata.labels.get(HOST) == "true"


def cluster_node(attachment: NetworkAttachment, underlay: str) -> ClusterNode | None:
    """Return what the attachment of a node says; None while it has no address.

    The routes are the source: what is routed into the Network of pods is inside of the cluster. The blocks with
    addresses of the node are those of pods.
    """
    slices = [str(addresses.interface(one).network) for one in attachment.status.ips]
    routes = [route.to for route in attachment.spec.routes if not route.to.endswith("/0")]
    pods = [to for to in routes if any(addresses.inside(one, to) for one in slices)]
    if not slices:
        return None
    return ClusterNode(
        pods=tuple(nftables.disjoint([*pods, *slices])),
        services=tuple(nftables.disjoint(to for to in routes if to not in pods)),
        own=(*sorted(slices), str(addresses.interface(f"{underlay}/{128 if ':' in underlay else 32}").network)),
        device=attachment.spec.port.name or HOST_DEVICE,
    )


class Planned(NamedTuple):
    """A planned table, and the parts of LoadBalancers that are not in it."""

    table: Table
    problems: Sequence[tuple[Unit, Problem]]


def plan_table(node: ClusterNode, balancers: Iterable[LoadBalancer], ports: Iterable[HostPort] = ()) -> Planned:
    """Return the table of a node; the order of LoadBalancers does not matter.

    Of `ports` that are the same, the first is used.
    """
    problems: list[tuple[Unit, Problem]] = []
    plans = {family: _Family(node, family, problems) for family in node.families}
    for balancer in sorted(balancers, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        if balancer.spec.external_traffic_policy is not None:
            for vip in sorted(balancer.spec.vips, key=lambda one: (one.ip, one.port, one.protocol)):
                if family := plans.get(addresses.family(vip.ip)):
                    family.add(balancer, vip)
    for port in ports:
        if family := plans.get(addresses.family(port.ip)):
            family.add_port(port)
    sets: dict[str, NamedSet] = {}
    chains: dict[str, Chain] = {}
    for plan in plans.values():
        sets |= plan.sets()
        chains |= plan.chains
    return Planned(Table(sets, chains | _base(node, plans)), problems)


def _base(node: ClusterNode, families: Mapping[int, "_Family"]) -> dict[str, Chain]:
    """Return the chains that every node has."""
    from_outside = nftables.differs(INPUT, nftables.device(node.device))
    into = nftables.equal(OUTPUT, nftables.device(node.device))
    # A packet that stays on the node keeps its address.
    out = nftables.differs(OUTPUT, nftables.device("lo", node.device))
    plans = list(families.values())
    return {
        "prerouting": Chain(
            (rule(from_outside, nftables.jump("outside")), rule(nftables.jump("services"))),
            Hook("nat", "prerouting", -100),
        ),
        "output": Chain((rule(nftables.jump("services")),), Hook("nat", "output", -100)),
        "outside": Chain(tuple(one for plan in plans for one in plan.outside())),
        "services": Chain(tuple(one for plan in plans for one in plan.services())),
        "postrouting": Chain(
            tuple(one for plan in plans for one in plan.postrouting(into, out)), Hook("nat", "postrouting", 100)
        ),
    }


class _Family:
    """What a node has of one address family."""

    def __init__(self, node: ClusterNode, family: int, problems: list[tuple[Unit, Problem]]) -> None:
        self.chains: dict[str, Chain] = {}
        self._node = node
        self._family = family
        self._problems = problems
        self._protocol = FAMILIES[family]
        self._source = nftables.payload(self._protocol, "saddr")
        self._destination = nftables.payload(self._protocol, "daddr")
        self._holders: dict[str, str] = {}
        """The LoadBalancers that have ports and external addresses, by the key of the element."""
        self._clusters: dict[str, dict[str, str]] = {NODE_PORT: {}, EXTERNAL: {}}
        self._verdicts: dict[str, dict[str, str]] = {NODE_PORT: {}, EXTERNAL: {}}
        self._endpoints: dict[str, list[dict[str, str]]] = {EXTERNAL: [], NODE_PORT: []}
        """By their number N. External addresses are looked up first: theirs is the longer key."""
        self._host_ports: dict[str, str] = {}
        self._every_address: dict[str, str] = {}
        """Those of each address of the node."""
        self._restricted: dict[str, str] = {}
        self._permitted: dict[str, str] = {}

    def add(self, balancer: LoadBalancer, vip: Vip) -> None:
        """Plan the ways from outside to a VIP."""
        external = {nftables.atom(one.ip): one for one in balancer.spec.external_addresses}
        ip = nftables.atom(vip.ip)
        if ip in external:
            return  # OVN serves it to pods; for nodes, the LoadBalancer has another VIP.
        ways: list[tuple[str, str]] = []
        if vip.node_port is not None:
            key = element(vip.protocol, vip.node_port)
            if self._takes(balancer, key, f"nodePort {vip.node_port}/{vip.protocol}"):
                ways.append((NODE_PORT, key))
        for address, one in sorted(external.items()):
            if addresses.family(address) != self._family:
                continue
            key = element(address, vip.protocol, vip.port)
            if not self._takes(balancer, key, f"external address {address}, port {vip.port}/{vip.protocol}"):
                continue
            ways.append((EXTERNAL, key))
            if one.source_ranges:
                self._restricted[key] = ""
                ranges = [found for found in one.source_ranges if addresses.family(found) == self._family]
                self._permitted |= {f"{key} . {element(found)}": "" for found in nftables.disjoint(ranges)}
        for way, key in ways:
            self._clusters[way][key] = element(ip, vip.port)
            if balancer.spec.external_traffic_policy is ExternalTrafficPolicy.LOCAL:
                self._localize(way, key, balancer, vip)

    def add_port(self, port: HostPort) -> None:
        """Plan the way from a port of the node to a pod; a port of one address precedes that of every address."""
        to = element(port.ip, port.target)
        if port.host:
            self._host_ports.setdefault(element(port.host, port.protocol, port.port), to)
        else:
            self._every_address.setdefault(element(port.protocol, port.port), to)

    def _takes(self, balancer: LoadBalancer, key: str, what: str) -> bool:
        """Whether a LoadBalancer gets a port or an external address: the first by name."""
        name = balancer.metadata.name
        holder = self._holders.setdefault(key, name)
        if holder == name and key not in self._clusters[NODE_PORT] and key not in self._clusters[EXTERNAL]:
            return True
        unit = Unit("LoadBalancer", balancer.metadata.namespace, name)
        owner = "another VIP of it" if holder == name else f"LoadBalancer {holder}"
        self._problems.append((unit, Problem("PortTaken", f"{what} belongs to {owner}: choose another")))
        return False

    def _localize(self, way: str, key: str, balancer: LoadBalancer, vip: Vip) -> None:
        """Send connections from outside to the endpoints on this node."""
        default = vip.target_port or vip.port
        found = sorted(
            {
                element(endpoint.ip, endpoint.port or default)
                for endpoint in balancer.spec.endpoints or ()
                if addresses.family(endpoint.ip) == self._family and self._node.has(endpoint.ip)
            }
        )
        if not found:
            self._verdicts[way][key] = "drop"
            return
        found = found[:MOST]
        for number, endpoint in enumerate(found):
            self._slot(number)
            self._endpoints[way][number][key] = endpoint
        self._verdicts[way][key] = f"goto {self._choice(len(found), sticky=balancer.spec.affinity_seconds > 0)}"

    def _choice(self, count: int, *, sticky: bool) -> str:
        """Return the chain that chooses one of some endpoints."""
        if count == 1:
            return self._slot(0)
        name = f"{'sticky' if sticky else 'local'}{self._family}-{count}"
        if name not in self.chains:
            number = nftables.hashed(self._source, count, SEED) if sticky else nftables.random(count)
            self.chains[name] = Chain((rule(nftables.choice(number, map(self._slot, range(count)))),))
        return name

    def _slot(self, number: int) -> str:
        """Return the chain of the endpoints with a number."""
        name = f"slot{self._family}-{number}"
        if name not in self.chains:
            rules = []
            for way, found in self._endpoints.items():
                found.append({})
                key = nftables.joined(*self._key(way))
                rules.append(rule(nftables.destination(self._protocol, key, self._name(f"{way}-slot{number}-v"))))
            self.chains[name] = Chain(tuple(rules))
        return name

    def _key(self, way: str) -> tuple[Expression, ...]:
        return (PROTOCOL, PORT) if way == NODE_PORT else (self._destination, PROTOCOL, PORT)

    def _name(self, what: str) -> str:
        return f"{what}{self._family}"

    def sets(self) -> dict[str, NamedSet]:
        """Return the sets and maps."""
        address, protocol, port = nftables.address_type(self._family), nftables.PROTOCOL_TYPE, nftables.PORT_TYPE
        keys = {NODE_PORT: (protocol, port), EXTERNAL: (address, protocol, port)}
        found = {
            "pods": NamedSet(key=(address,), interval=True, elements=self._blocks(self._node.pods)),
            "services": NamedSet(key=(address,), interval=True, elements=self._blocks(self._node.services)),
            "restricted": NamedSet(key=keys[EXTERNAL], elements=self._restricted),
            HOST_PORT: NamedSet(key=keys[EXTERNAL], data=(address, port), elements=self._host_ports),
            EVERY_ADDRESS: NamedSet(key=keys[NODE_PORT], data=(address, port), elements=self._every_address),
            "permitted": NamedSet(key=(*keys[EXTERNAL], address), interval=True, elements=self._permitted),
        }
        # An external address may be one of the node, where a nodePort of another LoadBalancer is looked up next.
        both = {one for one in self._clusters[EXTERNAL] if one.partition(" . ")[2] in self._verdicts[NODE_PORT]}
        verdicts = dict.fromkeys(both, "goto services") | self._verdicts[EXTERNAL]
        for way, key in keys.items():
            found[f"{way}s"] = NamedSet(key=key, data=(address, port), elements=self._clusters[way])
            found[f"{way}s-local"] = NamedSet(
                key=key, data=nftables.VERDICT, elements=verdicts if way == EXTERNAL else self._verdicts[way]
            )
            for number, elements in enumerate(self._endpoints[way]):
                found[f"{way}-slot{number}-v"] = NamedSet(key=key, data=(address, port), elements=elements)
        return {self._name(name): one for name, one in found.items()}

    def _blocks(self, blocks: Iterable[str]) -> dict[str, str]:
        return {element(one): "" for one in nftables.disjoint(blocks) if addresses.family(one) == self._family}

    def _to_the_node(self) -> tuple[Expression, ...]:
        loopback = nftables.block("127.0.0.0/8" if self._family == 4 else "::1")
        return (nftables.differs(self._destination, loopback), TO_THE_NODE)

    def outside(self) -> Iterable[Rule]:
        """Return the rules for connections from outside of the cluster."""
        external = nftables.joined(*self._key(EXTERNAL))
        clients = nftables.joined(*self._key(EXTERNAL), self._source)
        yield rule(
            nftables.equal(external, nftables.named(self._name("restricted"))),
            nftables.differs(clients, nftables.named(self._name("permitted"))),
            nftables.DROP,
        )
        yield rule(nftables.verdict(external, self._name("externals-local")))
        node_port = nftables.joined(*self._key(NODE_PORT))
        yield rule(*self._to_the_node(), nftables.verdict(node_port, self._name("node-ports-local")))

    def services(self) -> Iterable[Rule]:
        """Return the rules that lead to VIPs."""
        external, node_port = nftables.joined(*self._key(EXTERNAL)), nftables.joined(*self._key(NODE_PORT))
        # Only addresses of the node: a pod must not get what others send elsewhere.
        yield rule(TO_THE_NODE, nftables.destination(self._protocol, external, self._name(HOST_PORT)))
        yield rule(nftables.destination(self._protocol, external, self._name("externals")))
        yield rule(*self._to_the_node(), nftables.destination(self._protocol, node_port, self._name("node-ports")))
        yield rule(*self._to_the_node(), nftables.destination(self._protocol, node_port, self._name(EVERY_ADDRESS)))

    def postrouting(self, into: Expression, out: Expression) -> Iterable[Rule]:
        """Return the rules for sources."""
        pods, services = nftables.named(self._name("pods")), nftables.named(self._name("services"))
        yield rule(into, nftables.equal(self._destination, services), nftables.MASQUERADE)
        yield rule(
            into,
            nftables.equal(self._source, pods),
            nftables.equal(self._destination, pods),
            nftables.MASQUERADE,
        )
        yield rule(
            nftables.equal(self._source, pods),
            nftables.differs(self._destination, pods),
            nftables.differs(self._destination, services),
            out,
            nftables.MASQUERADE,
        )
