"""EVPN instances: routes imported by route target, where each MAC address is, which VTEPs take part.

    tables = Instances()
    tables.add(Instance("blue", imports={target}))
    tables.apply(speaker.take_changes()[EVPN])
    tables["blue"].mac(mac)                 the VTEP of a MAC address, and its IP addresses

An instance has the best path of each route with one of its targets. Routes of several VTEPs for the same MAC address
have different route distinguishers, so they are different routes for BGP. Which one counts is decided here (RFC 7432
section 15): a sticky one, then the one that has moved most often, then that of the lowest VTEP. Routes stay bytes until
something asks for them. Of very many routes for one MAC address only some are considered, so that a change of one costs
a bounded time.
"""

import heapq
import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import repeat
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from netloom.bgp.communities import Mobility
from netloom.bgp.nlri import MAC_IP, Address, EvpnRoute, MacIp, address, decode_evpn
from netloom.bgp.rib import Path, Relation

if TYPE_CHECKING:
    from netloom.bgp.attributes import Attributes

MOVES, WINDOW_SECONDS, RECOVERY_SECONDS = 5, 180.0, 540.0
"""A MAC address that moves this often within this time is a duplicate (RFC 7432 section 15.1), for that long."""

MOST_ROUTES = 1024
"""How many routes for one MAC address are considered."""
MOST_IPS = 64
"""How many IP addresses of one MAC address are known."""

_WAS: Callable[[Any], Any] = operator.itemgetter(0)
_NOW: Callable[[Any], Any] = operator.itemgetter(1)
_ATTRIBUTES: Callable[[Path], object] = operator.attrgetter("attributes")


class MacEntry(Struct, frozen=True):
    """Where a MAC address is."""

    mac: bytes
    vtep: Address
    local: bool
    label: int
    ips: tuple[Address, ...]
    mobility: Mobility
    paths: tuple[Path, ...]
    """All routes for the address, those that count first."""


class Instance:
    """One EVPN instance: a network."""

    def __init__(self, name: str, imports: Iterable[bytes]) -> None:
        """Import routes with one of these route targets."""
        self.name = name
        self.imports = frozenset(imports)
        self.paths: dict[bytes, Path] = {}
        self.others: dict[bytes, Path] = {}
        """The paths of routes that are not for a MAC address."""
        self._macs: dict[bytes, bytes | dict[bytes, None]] = {}
        """The key of the route for each MAC address; if there are several, those that are considered."""
        self._more: dict[bytes, dict[bytes, None]] = {}
        """Those that are not considered, because there are very many: one moves up when another is withdrawn."""
        self._changed: dict[bytes, None] = {}
        """In the order of their routes: paths that were made together are read together, which caches reward."""
        self._others_changed = False

    def macs(self) -> Iterator[bytes]:
        """Yield the MAC addresses."""
        return iter(self._macs)

    def mac(self, mac: bytes) -> MacEntry | None:
        """Return where a MAC address is; None if no route announces it."""
        known = self._macs.get(mac, {})
        keys: Iterable[bytes] = (known,) if isinstance(known, bytes) else known
        found = sorted((self.paths[key] for key in keys), key=_claim, reverse=True)
        if not found:
            return None
        first = found[0]
        vtep, route = first.attributes.next_hop, decode_evpn(first.route)
        assert isinstance(route, MacIp)
        packed = {_packed_ip(path.route) for path in found if path.attributes.next_hop == vtep} - {b""}
        ips = tuple(map(address, heapq.nsmallest(MOST_IPS, packed, key=lambda ip: (len(ip), ip))))
        return MacEntry(mac, vtep, _is_local(first), route.label, ips, first.attributes.mobility, tuple(found))

    def sort(self, macs: Iterable[bytes]) -> tuple[list[tuple[bytes, Path]], list[bytes], list[bytes]]:
        """Return the MAC addresses with one route, of another speaker, those with none, and the others."""
        single: list[tuple[bytes, Path]] = []
        none: list[bytes] = []
        others: list[bytes] = []
        known, paths, local = self._macs, self.paths, Relation.LOCAL
        macs = list(macs)
        keys = list(map(known.get, macs))
        if not any(keys):
            return single, macs, others
        for mac, key in zip(macs, keys, strict=True):
            if key is None:
                none.append(mac)
            elif type(key) is bytes and (path := paths[key]).source.relation is not local:
                single.append((mac, path))
            else:
                others.append(mac)
        return single, none, others

    def remote(self, kind: int) -> list[tuple[EvpnRoute, Path]]:
        """Return the routes of other speakers of one type, other than those for a MAC address."""
        return [
            (decode_evpn(path.route), path)
            for key, path in self.others.items()
            if key[0] == kind and path.source.relation is not Relation.LOCAL
        ]

    def take_changes(self) -> tuple[Set[bytes], bool]:
        """Return the MAC addresses whose routes have changed, and whether other routes have."""
        taken = (self._changed.keys(), self._others_changed)
        self._changed, self._others_changed = {}, False
        return taken

    def put(self, found: Mapping[bytes, Path]) -> None:
        """Set the best paths of routes."""
        paths, macs = self.paths, self._macs
        fresh = list(found) if paths.keys().isdisjoint(found) else [key for key in found if key not in paths]
        paths.update(found)
        if len(fresh) < len(found):
            self._note(found)
        new = self._note(fresh)
        once = dict(zip(new, fresh, strict=True)) if len(new) == len(fresh) else {}
        if len(once) == len(fresh) and macs.keys().isdisjoint(once):
            macs.update(once)
            return
        for key in fresh:
            if key[0] != MAC_IP:
                continue
            match macs.get(mac := key[14:20]):
                case None:
                    macs[mac] = key
                case bytes() as other:
                    macs[mac] = {other: None, key: None}
                case others if len(others) < MOST_ROUTES:
                    others[key] = None
                case _:
                    self._more.setdefault(mac, {})[key] = None

    def drop(self, keys: Collection[bytes]) -> None:
        """Remove routes."""
        paths, macs = self.paths, self._macs
        gone = keys if all(map(paths.__contains__, keys)) else [key for key in keys if key in paths]
        deque(map(paths.__delitem__, gone), maxlen=0)
        old = self._note(gone)
        if len(old) == len(gone) and set(map(type, map(macs.get, old))) == {bytes}:
            deque(map(macs.__delitem__, old), maxlen=0)  # None of the addresses has another route.
            return
        for key in gone:
            if key[0] != MAC_IP:
                continue
            known = macs[mac := key[14:20]]
            if isinstance(known, bytes):
                del macs[mac]
                continue
            if (more := self._more.get(mac)) is not None:
                if key in known:
                    del known[key]
                    known[more.popitem()[0]] = None
                else:
                    del more[key]
                if not more:
                    del self._more[mac]
                continue
            del known[key]
            if len(known) == 1:
                [macs[mac]] = known

    def _note(self, keys: Collection[bytes]) -> list[bytes]:
        """Record what has changed; return the MAC addresses of the routes that have one."""
        macs = [key[14:20] for key in keys if key[0] == MAC_IP]
        self._changed.update(dict.fromkeys(macs))
        if len(macs) < len(keys):
            self._others_changed = True
            for key in keys:
                if key[0] != MAC_IP:
                    if (path := self.paths.get(key)) is None:
                        del self.others[key]
                    else:
                        self.others[key] = path
        return macs


def _packed_ip(route: bytes) -> bytes:
    """Return the IP address of a MAC/IP route; b"" if it has none."""
    return route[32 : 32 + route[31] // 8]


def _is_local(path: Path) -> bool:
    return path.source.relation is Relation.LOCAL


def _claim(path: Path) -> tuple[object, ...]:
    """Return the preference of a route for a MAC address: greater is better."""
    moved = path.attributes.mobility
    hop = path.attributes.next_hop
    return (moved.sticky, moved.sequence, -hop.version, -int(hop), len(path.route))


def _share_attributes(paths: list[Path]) -> bool:
    return all(map(operator.is_, map(_ATTRIBUTES, paths), repeat(paths[0].attributes)))


class Instances:
    """All instances, by their names."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._by_target: dict[bytes, dict[Instance, None]] = {}
        self._importers: WeakKeyDictionary[Attributes, tuple[Instance, ...]] = WeakKeyDictionary()
        """The instances that import routes with these attributes."""

    def __getitem__(self, name: str) -> Instance:
        return self._instances[name]

    def __contains__(self, name: str) -> bool:
        return name in self._instances

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def add(self, instance: Instance, best: Mapping[bytes, Path]) -> None:
        """Add an instance, or replace one, and import the routes that are there."""
        if instance.name in self._instances:
            self.remove(instance.name)
        self._instances[instance.name] = instance
        for target in instance.imports:
            self._by_target.setdefault(target, {})[instance] = None
        self._importers.clear()
        instance.put({key: path for key, path in best.items() if instance in self._of(path)})

    def remove(self, name: str) -> None:
        """Remove an instance."""
        instance = self._instances.pop(name)
        for target in instance.imports:
            del self._by_target[target][instance]
            if not self._by_target[target]:
                del self._by_target[target]
        self._importers.clear()

    def apply(self, changes: Mapping[bytes, tuple[Path | None, Path | None]]) -> None:
        """Apply changes of best paths."""
        if not changes:
            return
        # Most often all routes have come, or gone, with the same attributes: that is done by loops in C.
        before_all, now_all = list(map(_WAS, changes.values())), list(map(_NOW, changes.values()))
        if not any(now_all) and _share_attributes(before_all):
            for instance in self._of(before_all[0]):
                instance.drop(changes)
            return
        if not any(before_all) and _share_attributes(now_all):
            paths = dict(zip(changes, now_all, strict=True))
            for instance in self._of(now_all[0]):
                instance.put(paths)
            return
        self._apply_each(changes)

    def _apply_each(self, changes: Mapping[bytes, tuple[Path | None, Path | None]]) -> None:
        none: tuple[Instance, ...] = ()
        known: dict[int, tuple[Instance, ...]] = {}
        """By the identity of attributes: a weak dictionary would cost more than the rest of the work for a route."""
        put: dict[tuple[Instance, ...], dict[bytes, Path]] = {}
        dropped: dict[tuple[Instance, ...], list[bytes]] = {}

        def importers(path: Path) -> tuple[Instance, ...]:
            found = known.get(id(path.attributes))
            if found is None:
                found = known[id(path.attributes)] = self._of(path)
                put.setdefault(found, {})
                dropped.setdefault(found, [])
            return found

        last, new, before, old = None, none, None, none
        left: list[bytes] = []
        """The routes that leave instances of `old` which are not in `new`."""
        pair: tuple[object, object] = (None, None)
        for key, (was, now) in changes.items():
            if now is not None:
                if now.attributes is not last:
                    last, new = now.attributes, importers(now)
                put[new][key] = now
            if was is not None:
                if was.attributes is not before:
                    before, old = was.attributes, importers(was)
                if now is None:
                    dropped[old].append(key)
                elif old is not new:
                    if pair != (before, last):
                        pair = (before, last)
                        kept = set(new)
                        left = dropped.setdefault(tuple(one for one in old if one not in kept), [])
                    left.append(key)
        for instances, keys in dropped.items():
            for instance in instances:
                instance.drop(keys)
        for instances, found in put.items():
            for instance in instances:
                instance.put(found)

    def _of(self, path: Path) -> tuple[Instance, ...]:
        """Return the instances that import a path."""
        found = self._importers.get(path.attributes)
        if found is None:
            by_target = self._by_target
            found = tuple({one: None for target in path.attributes.extended for one in by_target.get(target, ())})
            self._importers[path.attributes] = found
        return found


class MoveCounter:
    """Detects duplicates: MAC addresses that keep moving between two VTEPs."""

    def __init__(self) -> None:
        self._moves: dict[bytes, deque[float]] = {}
        self._duplicates: dict[bytes, float] = {}
        """Until when an address counts as a duplicate."""

    def moved(self, mac: bytes, now: float) -> bool:
        """Record a move of an address; return whether it is a duplicate."""
        if self.is_duplicate(mac, now):
            return True
        moves = self._moves.setdefault(mac, deque(maxlen=MOVES))
        moves.append(now)
        if len(moves) == MOVES and now - moves[0] < WINDOW_SECONDS:
            del self._moves[mac]
            self._duplicates[mac] = now + RECOVERY_SECONDS
            return True
        return False

    def is_duplicate(self, mac: bytes, now: float) -> bool:
        """Whether an address counts as a duplicate now."""
        until = self._duplicates.get(mac)
        if until is not None and now >= until:
            del self._duplicates[mac]
            return False
        return until is not None

    def duplicates(self) -> set[bytes]:
        """Return the duplicates."""
        return set(self._duplicates)

    def clear(self, mac: bytes) -> None:
        """Clear a duplicate, because an operator has resolved it."""
        self._duplicates.pop(mac, None)
        self._moves.pop(mac, None)

    def expire(self, now: float) -> set[bytes]:
        """Expire old moves; return the addresses that are no longer duplicates."""
        for mac, moves in list(self._moves.items()):
            if now - moves[-1] >= WINDOW_SECONDS:
                del self._moves[mac]
        over = {mac for mac, until in self._duplicates.items() if now >= until}
        for mac in over:
            del self._duplicates[mac]
        return over
