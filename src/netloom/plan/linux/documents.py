"""The documents of a Sandbox on the backend `linux`: its value and the hosts in, one document for each host out.  Pure.

    network            a bridge on each host that has a member of it; VXLAN between these hosts, where there are several
    host, router, man  a network namespace on one host, with a veth pair to each of its bridges
    networks of IPv4   a DHCP server in a namespace of its own, with the last free address of the network
    block_internet     filter of all routers: nothing of the host leaves the blocks of the Sandbox
    accessible_by_user with false: filter of man that drops what enters the network, or leaves it for one that no
                       router shares with it
    network_forwarding copies of frames, through a tunnel of their own where source and destination are on two hosts
    spec.links         queues at both ends of the link
    spec.faults        links that are down, and ports that drop what they receive for hosts on the other side

Hops, addresses and default routes are those of the backend `ovn` (plan/sandbox/objects.py). All addresses are known
here, so VXLAN devices learn nothing: each has the MAC addresses behind the other hosts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from netloom.model.document import Document
from netloom.model.kinds.paths import Impairing
from netloom.model.kinds.sandbox import ForwardingDirection, Placement, Sandbox, SandboxLink
from netloom.model.values import addresses, quantities
from netloom.plan.linux.names import devices, macs, owner, vnis
from netloom.plan.problem import Problem
from netloom.plan.sandbox.faults import plan_faults
from netloom.plan.sandbox.names import Part, assign
from netloom.plan.sandbox.placement import place
from netloom.plan.sandbox.topology import (
    INVALID,
    MAN,
    RouterLinks,
    Usable,
    closed_blocks,
    routes_of_man,
    spare_address,
    usable,
)
from netloom.plan.sandbox.transit import Way, ways

VERSION = 1
PORT = 14789
"""The UDP port of VXLAN: Open vSwitch may listen on 4789."""
ETHERNET_MTU = 1500
OVERHEAD = {4: 50, 6: 70}
"""What VXLAN takes of the MTU between the hosts, by version of IP there."""
LEAST_MTU, LEAST_MTU_6 = 576, 1280
LARGEST_MTU = 65535
METRIC = 100
"""The metric of a route, for each link between routers on the way."""
MOST_WAYS = 8
"""Routes of a router to one network."""
SAVED = 50
"""A burst is the rate of a second divided by this."""
LEAST_BURST = 5000
NODE_INVALID, LINK_UNSUPPORTED = "NodeInvalid", "LinkUnsupported"
GATEWAY_UNSUPPORTED, MAC_TAKEN = "GatewayUnsupported", "MACTaken"
IN, OUT = ForwardingDirection.IN, ForwardingDirection.OUT


class LinuxPlan(Struct, frozen=True, kw_only=True):
    """What each host must have for a Sandbox."""

    owner: str
    """The name under which a host keeps the state of it."""
    documents: dict[str, Document]
    """By name of the host; one without a part of the Sandbox has none."""
    problems: tuple[Problem, ...] = ()
    faults: tuple[str, ...] = ()
    """The faults that are applied, as text."""
    hosts: dict[str, str] = {}
    """The host that each host of the topology is on."""
    spaces: dict[str, str] = {}
    """The network namespace of each host of the topology."""
    routers: dict[str, str] = {}
    """The host that each router is on, `man` included."""
    networks: dict[str, tuple[str, ...]] = {}
    """The hosts that have a bridge of each network, the WAN included."""


class _Member(Struct, frozen=True, kw_only=True):
    """An interface of a machine in a network."""

    node: str
    machine: str
    network: str
    space: str
    interface: str
    ips: tuple[str, ...]
    """As 10.0.0.1/24."""

    @property
    def key(self) -> tuple[str, ...]:
        return self.machine, self.network, self.interface, self.space


def plan_documents(
    sandbox: Sandbox,
    nodes: Mapping[str, str],
    placed: Mapping[str, str] | None = None,
    avoid: Collection[int] = (),
    mtu: int = ETHERNET_MTU,
) -> LinuxPlan:
    """Return the documents of a Sandbox, and what prevents parts of it.

    `nodes` are the addresses that hosts reach each other at, by name; `placed` is the host of each machine of the
    topology that has one already; `avoid` are VNIs that others use; `mtu` is that between the hosts.
    """
    return _Planner(sandbox, nodes, placed or {}, avoid, mtu).plan()


def machine_spaces(sandbox: Sandbox, nodes: Iterable[str]) -> dict[str, str]:
    """Return the machine in each network namespace; a DHCP server is called after its network, as `lan dhcp`."""
    hosts, others = _assign_spaces(sandbox.metadata.name, usable(sandbox.spec.topology), nodes)
    every = {**hosts, **{part: space for part, space in others.items() if part.distinction != "fabric"}}
    return {space: " ".join(part.words) for part, space in every.items()}


def _assign_spaces(name: str, parts: Usable, nodes: Iterable[str]) -> tuple[dict[Part, str], dict[Part, str]]:
    """Return the network namespaces of hosts, and those of everything else."""
    hosts = assign(name, (Part((host,)) for host in parts.hosts))
    others = [Part((MAN,), MAN), *(Part((node, "fabric"), "fabric") for node in nodes)]
    others += [Part((one.name,), "router") for one in parts.routers]
    others += [Part((network, "dhcp"), "dhcp") for network in parts.segments]
    return hosts, assign(name, others, hosts.values())


class _Planner:
    """The parts of one plan."""

    def __init__(
        self,
        sandbox: Sandbox,
        nodes: Mapping[str, str],
        placed: Mapping[str, str],
        avoid: Collection[int],
        mtu: int,
    ) -> None:
        meta = sandbox.metadata
        self._spec = sandbox.spec
        self._owner = owner(meta.namespace, meta.name)
        self._parts: Usable = usable(sandbox.spec.topology)
        self._problems = list(self._parts.problems)
        self._nodes = self._usable_nodes(nodes)
        self._avoid = avoid
        self._mtu = self._inner_mtu(mtu)
        parts = self._parts
        self._hosts, self._spaces = _assign_spaces(meta.name, parts, self._nodes)
        self._placed_before = placed
        self._place(placed)
        self._members = [*self._host_members(), *self._router_members()]
        self._members += self._servers(self._members)
        self._by_network: dict[str, list[_Member]] = {}
        for one in self._members:
            self._by_network.setdefault(one.network, []).append(one)

    def _usable_nodes(self, nodes: Mapping[str, str]) -> dict[str, str]:
        """Return the hosts that have an address of one version, which no other host has."""
        found: dict[str, str] = {}
        taken: set[str] = set()
        version = 0
        for name, ip in sorted(nodes.items()):
            reason = ""
            if not addresses.is_ip(ip):
                reason = f"{ip!r} is not an address"
            elif str(addresses.address(ip)) in taken:
                reason = f"another host has the address {ip} as well"
            elif version not in (0, addresses.family(ip)):
                reason = f"{ip} is of another version of IP than the addresses of other hosts"
            if reason:
                self._problems.append(Problem(NODE_INVALID, f"host {name}: {reason}: give it another address"))
                continue
            found[name] = str(addresses.address(ip))
            taken.add(found[name])
            version = addresses.family(ip)
        return found

    def _inner_mtu(self, outer: int) -> int:
        """Return the MTU that VXLAN leaves, or the least that there is."""
        version = next((addresses.family(ip) for ip in self._nodes.values()), 4)
        left = min(outer, LARGEST_MTU) - OVERHEAD[version]
        has_six = any(one.block.version == 6 for one in self._parts.segments.values())
        least = LEAST_MTU_6 if has_six else LEAST_MTU
        if left < least:
            text = f"the MTU between the hosts is {outer}, and VXLAN leaves {left} of it: the networks need {least}"
            self._problems.append(Problem(NODE_INVALID, f"{text}: raise the MTU of the hosts' devices"))
        return max(left, least)

    # Placement.

    def _place(self, placed: Mapping[str, str]) -> None:
        placement = self._spec.placement or Placement()
        found, problems = place(sorted({one.host for one in self._parts.links}), placement, self._nodes, placed)
        self._problems += problems
        self._placed = {host: node for host, node in found.items() if node in self._nodes}
        self._routers: dict[str, str] = {}
        if not self._nodes:
            return
        for router in self._parts.routers:
            joined = {name for name, _ in router.networks}
            near = [
                self._placed[one.host]
                for one in self._parts.links
                if one.network in joined and one.host in self._placed
            ]
            self._routers[router.name] = self._choose(router.name, placement, near, placed)
        self._man = self._choose(MAN, placement, list(self._routers.values()), placed)

    def _choose(self, router: str, placement: Placement, near: list[str], placed: Mapping[str, str]) -> str:
        """Return the host of a router: the one that is given, or where it is, or where most of its neighbours are.

        It leaves a host where no neighbour is left.
        """
        given = placement.hosts.get(router) or placement.default
        counts = dict.fromkeys(sorted(self._nodes), 0)
        for node in near:
            counts[node] += 1
        if not given and counts.get(placed.get(router, ""), 0):
            given = placed[router]
        return given if given in counts else max(counts, key=lambda one: (counts[one], _descending(one)))

    # Members.

    def _host_members(self) -> Iterator[_Member]:
        for link in self._parts.links:
            if link.host in self._placed:
                yield _Member(
                    node=self._placed[link.host],
                    machine=link.host,
                    network=link.network,
                    space=self._hosts[Part((link.host,))],
                    interface=f"eth{link.position}",
                    ips=(f"{link.ip}/{self._parts.segments[link.network].block.prefixlen}",),
                )

    def _router_members(self) -> Iterator[_Member]:
        parts = self._parts
        for router in parts.routers if self._nodes else ():
            for position, (network, ips) in enumerate(_links(router, parts)):
                yield _Member(
                    node=self._routers[router.name],
                    machine=router.name,
                    network=network,
                    space=self._spaces[Part((router.name,), "router")],
                    interface=f"eth{position}",
                    ips=ips,
                )
        if parts.man and parts.wan_block is not None and self._nodes:
            yield _Member(
                node=self._man,
                machine=MAN,
                network=_wan(parts),
                space=self._spaces[Part((MAN,), MAN)],
                interface="eth0",
                ips=(f"{parts.man}/{parts.wan_block.prefixlen}",),
            )

    def _servers(self, members: Iterable[_Member]) -> Iterator[_Member]:
        """Return the DHCP servers of networks that have an address left, near the router if there is one."""
        near: dict[str, str] = {}
        for one in sorted(members, key=lambda one: (one.machine not in self._routers, one.key)):
            near.setdefault(one.network, one.node)
        for name, segment in self._parts.segments.items():
            free = spare_address(segment) if segment.block.version == 4 and segment.block.num_addresses > 2 else ""
            if free and name in near and any(one.network == name for one in self._parts.links):
                space = self._spaces[Part((name, "dhcp"), "dhcp")]
                now = self._placed_before.get(f"{name} dhcp", "")
                yield _Member(
                    node=now if now in {one.node for one in members if one.network == name} else near[name],
                    machine=f"{name} dhcp",
                    network=name,
                    space=space,
                    interface="eth0",
                    ips=(f"{free}/{segment.block.prefixlen}",),
                )

    # Documents.

    def plan(self) -> LinuxPlan:
        """Return the plan."""
        routes, problems = self._routes()
        self._problems += problems
        if self._spec.gateway is not None:
            text = "spec.gateway: the backend linux has no way out of the Sandbox: remove it, or use the backend ovn"
            self._problems.append(Problem(GATEWAY_UNSUPPORTED, text))
        shapes = self._shapes()
        members = self._members
        self._macs = self._chosen_macs()
        self._faults = plan_faults(self._spec.faults, self._parts)
        self._problems += self._faults.problems
        self._ports = devices("m-", (one.key for one in members))
        self._bridges = devices("b-", ((one.network,) for one in members))
        self._tunnels = devices("x-", ((one.network,) for one in members))
        self._vnis = vnis(self._owner, (*(one.network for one in members), *map(_copies_of, self._nodes)), self._avoid)
        copies, carriers = self._copies()
        filters = self._filters()
        documents = {
            node: self._document(node, shapes=shapes, routes=routes, filters=filters, copies=copies, carriers=carriers)
            for node in sorted({one.node for one in members})
        }
        everywhere = {
            one.network: tuple(sorted({other.node for other in self._by_network[one.network]})) for one in members
        }
        machines = {one.machine: one.node for one in members}
        return LinuxPlan(
            owner=self._owner,
            documents=documents,
            problems=tuple(sorted(set(self._problems))),
            faults=self._faults.active,
            hosts={host: machines[host] for host in sorted(self._parts.hosts) if host in machines},
            spaces={host: self._hosts[Part((host,))] for host in sorted(self._parts.hosts)},
            routers={name: machines[name] for name in (MAN, *sorted(self._routers)) if name in machines},
            networks=everywhere,
        )

    def _document(
        self,
        node: str,
        *,
        shapes: Mapping[tuple[str, str], Document],
        routes: Mapping[str, list[tuple[str, int, str]]],
        filters: Mapping[str, Document],
        copies: Mapping[str, list[Document]],
        carriers: Mapping[str, list[Document]],
    ) -> Document:
        mine = sorted((one for one in self._members if one.node == node), key=lambda one: one.key)
        networks = sorted({one.network for one in mine})
        spaces = sorted({one.space for one in mine})
        hosts = set(self._hosts.values())
        fabric = self._spaces[Part((node, "fabric"), "fabric")]
        forwarding = self._router_spaces()
        tunnels = [tunnel for network in networks if (tunnel := self._tunnel(node, network)) is not None]
        return {
            "version": VERSION,
            "fabric": fabric,
            "mtu": self._mtu,
            "local": self._nodes[node],
            "port": PORT,
            "namespaces": [
                {
                    "name": space,
                    "create": self._spec.run or space not in hosts,
                    "forward": space in forwarding,
                    "filter": filters.get(space),
                }
                for space in (fabric, *spaces)
            ],
            "bridges": [{"name": self._bridges[network,]} for network in networks],
            "tunnels": [*tunnels, *carriers.get(node, ())],
            "members": [
                {
                    "name": self._ports[one.key],
                    "bridge": self._bridges[one.network,],
                    "namespace": one.space,
                    "interface": one.interface,
                    "mac": self._macs[one.key],
                    "addresses": list(one.ips),
                    "shape": shapes.get((one.machine, one.network)),
                    "down": self._is_down(one),
                }
                for one in mine
            ],
            "partitions": self._partitions(mine),
            "routes": [
                {"namespace": space, "to": to, "via": via, "metric": metric}
                for space in spaces
                for to, metric, via in sorted(routes.get(space, ()))
            ],
            "copies": copies.get(node, []),
            "dhcp": [self._server(one) for one in mine if one.machine == f"{one.network} dhcp"],
        }

    def _chosen_macs(self) -> dict[tuple[str, ...], str]:
        """Return the MAC address of each interface: the one that is given, or a derived one; no two are equal."""
        members = self._members
        given = {(one.host, one.network): one.mac.lower() for one in sorted(self._spec.macs, key=repr, reverse=True)}
        found: dict[tuple[str, ...], str] = {}
        owners: dict[str, _Member] = {}
        for one in sorted(members, key=lambda one: one.key):
            mac = given.get((one.machine, one.network), "") if one.machine in self._parts.hosts else ""
            if not mac:
                continue
            if mac in owners:
                text = f"spec.macs: {one.machine} on {one.network} has {mac}, as {owners[mac].machine} has"
                self._problems.append(Problem(MAC_TAKEN, f"{text}: choose another address"))
                continue
            owners[mac], found[one.key] = one, mac
        return macs(self._owner, (one.key for one in members), found)

    def _is_down(self, one: _Member) -> bool:
        """Whether a fault has cut the link of a machine."""
        networks = {one.network} | ({self._parts.wan.name} if one.network == _wan(self._parts) else set())
        return any((one.machine, network) in self._faults.down for network in networks)

    def _partitions(self, mine: Iterable[_Member]) -> list[Document]:
        """Return the ports that drop what their machines send to the other side of a partition."""
        closed: dict[tuple[str, str], set[str]] = {}
        for one in self._faults.separations:
            peers = {str(addresses.block(peer).network_address) for peer in one.peers}
            for link in self._parts.links:
                if link in one.members:
                    closed.setdefault((link.host, link.network), set()).update(peers)
                elif link.ip in peers:
                    closed.setdefault((link.host, link.network), set()).update(member.ip for member in one.members)
        return [
            {"port": self._ports[one.key], "closed": sorted(closed[one.machine, one.network])}
            for one in mine
            if one.machine in self._placed and (one.machine, one.network) in closed
        ]

    def _router_spaces(self) -> set[str]:
        return {self._spaces[Part((MAN,), MAN)]} | {
            self._spaces[Part((one.name,), "router")] for one in self._parts.routers
        }

    def _tunnel(self, node: str, network: str) -> Document | None:
        others = [one for one in self._by_network[network] if one.node != node]
        if not others:
            return None
        return {
            "name": self._tunnels[network,],
            "bridge": self._bridges[network,],
            "vni": self._vnis[network],
            "remotes": sorted({self._nodes[one.node] for one in others}),
            "macs": sorted([self._macs[one.key], self._nodes[one.node]] for one in others),
        }

    def _copies(self) -> tuple[dict[str, list[Document]], dict[str, list[Document]]]:
        """Return the copies of frames on each host, and the tunnels that carry them between hosts."""
        copies: dict[str, list[Document]] = {}
        carriers: dict[str, list[Document]] = {}
        forwarding = self._spec.topology.network_forwarding
        if forwarding is None:
            return copies, carriers
        links: dict[tuple[str, str], list[_Member]] = {}
        for one in sorted(self._members, key=lambda one: one.key):
            links.setdefault((one.machine, one.network), []).append(one)
        for at, points in (("destination", (forwarding.destination,)), ("sources", forwarding.sources)):
            for point in points:
                if (point.host, point.network) not in links:
                    text = f"spec.topology.network_forwarding.{at}: {point.host} has no link to {point.network}"
                    self._problems.append(Problem(INVALID, f"{text}: name a host or router and its network"))
        target = next(iter(links.get((forwarding.destination.host, forwarding.destination.network), ())), None)
        if target is None:
            return copies, carriers
        ways = {"received": forwarding.direction is not IN, "sent": forwarding.direction is not OUT}
        names = devices("c-", ((node,) for node in self._nodes))
        chosen = sorted({(one.host, one.network) for one in forwarding.sources})
        for source in (one for point in chosen for one in links.get(point, ()) if one != target):
            name = self._ports[target.key] if source.node == target.node else names[source.node,]
            copy = {"source": self._ports[source.key], **ways, "target": name}
            copies.setdefault(source.node, []).append(copy)
            if source.node == target.node or source.node in carriers:
                continue
            carrier = {"name": name, "bridge": "", "vni": self._vnis[_copies_of(source.node)], "macs": []}
            carriers[source.node] = [{**carrier, "remotes": [self._nodes[target.node]]}]
            carriers.setdefault(target.node, []).append({**carrier, "remotes": [self._nodes[source.node]]})
            arriving = {"source": name, "received": True, "sent": False, "target": self._ports[target.key]}
            copies.setdefault(target.node, []).append(arriving)
        return copies, carriers

    def _routes(self) -> tuple[dict[str, list[tuple[str, int, str]]], list[Problem]]:
        """Return the routes of each namespace, each a block, its metric and the next hop; and problems.

        A way over several routers that are joined without the WAN has the metric of as many hops. The kernel uses the
        longer ones while the shorter one's interface is down.
        """
        parts = self._parts
        of_man, problems = routes_of_man(parts) if parts.man else ([], [])
        found = {self._spaces[Part((MAN,), MAN)]: [(to, METRIC, via) for to, via in of_man]}
        between = ways(parts)
        for link in parts.links:
            segment = parts.segments[link.network]
            if link.position == 0 and segment.routers:
                default = (_everything(segment.block.version), METRIC, segment.routers[0][1])
                found[self._hosts[Part((link.host,))]] = [default]
        for router in parts.routers:
            mine = found.setdefault(self._spaces[Part((router.name,), "router")], [])
            mine += _metrics(between.get(router.name, ()))
            if router.wan and parts.wan_block is not None:
                mine.append((_everything(parts.wan_block.version), METRIC, parts.man))
        return found, problems

    def _filters(self) -> dict[str, Document]:
        """Return the filters of the namespaces of routers."""
        parts = self._parts
        inside = [str(one.block) for one in parts.segments.values()]
        inside += [str(parts.wan_block)] if parts.wan_block is not None else []
        blocked = sorted(one.ip for one in parts.links if parts.hosts[one.host].block_internet)
        man = self._spaces[Part((MAN,), MAN)]
        found = {}
        for space in self._router_spaces():
            closed = closed_blocks(parts) if space == man else []
            if closed or blocked:
                leaving = [[block, self._joined(block)] for block in closed]
                found[space] = {"closed": closed, "leaving": leaving, "blocked": blocked, "inside": sorted(inside)}
        return found

    def _joined(self, block: str) -> list[str]:
        """Return the blocks of the networks that share a router with a closed one: its packets get to no others.

        A machine with a link to the closed network could answer there to what arrived through `man`.
        """
        every = self._parts.segments.values()
        routers = {name for one in every if str(one.block) == block for name, _ in one.routers}
        return sorted(str(one.block) for one in every if not routers.isdisjoint(name for name, _ in one.routers))

    def _shapes(self) -> dict[tuple[str, str], Document]:
        """Return the qualities of links, by machine and network."""
        known = {(one.machine, one.network) for one in self._members}
        found = {}
        for one in sorted(self._spec.links, key=repr):
            if (one.host, one.network) not in known:
                text = f"spec.links: {one.host} has no link to {one.network}: name a host or router and its network"
                self._problems.append(Problem(LINK_UNSUPPORTED, text))
                continue
            impaired = one.delay or one.loss
            if impaired and one.impairment is Impairing.USERSPACE:
                text = (
                    f"spec.links: {one.host} on {one.network}: the backend linux has no impairment userspace, which is"
                )
                self._problems.append(Problem(LINK_UNSUPPORTED, f"{text} a process of agents: choose auto or kernel"))
            found[one.host, one.network] = _shape(one)
        return found

    def _server(self, server: _Member) -> Document:
        segment = self._parts.segments[server.network]
        leases = [
            [self._macs[one.key], ip.partition("/")[0]]
            for one in self._by_network[server.network]
            if one.machine in self._placed
            for ip in one.ips
        ]
        return {
            "namespace": server.space,
            "interface": server.interface,
            "network": str(segment.block),
            "router": segment.routers[0][1] if segment.routers else "",
            "leases": sorted(leases),
        }


def _links(router: RouterLinks, parts: Usable) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the networks of a router, the WAN last, and its addresses there."""
    yield from router.networks
    if router.wan and parts.wan_block is not None:
        yield _wan(parts), (f"{router.wan}/{parts.wan_block.prefixlen}",)


def _metrics(several: Iterable[Way]) -> Iterator[tuple[str, int, str]]:
    """Yield the routes of some ways, no two of them with one block and one metric: the kernel has only one such."""
    last: dict[str, tuple[int, int]] = {}
    for one in sorted(several):
        number, metric = last.get(one.to, (0, 0))
        metric = max(METRIC * one.hops, metric + 1)
        if number < MOST_WAYS:
            last[one.to] = number + 1, metric
            yield one.to, metric, one.via


def _copies_of(node: str) -> str:
    """Return what the tunnel with the copies of a host is called among the networks: never as one of them."""
    return f"copies of {node}"


def _wan(parts: Usable) -> str:
    """Return what the WAN is called among the networks: never as one of them."""
    return parts.wan.name if parts.wan.name not in parts.segments else f"{parts.wan.name} wan"


def _everything(version: int) -> str:
    return "::/0" if version == 6 else "0.0.0.0/0"


def _descending(text: str) -> tuple[int, ...]:
    """Return a key by which the first text in order is the largest."""
    return (*(-ord(letter) for letter in text), 1)


def _shape(quality: SandboxLink) -> Document:
    is_netem = quality.impairment is not Impairing.USERSPACE
    rate = quantities.rate(quality.rate) if quality.rate else 0
    asked = quantities.size(quality.burst) if quality.burst else rate // 8 // SAVED
    return {
        "rate": rate,
        "burst": max(asked, LEAST_BURST) if rate else 0,
        "delay": _microseconds(quality.delay) * is_netem,
        "jitter": _microseconds(quality.jitter) * is_netem,
        "loss": float(quality.loss.rstrip("%") or 0) * is_netem,
    }


def _microseconds(text: str) -> int:
    return round(quantities.duration(text) * 1_000_000) if text else 0
