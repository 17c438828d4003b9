"""The shaped links of a Sandbox: between which hosts each is measured, what must be found, and the verdict.  Pure.

A link is measured from end to end, so what must be found is what all links on the way between two hosts do together:
the slowest rate, the sum of the delays, the loss of all. A peer in the same network whose link is not shaped is tried
first. Rates count the frames on the wire, as meters do. What measures is in `cli/sandbox/traffic.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf, sqrt

from msgspec import Struct

from netloom.model.kinds.paths import Direction, Shaping
from netloom.model.kinds.sandbox import Sandbox
from netloom.plan.policy.impairment import impairment
from netloom.plan.policy.shaping import bandwidth
from netloom.plan.sandbox.names import Part, assign
from netloom.plan.sandbox.topology import MAN, HostLink, Usable, usable

PEERS = 8
"""The most pairs of hosts that are tried for a link."""
SLACK = 0.005
"""Seconds that a round trip may take longer than asked for, because machines are busy."""
SIGMAS = 3.0
"""A loss is a matter of chance: by so many standard deviations it may differ beyond the tolerance."""


class Leg(Struct, frozen=True, kw_only=True):
    """What happens to packets of one direction."""

    rate: float = inf
    """Bits per second."""
    burst: float = 0.0
    """Bits."""
    delay: float = 0.0
    """Seconds."""
    jitter: float = 0.0
    loss: float = 0.0
    """From 0 to 1."""


PLAIN = Leg()
Legs = tuple[Leg, Leg]
"""What a host or router sends into a network, and what it receives from there."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A host's link to a network."""

    host: str
    network: str
    ip: str
    netns: str
    """The name of the host's network namespace."""


class Pair(Struct, frozen=True, kw_only=True):
    """Two hosts between which a link is measured, and what must be found."""

    near: Endpoint
    far: Endpoint
    sent: Leg
    received: Leg

    @property
    def loss(self) -> float:
        """The loss of round trips."""
        return 1 - (1 - self.sent.loss) * (1 - self.received.loss)


class ShapedLink(Struct, frozen=True, kw_only=True):
    """A link to measure."""

    host: str
    """The host or router."""
    network: str
    pairs: tuple[Pair, ...]
    """In the order in which they are tried."""


class Finding(Struct, frozen=True, kw_only=True):
    """One quantity of a link: what was asked for, and what was found."""

    host: str
    network: str
    peer: str = ""
    quantity: str = ""
    unit: str = ""
    asked: float = 0.0
    measured: float | None = None
    ok: bool = False
    note: str = ""
    """Why it was not measured."""


def combined(legs: Iterable[Leg]) -> Leg:
    """Return what some legs, one after the other, do together."""
    every = list(legs)
    slowest = min(every, key=lambda one: one.rate, default=PLAIN)
    kept = 1.0
    for one in every:
        kept *= 1 - one.loss
    return Leg(
        rate=slowest.rate,
        burst=slowest.burst,
        delay=sum(one.delay for one in every),
        jitter=sum(one.jitter for one in every),
        loss=1 - kept,
    )


def shaped_links(sandbox: Sandbox, shapings: Iterable[Shaping]) -> list[ShapedLink]:
    """Return the links of a Sandbox that Shapings change, by host and network."""
    return _Links(sandbox, shapings).found()


class _Links:
    def __init__(self, sandbox: Sandbox, shapings: Iterable[Shaping]) -> None:
        parts: Usable = usable(sandbox.spec.topology)
        name, self._parts = sandbox.metadata.name, parts
        self._wan = parts.wan.name
        hosts = assign(name, (Part((one,)) for one in parts.hosts))
        self._spaces = {part.words[0]: space for part, space in hosts.items()}
        wan = Part((self._wan,), "wan")
        networks = assign(name, [*(Part((one,)) for one in parts.segments), *([wan] if parts.wan_block else [])])
        routers = assign(name, [Part((MAN,)), *(Part((one.name,), "router") for one in parts.routers)])
        ends = {name: (part.words[0], self._wan if part == wan else "") for part, name in networks.items()}
        self._network_names = {name: there or word for name, (word, there) in ends.items()}
        self._router_names = {name: part.words[0] for part, name in routers.items()}
        attached = assign(name, (Part((one.host, one.network), one.ip) for one in parts.links))
        by_part = {Part((one.host, one.network), one.ip): one for one in parts.links}
        self._by_attachment = {name: by_part[part] for part, name in attached.items()}
        self._by_network: dict[str, list[HostLink]] = {}
        for one in parts.links:
            self._by_network.setdefault(one.network, []).append(one)
        self._host_legs: dict[HostLink, Legs] = {}
        self._router_legs: dict[tuple[str, str], Legs] = {}
        for shaping in shapings:
            self._apply(shaping)
        # One host of each network, with a default route: enough to try ways between networks.
        first = ([one for one in links if not one.position] for links in self._by_network.values())
        self._representatives = [min(links, key=lambda one: (one in self._host_legs, one)) for links in first if links]

    def _apply(self, shaping: Shaping) -> None:
        spec = shaping.spec
        if spec.to is not None:
            return  # It shapes some of the packets only.
        asked = impairment(spec)
        rate, burst = bandwidth(spec) if spec.rate else (inf, 0)
        leg = Leg(rate=rate * 1000, burst=burst * 1000, delay=asked.delay, jitter=asked.jitter, loss=asked.loss)
        legs = leg, leg if spec.direction is Direction.BOTH else PLAIN
        link = self._by_attachment.get(spec.from_.attachment)
        if link is not None:
            self._host_legs[link] = _strongest(self._host_legs.get(link, (PLAIN, PLAIN)), legs)
        router = self._router_names.get(spec.from_.router)
        network = self._network_names.get(spec.from_.network)
        if router is not None and network is not None:
            known = self._router_legs.get((router, network), (PLAIN, PLAIN))
            self._router_legs[router, network] = _strongest(known, legs)

    def found(self) -> list[ShapedLink]:
        links = [
            ShapedLink(host=one.host, network=one.network, pairs=self._pairs([one], self._far(one)))
            for one in self._host_legs
        ]
        for router, network in self._router_legs:
            near = [one for one in self._representatives if network in (one.network, self._wan)]
            pairs = self._pairs(near, self._representatives, via=(router, network))
            links.append(ShapedLink(host=router, network=network, pairs=pairs))
        return sorted(links, key=lambda one: (one.host, one.network))

    def _far(self, near: HostLink) -> list[HostLink]:
        """Return the links that a link may be measured with."""
        return [*self._by_network[near.network], *self._representatives]

    def _pairs(
        self, near: Iterable[HostLink], far: Sequence[HostLink], via: tuple[str, str] | None = None
    ) -> tuple[Pair, ...]:
        """Return pairs of hosts with a way between them, over a router's port if given; plain ones first."""
        far = sorted(set(far), key=lambda one: (one in self._host_legs, one))
        every = (
            (one, other)
            for one in near
            for other in sorted(far, key=lambda other: other.network != one.network)
            if one.host != other.host and self._is_joined(one, other) and (via is None or via in self._hops(one, other))
        )
        return tuple(self._pair(one, other) for one, other in islice(every, PEERS))

    def _is_joined(self, near: HostLink, far: HostLink) -> bool:
        if near.network == far.network:
            return True
        # Packets to other networks take the first link of a host, which has the default route.
        return near.position == far.position == 0 and bool(self._hops(near, far))

    def _hops(self, near: HostLink, far: HostLink) -> list[tuple[str, str]]:
        """Return the router ports on the way between two hosts: the way in and the way out of each router."""
        if near.network == far.network:
            return []
        here, there = (next(iter(self._parts.segments[one.network].routers), None) for one in (near, far))
        if here is None or there is None:
            return []
        if here[0] == there[0]:
            return [(here[0], near.network), (here[0], far.network)]
        return [(here[0], near.network), (here[0], self._wan), (there[0], self._wan), (there[0], far.network)]

    def _pair(self, near: HostLink, far: HostLink) -> Pair:
        return Pair(
            near=self._end(near),
            far=self._end(far),
            sent=combined(self._way(near, far)),
            received=combined(self._way(far, near)),
        )

    def _way(self, near: HostLink, far: HostLink) -> Iterator[Leg]:
        yield self._host_legs.get(near, (PLAIN, PLAIN))[0]
        for at, hop in enumerate(self._hops(near, far)):
            sent, received = self._router_legs.get(hop, (PLAIN, PLAIN))
            yield sent if at % 2 else received
        yield self._host_legs.get(far, (PLAIN, PLAIN))[1]

    def _end(self, link: HostLink) -> Endpoint:
        return Endpoint(host=link.host, network=link.network, ip=link.ip, netns=self._spaces[link.host])


def _strongest(known: Legs, new: Legs) -> Legs:
    """Return what two Shapings of one link do: the slower rate, and the longer delay, apply."""
    found = []
    for old, one in zip(known, new, strict=True):
        slower = min(old, one, key=lambda leg: leg.rate)
        worse = max(old, one, key=lambda leg: (leg.delay, leg.loss, leg.jitter))
        found.append(Leg(rate=slower.rate, burst=slower.burst, delay=worse.delay, jitter=worse.jitter, loss=worse.loss))
    return found[0], found[1]


# Verdicts.


def is_rate(measured: float, leg: Leg, tolerance: float) -> bool:
    """Whether a rate is as asked for.  Packets may be lost before or after they are counted."""
    return leg.rate * (1 - leg.loss) * (1 - tolerance) <= measured <= leg.rate * (1 + tolerance)


def is_round_trip(measured: float, pair: Pair, tolerance: float) -> bool:
    """Whether a mean round trip, in seconds, is as asked for."""
    asked, jitter = pair.sent.delay + pair.received.delay, pair.sent.jitter + pair.received.jitter
    return asked * (1 - tolerance) - jitter <= measured <= asked * (1 + tolerance) + jitter + SLACK


def is_loss(measured: float, sent: int, pair: Pair, tolerance: float) -> bool:
    """Whether the loss among a number of round trips is as asked for."""
    asked = pair.loss
    chance = SIGMAS * sqrt(asked * (1 - asked) / sent)
    return abs(measured - asked) <= asked * tolerance + chance
