"""Shaping by rate as meters: what `plan/policy/shaping.py` says a Shaping means.  Pure.

Each local port at the beginning of a way has meters of its own: one for what it sends to the other end, and with
direction both one for what it gets from there. Only one meter counts a packet; which, is said by the same priorities.
On this fabric the other end of a way is in the port's own Network: a way to another Network leads nowhere.

A meter's number must be small, the same on each restart, and must not depend on who came first. So each is given the
place that a hash of what it is for says, or the next free one, in the order of their names.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from netloom.model.paths import Direction, Place, Shaping
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
    """What a port has of a Shaping."""

    priority: int
    shaping: str
    network: str
    """The other end is this Network; "": it need not be."""
    to: Set
    """The other end is in this set; "": it need not be."""
    both: bool
    rate: int
    burst: int

    @property
    def meter(self) -> MeterSpec:
        """What its meters are like."""
        return MeterSpec(self.rate, self.burst)


class Places(Struct, Generic[T], frozen=True):
    """Things filed by the places they are for."""

    attachments: dict[str, list[T]]
    networks: dict[str, list[T]]
    nodes: dict[str, list[T]]
    selected: SelectorIndex[T]

    def found(self, one: LocalPort | Remote) -> Iterator[T]:
        """Give the things that are for somebody."""
        yield from self.attachments.get(one.name, ())
        yield from self.networks.get(one.network, ())
        yield from self.nodes.get(one.node, ())
        yield from self.selected.matching(one.labels)


def _places(namespace: str, entries: Iterable[tuple[Place, T]]) -> Places[T]:
    places: Places[T] = Places({}, {}, {}, index_by_selector(()))
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
    return Places(places.attachments, places.networks, places.nodes, index_by_selector(selected))


class Scheme(Struct, frozen=True):
    """The Shapings of a namespace: who has what of them, and who is at their other ends."""

    starts: Places[Share]
    ends: Places[Set]


def scheme(namespace: str, shapings: Iterable[Shaping]) -> Scheme:
    """Return who has what of some Shapings."""
    starts: list[tuple[Place, Share]] = []
    ends: list[tuple[Place, Set]] = []
    for shaping in sorted(shapings, key=lambda one: one.metadata.name):
        spec, name = shaping.spec, shaping.metadata.name
        if not spec.rate:
            continue
        rate, burst = bandwidth(spec)
        network = spec.to.network if spec.to is not None else ""
        to = f"shaping/{namespace}/{name}" if spec.to is not None and not network else ""
        share = Share(priority(spec, rate), name, network, to, spec.direction is Direction.BOTH, rate, burst)
        starts.append((spec.from_, share))
        if spec.to is not None and to:
            ends.append((spec.to, to))
    return Scheme(_places(namespace, starts), _places(namespace, ends))


class Wanted(NamedTuple):
    """What a meter is for."""

    owner: str
    shaping: str
    outwards: bool


def numbered(wanted: Iterable[Wanted]) -> dict[Wanted, int]:
    """Return a number for each meter."""
    taken: set[int] = set()
    found: dict[Wanted, int] = {}
    for one in sorted(wanted):
        digest = hashlib.blake2b("\0".join(map(str, one)).encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") % len(METERS)
        while place in taken:
            place = (place + 1) % len(METERS)
        taken.add(place)
        found[one] = METERS[place]
    return found


def rate_flows(
    owner: str, port: LocalPort, shares: Iterable[Share], known: Collection[Class], numbers: dict[Wanted, int]
) -> Iterator[Flow]:
    """Give the flows that lead a port's packets through its meters."""
    seen: set[Key] = set()
    for share in sorted(shares, key=lambda share: (-share.priority, share.shaping)):
        ends: list[Fields] = [{}]
        if share.to:
            classes = [class_number(one) for one in known if share.to in one]
            ends = [dict(zip(CLASS, one, strict=True)) for one in sorted(classes)]
        for way in (EGRESS, INGRESS) if share.both else (EGRESS,):
            meter = Meter(numbers[Wanted(owner, share.shaping, way is EGRESS)])
            for kind in (IPV4, IPV6):
                for end in ends:
                    on: Fields = {way.port: port.ofport, "dl_type": kind}
                    one = flow(way.rate, share.priority, (meter, Goto(way.onward)), **on, **end)
                    if one.key not in seen:  # Of two that stand equally high, the first by name.
                        seen.add(one.key)
                        yield one


class MeterFlows:
    """The Shapings, and the ports they are of."""

    def __init__(self, claims: FlowClaims) -> None:
        self._claims = claims
        self._shapings: dict[str, dict[str, Shaping]] = {}
        self._schemes: dict[str, Scheme] = {}
        self._ports: dict[str, LocalPort] = {}
        self._shares: dict[str, tuple[Share, ...]] = {}
        self._numbers: dict[Wanted, int] = {}
        self._stirred: set[str] = set()
        """Namespaces in which some Shaping changed."""
        self._dirty: set[str] = set()
        self._news: set[str] = set()
        """Ports whose flows may be others now."""

    def put(self, shaping: Shaping) -> None:
        """Let a Shaping be as it is now."""
        namespace, name = shaping.metadata.namespace, shaping.metadata.name
        known = self._shapings.setdefault(namespace, {})
        if name not in known or known[name].spec != shaping.spec:
            known[name] = shaping
            self._stirred.add(namespace)

    def drop(self, name: Name) -> None:
        """Let a Shaping be gone."""
        if self._shapings.get(name[0], {}).pop(name[1], None) is not None:
            self._stirred.add(name[0])

    def port(self, owner: str, port: LocalPort | None) -> None:
        """Let a port be here; None: no longer."""
        self._ports.pop(owner, None)
        if port is not None:
            self._ports[owner] = port
        self._dirty.add(owner)

    def sets(self, owner: str) -> Class:
        """Return the sets that a port's Shapings speak of."""
        return frozenset([share.to for share in self._shares.get(owner, ()) if share.to])

    def joined(self, one: LocalPort | Remote) -> Class:
        """Return the sets of other ends that somebody is in."""
        known = self._schemes.get(one.namespace)
        return frozenset() if known is None else frozenset(known.ends.found(one))

    def settle(self) -> tuple[set[str], set[int]]:
        """Find out which ports have what of Shapings; return the ports for which that changed, by owner.

        And the VNIs of Networks in which somebody may be at another end of a way now, or no longer.
        """
        for namespace in self._stirred:
            self._schemes[namespace] = scheme(namespace, self._shapings[namespace].values())
        near = {owner: port.vni for owner, port in self._ports.items() if port.namespace in self._stirred}
        doubted = set(near.values())
        dirty, self._dirty, self._stirred = self._dirty | near.keys(), set(), set()
        changed = {owner for owner in dirty if self._settle(owner)}
        self._news |= dirty
        return changed, doubted

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
        """Let ports have their meters, for the classes there are; `changed` are those that came or went."""
        news, self._news = self._news, set()
        if not self._shares and not self._numbers:
            return
        moved = frozenset[Set]().union(*changed)
        news |= {owner for owner in self._shares if not moved.isdisjoint(self.sets(owner))}
        if news:
            news |= self._number()
        for owner in news:
            port, shares = self._ports.get(owner), self._shares.get(owner, ())
            flows = rate_flows(owner, port, shares, known, self._numbers) if port is not None else ()
            self._claims.replace(f"rate/{owner}", flows)

    def _number(self) -> set[str]:
        """Let the meters be those that are wanted; return whose have another number now."""
        specs: dict[Wanted, MeterSpec] = {}
        for owner, shares in self._shares.items():
            for share in shares:
                for outwards in (True, False) if share.both else (True,):
                    specs[Wanted(owner, share.shaping, outwards)] = share.meter
        old, self._numbers = self._numbers, numbered(specs)
        wanted = {number: specs[one] for one, number in self._numbers.items()}
        for number in self._claims.meters.keys() - wanted.keys():
            self._claims.meter(number, None)
        for number, spec in wanted.items():
            self._claims.meter(number, spec)
        return {one.owner for one, number in self._numbers.items() if old.get(one) != number}
