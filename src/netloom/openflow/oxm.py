"""The encoding of matches: OXM, and the NXM fields of Open vSwitch.  Pure.

   match   type(2)=1 length(2) TLV... zeros to a multiple of 8; the length does not include the zeros
    TLV     class(2) field(7 bits) mask follows(1 bit) length(1) value [mask]

A switch requires fields after their prerequisites, which is the order of `FIELDS`. Of twenty thousand flows most share
most of their fields: each field is encoded and decoded once, and cached. The cache is bounded; when it is full it is
cleared.
"""

import struct

from netloom.openflow.fields import FIELDS, Field
from netloom.openflow.flows import Cond, Match
from netloom.openflow.wire import RemoteError

KEPT = 1 << 16
OXM_MATCH = 1
_HEAD = struct.Struct("!HBB")
_MATCH = struct.Struct("!HH")
_ZEROS = tuple(bytes(count) for count in range(8))

# Some fields have a Nicira number besides the standard one; a switch may use either.
_NXM_OF = {
    "dl_dst": 1, "dl_src": 2, "dl_type": 3, "nw_proto": 6, "nw_src": 7, "nw_dst": 8, "tcp_src": 9, "tcp_dst": 10,
    "udp_src": 11, "udp_dst": 12, "icmp_type": 13, "icmp_code": 14, "arp_op": 15, "arp_spa": 16, "arp_tpa": 17,
}  # fmt: skip
_NXM_NX = {
    "tun_id": 16, "arp_sha": 17, "arp_tha": 18, "ipv6_src": 19, "ipv6_dst": 20, "icmpv6_type": 21, "icmpv6_code": 22,
    "nd_target": 23, "nd_sll": 24, "nd_tll": 25,
}  # fmt: skip

_BY_NUMBER: dict[tuple[int, int], Field] = {
    **{(0, number): FIELDS[name] for name, number in _NXM_OF.items()},
    **{(1, number): FIELDS[name] for name, number in _NXM_NX.items()},
    **{(one.oxm_class, one.number): one for one in FIELDS.values()},
}


class UnknownField(ValueError):
    """A field that is not in `FIELDS`: a flow that is not ours."""


def padding(length: int) -> bytes:
    """Return the zeros that make a length a multiple of 8."""
    return _ZEROS[-length % 8]


def head(name: str) -> bytes:
    """Return the header of a field without a value: for `move`, and as a zone."""
    field = FIELDS[name]
    if name in _NXM_OF:
        return _HEAD.pack(0, _NXM_OF[name] << 1, field.size)
    if name in _NXM_NX:
        return _HEAD.pack(1, _NXM_NX[name] << 1, field.size)
    return _HEAD.pack(field.oxm_class, field.number << 1, field.size)


def named(data: bytes, at: int) -> Field:
    """Return the field whose header is at a position."""
    oxm_class, number, _ = _HEAD.unpack_from(data, at)
    field = _BY_NUMBER.get((oxm_class, number >> 1))
    if field is None:
        raise UnknownField(f"unknown field {number >> 1} of class {oxm_class:#x}")
    return field


def encode_field(name: str, value: int, mask: int | None) -> bytes:
    """Return one field with its value.  OverflowError, KeyError: invalid value, field."""
    field = FIELDS[name]
    size = field.size
    if mask is None:
        return _HEAD.pack(field.oxm_class, field.number << 1, size) + value.to_bytes(size, "big")
    start = _HEAD.pack(field.oxm_class, field.number << 1 | 1, 2 * size)
    return start + value.to_bytes(size, "big") + mask.to_bytes(size, "big")


def decode_field(data: bytes) -> Cond:
    """Return the condition of one field with its value."""
    field = named(data, 0)
    _, number, length = _HEAD.unpack_from(data)
    size = field.size
    masked = number & 1
    if length != size << masked or len(data) != 4 + length:
        raise RemoteError(f"invalid length of {field.name}: {length} bytes")
    value = int.from_bytes(data[4 : 4 + size], "big")
    if not masked:
        return Cond(field.name, value)
    mask = int.from_bytes(data[4 + size :], "big")
    return Cond(field.name, value & mask, None if mask == field.ones else mask)


_encoded: dict[Cond, tuple[int, bytes]] = {}
_decoded: dict[bytes, Cond] = {}


def _encode_cond(cond: Cond) -> tuple[int, bytes]:
    if len(_encoded) >= KEPT:
        _encoded.clear()
    made = _encoded[cond] = (FIELDS[cond.field].order, encode_field(*cond))
    return made


def _decode_cond(data: bytes) -> Cond:
    if len(_decoded) >= KEPT:
        _decoded.clear()
    made = _decoded[data] = decode_field(data)
    return made


def encode_match(match: Match) -> bytes:
    """Return an encoded match, with its padding."""
    known = _encoded
    parts = [known.get(cond) or _encode_cond(cond) for cond in match]
    parts.sort()
    fields = b"".join([part for _, part in parts])
    length = 4 + len(fields)
    return _MATCH.pack(OXM_MATCH, length) + fields + padding(length)


def decode_match(data: bytes, at: int) -> tuple[Match, int]:
    """Return the match at a position, and the position after it."""
    kind, length = _MATCH.unpack_from(data, at)
    end = at + length
    if kind != OXM_MATCH or length < 4 or end > len(data):
        raise RemoteError(f"invalid match: type {kind}, {length} bytes")
    conds = []
    here = at + 4
    known = _decoded
    while here < end:
        stop = here + 4 + data[here + 3] if here + 4 <= end else end + 1
        if stop > end:
            raise RemoteError("a field exceeds its match")
        part = data[here:stop]
        cond = known.get(part) or _decode_cond(part)
        if cond.mask != 0:
            conds.append(cond)
        here = stop
    conds.sort()
    return tuple(conds), at + (length + 7) // 8 * 8
