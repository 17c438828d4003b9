"""The ways between routers that a topology joins directly, without the WAN between them.  Pure.

A network with several routers and no host is a *transit network*: nothing but packets from router to router can be in
it. Routers that transit networks join, also one after the other, send each other's packets that way, by the fewest
hops; all others go through `man`. A network carries packets of its own address family only.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from netloom.plan.sandbox.topology import Segment, Usable

N = TypeVar("N")
UNREACHED = -1


class Way(Struct, frozen=True, order=True):
    """A way of a router to a network."""

    to: str
    """The block of the network."""
    hops: int
    """The links between routers on the way."""
    via: str
    """The address of the next router."""


def next_hops(
    neighbours: Mapping[N, Collection[N]], ends: Collection[N], detours: dict[tuple[N, N], dict[N, int]]
) -> dict[N, dict[N, int]]:
    """Return the next hops of each node that is no end but reaches one, with the length of the shortest way to an end.

    A way does not come back to its start. `detours` keeps what does not depend on the ends: pass one of your own for
    all questions about one graph.
    """
    distance = _distances(neighbours, ends)
    found: dict[N, dict[N, int]] = {}
    for node, mine in distance.items():
        if not mine:
            continue
        for hop in neighbours[node]:
            # A shortest way from a neighbour that is not farther than the node does not lead through the node.
            length = distance[hop]
            if length > mine:
                around = detours.get((node, hop))
                if around is None:
                    around = detours[node, hop] = _distances(neighbours, [hop], without=node)
                length = min((around[end] for end in ends if end in around), default=UNREACHED)
            if length != UNREACHED:
                found.setdefault(node, {})[hop] = length + 1
    return found


def _distances(neighbours: Mapping[N, Collection[N]], ends: Iterable[N], without: N | None = None) -> dict[N, int]:
    """Return how many links each node is from the nearest end, on ways without a node."""
    distance = dict.fromkeys(ends, 0)
    queue = deque(distance)
    while queue:
        node = queue.popleft()
        for other in neighbours.get(node, ()):
            if other not in distance and other != without:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


def transit_networks(parts: Usable) -> list[Segment]:
    """Return the networks that only routers are in."""
    used = {link.network for link in parts.links}
    return [one for one in parts.segments.values() if len(one.routers) > 1 and one.name not in used]


def ways(parts: Usable) -> dict[str, list[Way]]:
    """Return the ways of each router to the networks that it reaches over transit networks, by router."""
    transits = transit_networks(parts)
    found: dict[str, list[Way]] = {}
    for version in sorted({one.block.version for one in transits}):
        joints = [one for one in transits if one.block.version == version]
        neighbours: dict[str, dict[str, str]] = {}
        for joint in joints:
            for name, _ in joint.routers:
                others = neighbours.setdefault(name, {})
                for other, ip in joint.routers:
                    if other != name:
                        others.setdefault(other, ip)
        names = {one.name for one in joints}
        detours: dict[tuple[str, str], dict[str, int]] = {}
        for segment in parts.segments.values():
            ends = {name for name, _ in segment.routers}
            if segment.name in names or segment.block.version != version or not ends & neighbours.keys():
                continue
            for router, hops in next_hops(neighbours, sorted(ends), detours).items():
                mine = found.setdefault(router, [])
                mine += [Way(str(segment.block), length, neighbours[router][hop]) for hop, length in hops.items()]
    return {router: sorted(several) for router, several in sorted(found.items())}


def shortest(several: Iterable[Way]) -> list[Way]:
    """Return the first of the shortest ways to each network."""
    best: dict[str, Way] = {}
    for one in sorted(several):
        best.setdefault(one.to, one)
    return list(best.values())
