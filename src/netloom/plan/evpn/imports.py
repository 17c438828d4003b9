"""What other sites announce, as RemoteVTEPs of one EVPNNetwork.  Pure.

    imports.adopt(spec)                 what a speaker before this one has written
    imports.put(mac, Place(…), ips)     and None when nobody announces it any more
    imports.flood({Place(…), …})        the VTEPs that take broadcasts
    imports.take()                      the RemoteVTEPs to write or to delete: `spec(name)` says which
    imports.forget(name)                it is deleted

The machines of a VTEP are in numbered objects of at most 512. A machine stays in its object, so that a change of one
writes one object. Object 0 of a VTEP exists as long as the VTEP has a machine or takes broadcasts, and says whether it
takes them. The number of VTEPs is limited; one that is refused is imported when another one is gone.
"""

import hashlib
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from netloom.bgp.communities import is_route_target
from netloom.bgp.nlri import Address, EvpnRoute, MacIp, Multicast, address
from netloom.bgp.rib import Path
from netloom.model.kinds.bgp import MACS_OF_REMOTE_VTEP, RemoteMAC, RemoteVTEPSpec

IPS_OF_MAC = 64
"""How many addresses of one machine are written."""


_LOOPBACK = 127


class Place(Struct, frozen=True, order=True):
    """A VTEP, and the VNI of frames to it."""

    address: str
    vni: int


def place_of(route: EvpnRoute, path: Path) -> Place | None:
    """Return where frames for a route go; None: no VTEP can have its next hop, or it has no VNI."""
    vni, hop = vni_of(route, path), path.attributes.next_hop
    return Place(str(hop), vni) if vni and _is_vtep(hop) else None


def is_unicast(mac: bytes) -> bool:
    """Whether a machine can have a MAC address; a RemoteVTEP with another one is refused as a whole."""
    return not mac[0] & 1 and any(mac)


def ips_of_machine(ips: Iterable[Address]) -> list[str]:
    """Return the addresses that a machine can have; a RemoteVTEP with others is refused, or misleads ARP."""
    return [str(ip) for ip in ips if _is_of_host(ip)]


def ips_of_route(route: bytes) -> tuple[str, ...]:
    """Return the address that a machine can have, if any, of a MAC/IP route."""
    match route[31]:
        case 0:
            return ()
        case 32 if 0 < route[32] < 224 and route[32] != _LOOPBACK:
            return (f"{route[32]}.{route[33]}.{route[34]}.{route[35]}",)
    return tuple(ips_of_machine([address(route[32 : 32 + route[31] // 8])]))


def _is_of_host(ip: Address) -> bool:
    mapped = ip.version == 6 and ip.ipv4_mapped is not None
    return not (mapped or ip.is_multicast or ip.is_unspecified or ip.is_loopback)


@lru_cache(maxsize=4096)
def _is_vtep(hop: Address) -> bool:
    nowhere = hop.is_link_local or hop.is_reserved or (hop.version == 4 and not hop.packed[0])
    return _is_of_host(hop) and not nowhere


def vni_of(route: EvpnRoute, path: Path) -> int:
    """Return the VNI of frames for a route: the label, else the tag, the route target, the route distinguisher."""
    label = 0
    if isinstance(route, MacIp):
        label = route.label
    elif isinstance(route, Multicast) and path.attributes.pmsi is not None:
        label = path.attributes.pmsi.label
    tag = route.tag if isinstance(route, MacIp | Multicast) else 0
    target = next((one for one in path.attributes.extended if is_route_target(one)), b"")
    # In a target or distinguisher with an AS of two octets the number has four; else it has two.
    numbers = (label, tag, _number(target), _number(route.rd))
    return next((number for number in numbers if 0 < number < 1 << 24), 0)


def _number(eight: bytes) -> int:
    if not eight:
        return 0
    two_octets = (eight[0] if eight[1] == 2 else int.from_bytes(eight[:2], "big")) == 0
    number = int.from_bytes(eight[4:] if two_octets else eight[6:], "big")
    return number & 0xFFFFFF if two_octets else number  # RFC 8365 has a type above the VNI.


def mac_text(mac: bytes) -> str:
    """Return a MAC address in lower case, with colons."""
    return mac.hex(":")


class Imports:
    """The RemoteVTEPs of one EVPNNetwork."""

    def __init__(
        self, evpn_network: str, network: str, node: str, vni: int, local_address: str = "", *, most: int
    ) -> None:
        """`local_address` is the VTEP of this site, if one node is it for all; `most` VTEPs of others are imported."""
        self.most = most
        self._evpn_network = evpn_network
        self._network = network
        self._node = node
        self._vni = vni
        self._local_address = local_address
        self._where: dict[str, tuple[Place, int]] = {}
        """The object of each MAC address."""
        self._objects: dict[Place, dict[int, dict[str, tuple[str, ...]]]] = {}
        """The machines of each object, by VTEP and number."""
        self._room: dict[Place, set[int]] = {}
        """Objects with room for more."""
        self._flood: set[Place] = set()
        self._wanted_flood: frozenset[Place] = frozenset()
        """The VTEPs that take broadcasts, with those that are refused."""
        self._waiting: dict[Place, dict[str, tuple[str, ...]]] = {}
        """The VTEPs that are refused, and their machines."""
        self._waits: dict[str, Place] = {}
        """Where the machines of refused VTEPs are."""
        self._names: dict[str, tuple[Place, int]] = {}
        self._dirty: set[str] = set()
        self.refused = 0
        """How often a route was not imported because there are too many VTEPs."""

    def admit(self, most: int) -> None:
        """Set how many VTEPs of others are imported; those that are there stay."""
        self.most = most
        while self._waiting and len(self._objects) < most:
            self._admit_next()

    @property
    def macs(self) -> int:
        """How many machines there are."""
        return len(self._where)

    def places(self) -> list[Place]:
        """Return the VTEPs."""
        return sorted(place for place in self._objects if self._is_needed(place))

    @property
    def flooded(self) -> frozenset[Place]:
        """The VTEPs that take broadcasts."""
        return frozenset(self._flood)

    def known(self) -> list[str]:
        """Return the MAC addresses of all machines."""
        return list(self._where)

    def names_of(self, place: Place) -> list[str]:
        """Return the names of a VTEP's objects."""
        return sorted(self._name(place, number) for number in self._objects.get(place, ()))

    def where(self, mac: str) -> str:
        """Return the name of the object that has a machine; "": none."""
        found = self._where.get(mac)
        return self._name(*found) if found is not None else ""

    def place(self, mac: str) -> Place | None:
        """Return where a machine is."""
        found = self._where.get(mac)
        return found[0] if found is not None else None

    def ips(self, mac: str) -> tuple[str, ...]:
        """Return the addresses of a machine."""
        found = self._where.get(mac)
        return self._objects[found[0]][found[1]][mac] if found is not None else ()

    def machines(self, place: Place) -> int:
        """Return how many machines a VTEP has."""
        return sum(map(len, self._objects.get(place, {}).values()))

    def adopt(self, name: str, spec: RemoteVTEPSpec) -> None:
        """Adopt an existing object; one that differs from what would be written is written again."""
        place, number = Place(spec.address, spec.vni), _number_in(name)
        self._dirty.add(name)
        if number is None or name != self._name(place, number):
            return
        self._objects.setdefault(place, {}).setdefault(number, {})
        self._room.setdefault(place, set()).add(number)
        if spec.flood:
            self._flood.add(place)
        for one in spec.macs:
            if one.mac not in self._where:
                self._set(one.mac, place, number, one.ips)

    def put(self, mac: str, place: Place | None, ips: Iterable[str] = ()) -> None:
        """Set where a machine is, and its addresses; None: nowhere."""
        kept = tuple(sorted(ips))[:IPS_OF_MAC]
        found = self._where.get(mac)
        if (before := self._waits.pop(mac, None)) is not None:
            del self._waiting[before][mac]
            self._leave(before)
        if place is not None and not self._is_admitted(place):
            self._waiting.setdefault(place, {})[mac] = kept
            self._waits[mac] = place
            place = None
        if found is not None and found[0] != place:
            self._drop(mac, *found)
        if place is None:
            return
        if found is None or found[0] != place:
            self._set(mac, place, self._free(place), kept)
        elif self._objects[place][found[1]][mac] != kept:
            self._set(mac, place, found[1], kept)

    def put_all(self, place: Place, machines: Mapping[str, tuple[str, ...]]) -> None:
        """Set where machines are: as `put`, for many."""
        new = self._where.keys().isdisjoint(machines) and self._waits.keys().isdisjoint(machines)
        if not new or not self._is_admitted(place):
            for mac, ips in machines.items():
                self.put(mac, place, ips)
            return
        rest = iter(machines.items())
        while True:
            number = self._free(place)
            room = MACS_OF_REMOTE_VTEP - len(self._objects.get(place, {}).get(number, ()))
            some = dict(islice(rest, room))
            if not some:
                return
            mac, ips = some.popitem()
            self._set(mac, place, number, ips)
            objects = self._objects[place][number]
            objects.update(some)
            self._where.update(dict.fromkeys(some, self._where[mac]))
            if len(objects) == MACS_OF_REMOTE_VTEP:
                self._room[place].discard(number)

    def remove_all(self, macs: Iterable[str]) -> None:
        """Remove machines: as `put` with no place, for many."""
        changed: dict[tuple[Place, int], list[str]] = {}
        known: dict[int, tuple[object, list[str]]] = {}
        for mac in macs:
            found = self._where.get(mac)
            if found is None or mac in self._waits:
                self.put(mac, None)
                continue
            del self._where[mac]
            # Those of an object have one tuple, as a rule: its identity costs less than its hash.
            if (same := known.get(id(found))) is None:
                same = known[id(found)] = found, changed.setdefault(found, [])
            same[1].append(mac)
        for (place, number), some in changed.items():
            objects = self._objects[place]
            for mac in some:
                del objects[number][mac]
            self._room[place].add(number)
            self._dirty.add(self._name(place, number))
            if not any(objects.values()):
                self._dirty.add(self._name(place, 0))

    def _free(self, place: Place) -> int:
        """Return the number of an object of a VTEP that has room, or of a new one."""
        objects, room = self._objects.get(place, {}), self._room.get(place, set())
        if room:
            return min(room)
        number = len(objects)
        while number in objects:
            number += 1
        return number

    def flood(self, places: Set[Place]) -> None:
        """Set the VTEPs that take broadcasts."""
        self._wanted_flood = frozenset(places)
        for place in [one for one, macs in self._waiting.items() if not macs]:
            self._leave(place)
        for place in self._flood - places:
            self._flood.discard(place)
            self._dirty.add(self._name(place, 0))
        for place in places - self._flood:
            if self._is_admitted(place):
                self._flood_to(place)
            else:
                self._waiting.setdefault(place, {})

    def _flood_to(self, place: Place) -> None:
        self._objects.setdefault(place, {}).setdefault(0, {})
        self._room.setdefault(place, set()).add(0)
        self._dirty.add(self._name(place, 0))
        self._flood.add(place)

    def take(self) -> set[str]:
        """Return the names of the objects that have changed since the last call."""
        taken, self._dirty = self._dirty, set()
        return taken

    def names(self) -> set[str]:
        """Return the names of all objects."""
        return {self._name(place, number) for place, objects in self._objects.items() for number in objects}

    def spec(self, name: str) -> RemoteVTEPSpec | None:
        """Return the desired spec of an object; None: it must not exist."""
        place, number = self._names.get(name, (None, 0))
        return None if place is None else self.spec_of(place, number)

    def spec_of(self, place: Place, number: int) -> RemoteVTEPSpec | None:
        """Return the desired spec of an object of a VTEP; None: it must not exist."""
        macs = self._objects.get(place, {}).get(number)
        if macs is None or not (macs or (number == 0 and self._is_needed(place))):
            return None
        return RemoteVTEPSpec(
            evpn_network=self._evpn_network,
            network=self._network,
            node=self._node,
            address=place.address,
            vni=place.vni,
            local_vni=self._vni,
            local_address=self._local_address,
            flood=number == 0 and place in self._flood,
            macs=tuple(RemoteMAC(mac=mac, ips=ips) for mac, ips in sorted(macs.items())),
        )

    def forget(self, name: str) -> None:
        """Free what is kept for an object that does not exist, and must not: another VTEP may have its place."""
        place, number = self._names.get(name, (None, 0))
        if place is None or self.spec_of(place, number) is not None:
            return
        del self._names[name]
        self._objects.get(place, {}).pop(number, None)
        self._room.get(place, set()).discard(number)
        if not self._objects.get(place):
            self._objects.pop(place, None)
            self._room.pop(place, None)
            self._admit_next()

    def _admit_next(self) -> None:
        """Import what was refused of one VTEP."""
        place = next(iter(self._waiting), None)
        if place is None or not self._is_admitted(place):
            return
        machines = self._waiting.pop(place)
        for mac, ips in machines.items():
            del self._waits[mac]
            self.put(mac, place, ips)
        if place in self._wanted_flood:
            self._flood_to(place)

    def _leave(self, place: Place) -> None:
        """Forget a VTEP that is refused, unless it has machines or takes broadcasts."""
        if not self._waiting[place] and place not in self._wanted_flood:
            del self._waiting[place]

    def _is_admitted(self, place: Place) -> bool:
        if place in self._objects or len(self._objects) < self.most:
            return True
        self.refused += 1
        return False

    def _is_needed(self, place: Place) -> bool:
        return place in self._flood or any(self._objects[place].values())

    def _set(self, mac: str, place: Place, number: int, ips: tuple[str, ...]) -> None:
        objects, room = self._objects.setdefault(place, {}), self._room.setdefault(place, set())
        if 0 not in objects:
            room.add(0)
        if not objects.setdefault(0, {}):
            self._dirty.add(self._name(place, 0))  # It may be needed from now on.
        objects.setdefault(number, {})[mac] = ips
        (room.add if len(objects[number]) < MACS_OF_REMOTE_VTEP else room.discard)(number)
        self._where[mac] = (place, number)
        self._dirty.add(self._name(place, number))

    def _drop(self, mac: str, place: Place, number: int) -> None:
        del self._where[mac]
        del self._objects[place][number][mac]
        self._room[place].add(number)
        self._dirty.add(self._name(place, number))
        if not any(self._objects[place].values()):
            self._dirty.add(self._name(place, 0))

    def _name(self, place: Place, number: int) -> str:
        name = object_name(self._evpn_network, place, number)
        self._names[name] = (place, number)
        return name


def object_name(evpn_network: str, place: Place, number: int) -> str:
    """Return the name of a RemoteVTEP: `EVPNNETWORK.ADDRESS.VNI.NUMBER`, with a hash in place of a long first part."""
    address = place.address.replace(".", "-").replace(":", "-")
    if address.startswith("-") or address.endswith("-"):
        address = f"0{address}0"
    rest = f"{address}.{place.vni}.{number}"
    if len(evpn_network) + len(rest) > 252:
        evpn_network = hashlib.blake2b(evpn_network.encode(), digest_size=16).hexdigest()
    return f"{evpn_network}.{rest}"


def _number_in(name: str) -> int | None:
    text = name.rpartition(".")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None
