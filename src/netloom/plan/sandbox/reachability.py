"""Whether a Sandbox is contained: what its objects let pass, compared with what its topology declares.  Pure.

What passes is found by sending packets through the objects (`forwarding.py`). A host is taken to set routes of its own
for what it may not reach, and to keep those of the plan for what it must. A packet that passes and may not is a leak;
one that must pass and does not, or is not answered, is a gap.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from itertools import islice

from msgspec import Struct

from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork
from netloom.model.kinds.networks import Router
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import NETWORK, ROUTER, SANDBOX
from netloom.model.values import addresses
from netloom.plan.sandbox.blocks import Blocks, Ip, ip_of
from netloom.plan.sandbox.declared import Declared, Target
from netloom.plan.sandbox.forwarding import Forwarding, Machine, RouterNode, Trip
from netloom.plan.sandbox.names import HOST_LABEL, label_value
from netloom.plan.sandbox.topology import MAN

USERS = "users"
OUTSIDE = "outside"
MOST = 256
"""Differences that are kept, of each kind; all are counted."""
_PUBLIC = (("203.0.113.77", "198.51.100.77", "8.8.8.8"), ("2001:db8:ffff::77", "2001:4860:4860::8888"))
"""Addresses that stand for the outside: of each family, the first one that is in no Subnet."""


class Kind(StrEnum):
    """The kind of a difference."""

    LEAK = "leak"
    GAP = "gap"


class Difference(Struct, frozen=True, kw_only=True, order=True):
    """A pair that does not reach as declared."""

    kind: Kind
    source: str
    target: str
    path: tuple[str, ...]
    """From the source to where the packet gets."""
    reason: str = ""
    entry: str = ""
    """For users: the gateway of the VPN that lets them in; "": `man`."""

    def __str__(self) -> str:
        """Return it as a line."""
        ending = f": {self.reason}" if self.reason else ""
        return f"{self.kind}: {' -> '.join(self.path)}{ending}"


class Verification(Struct, frozen=True, kw_only=True):
    """Who reaches whom, and the differences from what is declared."""

    reached: int = 0
    """Pairs that reach, as declared."""
    blocked: int = 0
    """Pairs that do not, as declared."""
    cut: int = 0
    """Pairs that would reach, but for deliberate faults."""
    differences: tuple[Difference, ...] = ()
    more: int = 0
    """Differences that are not kept."""
    warnings: tuple[str, ...] = ()
    matrix: dict[str, dict[str, bool]] = {}
    """Whether each host, and users, reach each address, as "HOST ADDRESS"."""
    outside: dict[str, bool] = {}
    """Whether each host reaches what is beyond the gateway, with the routes that the plan gives it."""
    strangers: tuple[str, ...] = ()
    """The addresses that machines of others have in the Sandbox's Networks, as "NetworkAttachment NAME ADDRESS"; of
    many, the first ones."""


def is_of(sandbox: Sandbox, one: Resource) -> bool:
    """Whether an object is one that a Sandbox owns."""
    mine = sandbox.metadata
    return any(
        ref.controller and ref.kind == SANDBOX.name and (ref.name, ref.uid) == (mine.name, mine.uid)
        for ref in one.metadata.owner_references
    )


def cut_pairs(healthy: Verification, faulty: Verification) -> frozenset[tuple[str, str]]:
    """Return the pairs that reach in the plan of a Sandbox without its faults, and not in that with them."""
    return frozenset(
        (source, target)
        for source, row in healthy.matrix.items()
        for target, reaches in row.items()
        if reaches and not faulty.matrix.get(source, {}).get(target)
    )


def verify(
    sandbox: Sandbox,
    objects: Iterable[Resource],
    plan: Iterable[Resource] | None = None,
    *,
    cut: Collection[tuple[str, str]] = (),
) -> Verification:
    """Compare what objects of the namespace of a Sandbox let pass with what its topology declares.

    Objects that the Sandbox owns and that are not in its `plan`, if one is given, count as those of others. The pairs
    that deliberate faults `cut` need not reach.
    """
    every = [one for one in objects if one.metadata.namespace in ("", sandbox.metadata.namespace)]
    planned = None if plan is None else {(one.kind, one.metadata.name) for one in plan}
    mine = [one for one in every if is_of(sandbox, one) and (planned is None or _key(one) in planned)]
    return _Verifier(sandbox, every, {_key(one) for one in mine}, cut).verify()


def _key(one: Resource) -> tuple[str, str]:
    return one.kind, one.metadata.name


class _Verifier:
    """One comparison."""

    def __init__(
        self,
        sandbox: Sandbox,
        objects: Collection[Resource],
        own: Collection[tuple[str, str]],
        cut: Collection[tuple[str, str]],
    ) -> None:
        self._sandbox = sandbox
        self._cut = cut
        self._declared = Declared(sandbox.spec.topology)
        self._forwarding = Forwarding(objects)
        self._foreign = [one for one in objects if _key(one) not in own]
        self._own_networks = {name for kind, name in own if kind == NETWORK.name}
        self._own_routers = {name for kind, name in own if kind == ROUTER.name}
        self._prefix = f"{sandbox.metadata.name}-"
        self._machines: dict[str, Machine] = {}
        strangers: list[Machine] = []
        by_label = {label_value(host): host for host in self._declared.links}
        for machine in self._forwarding.machines:
            mine = [one for one in machine.members if _key(one) in own]
            host = by_label.get(mine[0].metadata.labels.get(HOST_LABEL, ""), "") if mine else ""
            if host:
                self._machines[host] = machine
            else:
                strangers.append(machine)
        self._near = list(islice(self._neighbours(strangers), MOST))
        self._reached = self._blocked = self._parted = self._more = 0
        self._found: dict[Kind, list[Difference]] = {kind: [] for kind in Kind}
        self._matrix: dict[str, dict[str, bool]] = {}
        self._beyond: dict[str, bool] = {}

    def verify(self) -> Verification:
        """Return the comparison."""
        declared = self._declared
        targets = [(one, ip_of(one.ip)) for one in declared.targets()]
        names = [str(one) for one, _ in targets]
        for host in declared.links:
            row = self._matrix[host] = {}
            for (target, ip), name in zip(targets, names, strict=True):
                if target.host != host:
                    row[name] = self._pair(host, target, ip)
        self._users(targets)
        self._vpn(targets)
        for host, machine in self._machines.items():
            self._outside(host, machine)
        self._joins()
        differences = [one for kind in Kind for one in sorted(self._found[kind])]
        return Verification(
            reached=self._reached,
            blocked=self._blocked,
            cut=self._parted,
            differences=tuple(differences),
            more=self._more,
            warnings=tuple(declared.warnings()),
            matrix=self._matrix,
            outside=self._beyond,
            strangers=tuple(shown for shown, _ in self._near),
        )

    # Pairs.

    def _pair(self, host: str, target: Target, ip: Ip) -> bool:
        machine = self._machines.get(host)
        must, may = self._declared.must(host, target), self._declared.may(host, target)
        trip = Trip(reason=f"host {host} has no attachment") if machine is None else self._forwarding.trip(machine, ip)
        if must and not trip.answers:
            self._gap(host, target, trip)
            return False
        if not may and machine is not None:
            tried = (trip, *self._forwarding.attempts(machine, ip))
            leak = next((one for one in tried if one.answers), None)
            if leak is not None:
                self._report(Kind.LEAK, host, target, leak)
                return trip.answers
        self._count(trip.answers)
        return trip.answers

    def _users(self, targets: Iterable[tuple[Target, Ip]]) -> None:
        """Follow users, who enter at `man`."""
        man = next((one for one in self._own_nodes() if self._shown(one.name) == MAN), None)
        if man is None:
            return
        row = self._matrix[USERS] = {}
        for target, ip in targets:
            trip = self._forwarding.from_router(man, ip)
            may = self._declared.for_users(target.network)
            row[str(target)] = trip.answers
            if trip.answers and not may:
                self._report(Kind.LEAK, USERS, target, trip)
            elif may and target.is_first and not trip.answers:
                self._gap(USERS, target, trip)
            else:
                self._count(trip.answers)

    def _vpn(self, targets: Collection[tuple[Target, Ip]]) -> None:
        """Follow users, who enter at the gateways of the VPN, to the blocks that its routes name."""
        vpn = self._sandbox.spec.topology.vpn
        routers = {self._shown(one.name): one for one in self._own_nodes()}
        for entry in vpn.entrypoints if vpn is not None else ():
            blocks = Blocks[bool]()
            for one in entry.routes:
                if addresses.is_cidr(one):
                    blocks.add(one, True)
            for target, ip in targets:
                if blocks.find(ip) is None or self._declared.networks[target.network].accessible_by_user:
                    continue
                trip = Trip()
                if entry.name in self._machines:
                    trip = self._forwarding.trip(self._machines[entry.name], ip)
                    own = target.host == entry.name
                elif entry.name in routers:
                    trip, own = self._forwarding.from_router(routers[entry.name], ip), False
                else:
                    continue
                if trip.answers or own:
                    reason = f"vpn.entrypoints lets users in, and {target.network} is not accessible_by_user"
                    path = (USERS, f"vpn {entry.name}", *map(self._hop, trip.hops), str(target))
                    leak = Difference(
                        kind=Kind.LEAK, source=USERS, target=str(target), path=path, reason=reason, entry=entry.name
                    )
                    self._add(leak)

    def _outside(self, host: str, machine: Machine) -> None:
        """Follow a host to the outside: machines of others, and beyond gateways."""
        versions = {ip.version for link in machine.links for ip in link.ips}
        for ip, shown in self._outside_addresses():
            if ip.version not in versions:
                continue
            own = self._forwarding.trip(machine, ip)
            if not shown:
                self._beyond[host] = self._beyond.get(host, False) or (
                    own.is_outside and own.passes and self._forwarding.comes_back(own, ip)
                )
            tried = (own, *self._forwarding.attempts(machine, ip))
            ways = [one for one in tried if one.returns and one.is_outside != bool(shown)]
            allowed = host not in self._declared.without_internet and not shown
            leak = next((one for one in ways if not (allowed and self._own_routers.issuperset(one.hops))), None)
            if leak is not None:
                path = (f"{host} {leak.source}", *map(self._hop, leak.hops), shown or OUTSIDE)
                self._add(Difference(kind=Kind.LEAK, source=host, target=shown or OUTSIDE, path=path))
            else:
                self._count(bool(ways))

    def _outside_addresses(self) -> Iterator[tuple[Ip, str]]:
        """Yield addresses that are not of the Sandbox, each with its machine; "": of no machine that is known."""
        for texts in _PUBLIC:
            unknown = [ip for ip in map(ip_of, texts) if self._forwarding.blocks.find(ip) is None]
            yield from ((ip, "") for ip in unknown[:1])
        yield from ((ip_of(ip), shown) for shown, ip in self._near)

    # Objects of others.

    def _joins(self) -> None:
        """Report objects of others that are on a Network of the Sandbox, and Networks that reach beyond it."""
        for network in sorted(self._own_networks & self._forwarding.outside):
            reason = "it is connected to a physical network, or to other sites"
            self._join(f"network {self._shown(network)}", OUTSIDE, reason)
        for one in self._foreign:
            for network in sorted(self._own_networks.intersection(_networks_of(one))):
                what = f"{one.kind} {one.metadata.name}"
                reason = "it is not in the plan" if is_of(self._sandbox, one) else "it is not of the Sandbox"
                self._join(what, f"network {self._shown(network)}", reason)

    def _join(self, source: str, target: str, reason: str) -> None:
        path = (source, target)
        self._add(Difference(kind=Kind.LEAK, source=source, target=target, path=path, reason=reason))

    def _neighbours(self, strangers: Iterable[Machine]) -> Iterator[tuple[str, str]]:
        """Yield the addresses of machines of others that are on a Network of the Sandbox, with their names.

        Those behind a Router of others are left out: the Router itself is a leak.
        """
        for machine in strangers:
            for link in machine.links:
                if link.network in self._own_networks:
                    yield from ((f"NetworkAttachment {link.attachment} {ip.ip}", str(ip.ip)) for ip in link.ips)

    # Words.

    def _own_nodes(self) -> Iterator[RouterNode]:
        return (one for name, one in self._forwarding.routers.items() if name in self._own_routers)

    def _shown(self, name: str) -> str:
        return name.removeprefix(self._prefix)

    def _hop(self, router: str) -> str:
        if router not in self._own_routers:
            return f"Router {router} (not of the Sandbox)"
        shown = self._shown(router)
        return shown if shown == MAN else f"router {shown}"

    def _gap(self, source: str, target: Target, trip: Trip) -> None:
        if (source, str(target)) in self._cut:
            self._parted += 1
        else:
            self._report(Kind.GAP, source, target, trip)

    def _report(self, kind: Kind, source: str, target: Target, trip: Trip) -> None:
        ends = (str(target),) if trip.passes else ()
        begin = source if source == USERS or trip.source is None else f"{source} {trip.source}"
        path = (begin, *map(self._hop, trip.hops), *ends)
        reason = "" if kind is Kind.LEAK else f"{target} is not reached: {trip.reason}"
        self._add(Difference(kind=kind, source=source, target=str(target), path=path, reason=reason))

    def _count(self, reached: bool) -> None:
        if reached:
            self._reached += 1
        else:
            self._blocked += 1

    def _add(self, difference: Difference) -> None:
        if len(self._found[difference.kind]) < MOST:
            self._found[difference.kind].append(difference)
        else:
            self._more += 1


def _networks_of(one: Resource) -> Iterator[str]:
    """Yield the Networks that an object connects something to."""
    match one:
        case NetworkAttachment() | EVPNNetwork():
            yield one.spec.network
        case Router():
            yield from (port.network for port in one.spec.networks)
            if one.spec.gateway is not None:
                yield one.spec.gateway.network
        case _:
            pass
