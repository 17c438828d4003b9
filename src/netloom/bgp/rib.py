"""Routing information bases: what peers sent, the best path to each route, what peers get.

    peer ── UPDATE ──> Adj-RIB-In ──> best path ──> Adj-RIB-Out ── UPDATE ──> peer
                          │  of each source           │ one for each peer: export policy, packing
    our own routes ───────┘                           └──> `take_changes`: what imports routes into networks

A route is the bytes of its NLRI and a reference to attributes that it shares with others. Work is done once for the
attributes of an UPDATE, not for each of its routes: whether they are acceptable, how they are exported to a peer. Most
routes come from one source only; only those that several have are compared. Where none of an UPDATE is such a route,
all of them are handled at once, by operations on dictionaries that loop in C.
"""

import operator
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from ipaddress import IPv4Address
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from netloom.bgp import update
from netloom.bgp.attributes import Attributes, Context, prepended
from netloom.bgp.communities import NO_ADVERTISE, NO_EXPORT, NO_EXPORT_SUBCONFED, is_transitive
from netloom.bgp.errors import TooLong
from netloom.bgp.nlri import EVPN, MAC_IP, Family, Routes, split

DEFAULT_PREFERENCE = 100


class Relation(IntEnum):
    """The relation of the source of a route to us."""

    LOCAL = 0
    EXTERNAL = 1
    INTERNAL = 2
    CLIENT = 3
    """An internal peer whose routes we reflect (RFC 4456)."""


class Source(Struct, frozen=True, eq=False):
    """Where routes come from."""

    name: str
    relation: Relation
    router_id: IPv4Address
    asn: int = 0


class Path(Struct, frozen=True, eq=False, gc=False):
    """One way to a route: the NLRI as it came, its attributes, its source."""

    route: bytes
    attributes: Attributes
    source: Source


class AdjIn(Struct, eq=False):
    """The routes of one source."""

    source: Source
    tables: dict[Family, dict[bytes, Path]]
    stale: dict[Family, set[bytes]]
    """Routes that a peer had before it restarted or began a refresh, and has not sent again."""
    fresh: dict[Family, set[bytes]]
    """Routes that it has sent since, of the families with stale ones."""

    def count(self) -> int:
        """Return how many routes there are."""
        return sum(map(len, self.tables.values()))


Chosen = dict[tuple[Attributes | None, Source | None], list[Collection[bytes]]]
"""Keys of routes by the attributes and the source of their best paths; None, None: there is no path any more."""


class Rib:
    """The routes of all sources, and the best path to each."""

    def __init__(self, asn: int, router_id: IPv4Address, *, cluster_id: IPv4Address | None = None) -> None:
        self.asn = asn
        self.router_id = router_id
        self.cluster_id = cluster_id or router_id
        self.best: dict[Family, dict[bytes, Path]] = {}
        self.refused = 0
        """How many announced routes were not acceptable, because of a loop."""
        self._sources: dict[Source, AdjIn] = {}
        self._contended: dict[Family, set[bytes]] = {}
        """Routes that several sources have, or had."""
        self._changed: dict[Family, dict[bytes, Path | None]] = {}
        """The routes whose best path has changed since `take_changes`, and what it was then."""
        self._chosen: dict[Family, Chosen] = {}
        """The same routes by their new best paths, for the peers."""

    def add_source(self, source: Source) -> AdjIn:
        """Add a source, and return its routes; those of a peer that has restarted exist already."""
        return self._sources.setdefault(source, AdjIn(source, {}, {}, {}))

    def announce(self, source: Source, family: Family, attributes: Attributes, routes: Routes) -> None:
        """Take routes with the same attributes from a source; unacceptable ones replace earlier ones with nothing."""
        if not self._is_acceptable(source, attributes):
            self.refused += len(routes)
            self.withdraw(source, family, routes)
            return
        adjacent = self._sources[source]
        table = adjacent.tables.setdefault(family, {})
        best = self.best.setdefault(family, {})
        changed = self._changed.setdefault(family, {})
        contended = self._contended.setdefault(family, set())
        if (stale := adjacent.stale.get(family)) is not None:
            stale.difference_update(routes)
            adjacent.fresh.setdefault(family, set()).update(routes)
        if best.keys().isdisjoint(routes) and changed.keys().isdisjoint(routes):
            paths = {key: Path(route, attributes, source) for key, route in routes.items()}
            table.update(paths)
            best.update(paths)
            changed.update(dict.fromkeys(routes))
            self._choose(family, attributes, source, routes)
            return
        for key, route in routes.items():
            path = table[key] = Path(route, attributes, source)
            current = best.get(key)
            if current is not None and (current.source is not source or key in contended):
                contended.add(key)
                self._decide(family, key)
                continue
            if key not in changed:
                changed[key] = current
            best[key] = path
            self._choose(family, attributes, source, (key,))

    def withdraw(self, source: Source, family: Family, routes: Iterable[bytes]) -> None:
        """Remove routes, by their keys."""
        adjacent = self._sources[source]
        table = adjacent.tables.get(family)
        if not table:
            return
        best, changed = self.best[family], self._changed.setdefault(family, {})
        contended = self._contended[family]
        keys = routes.keys() if isinstance(routes, dict) else set(routes)
        if not keys <= table.keys():
            keys = keys & table.keys()
        if (stale := adjacent.stale.get(family)) is not None:
            stale.difference_update(keys)
            adjacent.fresh.get(family, set()).difference_update(keys)
        if (not contended or contended.isdisjoint(keys)) and changed.keys().isdisjoint(keys):
            deque(map(table.__delitem__, keys), maxlen=0)
            changed.update(zip(keys, map(best.pop, keys), strict=True))
            self._choose(family, None, None, keys)
            return
        for key in keys:
            del table[key]
            if key in contended:
                self._decide(family, key)
                continue
            current = best.pop(key)
            if key not in changed:
                changed[key] = current
            self._choose(family, None, None, (key,))

    def remove_source(self, source: Source) -> None:
        """Remove all routes of a source."""
        if source in self._sources:
            for family, table in self._sources[source].tables.items():
                self.withdraw(source, family, list(table))
            del self._sources[source]

    def mark_stale(self, source: Source, families: Iterable[Family]) -> None:
        """Keep the routes of a peer that restarts, in these families; remove the others."""
        adjacent = self._sources[source]
        kept = set(families)
        for family, table in adjacent.tables.items():
            if family in kept:
                adjacent.stale[family] = set(table)
                adjacent.fresh.pop(family, None)
            else:
                self.withdraw(source, family, list(table))

    def begin_refresh(self, source: Source, family: Family) -> None:
        """Take all routes of a family for stale until the peer sends them again (RFC 7313).

        If a peer begins again and again, each time costs only what it has sent since.
        """
        adjacent = self._sources[source]
        if (stale := adjacent.stale.get(family)) is None:
            adjacent.stale[family] = set(adjacent.tables.get(family, {}))
        else:
            stale |= adjacent.fresh.pop(family, set())

    def sweep_stale(self, source: Source, family: Family) -> int:
        """Remove the routes that a peer has not sent again; return how many."""
        adjacent = self._sources[source]
        adjacent.fresh.pop(family, None)
        left = adjacent.stale.pop(family, set())
        self.withdraw(source, family, left)
        return len(left)

    def take_changes(self) -> dict[Family, dict[bytes, tuple[Path | None, Path | None]]]:
        """Return the routes whose best path has changed since the last call: what it was, and what it is."""
        taken, self._changed = self._changed, {}
        result = {}
        for family, keys in taken.items():
            now = list(map(self.best.get(family, {}).get, keys))
            pairs = zip(keys, zip(keys.values(), now, strict=True), strict=True)
            if any(map(operator.is_, keys.values(), now)):
                pairs = ((key, pair) for key, pair in pairs if pair[0] is not pair[1])  # type: ignore[assignment]
            result[family] = dict(pairs)
        return result

    def take_chosen(self) -> "dict[Family, Chosen]":
        """Return the routes whose best path has changed since the last call, by their new best paths."""
        taken, self._chosen = self._chosen, {}
        return taken

    def _choose(
        self, family: Family, attributes: Attributes | None, source: Source | None, keys: Collection[bytes]
    ) -> None:
        self._chosen.setdefault(family, {}).setdefault((attributes, source), []).append(keys)

    def sources(self) -> list[Source]:
        """Return the sources, the first of which is ourselves in a speaker."""
        return list(self._sources)

    def paths(self, family: Family, key: bytes) -> list[Path]:
        """Return all paths to a route, the best first."""
        found = [path for one in self._sources.values() if (path := one.tables.get(family, {}).get(key)) is not None]
        return sorted(found, key=preference, reverse=True)

    def _decide(self, family: Family, key: bytes) -> None:
        """Choose the best of several paths."""
        best, changed = self.best[family], self._changed.setdefault(family, {})
        found = [path for one in self._sources.values() if (path := one.tables.get(family, {}).get(key)) is not None]
        current = best.get(key)
        chosen = max(found, key=preference) if found else None
        if len(found) < 2:
            self._contended[family].discard(key)
        if chosen is current:
            return
        if key not in changed:
            changed[key] = current
        if chosen is None:
            del best[key]
            self._choose(family, None, None, (key,))
        else:
            best[key] = chosen
            self._choose(family, chosen.attributes, chosen.source, (key,))

    def _is_acceptable(self, source: Source, attributes: Attributes) -> bool:
        """Whether routes with these attributes are free of loops (RFC 4271 section 9, 4456 section 8)."""
        if source.relation is Relation.LOCAL:
            return True
        return not (
            any(self.asn in asns for _, asns in attributes.as_path)
            or attributes.originator_id == self.router_id
            or self.cluster_id in attributes.cluster_list
            or attributes.next_hop == self.router_id
        )


def preference(path: Path) -> tuple[object, ...]:
    """Return the preference of a path: greater is better (RFC 4271 section 9.1, 4456 section 9, 7432 section 15)."""
    attributes, source = path.attributes, path.source
    moved = attributes.mobility if path.route[0] == MAC_IP else None
    path_as = attributes.as_path[0][1][0] if attributes.as_path else 0
    local_pref = attributes.local_pref
    return (
        (moved.sticky, moved.sequence) if moved is not None else (False, 0),
        source.relation is Relation.LOCAL,
        DEFAULT_PREFERENCE if local_pref is None or source.relation is Relation.EXTERNAL else local_pref,
        -attributes.path_length,
        -attributes.origin,
        # MED is compared among all neighbours, as route servers do it: so the order does not depend on arrival.
        -(attributes.med or 0),
        source.relation is Relation.EXTERNAL,
        -int(attributes.originator_id or source.router_id),
        -len(attributes.cluster_list),
        -path_as,
        source.name,
    )


class AdjOut:
    """The Adj-RIB-Out of one peer."""

    def __init__(
        self,
        rib: Rib,
        peer: Source,
        context: Context,
        families: Iterable[Family],
        *,
        longest: int = 4096,
    ) -> None:
        self._rib = rib
        self._peer = peer
        self._context = context
        self._longest = longest
        self._families = tuple(families)
        self.sent: dict[Family, dict[bytes, tuple[bytes, Attributes]]] = {family: {} for family in self._families}
        """The routes that the peer has, as they were sent."""
        self._pending: dict[Family, set[bytes]] = {}
        self._exported: WeakKeyDictionary[Attributes, dict[Source, Attributes | None]] = WeakKeyDictionary()
        self._targets: set[bytes] | None = None
        """The route targets that the peer wants; None: all."""

    def count(self) -> int:
        """Return how many routes the peer has."""
        return sum(map(len, self.sent.values()))

    def enqueue(self, family: Family, keys: Iterable[bytes]) -> None:
        """Consider routes at the next `flush`."""
        if family in self.sent:
            self._pending.setdefault(family, set()).update(keys)

    def enqueue_chosen(self, family: Family, chosen: Chosen) -> None:
        """Consider routes whose best path has changed.

        Of those that are not for the peer, such as its own, only the ones are considered that it got before.
        Routes that have gone before it got them are not kept: there may be any number of them while it does not read.
        """
        sent = self.sent.get(family)
        if sent is None:
            return
        pending = self._pending.setdefault(family, set())
        for (attributes, source), parts in chosen.items():
            if attributes is not None and source is not None and self._export(family, attributes, source) is not None:
                pending.update(*parts)
            elif sent:
                pending.update(*(sent.keys() & part for part in parts))
        if pending and (gone := chosen.get((None, None))):
            best = self._best(family)
            keys = (key for part in gone for key in part if key not in best and key not in sent)
            pending.difference_update(keys)

    def enqueue_all(self, family: Family) -> None:
        """Consider all routes of a family: when the session has come up, or the export policy has changed."""
        if family in self.sent:
            self.enqueue(family, [*self._best(family), *self.sent[family]])

    def resend(self, family: Family) -> None:
        """Send all routes of a family again (RFC 2918)."""
        if family in self.sent:
            gone = {key: value for key, value in self.sent[family].items() if key not in self._best(family)}
            self.sent[family] = gone
            self.enqueue(family, [*self._best(family), *gone])

    def want_targets(self, memberships: Iterable[bytes]) -> None:
        """Send only EVPN routes with these route targets: the peer's routes of that family (RFC 4684)."""
        routes = list(memberships)
        wanted = {route[5:13] for route in routes if route[0] == 96}
        self._targets = None if any(route[0] < 96 for route in routes) else wanted
        self.enqueue_all(EVPN)

    @property
    def is_pending(self) -> bool:
        """Whether `flush` has something to do."""
        return any(self._pending.values())

    def flush(self, most: int = 4096) -> list[bytes]:
        """Return the UPDATE messages for up to `most` of the routes that are enqueued."""
        family, keys = next(((family, keys) for family, keys in self._pending.items() if keys), (EVPN, set()))
        if len(keys) <= most:
            self._pending.pop(family, None)
            return list(self._messages(family, keys))
        return list(self._messages(family, {keys.pop() for _ in range(most)}))

    def _messages(self, family: Family, keys: set[bytes]) -> Iterator[bytes]:
        """Yield messages: withdrawals first, then routes, those with the same attributes together."""
        sent, best = self.sent[family], self._best(family)
        gone: list[bytes] = []
        groups: dict[Attributes, list[bytes]] = {}
        last: tuple[Attributes, Source] | None = None
        exported: Attributes | None = None
        for key in keys:
            path = best.get(key)
            if path is None:
                last = exported = None
            elif last is None or last[0] is not path.attributes or last[1] is not path.source:
                last = (path.attributes, path.source)
                exported = self._export(family, *last)
            before = sent.get(key)
            if exported is None or path is None:
                if before is not None:
                    gone.append(before[0])
                    del sent[key]
            elif before is None or before[1] is not exported or before[0] != path.route:
                sent[key] = (path.route, exported)
                groups.setdefault(exported, []).append(path.route)
        yield from update.withdraw(family, gone, self._longest)
        for attributes, routes in groups.items():
            try:
                yield from update.announce(family, routes, attributes, self._context, self._longest)
            except TooLong:
                # The peer may have them with other attributes. A withdrawal of what it does not have does no harm.
                for key in split(family, b"".join(routes)):
                    del sent[key]
                yield from update.withdraw(family, routes, self._longest)

    def _best(self, family: Family) -> dict[bytes, Path]:
        return self._rib.best.get(family, {})

    def _export(self, family: Family, attributes: Attributes, source: Source) -> Attributes | None:
        """Return the attributes with which the peer gets a route, None if it does not get it."""
        if source is self._peer:
            return None
        if family == EVPN and self._targets is not None and self._targets.isdisjoint(attributes.extended):
            return None
        known = self._exported.setdefault(attributes, {})
        if source not in known:
            known[source] = self._rewritten(attributes, source)
        return known[source]

    def _rewritten(self, attributes: Attributes, source: Source) -> Attributes | None:
        listed = attributes.communities
        found = {listed[at : at + 4] for at in range(0, len(listed), 4)} if listed else set()
        if NO_ADVERTISE in found:
            return None
        if not self._context.internal:
            if not found.isdisjoint((NO_EXPORT, NO_EXPORT_SUBCONFED)):
                return None
            if any(self._peer.asn in asns for _, asns in attributes.as_path):
                return None  # The peer would refuse it.
            return msgspec.structs.replace(
                attributes,
                as_path=prepended(attributes, self._rib.asn),
                local_pref=None,
                originator_id=None,
                cluster_list=(),
                extended=tuple(one for one in attributes.extended if is_transitive(one)),
                med=attributes.med if source.relation is Relation.LOCAL else None,
            )
        preference = DEFAULT_PREFERENCE if attributes.local_pref is None else attributes.local_pref
        if source.relation not in (Relation.INTERNAL, Relation.CLIENT):
            return msgspec.structs.replace(attributes, local_pref=preference)
        if source.relation is Relation.INTERNAL and self._peer.relation is Relation.INTERNAL:
            return None  # Internal peers hear it from the source itself.
        return msgspec.structs.replace(
            attributes,
            originator_id=attributes.originator_id or source.router_id,
            cluster_list=(self._rib.cluster_id, *attributes.cluster_list),
        )


def membership(asn: int, target: bytes) -> bytes:
    """Return the route that asks for a route target (RFC 4684)."""
    return b"\x60" + asn.to_bytes(4, "big") + target
