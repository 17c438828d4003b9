"""Whether a Sandbox on the backend `linux` is contained: what its documents let pass, and what it declares.  Pure.

Packets are sent through the documents of all hosts: a route in the namespace, the bridge or the tunnel to the next hop,
its filter, and back with the answer. A host is taken to set routes of its own for what it may not reach. Differences
are those of `plan/sandbox/reachability.py`, and both backends have the same matrix.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from netloom.model.document import Document
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.values import addresses
from netloom.plan.linux.placements import spaces
from netloom.plan.sandbox.blocks import Blocks, Ip, ip_of
from netloom.plan.sandbox.declared import Declared, Target
from netloom.plan.sandbox.reachability import MOST, OUTSIDE, USERS, Difference, Kind, Verification
from netloom.plan.sandbox.topology import MAN

MOST_HOPS = 64
_BEYOND = {4: "203.0.113.77", 6: "2001:db8:ffff::77"}
"""Addresses that stand for the outside."""


class _Port(Struct, frozen=True, kw_only=True, eq=False):
    """An interface of a namespace, with its end of the cable."""

    node: str
    space: str
    bridge: str
    mac: str
    ips: tuple[Ip, ...]
    is_down: bool
    closed: frozenset[Ip]
    """Addresses that no packet from here gets to, because of a partition."""

    def version(self, ip: Ip) -> tuple[Ip, ...]:
        """Return its addresses of the version of another one."""
        return tuple(own for own in self.ips if own.version == ip.version)


class Trip(Struct, frozen=True, kw_only=True):
    """The way of a packet."""

    hops: tuple[str, ...] = ()
    """The machines that forwarded it."""
    source: Ip | None = None
    arrived: str = ""
    """The machine that it got to; "": it was dropped."""
    reason: str = ""
    answers: bool = False


class _Machine:
    """A network namespace on a host."""

    def __init__(self, name: str, document: Document) -> None:
        self.name = name
        self.ports: list[_Port] = []
        self.forwards = bool(document["forward"])
        self.near = Blocks[_Port]()
        self.routes = Blocks[Ip]()
        rules = document["filter"] or {}
        self.closed, self.inside = Blocks[bool](), Blocks[bool]()
        for blocks, key in ((self.closed, "closed"), (self.inside, "inside")):
            for one in rules.get(key, ()):
                blocks.add(one, True)
        self.leaving = Blocks[Blocks[bool]]()
        for source, others in rules.get("leaving", ()):
            joined = Blocks[bool]()
            for one in others:
                joined.add(one, True)
            self.leaving.add(source, joined)
        self.blocked = {ip_of(one) for one in rules.get("blocked", ())}

    def drops(self, source: Ip, to: Ip) -> bool:
        """Whether its filter drops a packet that it forwards."""
        joined = self.leaving.find(source)
        if self.closed.find(to) is not None or (joined is not None and joined.find(to) is None):
            return True
        return source in self.blocked and self.inside.find(to) is None

    def way(self, to: Ip) -> tuple[_Port, Ip] | None:
        """Return the interface and the next hop for an address."""
        near = self.near.find(to)
        if near is not None:
            return near, to
        via = self.routes.find(to)
        near = self.near.find(via) if via is not None else None
        return (near, via) if near is not None and via is not None else None


class Documents:
    """The machines of all hosts, and what they can send to each other."""

    def __init__(self, documents: Mapping[str, Document], machines: Mapping[str, str]) -> None:
        """`machines` are the names of machines, by network namespace."""
        self._by_ip: dict[Ip, list[_Port]] = {}
        self._tunnels: dict[tuple[str, str], Document] = {}
        self._local: dict[str, str] = {}
        self._routers: dict[str, list[Ip]] = {}
        """The addresses of routers near each machine."""
        self.machines: dict[str, _Machine] = {}
        self._spaces: dict[tuple[str, str], _Machine] = {}
        for node, document in sorted(documents.items()):
            self._local[node] = document["local"]
            for tunnel in document["tunnels"]:
                self._tunnels[node, tunnel["bridge"]] = tunnel
            for one in document["namespaces"]:
                machine = _Machine(machines.get(one["name"], one["name"]), one)
                self._spaces[node, one["name"]] = machine
                self.machines.setdefault(machine.name, machine)
            self._add_ports(node, document)
            for route in document["routes"]:
                if (found := self._spaces.get((node, route["namespace"]))) is not None:
                    found.routes.add(route["to"], ip_of(route["via"]))

    def _add_ports(self, node: str, document: Document) -> None:
        closed = {one["port"]: frozenset(map(ip_of, one["closed"])) for one in document["partitions"]}
        for one in document["members"]:
            machine = self._spaces.get((node, one["namespace"]))
            if machine is None:
                continue
            port = _Port(
                node=node,
                space=one["namespace"],
                bridge=one["bridge"],
                mac=one["mac"],
                ips=tuple(map(ip_of, one["addresses"])),
                is_down=one["down"],
                closed=closed.get(one["name"], frozenset()),
            )
            machine.ports.append(port)
            for text in one["addresses"]:
                machine.near.add(text, port)
            for ip in port.ips:
                self._by_ip.setdefault(ip, []).append(port)

    def trip(self, machine: _Machine, to: Ip, source: Ip | None = None, first: Ip | None = None) -> Trip:
        """Return the way of a packet, and whether its answer comes back; `first` is a next hop that it is given."""
        there = self._follow(machine, to, source, first)
        if not there.arrived or source is not None or there.source is None:
            return there
        back = self._follow(self.machines[there.arrived], there.source, to, None)
        answers = back.arrived == machine.name
        reason = "" if answers else f"the answer is lost: {back.reason or f'it gets to {back.arrived}'}"
        return Trip(hops=there.hops, source=there.source, arrived=there.arrived, reason=reason, answers=answers)

    def attempts(self, machine: _Machine, to: Ip) -> Iterator[Trip]:
        """Yield the ways of packets that the machine sends to any router near it."""
        if machine.name not in self._routers:
            self._routers[machine.name] = [
                ip
                for ip, others in self._by_ip.items()
                if any(
                    self._machine(other).forwards and self._are_joined(port, other)
                    for other in others
                    for port in machine.ports
                )
            ]
        yield from (self.trip(machine, to, first=ip) for ip in self._routers[machine.name] if ip.version == to.version)

    def _follow(self, machine: _Machine, to: Ip, source: Ip | None, first: Ip | None) -> Trip:
        hops: list[str] = []
        at = machine
        for number in range(MOST_HOPS):
            if any(to in port.version(to) for port in at.ports):
                return Trip(hops=tuple(hops), source=source, arrived=at.name)
            way = at.way(first if number == 0 and first is not None else to)
            if way is None:
                return Trip(hops=tuple(hops), source=source, reason=f"{at.name} has no route to {to}")
            port, hop = way
            if source is None:
                own = port.version(to)
                if not own:
                    return Trip(hops=tuple(hops), reason=f"{at.name} has no address for it")
                source = own[0]
            if to in port.closed:
                return Trip(hops=tuple(hops), source=source, reason=f"a partition keeps {at.name} from {to}")
            target = next((one for one in self._by_ip.get(hop, ()) if self._are_joined(port, one)), None)
            if target is None:
                return Trip(hops=tuple(hops), source=source, reason=f"{hop} does not answer to {at.name}")
            following = self._machine(target)
            if not any(to in one.version(to) for one in following.ports):
                if not following.forwards:
                    return Trip(hops=tuple(hops), source=source, reason=f"{following.name} forwards nothing")
                if following.drops(source, to):
                    return Trip(hops=tuple(hops), source=source, reason=f"the filter of {following.name} drops it")
                hops.append(following.name)
            at = following
        return Trip(hops=tuple(hops[:4]), source=source, reason="it goes in a circle")

    def _machine(self, port: _Port) -> _Machine:
        return self._spaces[port.node, port.space]

    def _are_joined(self, one: _Port, other: _Port) -> bool:
        """Whether frames pass between two interfaces, both ways."""
        if one is other or one.is_down or other.is_down:
            return False
        if one.node == other.node:
            return one.bridge == other.bridge
        return self._sends(one, other) and self._sends(other, one)

    def _sends(self, one: _Port, other: _Port) -> bool:
        here, there = self._tunnels.get((one.node, one.bridge)), self._tunnels.get((other.node, other.bridge))
        if here is None or there is None or here["vni"] != there["vni"]:
            return False
        to = self._local[other.node]
        return to in here["remotes"] and [other.mac, to] in here["macs"]


def verify_documents(
    sandbox: Sandbox, documents: Mapping[str, Document], *, cut: Collection[tuple[str, str]] = ()
) -> Verification:
    """Compare what the documents of all hosts let pass with what the topology of a Sandbox declares."""
    return _Verifier(sandbox, documents, cut).verify()


class _Verifier:
    """One comparison."""

    def __init__(self, sandbox: Sandbox, documents: Mapping[str, Document], cut: Collection[tuple[str, str]]) -> None:
        self._sandbox, self._cut = sandbox, cut
        self._declared = Declared(sandbox.spec.topology)
        self._documents = Documents(documents, spaces(sandbox))
        self._counts = {"reached": 0, "blocked": 0, "cut": 0, "more": 0}
        self._found: dict[Kind, list[Difference]] = {kind: [] for kind in Kind}
        self._matrix: dict[str, dict[str, bool]] = {}

    def verify(self) -> Verification:
        """Return the comparison."""
        declared = self._declared
        targets = [(one, ip_of(one.ip)) for one in declared.targets()]
        for host in declared.links:
            row = self._matrix[host] = {}
            for target, ip in targets:
                if target.host != host:
                    row[str(target)] = self._pair(host, target, ip)
        self._users(targets)
        self._vpn(targets)
        for host in declared.links:
            self._outside(host)
        differences = [one for kind in Kind for one in sorted(self._found[kind])]
        return Verification(
            reached=self._counts["reached"],
            blocked=self._counts["blocked"],
            cut=self._counts["cut"],
            differences=tuple(differences),
            more=self._counts["more"],
            warnings=tuple(declared.warnings()),
            matrix=self._matrix,
        )

    def _pair(self, host: str, target: Target, ip: Ip) -> bool:
        machine = self._documents.machines.get(host)
        must, may = self._declared.must(host, target), self._declared.may(host, target)
        trip = Trip(reason=f"{host} is on no host") if machine is None else self._documents.trip(machine, ip)
        if must and not trip.answers:
            self._gap(host, target, trip)
            return False
        if not may and machine is not None:
            leak = next((one for one in (trip, *self._documents.attempts(machine, ip)) if one.answers), None)
            if leak is not None:
                self._report(Kind.LEAK, host, str(target), leak, "")
                return trip.answers
        self._count(trip.answers)
        return trip.answers

    def _users(self, targets: Iterable[tuple[Target, Ip]]) -> None:
        """Follow users, who enter at `man`."""
        man = self._documents.machines.get(MAN)
        if man is None:
            return
        row = self._matrix[USERS] = {}
        for target, ip in targets:
            trip = self._from_router(man, ip)
            may = self._declared.for_users(target.network)
            row[str(target)] = trip.answers
            if trip.answers and not may:
                self._report(Kind.LEAK, USERS, str(target), trip, "")
            elif may and target.is_first and not trip.answers:
                self._gap(USERS, target, trip)
            else:
                self._count(trip.answers)

    def _from_router(self, router: _Machine, ip: Ip) -> Trip:
        """Follow a packet of somebody behind a router, whose filter it passes."""
        trip = self._documents.trip(router, ip)
        if trip.source is not None and router.drops(trip.source, ip):
            return Trip(source=trip.source, reason=f"the filter of {router.name} drops it")
        return Trip(hops=(router.name, *trip.hops), arrived=trip.arrived, reason=trip.reason, answers=trip.answers)

    def _vpn(self, targets: Collection[tuple[Target, Ip]]) -> None:
        """Follow users, who enter at the gateways of the VPN, to the blocks that its routes name."""
        vpn = self._sandbox.spec.topology.vpn
        for entry in vpn.entrypoints if vpn is not None else ():
            blocks = Blocks[bool]()
            for one in entry.routes:
                if addresses.is_cidr(one):
                    blocks.add(one, True)
            machine = self._documents.machines.get(entry.name)
            for target, ip in targets if machine is not None else ():
                if blocks.find(ip) is None or self._declared.networks[target.network].accessible_by_user:
                    continue
                assert machine is not None
                trip = self._from_router(machine, ip) if machine.forwards else self._documents.trip(machine, ip)
                if trip.answers or target.host == entry.name:
                    reason = f"vpn.entrypoints lets users in, and {target.network} is not accessible_by_user"
                    path = (USERS, f"vpn {entry.name}", *map(_hop, trip.hops), str(target))
                    self._add(
                        Difference(
                            kind=Kind.LEAK, source=USERS, target=str(target), path=path, reason=reason, entry=entry.name
                        )
                    )

    def _outside(self, host: str) -> None:
        """Follow a host to the outside: there is no way out."""
        machine = self._documents.machines.get(host)
        versions = {addresses.family(one.ip) for one in self._declared.links[host]}
        for version in sorted(versions) if machine is not None else ():
            ip = ip_of(_BEYOND[version])
            if any(addresses.within(str(ip), one.cidr) for one in self._declared.networks.values()):
                continue
            assert machine is not None
            trip = self._documents.trip(machine, ip)
            if trip.arrived:
                self._report(Kind.LEAK, host, OUTSIDE, trip, "")
            else:
                self._count(False)

    def _gap(self, source: str, target: Target, trip: Trip) -> None:
        if (source, str(target)) in self._cut:
            self._counts["cut"] += 1
        else:
            self._report(Kind.GAP, source, str(target), trip, f"{target} is not reached: {trip.reason}")

    def _report(self, kind: Kind, source: str, target: str, trip: Trip, reason: str) -> None:
        ends = (target,) if trip.arrived else ()
        begin = source if source == USERS or trip.source is None else f"{source} {trip.source}"
        path = (begin, *map(_hop, trip.hops), *ends)
        self._add(Difference(kind=kind, source=source, target=target, path=path, reason=reason))

    def _count(self, reached: bool) -> None:
        self._counts["reached" if reached else "blocked"] += 1

    def _add(self, difference: Difference) -> None:
        if len(self._found[difference.kind]) < MOST:
            self._found[difference.kind].append(difference)
        else:
            self._counts["more"] += 1


def _hop(machine: str) -> str:
    return machine if machine == MAN else f"router {machine}"
