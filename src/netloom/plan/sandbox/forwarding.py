"""The ways of packets between machines, computed from the objects of a namespace alone.  Pure.

    machine: longest route -> port security -> egress of its SecurityProfiles
      -> Network: the machine or router that has the next hop
      -> Router: own address? longest route -> policies -> next Network, and so on
      -> machine: ingress of its SecurityProfiles

A machine is a network namespace of a Node, or what else has attachments of its own. Where an object leaves several
outcomes open (a rule for some ports only), packets are taken to pass: this module looks for leaks. LoadBalancers open
no way that routes do not, and are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment, PortType
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import PolicyAction, RouterPolicy, SecurityProfile
from netloom.model.values import addresses
from netloom.model.values.addresses import Interface
from netloom.plan.node.ports import gateway
from netloom.plan.ovn.layer3.router_ports import requested_addresses
from netloom.plan.sandbox.blocks import Blocks, Ip, containing, ip_of
from netloom.plan.sandbox.firewalls import Firewalls

MOST_HOPS = 64


class Link(Struct, frozen=True, kw_only=True):
    """The interface of a machine in a Network."""

    attachment: str
    network: str
    ips: tuple[Interface, ...]
    sources: frozenset[Ip]
    """What it may send from."""
    profiles: tuple[str, ...]
    """The SecurityProfiles that apply to it."""

    first: dict[int, Ip]
    """Its first address of each family."""
    is_down: bool


class Next(NamedTuple):
    """Where a route leads."""

    network: str
    via: Ip | None
    """The next hop; None: the destination itself."""
    link: int = 0
    """The number of a machine's link."""


class Machine(Struct, frozen=True, kw_only=True):
    """What sends and receives, and forwards nothing."""

    name: str
    members: tuple[NetworkAttachment, ...]
    links: tuple[Link, ...]
    routes: Blocks[Next]


class RouterNode(Struct, frozen=True, kw_only=True):
    """A Router."""

    name: str
    own: frozenset[Ip]
    routes: Blocks[Next]
    policies: tuple[tuple[RouterPolicy, Callable[[Ip, Ip], bool]], ...]
    """By priority, the highest first, each with whether it matches a source and a destination."""
    down: frozenset[str]
    """The Networks to which its link is down."""


class Way(Struct, frozen=True, kw_only=True):
    """The way of a packet."""

    hops: tuple[str, ...] = ()
    """The Routers that it passes."""
    machine: Machine | None = None
    """Where it arrives."""
    link: int = 0
    router: str = ""
    """The Router that it is for."""
    is_outside: bool = False
    """Whether it leaves for a network that is not known here."""
    reason: str = ""
    """Why it does not arrive."""


class Trip(Struct, frozen=True, kw_only=True):
    """A packet's way to an address, and whether an answer comes back."""

    source: Ip | None = None
    """The address that it is sent from."""
    hops: tuple[str, ...] = ()
    passes: bool = False
    """Whether it arrives."""
    returns: bool = False
    """Whether an answer comes back, too."""
    is_outside: bool = False
    """Whether it leaves for a network that is not known here, which is taken to answer."""
    reason: str = ""

    @property
    def answers(self) -> bool:
        """Whether a machine or router of these objects answers."""
        return self.returns and not self.is_outside


class Forwarding:
    """Ways of packets among the objects of one namespace."""

    def __init__(self, objects: Iterable[Resource]) -> None:
        networks: dict[str, Network] = {}
        attachments: dict[str, NetworkAttachment] = {}
        routers: dict[str, Router] = {}
        profiles: dict[str, SecurityProfile] = {}
        self._subnets: dict[str, list[Subnet]] = {}
        self.outside: set[str] = set()
        """The Networks that reach beyond these objects."""
        self.blocks = Blocks[bool]()
        """The blocks of all Subnets."""
        for one in sorted(objects, key=lambda one: (one.kind, one.metadata.name)):
            match one:
                case Network():
                    networks[one.metadata.name] = one
                    if one.spec.provider is not None:
                        self.outside.add(one.metadata.name)
                case EVPNNetwork():
                    self.outside.add(one.spec.network)
                case Subnet() if addresses.is_block(one.spec.cidr):
                    self._subnets.setdefault(one.spec.network, []).append(one)
                    self.blocks.add(one.spec.cidr, True)
                case Router():
                    routers[one.metadata.name] = one
                case SecurityProfile():
                    profiles[one.metadata.name] = one
                case NetworkAttachment():
                    attachments[one.metadata.name] = one
                case _:
                    pass
        self._attachments = attachments
        self._firewalls = Firewalls(profiles)
        self._owners: dict[tuple[str, Ip], RouterNode | tuple[Machine, int]] = {}
        self._routed: dict[tuple[str, Ip, Ip | None], Way] = {}
        self.routers = {name: self._router(one) for name, one in routers.items()}
        self._by_source = any(policy.from_ for one in self.routers.values() for policy, _ in one.policies)
        self._routers_on: dict[str, list[RouterNode]] = {}
        for name, one in routers.items():
            for port in one.spec.networks:
                self._routers_on.setdefault(port.network, []).append(self.routers[name])
        self.machines = list(self._machines())

    # Building.

    def _router(self, router: Router) -> RouterNode:
        spec, table, near = router.spec, Blocks[Next](), Blocks[str]()
        ports = [
            (port.network, addresses.interface(one.text))
            for position, port in enumerate(spec.networks)
            for one in requested_addresses(port, self._subnets.get(port.network, ()), f"spec.networks[{position}]")
            if addresses.is_cidr(one.text)
        ]
        outer = spec.gateway
        if outer is not None:
            ports += [(outer.network, addresses.interface(one)) for one in outer.ips if addresses.is_cidr(one)]
            self.outside.add(outer.network)
        for network, one in ports:
            table.add(str(one.network), Next(network, None))
            near.add(str(one.network), network)
        routes = [(route.to, route.via) for route in spec.routes if addresses.is_cidr(route.to)]
        if outer is not None and outer.next_hop:
            routes.insert(0, ("::/0" if ":" in outer.next_hop else "0.0.0.0/0", outer.next_hop))
        for to, via in routes:
            if addresses.is_ip(via) and (there := near.find(ip_of(via))) is not None:
                table.add(to, Next(there, ip_of(via)))
        node = RouterNode(
            name=router.metadata.name,
            own=frozenset(Ip(one.version, int(one.ip)) for _, one in ports),
            routes=table,
            policies=tuple(
                (one, _matcher(one)) for one in sorted(spec.policies, key=lambda one: (-one.priority, repr(one)))
            ),
            down=frozenset(port.network for port in spec.networks if port.link_down),
        )
        for network, one in ports:
            self._owners.setdefault((network, Ip(one.version, int(one.ip))), node)
        return node

    def _machines(self) -> Iterator[Machine]:
        groups: dict[tuple[str, str], list[NetworkAttachment]] = {}
        for one in self._attachments.values():
            groups.setdefault(self._place(one), []).append(one)
        for (node, path), members in sorted(groups.items()):
            members.sort(key=lambda one: (_natural(one.spec.port.name), one.metadata.name))
            links = tuple(map(self._link, members))
            machine = Machine(
                name=path.rpartition("/")[2] or f"Node {node}",
                members=tuple(members),
                links=links,
                routes=self._machine_routes(members, links),
            )
            for position, link in enumerate(links):
                for ip in link.ips:
                    self._owners.setdefault((link.network, Ip(ip.version, int(ip.ip))), (machine, position))
            yield machine

    def _place(self, one: NetworkAttachment) -> tuple[str, str]:
        """Return what distinguishes machines: the Node and a path there, or the attachment."""
        port = one.spec.port
        parent = self._attachments.get(port.parent)
        if port.type is PortType.CHILD and parent is not None and parent.spec.port.type is not PortType.CHILD:
            return self._place(parent)
        if port.type is PortType.VETH:
            return one.spec.node, port.netns
        return (one.spec.node, "") if port.type is PortType.INTERNAL else ("", one.metadata.name)

    def _link(self, one: NetworkAttachment) -> Link:
        subnets = self._subnets.get(one.spec.network, ())
        ips = [ip for ip in one.status.ips if addresses.is_cidr(ip)]
        for text in one.spec.ips if not ips else ():
            blocks = [s.spec.cidr for s in subnets if addresses.is_ip(text) and addresses.within(text, s.spec.cidr)]
            ips += [f"{text}/{addresses.interface(block).network.prefixlen}" for block in blocks[:1]]
        own = tuple(addresses.interface(ip) for ip in ips)
        allowed = (ip_of(text) for text in one.spec.allowed_addresses if addresses.is_ip(text))
        sources = frozenset((*(Ip(ip.version, int(ip.ip)) for ip in own), *allowed))
        return Link(
            attachment=one.metadata.name,
            network=one.spec.network,
            ips=own,
            sources=sources,
            profiles=self._firewalls.add(one, sources),
            first={ip.version: Ip(ip.version, int(ip.ip)) for ip in reversed(own)},
            is_down=one.spec.link_down,
        )

    def _machine_routes(self, members: Sequence[NetworkAttachment], links: Sequence[Link]) -> Blocks[Next]:
        table = Blocks[Next]()
        for position, link in enumerate(links):
            for ip in link.ips:
                table.add(str(ip.network), Next(link.network, None, position))
        for position, (one, link) in enumerate(zip(members, links, strict=True)):
            routes = [(route.to, route.via) for route in one.spec.routes]
            if one.spec.default_route:
                mine = [
                    subnet
                    for subnet in self._subnets.get(link.network, ())
                    if any(ip.ip in addresses.block(subnet.spec.cidr) for ip in link.ips)
                ]
                routes += [("::/0" if ":" in subnet.spec.cidr else "0.0.0.0/0", gateway(subnet)) for subnet in mine]
            for to, via in routes:
                if addresses.is_cidr(to) and addresses.is_ip(via):
                    table.add(to, Next(link.network, ip_of(via), position))
        return table

    # Ways.

    def _way(self, network: str, hop: Ip, src: Ip, dst: Ip) -> Way:
        """Return the way of a packet that somebody sends to a next hop in a Network."""
        owner = self._owners.get((network, hop))
        if owner is None:
            if network in self.outside:
                return Way(is_outside=True)
            return Way(reason=f"nobody has {hop} in Network {network}")
        if isinstance(owner, RouterNode):
            if network in owner.down:
                return Way(reason=f"the link of {owner.name} to Network {network} is down")
            return self._through(owner, src, dst)
        machine, link = owner
        if machine.links[link].is_down:
            return Way(reason=f"the link of {machine.name} to Network {network} is down")
        if hop != dst:
            return Way(reason=f"{machine.name} does not forward")
        return Way(machine=machine, link=link)

    def _through(self, router: RouterNode, src: Ip, dst: Ip) -> Way:
        key = router.name, dst, src if self._by_source else None
        known = self._routed.get(key)
        if known is None:
            known = self._routed[key] = self._routed_way(router, src, dst)
        return known

    def _routed_way(self, router: RouterNode, src: Ip, dst: Ip) -> Way:
        hops: list[str] = []
        while len(hops) < MOST_HOPS:
            hops.append(router.name)
            if dst in router.own:
                return Way(hops=tuple(hops), router=router.name)
            found = _next(router, src, dst)
            if isinstance(found, str):
                return Way(hops=tuple(hops), reason=found)
            hop = found.via or dst
            if found.network in router.down:
                return Way(hops=tuple(hops), reason=f"the link of {router.name} to Network {found.network} is down")
            owner = self._owners.get((found.network, hop))
            if not isinstance(owner, RouterNode) or found.network in owner.down:
                end = self._way(found.network, hop, src, dst)
                return Way(
                    hops=tuple(hops),
                    machine=end.machine,
                    link=end.link,
                    is_outside=end.is_outside,
                    reason=end.reason,
                )
            router = owner
        return Way(hops=tuple(hops), reason="the routers send it in a circle")

    def _sent(self, machine: Machine, dst: Ip, src: Ip | None = None) -> tuple[Way, Ip | None, int]:
        """Return the way of a packet that a machine sends, its source, and the link that it leaves by."""
        found = machine.routes.find(dst)
        if found is None:
            return Way(reason=f"{machine.name} has no route"), src, 0
        link = machine.links[found.link]
        if link.is_down:
            return Way(reason=f"the link of {machine.name} to Network {link.network} is down"), src, found.link
        own = src or link.first.get(dst.version)
        if own is None or own not in link.sources:
            text = f"{machine.name} sends it to Network {link.network}, from an address of another"
            return Way(reason=f"{text}: port security drops it"), own, found.link
        return self._way(link.network, found.via or dst, own, dst), own, found.link

    def trip(self, source: Machine, dst: Ip) -> Trip:
        """Return the way of a new connection from a machine to an address, and of its answers, by their own routes."""
        way, src, link = self._sent(source, dst)
        return self._complete(way, src, dst, source.links[link] if source.links else None)

    def attempts(self, source: Machine, dst: Ip) -> Iterator[Trip]:
        """Yield what a machine that sets its own routes can try: each router and machine of its Networks."""
        for link in source.links:
            src = link.first.get(dst.version)
            if src is None or link.is_down:
                continue
            if (link.network, dst) in self._owners:
                yield self._complete(self._way(link.network, dst, src, dst), src, dst, link)
            for router in self._routers_on.get(link.network, ()):
                if link.network in router.down:
                    continue
                yield self._complete(self._through(router, src, dst), src, dst, link)

    def from_router(self, router: RouterNode, dst: Ip) -> Trip:
        """Return the way of a new connection that enters at a router, from its own address."""
        src = min((one for one in router.own if one.version == dst.version), default=None)
        if src is None:
            return Trip(hops=(router.name,), reason=f"{router.name} has no address of that family")
        return self._complete(self._through(router, src, dst), src, dst, None)

    def comes_back(self, trip: Trip, dst: Ip) -> bool:
        """Whether an answer from outside to a packet that left at the last router of its way reaches the sender."""
        router = self.routers.get(trip.hops[-1]) if trip.hops else None
        return router is not None and trip.source is not None and not self._through(router, dst, trip.source).reason

    def _complete(self, way: Way, src: Ip | None, dst: Ip, link: Link | None) -> Trip:
        if way.reason or src is None:
            return Trip(source=src, hops=way.hops, reason=way.reason)
        if link is not None and not self._firewalls.allow(link.profiles, dst, egress=True):
            return Trip(source=src, reason=f"a SecurityProfile of {link.attachment} drops it")
        if way.machine is None:
            return Trip(source=src, hops=way.hops, passes=True, returns=True, is_outside=way.is_outside)
        there = way.machine.links[way.link]
        if not self._firewalls.allow(there.profiles, src, egress=False):
            return Trip(source=src, hops=way.hops, reason=f"a SecurityProfile of {there.attachment} drops it")
        back, _, _ = self._sent(way.machine, src, dst)
        reason = f"no answer: {back.reason}" if back.reason else ""
        return Trip(source=src, hops=way.hops, passes=True, returns=not reason, reason=reason)


def _next(router: RouterNode, src: Ip, dst: Ip) -> Next | str:
    """Return where a router sends a packet, or why it drops it."""
    found = router.routes.find(dst)
    if found is None:
        return f"{router.name} has no route"
    for policy, matches in router.policies:
        # A policy for some ports leaves others alone: it lets packets pass, and drops none of the rest.
        if policy.ports and policy.action is not PolicyAction.ALLOW:
            continue
        if not matches(src, dst):
            continue
        if policy.action is PolicyAction.DROP:
            return f"a policy of {router.name} drops it"
        if policy.action is PolicyAction.REROUTE:
            hops = [ip_of(text) for text in policy.via if addresses.is_ip(text)]
            near = router.routes.find(hops[0]) if hops else None
            return f"{router.name} has no route to {policy.via}" if near is None else Next(near.network, hops[0])
        break
    return found


def _matcher(policy: RouterPolicy) -> Callable[[Ip, Ip], bool]:
    comes, goes = containing(policy.from_), containing(policy.to)
    return lambda src, dst: (not policy.from_ or comes(src)) and (not policy.to or goes(dst))


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key by which eth10 comes after eth9."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", name))
