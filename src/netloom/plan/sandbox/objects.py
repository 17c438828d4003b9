"""The objects of a Sandbox: its value and the Nodes in, all objects that must exist out.  Pure.

    topology network   Network, Subnet: its gateway is the address of its router
    routers            Router each, with a port on each of its networks and one on the WAN, the default route to man,
                       and routes to the networks that it reaches over networks of routers alone
    wan                Network, Subnet, and the Router `man`, with a route to each network through its router
    net_mapping        NetworkAttachment: the first one of a host has the default route
    block_internet     SecurityProfile that allows egress to the Sandbox's own blocks only
    gateway            the external gateway of man
    accessible_by_user with false: router policy of man that drops what enters the network through it
    network_forwarding Mirror for each source: of the attachment, or, for a router, of the network
    spec.links         Shaping of the attachment, or of the Router's port, both directions
    spec.macs          MAC address of the attachment
    spec.faults        linkDown of attachments and router ports; SecurityProfiles that keep hosts apart

So packets between networks of one router pass one hop, and three hops between networks of two routers: router, man,
router; without man if a network of routers alone joins them (`transit.py`). Everything carries the owner reference and
the label of the Sandbox.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from netloom.model.document import ObjectMeta, OwnerReference, Resource
from netloom.model.kind import Kind
from netloom.model.kinds.attachments import AttachmentPort, NetworkAttachment, NetworkAttachmentSpec, PortType
from netloom.model.kinds.networks import (
    Dhcp,
    Network,
    NetworkSpec,
    Route,
    Router,
    RouterPort,
    RouterSpec,
    Subnet,
    SubnetSpec,
)
from netloom.model.kinds.paths import (
    Direction,
    Mirror,
    MirrorDirection,
    MirrorEnd,
    MirrorSource,
    MirrorSpec,
    Place,
    Shaping,
)
from netloom.model.kinds.paths import ShapingSpec as Shape
from netloom.model.kinds.policy import (
    EgressRule,
    Peer,
    PolicyAction,
    RouterPolicy,
    SecurityProfile,
    SecurityProfileSpec,
)
from netloom.model.kinds.sandbox import ForwardingDirection, ForwardingPoint, Placement, Sandbox, SandboxLink
from netloom.model.registry import (
    HOST_DOCUMENT,
    MIRROR,
    NETWORK,
    NETWORK_ATTACHMENT,
    ROUTER,
    SANDBOX,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.model.values.addresses import Block
from netloom.plan.problem import Problem
from netloom.plan.sandbox.faults import CONTAINED, OPEN, plan_faults, profile_spec
from netloom.plan.sandbox.names import GROUP_PREFIX, HOST_LABEL, SANDBOX_LABEL, Part, assign, label_value
from netloom.plan.sandbox.placement import place
from netloom.plan.sandbox.topology import (
    INVALID,
    MAN,
    HostLink,
    Segment,
    Usable,
    closed_blocks,
    routes_of_man,
    spare_address,
    usable,
)
from netloom.plan.sandbox.transit import shortest, ways

LINK_UNSUPPORTED = "LinkUnsupported"
NETNS_FOLDER = "/run/netns"
BLOCK_INTERNET = "block-internet"
CHUNK = 32
"""Blocks in one rule of a SecurityProfile, and in one router policy."""
DROP_PRIORITY = 1000
KINDS = (NETWORK, SUBNET, ROUTER, SECURITY_PROFILE, NETWORK_ATTACHMENT, SHAPING, MIRROR, HOST_DOCUMENT)
"""The kinds of a Sandbox's objects, in the order of creation.  The last one is that of the backend `linux`."""

T = TypeVar("T")
ObjectKey = tuple[str, str]
"""Kind and name of an object."""


class SandboxPlan(Struct, frozen=True, kw_only=True):
    """What must exist for a Sandbox."""

    objects: tuple[Resource, ...] = ()
    """In the order of creation."""
    problems: tuple[Problem, ...] = ()
    networks: dict[str, tuple[ObjectKey, ...]] = {}
    """The objects that each network needs, the WAN included."""
    routers: dict[str, tuple[ObjectKey, ...]] = {}
    """The objects that each router needs, `man` included."""
    hosts: dict[str, tuple[ObjectKey, ...]] = {}
    """The objects that each host needs."""
    faults: tuple[str, ...] = ()
    """The faults that are applied, as text."""


_DIRECTIONS = {
    ForwardingDirection.IN: MirrorDirection.INGRESS,
    ForwardingDirection.OUT: MirrorDirection.EGRESS,
    ForwardingDirection.BOTH: MirrorDirection.BOTH,
}
_TURNED = {
    MirrorDirection.INGRESS: MirrorDirection.EGRESS,
    MirrorDirection.EGRESS: MirrorDirection.INGRESS,
    MirrorDirection.BOTH: MirrorDirection.BOTH,
}
"""The same traffic from the point of view of the other end of the link."""


def plan_sandbox(sandbox: Sandbox, nodes: Collection[str], placed: Mapping[str, str] | None = None) -> SandboxPlan:
    """Return the objects of a Sandbox, and what prevents some of them.

    `nodes` are the names of the Nodes to place hosts on; `placed` is the Node of each host that has one already. The
    backend is not considered: the objects of the backend `linux` are in plan/linux/objects.py.
    """
    return _Planner(sandbox, nodes, placed or {}).plan()


def wan_network(sandbox: Sandbox) -> str:
    """Return the Network that is the WAN of a Sandbox, or "" if it has none."""
    planner = _Planner(sandbox, (), {})
    return planner.wan_name


class _Planner:
    """The parts of one plan."""

    def __init__(self, sandbox: Sandbox, nodes: Collection[str], placed: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._spec = sandbox.spec
        self._parts: Usable = usable(sandbox.spec.topology)
        self._problems = list(self._parts.problems)
        name = self._name = sandbox.metadata.name
        parts = self._parts
        self._wan = Part((parts.wan.name,), "wan")
        self._man = Part((MAN,))
        segments = [Part((one,)) for one in parts.segments]
        self._networks = assign(name, [*segments, *([self._wan] if parts.wan_block is not None else [])])
        self._routers = assign(name, [self._man, *(Part((one.name,), "router") for one in parts.routers)])
        self._attachments = assign(name, map(_link_part, parts.links))
        self._spaces = assign(name, (Part((host,)) for host in parts.hosts))
        hosts = sorted({link.host for link in parts.links})
        placement = sandbox.spec.placement or Placement()
        self._placed, problems = place(hosts, placement, nodes, placed)
        self._problems += problems
        macs = {(one.host, one.network): one.mac for one in sorted(sandbox.spec.macs, key=repr, reverse=True)}
        # A host with two links to a network: the first one has the MAC address.
        ends = {(link.host, link.network): link for link in reversed(parts.links)}
        self._macs = {ends[end]: mac for end, mac in macs.items() if end in ends}
        self._faults = plan_faults(sandbox.spec.faults, parts)
        self._problems += self._faults.problems

    @property
    def wan_name(self) -> str:
        """The Network of the WAN; "": there is none."""
        return self._networks.get(self._wan, "")

    def plan(self) -> SandboxPlan:
        """Return the plan."""
        attachments = list(self._attachment_objects())
        objects = [
            *self._network_objects(),
            *self._router_objects(),
            *self._profile_objects(),
            *self._partitions(),
            *attachments,
            *self._shapings(),
            *self._mirrors(),
        ]
        hosts: dict[str, list[ObjectKey]] = {}
        for one in attachments:
            hosts.setdefault(one.metadata.labels[HOST_LABEL], []).append((one.kind, one.metadata.name))
        order = {kind.name: position for position, kind in enumerate(KINDS)}
        return SandboxPlan(
            objects=tuple(sorted(objects, key=lambda one: (order[one.kind], one.metadata.name))),
            problems=tuple(sorted(set(self._problems))),
            networks=_each(objects, NETWORK),
            routers=_each(objects, ROUTER),
            hosts={host: tuple(sorted(names)) for host, names in sorted(hosts.items())},
            faults=self._faults.active,
        )

    def _meta(self, name: str, labels: Mapping[str, str] | None = None) -> ObjectMeta:
        meta = self._sandbox.metadata
        owner = OwnerReference(
            api_version=SANDBOX.api_version,
            kind=SANDBOX.name,
            name=meta.name,
            uid=meta.uid,
            controller=True,
            block_owner_deletion=True,
        )
        return ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels=self._own_label | dict(labels or {}),
            owner_references=(owner,),
        )

    @property
    def _own_label(self) -> dict[str, str]:
        return {SANDBOX_LABEL: label_value(self._name)}

    # Networks and routers.

    def _network_objects(self) -> Iterator[Network | Subnet]:
        parts = self._parts
        for segment in parts.segments.values():
            name = self._networks[Part((segment.name,))]
            gateway, serves = (segment.routers[0][1], True) if segment.routers else _gateway(segment)
            yield from self._network(name, segment.block, gateway, serves=serves)
        if parts.wan_block is not None:
            yield from self._network(self._networks[self._wan], parts.wan_block, parts.man, serves=False)

    def _network(self, name: str, block: Block, gateway: str, *, serves: bool) -> Iterator[Network | Subnet]:
        yield Network(api_version=NETWORK.api_version, kind=NETWORK.name, metadata=self._meta(name), spec=NetworkSpec())
        spec = SubnetSpec(network=name, cidr=str(block), gateway=gateway, dhcp=Dhcp() if serves else None)
        yield Subnet(api_version=SUBNET.api_version, kind=SUBNET.name, metadata=self._meta(name), spec=spec)

    def _router_objects(self) -> Iterator[Router]:
        parts = self._parts
        between = ways(parts)
        for router in parts.routers:
            ports = [
                RouterPort(
                    network=self._networks[Part((name,))], ips=ips, link_down=(router.name, name) in self._faults.down
                )
                for name, ips in router.networks
            ]
            routes = tuple(Route(to=one.to, via=one.via) for one in shortest(between.get(router.name, ())))
            if router.wan and parts.wan_block is not None:
                ports.append(self._wan_port(router.name, router.wan, parts.wan_block))
                everything = "::/0" if parts.wan_block.version == 6 else "0.0.0.0/0"
                routes = (*routes, Route(to=everything, via=parts.man))
            spec = RouterSpec(networks=tuple(ports), routes=routes)
            yield self._router(self._routers[Part((router.name,), "router")], spec)
        if parts.man and parts.wan_block is not None:
            of_man, problems = routes_of_man(parts)
            self._problems += problems
            spec = RouterSpec(
                networks=(self._wan_port(MAN, parts.man, parts.wan_block),),
                routes=tuple(Route(to=to, via=via) for to, via in of_man),
                policies=tuple(self._policies_of_man()),
                gateway=self._spec.gateway,
            )
            yield self._router(self._routers[self._man], spec)
        elif self._spec.gateway is not None:
            text = "spec.gateway: the topology has no router, so there is no way to it: add a router to its networks"
            self._problems.append(Problem(INVALID, text))

    def _router(self, name: str, spec: RouterSpec) -> Router:
        return Router(api_version=ROUTER.api_version, kind=ROUTER.name, metadata=self._meta(name), spec=spec)

    def _wan_port(self, router: str, ip: str, block: Block) -> RouterPort:
        return RouterPort(
            network=self._networks[self._wan],
            ips=(f"{ip}/{block.prefixlen}",),
            link_down=(router, self._parts.wan.name) in self._faults.down,
        )

    def _policies_of_man(self) -> Iterator[RouterPolicy]:
        for blocks in _chunks(closed_blocks(self._parts)):
            yield RouterPolicy(priority=DROP_PRIORITY, to=blocks, action=PolicyAction.DROP)

    # Hosts.

    def _attachment_objects(self) -> Iterator[NetworkAttachment]:
        for link in self._parts.links:
            node = self._placed.get(link.host)
            if node is None:
                continue
            name = self._attachments[_link_part(link)]
            labels = {HOST_LABEL: label_value(link.host)} | {
                GROUP_PREFIX + label_value(group): "true" for group in self._parts.groups.get(link.host, ())
            }
            labels |= {one.label: self._kept(link) for one in self._faults.separations if link in one.members}
            spec = NetworkAttachmentSpec(
                node=node,
                network=self._networks[Part((link.network,))],
                ips=(link.ip,),
                mac=self._macs.get(link, ""),
                port=AttachmentPort(
                    type=PortType.VETH,
                    netns=f"{NETNS_FOLDER}/{self._spaces[Part((link.host,))]}",
                    create_netns=self._spec.run,
                    name=f"eth{link.position}",
                ),
                security_profiles=(self._profile,) if self._parts.hosts[link.host].block_internet else (),
                default_route=link.position == 0 and bool(self._parts.segments[link.network].routers),
                link_down=(link.host, link.network) in self._faults.down,
            )
            yield NetworkAttachment(
                api_version=NETWORK_ATTACHMENT.api_version,
                kind=NETWORK_ATTACHMENT.name,
                metadata=self._meta(name, labels),
                spec=spec,
            )

    @property
    def _profile(self) -> str:
        part = Part((BLOCK_INTERNET,))
        return assign(self._name, [part])[part]

    def _profile_objects(self) -> Iterator[SecurityProfile]:
        parts = self._parts
        if not any(one.block_internet for one in parts.hosts.values()):
            return
        blocks = [str(one.block) for one in parts.segments.values()]
        blocks += [str(parts.wan_block)] if parts.wan_block is not None else []
        rules = tuple(EgressRule(to=tuple(Peer(cidr=one) for one in chunk)) for chunk in _chunks(sorted(blocks)))
        yield SecurityProfile(
            api_version=SECURITY_PROFILE.api_version,
            kind=SECURITY_PROFILE.name,
            metadata=self._meta(self._profile),
            spec=SecurityProfileSpec(egress=rules),
        )

    def _kept(self, link: HostLink) -> str:
        """Return the value of a fault's label: whether a profile of the Sandbox says what the host may send."""
        return CONTAINED if self._parts.hosts[link.host].block_internet else OPEN

    def _partitions(self) -> Iterator[SecurityProfile]:
        pairs = {
            Part(("partition", one.fault, *([label] if label == CONTAINED else []))): (one, label)
            for one in self._faults.separations
            for label in sorted({self._kept(link) for link in one.members})
        }
        for part, name in assign(self._name, pairs).items():
            yield SecurityProfile(
                api_version=SECURITY_PROFILE.api_version,
                kind=SECURITY_PROFILE.name,
                metadata=self._meta(name),
                spec=profile_spec(*pairs[part], self._own_label),
            )

    def _shapings(self) -> Iterator[Shaping]:
        links, ports = self._links_by_end(), self._router_ports()
        chosen = {(one.host, one.network): one for one in sorted(self._spec.links, key=repr)}
        names = assign(self._name, [*map(_link_part, self._parts.links), *(Part(end, "router") for end in ports)])
        for end, quality in sorted(chosen.items()):
            parts = map(_link_part, links.get(end, ()))
            starts = {part: Place(attachment=self._attachments[part]) for part in parts}
            if (port := ports.get(end)) is not None:
                starts = {Part(end, "router"): port}
                quality = self._of_router(quality)
            if not starts:
                text = f"spec.links: {end[0]} has no link to {end[1]}: name a host or router, and one of its networks"
                self._problems.append(Problem(LINK_UNSUPPORTED, text))
            for part, start in starts.items() if quality.rate or quality.delay or quality.loss else ():
                spec = Shape(
                    from_=start,
                    direction=Direction.BOTH,
                    rate=quality.rate,
                    burst=quality.burst,
                    delay=quality.delay,
                    jitter=quality.jitter,
                    loss=quality.loss,
                    impairment=quality.impairment,
                )
                meta = self._meta(names[part])
                yield Shaping(api_version=SHAPING.api_version, kind=SHAPING.name, metadata=meta, spec=spec)

    def _of_router(self, link: SandboxLink) -> SandboxLink:
        """Return the part of a link's quality that the port of a router can have: its rate."""
        if not link.delay and not link.loss:
            return link
        text = f"spec.links: {link.host} is a router, which cannot delay or lose packets: impair the links of hosts"
        self._problems.append(Problem(LINK_UNSUPPORTED, text))
        return structs.replace(link, delay="", jitter="", loss="")

    def _router_ports(self) -> dict[tuple[str, str], Place]:
        """Return the ports of routers, by router and network."""
        found: dict[tuple[str, str], Place] = {}
        for router in self._parts.routers:
            name = self._routers[Part((router.name,), "router")]
            for network, _ in router.networks:
                found[router.name, network] = Place(router=name, network=self._networks[Part((network,))])
            if router.wan and self._parts.wan_block is not None:
                found[router.name, self._parts.wan.name] = Place(router=name, network=self._networks[self._wan])
        return found

    def _links_by_end(self) -> dict[tuple[str, str], list[HostLink]]:
        found: dict[tuple[str, str], list[HostLink]] = {}
        for link in self._parts.links:
            if link.host in self._placed:
                found.setdefault((link.host, link.network), []).append(link)
        return found

    # Mirrors.

    def _mirrors(self) -> Iterator[Mirror]:
        forwarding = self._spec.topology.network_forwarding
        if forwarding is None:
            return
        links = self._links_by_end()
        at = "spec.topology.network_forwarding"
        destination = links.get((forwarding.destination.host, forwarding.destination.network))
        if destination is None:
            text = f"{at}.destination: host {forwarding.destination.host} has no link to"
            self._problems.append(Problem(INVALID, f"{text} {forwarding.destination.network}"))
            return
        target = destination[0]
        found: dict[Part, tuple[MirrorSource, MirrorDirection]] = {}
        for source in forwarding.sources:
            if source.host in {one.name for one in self._parts.routers}:
                found |= self._mirrored_network(source, target)
                continue
            ends = links.get((source.host, source.network))
            if ends is None:
                text = f"{at}.sources: {source.host} has no link to {source.network}: name a machine and its network"
                self._problems.append(Problem(INVALID, text))
                continue
            for one in ends:
                if one != target:
                    part = Part((one.host, one.network, "to", target.host, target.network), one.ip)
                    end = MirrorSource(attachment=self._attachments[_link_part(one)])
                    found[part] = end, _DIRECTIONS[forwarding.direction]
        for part, name in assign(self._name, found).items():
            end, direction = found[part]
            spec = MirrorSpec(
                source=end,
                destination=MirrorEnd(attachment=self._attachments[_link_part(target)]),
                direction=direction,
            )
            yield Mirror(api_version=MIRROR.api_version, kind=MIRROR.name, metadata=self._meta(name), spec=spec)

    def _mirrored_network(
        self, source: ForwardingPoint, target: HostLink
    ) -> dict[Part, tuple[MirrorSource, MirrorDirection]]:
        """Return the mirror of a router's link: of its network, for a Router of OVN has no port that could be copied.

        What the router receives, hosts of the network send.
        """
        forwarding = self._spec.topology.network_forwarding
        networks = {name for one in self._parts.routers if one.name == source.host for name, _ in one.networks}
        if forwarding is None or source.network not in networks:
            text = f"{source.host} has no link to {source.network}: name one of its networks, other than the WAN"
            self._problems.append(Problem(INVALID, f"spec.topology.network_forwarding.sources: {text}"))
            return {}
        end = MirrorSource(network=self._networks[Part((source.network,))])
        part = Part((source.network, "to", target.host, target.network), "network")
        return {part: (end, _TURNED[_DIRECTIONS[forwarding.direction]])}


def _each(objects: Sequence[Resource], kind: Kind) -> dict[str, tuple[ObjectKey, ...]]:
    """Return the objects of a kind, each as all that a part of the topology needs."""
    return {one.metadata.name: ((kind.name, one.metadata.name),) for one in objects if one.kind == kind.name}


def _link_part(link: HostLink) -> Part:
    return Part((link.host, link.network), link.ip)


def _chunks(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    return (tuple(items[at : at + CHUNK]) for at in range(0, len(items), CHUNK))


def _gateway(segment: Segment) -> tuple[str, bool]:
    """Return a gateway for a network without a router, which no host has, and whether it can serve DHCP.

    Every block of more than two addresses has a gateway, and IPAM does not allocate it. In a full block of IPv4 it is
    the broadcast address.
    """
    if segment.block.num_addresses <= 2:
        return "", True
    free = spare_address(segment)
    return free or str(segment.block.broadcast_address), bool(free)
