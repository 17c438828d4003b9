"""Address families and their routes: a field of NLRI is split into routes, each with the key that identifies it.

A route stays the bytes of its NLRI until something imports it; splitting only checks lengths. The key of an EVPN route
is the part of it that RFC 7432 and 9136 make the prefix for BGP: without the ESI, the labels and the gateway, so that a
route with another one of those replaces the earlier one. The key of a prefix is the prefix.

    type 2:   type len │ RD 8 │ ESI 10 │ tag 4 │ 48 MAC 6 │ bits IP │ label 3 (label 3)
    key:       02      │ RD 8 │        │ tag 4 │ 48 MAC 6 │ bits IP │
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from struct import Struct as Layout
from typing import Final, NamedTuple

from msgspec import Struct

from netloom.bgp.errors import Code, Notification, UpdateError

Address = IPv4Address | IPv6Address
NO_ESI: Final = bytes(10)


class Family(NamedTuple):
    """An address family: AFI and SAFI."""

    afi: int
    safi: int

    def __str__(self) -> str:
        return _NAMES.get(self, f"afi {self.afi} safi {self.safi}")


IPV4, IPV6, EVPN, ROUTE_TARGETS = Family(1, 1), Family(2, 1), Family(25, 70), Family(1, 132)
_NAMES = {IPV4: "ipv4 unicast", IPV6: "ipv6 unicast", EVPN: "l2vpn evpn", ROUTE_TARGETS: "ipv4 rt-constraint"}

Routes = dict[bytes, bytes]
"""Routes by their keys."""


def split(family: Family, data: bytes) -> Routes:
    """Return the routes of a field of NLRI; if one is twice in it, the last.

    A field that cannot be split raises the `Notification` to send (RFC 7606 section 5.3).
    """
    return _SPLITTERS[family](data)


def is_known(family: Family) -> bool:
    """Whether routes of a family can be split."""
    return family in _SPLITTERS


def _broken(family: Family, why: str) -> Notification:
    return Notification(Code.UPDATE, UpdateError.NETWORK_FIELD, why=f"NLRI of {family}: {why}")


# EVPN ------------------------------------------------------------------------

ETHERNET_AD, MAC_IP, MULTICAST, ETHERNET_SEGMENT, IP_PREFIX = 1, 2, 3, 4, 5

_LENGTHS: dict[int, frozenset[int]] = {
    ETHERNET_AD: frozenset((25,)),
    MULTICAST: frozenset((17, 29)),
    ETHERNET_SEGMENT: frozenset((23, 35)),
    IP_PREFIX: frozenset((34, 58)),
}
_MAC_IP_FORMS = {33: (0, 32), 36: (0, 32), 37: (32, 36), 40: (32, 36), 49: (128, 48), 52: (128, 48)}
"""The bits of the IP address of a MAC/IP route and the end of its key, by its length."""


_MAC_IP_LAYOUTS = {
    length: (
        Layout(f"c x 8s 10x {stop - 20}s {length + 2 - stop}x"),  # The parts of the key.
        Layout(f"20x {stop - 20}s {length + 2 - stop}x"),  # What follows the route distinguisher in it.
        Layout(f"{length + 2}s"),
    )
    for length, (_, stop) in _MAC_IP_FORMS.items()
}


def _split_alike(data: bytes) -> Routes | None:
    """Split a field that begins with a MAC/IP route and has only such of one length; None if it has others.

    Most fields are so. What is done here for all routes of a field at once takes a third of the time that it takes for
    one after the other. A route that is none of those shows in one of four columns.
    """
    length = data[1]
    count, rest = divmod(len(data), length + 2)
    form = _MAC_IP_FORMS.get(length)
    if rest or form is None:
        return None
    for at, value in ((0, MAC_IP), (1, length), (24, 48), (31, form[0])):
        if data[at :: length + 2] != bytes((value,)) * count:
            return None
    whole, rests, routes = _MAC_IP_LAYOUTS[length]
    if all(data[at :: length + 2] == data[at : at + 1] * count for at in range(2, 10)):
        head = b"\2" + data[2:10]  # One route distinguisher: that of a network, as a rule.
        keys = map(head.__add__, chain.from_iterable(rests.iter_unpack(data)))
    else:
        keys = map(b"".join, whole.iter_unpack(data))
    return dict(zip(keys, chain.from_iterable(routes.iter_unpack(data)), strict=True))


def _split_evpn(data: bytes) -> Routes:
    if len(data) > 1 and data[0] == MAC_IP and (alike := _split_alike(data)) is not None:
        return alike
    found: Routes = {}
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        length = data[at + 1] if at + 1 < end else 255
        after = at + 2 + length
        if after > end:
            raise _broken(EVPN, "a route is truncated")
        route = data[at:after]
        at = after
        if kind == MAC_IP:
            form = _MAC_IP_FORMS.get(length)
            if form is None or route[31] != form[0] or route[24] != 48:
                raise _broken(EVPN, f"a MAC/IP route of {length} bytes has a wrong length")
            found[b"\2" + route[2:10] + route[20 : form[1]]] = route
        elif kind in _KEYS:
            key = _KEYS[kind](route) if length in _LENGTHS[kind] else b""
            if not key:
                raise _broken(EVPN, f"a route of type {kind} and {length} bytes has a wrong length")
            found[key] = route
        # A type that is not known is discarded (RFC 7606 section 5.4).
    return found


def _multicast_key(route: bytes) -> bytes:
    return b"\3" + route[2:] if route[14] == (len(route) - 15) * 8 else b""


def _segment_key(route: bytes) -> bytes:
    return b"\4" + route[2:] if route[20] == (len(route) - 21) * 8 else b""


def _prefix_key(route: bytes) -> bytes:
    wide = 4 if len(route) == 36 else 16
    return b"\5" + route[2:10] + route[20 : 25 + wide] if route[24] <= wide * 8 else b""


_KEYS: dict[int, Callable[[bytes], bytes]] = {
    ETHERNET_AD: lambda route: b"\1" + route[2:24],
    MULTICAST: _multicast_key,
    ETHERNET_SEGMENT: _segment_key,
    IP_PREFIX: _prefix_key,
}


class EthernetAd(Struct, frozen=True):
    """Type 1: an Ethernet segment, or one EVI on it, is reachable."""

    rd: bytes
    esi: bytes
    tag: int
    label: int


class MacIp(Struct, frozen=True):
    """Type 2: a MAC address, and perhaps an IP address of it."""

    rd: bytes
    mac: bytes
    ip: Address | None = None
    label: int = 0
    """With VXLAN: the VNI (RFC 8365)."""
    label2: int | None = None
    tag: int = 0
    esi: bytes = NO_ESI


class Multicast(Struct, frozen=True):
    """Type 3: a VTEP wants the broadcast, unknown unicast and multicast frames of an EVI."""

    rd: bytes
    originator: Address
    tag: int = 0


class EthernetSegment(Struct, frozen=True):
    """Type 4: a VTEP is attached to an Ethernet segment."""

    rd: bytes
    esi: bytes
    originator: Address


class IpPrefix(Struct, frozen=True):
    """Type 5: a prefix, reached through a gateway or the VTEP's router (RFC 9136)."""

    rd: bytes
    address: Address
    length: int
    gateway: Address
    label: int = 0
    tag: int = 0
    esi: bytes = NO_ESI


EvpnRoute = EthernetAd | MacIp | Multicast | EthernetSegment | IpPrefix


def address(packed: bytes) -> Address:
    """Decode an address of four or sixteen bytes."""
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def decode_evpn(route: bytes) -> EvpnRoute:
    """Decode a route that `split` returned."""
    rd = route[2:10]
    match route[0]:
        case 1:
            return EthernetAd(rd, route[10:20], _number(route[20:24]), _number(route[24:27]))
        case 2:
            stop = 32 + route[31] // 8
            ip = address(route[32:stop]) if stop > 32 else None
            label2 = _number(route[stop + 3 :]) if len(route) > stop + 3 else None
            label = _number(route[stop : stop + 3])
            return MacIp(rd, route[25:31], ip, label, label2, _number(route[20:24]), route[10:20])
        case 3:
            return Multicast(rd, address(route[15:]), _number(route[10:14]))
        case 4:
            return EthernetSegment(rd, route[10:20], address(route[21:]))
        case _:
            wide = (len(route) - 28) // 2
            prefix, gateway = route[25 : 25 + wide], route[25 + wide : 25 + 2 * wide]
            tag, label = _number(route[20:24]), _number(route[-3:])
            return IpPrefix(rd, address(prefix), route[24], address(gateway), label, tag, route[10:20])


def encode_evpn(value: EvpnRoute) -> bytes:
    """Encode a route."""
    match value:
        case EthernetAd():
            return _typed(1, value.rd + value.esi + value.tag.to_bytes(4, "big") + value.label.to_bytes(3, "big"))
        case MacIp():
            ip = value.ip.packed if value.ip is not None else b""
            labels = value.label.to_bytes(3, "big")
            labels += value.label2.to_bytes(3, "big") if value.label2 is not None else b""
            head = value.rd + value.esi + value.tag.to_bytes(4, "big")
            return _typed(2, b"%b\x30%b%c%b%b" % (head, value.mac, len(ip) * 8, ip, labels))
        case Multicast():
            return _typed(3, value.rd + value.tag.to_bytes(4, "big") + _with_bits(value.originator))
        case EthernetSegment():
            return _typed(4, value.rd + value.esi + _with_bits(value.originator))
        case IpPrefix():
            head = value.rd + value.esi + value.tag.to_bytes(4, "big") + bytes((value.length,))
            return _typed(5, head + value.address.packed + value.gateway.packed + value.label.to_bytes(3, "big"))


def _typed(kind: int, data: bytes) -> bytes:
    return bytes((kind, len(data))) + data


def _with_bits(address: Address) -> bytes:
    return bytes((address.max_prefixlen,)) + address.packed


# Prefixes --------------------------------------------------------------------


def _prefixes(family: Family, longest: int, shortest: int = 0) -> Callable[[bytes], Routes]:
    def split_prefixes(data: bytes) -> Routes:
        found: Routes = {}
        at, end = 0, len(data)
        while at < end:
            bits = data[at]
            after = at + 1 + (bits + 7 >> 3)
            if bits > longest or 0 < bits < shortest or after > end:
                raise _broken(family, f"a prefix of {bits} bits is too long or truncated")
            route = data[at:after]
            if bits & 7:  # Bits after the prefix mean nothing (RFC 4271 section 4.3).
                route = route[:-1] + bytes((route[-1] & 0xFF00 >> (bits & 7),))
            found[route] = route
            at = after
        return found

    return split_prefixes


def encode_prefix(address: Address, length: int) -> bytes:
    """Encode a prefix."""
    wide = length + 7 >> 3
    kept = int(address) >> (address.max_prefixlen - length) << (address.max_prefixlen - length)
    return bytes((length,)) + kept.to_bytes(address.max_prefixlen // 8, "big")[:wide]


def decode_prefix(family: Family, route: bytes) -> tuple[Address, int]:
    """Decode a prefix that `split` returned."""
    wide = 4 if family == IPV4 else 16
    return address(route[1:].ljust(wide, b"\0")), route[0]


_SPLITTERS: dict[Family, Callable[[bytes], Routes]] = {
    IPV4: _prefixes(IPV4, 32),
    IPV6: _prefixes(IPV6, 128),
    ROUTE_TARGETS: _prefixes(ROUTE_TARGETS, 96, shortest=32),
    EVPN: _split_evpn,
}
