"""The rates of Shapings as meters (`plan/policy/shaping.py` defines what a Shaping means). Pure.

Each local port at the `from` end of a Shaping has meters of its own: one for what it sends to the other end, and with
direction both one for what it receives from there. Only one meter counts a packet; the priorities decide which. On this
fabric the other end is in the port's own Network: a Shaping towards another Network has no effect.

A meter's number must be small, the same after each restart, and independent of an order. So each meter has the number
of a hash of its key, or the next free one, in the order of the keys.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from netloom.model.kinds.paths import Direction, Place, Shaping
from netloom.openflow.flows import Flow, Goto, Key, Meter, MeterSpec
from netloom.plan.policy.shaping import bandwidth, priority
from netloom.plan.vxlan.flow_claims import FlowClaims
from netloom.plan.vxlan.layout import CLASS, IPV4, IPV6, METERS, flow
from netloom.plan.vxlan.policy import EGRESS, INGRESS, Class, Fields, Set, class_number
from netloom.plan.vxlan.ports import LocalPort, Remote
from netloom.plan.world.selector_index import SelectorIndex, index_by_selector
from netloom.plan.world.selector_matches import ScopedSelector, selector_in

T = TypeVar("T")
Name = tuple[str, str]


class Share(NamedTuple):
    """The part of a Shaping that applies to one port."""

    priority: int
    shaping: str
    network: str
    """The other end is in this Network; "": in any."""
    to: Set
    """The other end is in this set; "": in any."""
    both: bool
    rate: int
    burst: int


class ByPlace(Struct, Generic[T], frozen=True):
    """Values by the places (`from` or `to` of a Shaping) that they apply to."""

    attachments: dict[str, list[T]]
    networks: dict[str, list[T]]
    nodes: dict[str, list[T]]
    selected: SelectorIndex[T]

    def found(self, one: LocalPort | Remote) -> Iterator[T]:
        """Yield the values that apply to a port."""
        yield from self.attachments.get(one.name, ())
        yield from self.networks.get(one.network, ())
        yield from self.nodes.get(one.node, ())
        yield from self.selected.matching(one.labels)


def _by_place(namespace: str, entries: Iterable[tuple[Place, T]]) -> ByPlace[T]:
    places: ByPlace[T] = ByPlace({}, {}, {}, index_by_selector(()))
    selected: list[tuple[ScopedSelector, T]] = []
    for place, thing in entries:
        if place.attachment:
            places.attachments.setdefault(place.attachment, []).append(thing)
        elif place.network:
            places.networks.setdefault(place.network, []).append(thing)
        elif place.node:
            places.nodes.setdefault(place.node, []).append(thing)
        elif place.selector is not None:
            selected.append((selector_in(namespace, place.selector), thing))
    return ByPlace(places.attachments, places.networks, places.nodes, index_by_selector(selected))


class Scheme(Struct, frozen=True):
    """The Shapings of a namespace: what applies to ports, and the sets of their other ends."""

    starts: ByPlace[Share]
    ends: ByPlace[Set]


def scheme(namespace: str, shapings: Iterable[Shaping]) -> Scheme:
    """Return what some Shapings apply to."""
    starts: list[tuple[Place, Share]] = []
    ends: list[tuple[Place, Set]] = []
    for shaping in sorted(shapings, key=lambda one: one.metadata.name):
        spec, name = shaping.spec, shaping.metadata.name
        if not spec.rate or spec.from_.router:
            continue
        rate, burst = bandwidth(spec)
        network = spec.to.network if spec.to is not None else ""
        to = f"shaping/{namespace}/{name}" if spec.to is not None and not network else ""
        share = Share(priority(spec, rate), name, network, to, spec.direction is Direction.BOTH, rate, burst)
        starts.append((spec.from_, share))
        if spec.to is not None and to:
            ends.append((spec.to, to))
    return Scheme(_by_place(namespace, starts), _by_place(namespace, ends))


class MeterKey(NamedTuple):
    """The key of a meter."""

    owner: str
    shaping: str
    outwards: bool


def numbered(wanted: Iterable[MeterKey]) -> dict[MeterKey, int]:
    """Return a number for each meter."""
    taken: set[int] = set()
    found: dict[MeterKey, int] = {}
    for one in sorted(wanted):
        digest = hashlib.blake2b("\0".join(map(str, one)).encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") % len(METERS)
        while place in taken:
            place = (place + 1) % len(METERS)
        taken.add(place)
        found[one] = METERS[place]
    return found


def rate_flows(
    owner: str, port: LocalPort, shares: Iterable[Share], known: Collection[Class], numbers: dict[MeterKey, int]
) -> Iterator[Flow]:
    """Yield the flows that send a port's packets through its meters."""
    seen: set[Key] = set()
    for share in sorted(shares, key=lambda share: (-share.priority, share.shaping)):
        ends: list[Fields] = [{}]
        if share.to:
            classes = [class_number(one) for one in known if share.to in one]
            ends = [dict(zip(CLASS, one, strict=True)) for one in sorted(classes)]
        for way in (EGRESS, INGRESS) if share.both else (EGRESS,):
            meter = Meter(numbers[MeterKey(owner, share.shaping, way is EGRESS)])
            for kind in (IPV4, IPV6):
                for end in ends:
                    on: Fields = {way.port: port.ofport, "dl_type": kind}
                    one = flow(way.rate, share.priority, (meter, Goto(way.onward)), **on, **end)
                    if one.key not in seen:  # Of two with equal priority, the first by name.
                        seen.add(one.key)
                        yield one


class MeterFlows:
    """The Shapings, and the meters and flows of the ports they apply to."""

    def __init__(self, claims: FlowClaims) -> None:
        self._claims = claims
        self._shapings: dict[str, dict[str, Shaping]] = {}
        self._schemes: dict[str, Scheme] = {}
        self._ports: dict[str, LocalPort] = {}
        self._shares: dict[str, tuple[Share, ...]] = {}
        self._numbers: dict[MeterKey, int] = {}
        self._changed_namespaces: set[str] = set()
        """Namespaces in which a Shaping changed."""
        self._dirty: set[str] = set()
        self._pending: set[str] = set()
        """Ports whose flows may have changed."""

    def put(self, shaping: Shaping) -> None:
        """Add or change a Shaping."""
        namespace, name = shaping.metadata.namespace, shaping.metadata.name
        known = self._shapings.setdefault(namespace, {})
        if name not in known or known[name].spec != shaping.spec:
            known[name] = shaping
            self._changed_namespaces.add(namespace)

    def drop(self, name: Name) -> None:
        """Remove a Shaping."""
        if self._shapings.get(name[0], {}).pop(name[1], None) is not None:
            self._changed_namespaces.add(name[0])

    def port(self, owner: str, port: LocalPort | None) -> None:
        """Add or change a local port; None: remove it."""
        self._ports.pop(owner, None)
        if port is not None:
            self._ports[owner] = port
        self._dirty.add(owner)

    def sets(self, owner: str) -> Class:
        """Return the sets that a port's Shapings refer to."""
        return frozenset([share.to for share in self._shares.get(owner, ()) if share.to])

    def joined(self, one: LocalPort | Remote) -> Class:
        """Return the sets of other ends that a port is in."""
        known = self._schemes.get(one.namespace)
        return frozenset() if known is None else frozenset(known.ends.found(one))

    def settle(self) -> tuple[set[str], set[int]]:
        """Update which Shapings apply to which ports; return the owners of ports that changed.

        Also return the VNIs of Networks in which the other end of a Shaping may have changed.
        """
        for namespace in self._changed_namespaces:
            self._schemes[namespace] = scheme(namespace, self._shapings[namespace].values())
        near = {owner: port.vni for owner, port in self._ports.items() if port.namespace in self._changed_namespaces}
        rechecked = set(near.values())
        dirty, self._dirty, self._changed_namespaces = self._dirty | near.keys(), set(), set()
        changed = {owner for owner in dirty if self._settle(owner)}
        self._pending |= dirty
        return changed, rechecked

    def _settle(self, owner: str) -> bool:
        port = self._ports.get(owner)
        known = None if port is None else self._schemes.get(port.namespace)
        new: tuple[Share, ...] = ()
        if port is not None and known is not None:
            new = tuple(sorted(one for one in known.starts.found(port) if one.network in ("", port.network)))
        old = self._shares.pop(owner, ())
        if new:
            self._shares[owner] = new
        return old != new

    def fill(self, known: Collection[Class], changed: Collection[Class]) -> None:
        """Claim meters and their flows for the present classes; `changed` were added or removed."""
        pending, self._pending = self._pending, set()
        if not self._shares and not self._numbers:
            return
        moved = frozenset[Set]().union(*changed)
        pending |= {owner for owner in self._shares if not moved.isdisjoint(self.sets(owner))}
        if pending:
            pending |= self._number()
        for owner in pending:
            port, shares = self._ports.get(owner), self._shares.get(owner, ())
            flows = rate_flows(owner, port, shares, known, self._numbers) if port is not None else ()
            self._claims.replace(f"rate/{owner}", flows)

    def _number(self) -> set[str]:
        """Update the meters; return the owners whose meters have another number now."""
        specs: dict[MeterKey, MeterSpec] = {}
        for owner, shares in self._shares.items():
            for share in shares:
                for outwards in (True, False) if share.both else (True,):
                    specs[MeterKey(owner, share.shaping, outwards)] = MeterSpec(share.rate, share.burst)
        old, self._numbers = self._numbers, numbered(specs)
        wanted = {number: specs[one] for one, number in self._numbers.items()}
        for number in self._claims.meters.keys() - wanted.keys():
            self._claims.meter(number, None)
        for number, spec in wanted.items():
            self._claims.meter(number, spec)
        return {one.owner for one, number in self._numbers.items() if old.get(one) != number}
