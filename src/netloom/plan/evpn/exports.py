"""The routes of our own machines, of one EVPN instance.  Pure.

    exports.put("default/web", Machine(mac, ips, vtep))     and None when it is gone
    exports.contest(mac, sequence)                          another site announces it too
    exports.flush()                                         what to announce and to withdraw since the last time

For each machine there is a route with its MAC address alone and one with each of its IP addresses, because some
speakers read only the former for frames and only the latter for ARP. Each VTEP of ours gets a route for broadcast. A
machine that has moved to another VTEP is announced with a higher sequence (RFC 7432 section 15), also if it was gone
for a moment. A speaker that takes over from another one begins with higher sequences than that had: peers may keep the
other's routes for minutes, as those of a speaker that restarts.
"""

from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network

from msgspec import Struct

from netloom.bgp.attributes import AttributeCache, Attributes, Pmsi
from netloom.bgp.communities import LAST_SEQUENCE, Mobility, mac_mobility
from netloom.bgp.nlri import EVPN, Address, EvpnRoute, IpPrefix, MacIp, Multicast, Routes, encode_evpn, split
from netloom.plan.evpn.evi import Evi

SEQUENCES_OF_A_TURN = 256
"""How much higher the sequences begin with each turn: no machine is expected to move more often in one."""
MOST_GONE = 16384
"""How many machines that are gone are remembered."""


class Machine(Struct, frozen=True):
    """A machine of this site."""

    mac: bytes
    ips: tuple[Address, ...]
    vtep: Address
    """The VTEP that reaches it."""


class Prefix(Struct, frozen=True):
    """A Subnet behind a Router."""

    block: IPv4Network | IPv6Network
    gateway: Address
    """The address of the Router in the stretched Network."""
    vtep: Address


class Flush(Struct):
    """What to announce, by attributes, what to withdraw, and which machines were added, removed or changed."""

    announced: dict[Attributes, Routes]
    withdrawn: Routes
    macs: set[bytes]


class Exports:
    """The routes of one instance."""

    def __init__(self, evi: Evi, cache: AttributeCache, vteps: Iterable[Address] = ()) -> None:
        """`vteps` take broadcasts whether they have machines or not."""
        self.evi = evi
        self._cache = cache
        self._vteps = frozenset(vteps)
        self._machines: dict[str, Machine] = {}
        """By owner."""
        self._owners: dict[bytes, set[str]] = {}
        """The owners of each MAC address: of several, the first by name has it."""
        self._sequences: dict[bytes, int] = {}
        self._first = 0
        """The sequence of machines that have not moved."""
        self._gone: dict[bytes, tuple[Address, int]] = {}
        """Where machines that are gone were, and their sequence: one that moves is deleted and created again."""
        self._behind: Counter[Address] = Counter()
        """How many machines each VTEP has."""
        self._prefixes: frozenset[Prefix] = frozenset()
        self._sent: dict[bytes, tuple[Address, dict[Attributes, Routes]]] = {}
        """The routes of each MAC address that are announced, and the VTEP."""
        self._sent_others: dict[Attributes, Routes] = {}
        self._dirty: set[bytes] = set()
        self._others_dirty = True

    def __contains__(self, mac: object) -> bool:
        return mac in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def isdisjoint(self, macs: Iterable[bytes]) -> bool:
        """Whether no machine has one of these MAC addresses."""
        return self._owners.keys().isdisjoint(macs)

    def put(self, owner: str, machine: Machine | None) -> None:
        """Set the machine of an owner; None: it has none."""
        before = self._machines.pop(owner, None)
        if before == machine:
            if machine is not None:
                self._machines[owner] = machine
            return
        if before is not None:
            owners = self._owners[before.mac]
            owners.discard(owner)
            if not owners:
                del self._owners[before.mac]
            self._dirty.add(before.mac)
            self._count(before.vtep, -1)
        if machine is not None:
            self._machines[owner] = machine
            self._owners.setdefault(machine.mac, set()).add(owner)
            self._dirty.add(machine.mac)
            self._count(machine.vtep, 1)

    def owners(self) -> list[str]:
        """Return the owners that have machines."""
        return list(self._machines)

    def macs(self) -> list[bytes]:
        """Return the MAC addresses of all machines."""
        return list(self._owners)

    def owners_of(self, mac: bytes) -> list[str]:
        """Return the owners of a MAC address, the one that has it first."""
        return sorted(self._owners.get(mac, ()))

    def machine(self, mac: bytes) -> Machine | None:
        """Return the machine with a MAC address."""
        owners = self._owners.get(mac)
        return self._machines[min(owners)] if owners else None

    def contest(self, mac: bytes, sequence: int) -> None:
        """Announce a machine with at least this sequence, or the last one."""
        if (sequence := min(sequence, LAST_SEQUENCE)) > self.sequence(mac):
            self._sequences[mac] = sequence
            self._dirty.add(mac)

    def sequence(self, mac: bytes) -> int:
        """Return the sequence with which a machine is announced."""
        return max(self._first, self._sequences.get(mac, 0))

    def begin_turn(self, turn: int) -> None:
        """Begin with higher sequences than the speakers that forwarded in turns before, of which the first is 1."""
        first = min(max(turn - 1, 0) * SEQUENCES_OF_A_TURN, LAST_SEQUENCE)
        if first != self._first:
            self._first = first
            self._dirty.update(self._owners)

    def put_prefixes(self, prefixes: frozenset[Prefix]) -> None:
        """Set the Subnets behind Routers."""
        if prefixes != self._prefixes:
            self._prefixes = prefixes
            self._others_dirty = True

    def flush(self) -> Flush:
        """Return what has changed since the last call."""
        flush = Flush({}, {}, self._dirty)
        self._dirty = set()
        for mac in flush.macs:
            before = self._sent.pop(mac, None)
            owners = self._owners.get(mac)
            now: dict[Attributes, Routes] = {}
            if owners:
                machine = self._machines[min(owners)]
                vtep = self._return(mac) if before is None else before[0]
                if vtep is not None and vtep != machine.vtep:
                    self._sequences[mac] = min(self.sequence(mac) + 1, LAST_SEQUENCE)
                now = self._of_machine(machine)
                self._sent[mac] = (machine.vtep, now)
            elif before is not None:
                self._leave(mac, before[0])
            _change(flush, before[1] if before is not None else {}, now)
        if self._others_dirty:
            others = self._others()
            _change(flush, self._sent_others, others)
            self._sent_others, self._others_dirty = others, False
        return flush

    def _leave(self, mac: bytes, vtep: Address) -> None:
        """Remember a machine that is gone, and forget the one that has been gone longest."""
        self._gone[mac] = (vtep, self._sequences.pop(mac, 0))
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _return(self, mac: bytes) -> Address | None:
        """Return where a machine was that is new, or back; its sequence is what it was, or more."""
        vtep, sequence = self._gone.pop(mac, (None, 0))
        if sequence > self._sequences.get(mac, 0):
            self._sequences[mac] = sequence
        return vtep

    def everything(self) -> dict[Attributes, Routes]:
        """Return all routes that were flushed."""
        found: dict[Attributes, Routes] = {}
        for some in (self._sent_others, *(routes for _, routes in self._sent.values())):
            for attributes, routes in some.items():
                found.setdefault(attributes, {}).update(routes)
        return found

    def _count(self, vtep: Address, more: int) -> None:
        before = self._behind[vtep]
        self._behind[vtep] += more
        if not before or not self._behind[vtep]:
            self._others_dirty = True

    def _of_machine(self, machine: Machine) -> dict[Attributes, Routes]:
        extended = self.evi.exports
        if sequence := self.sequence(machine.mac):
            extended = (*extended, mac_mobility(Mobility(sequence)))
        attributes = self._cache.get({"extended": extended}, machine.vtep)
        return {attributes: _routes(MacIp(self.evi.rd, machine.mac, ip, self.evi.vni) for ip in (None, *machine.ips))}

    def _others(self) -> dict[Attributes, Routes]:
        """Return the routes for broadcast, one for each VTEP of ours, and those of prefixes."""
        evi, found = self.evi, dict[Attributes, Routes]()
        for vtep in self._vteps | {vtep for vtep, count in self._behind.items() if count}:
            pmsi = Pmsi(evi.vni, vtep.packed)
            attributes = self._cache.get({"extended": evi.exports, "pmsi": pmsi}, vtep)
            found.setdefault(attributes, {}).update(_routes([Multicast(evi.rd, vtep)]))
        for one in self._prefixes:
            route = IpPrefix(evi.rd, one.block.network_address, one.block.prefixlen, one.gateway, evi.vni)
            attributes = self._cache.get({"extended": evi.exports}, one.vtep)
            found.setdefault(attributes, {}).update(_routes([route]))
        return found


def _routes(values: Iterable[EvpnRoute]) -> Routes:
    return split(EVPN, b"".join(map(encode_evpn, values)))


def _change(flush: Flush, before: dict[Attributes, Routes], now: dict[Attributes, Routes]) -> None:
    kept: set[bytes] = set()
    for attributes, routes in now.items():
        had = before.get(attributes, {})
        kept.update(routes)
        if new := {key: route for key, route in routes.items() if had.get(key) != route}:
            flush.announced.setdefault(attributes, {}).update(new)
    for routes in before.values():
        flush.withdrawn.update((key, route) for key, route in routes.items() if key not in kept)
