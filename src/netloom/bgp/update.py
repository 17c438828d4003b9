"""UPDATE: announced and withdrawn routes, with their attributes; and packing routes into messages.

A route of an UPDATE with a malformed attribute is withdrawn, or the attribute is discarded (RFC 7606); what cannot be
split into routes ends the session with a `Notification`.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from netloom.bgp.attributes import (
    OPTIONAL,
    SEQUENCE,
    AttributeCache,
    Attributes,
    Context,
    Decoded,
    Segment,
    Type,
    attribute,
    decode_attributes,
    encode_attributes,
)
from netloom.bgp.errors import Code, Malformed, Notification, Reaction, TooLong, UpdateError
from netloom.bgp.messages import HEADER, Kind, message
from netloom.bgp.nlri import IPV4, IPV6, Address, Family, Routes, address, is_known, split


class Announced(NamedTuple):
    """Announced routes, and their attributes."""

    attributes: Attributes
    routes: Routes


class Update(NamedTuple):
    """The contents of an UPDATE."""

    announced: dict[Family, Announced]
    withdrawn: dict[Family, Routes]
    malformed: tuple[Malformed, ...] = ()
    end_of_rib: Family | None = None


def decode_update(
    body: bytes, context: Context, families: Collection[Family], cache: AttributeCache, *, neighbor: int = 0
) -> Update:
    """Decode the body of an UPDATE; families that were not negotiated are ignored.

    With `neighbor`, the AS path of an external peer has to begin with that AS number.
    """
    removed, listed, nlri = _parts(body)
    decoded = decode_attributes(listed, context)
    # Without routes, a malformed attribute may have hidden them (RFC 7606 section 5.2).
    worst = Reaction.TREAT_AS_WITHDRAW if nlri or _has_routes(decoded.reach) else Reaction.DISCARD_ATTRIBUTE
    reset = next((one for one in decoded.malformed if one.reaction > worst), None)
    if reset is not None:
        raise Notification(Code.UPDATE, reset.subcode, why=reset.reason)
    withdrawn: dict[Family, Routes] = {}
    if removed and IPV4 in families:
        withdrawn[IPV4] = split(IPV4, removed)
    ended = IPV4 if body == bytes(4) else None
    if decoded.unreach is not None:
        family, rest = decode_unreach(decoded.unreach)
        if family in families:
            withdrawn[family] = withdrawn.get(family, {}) | split(family, rest)
            if not rest and len(listed) <= 7 and not nlri and not removed:
                ended = family
    came: dict[Family, tuple[Address | None, Routes]] = {}
    plain_hop = decoded.fields.pop("next_hop", None)
    if nlri and IPV4 in families:
        came[IPV4] = (plain_hop if isinstance(plain_hop, Address) else None, split(IPV4, nlri))
    if decoded.reach is not None:
        family, hop, rest = decode_reach(decoded.reach)
        if family in families:
            came[family] = (hop, split(family, rest))
    malformed = decoded.malformed + _missing(decoded, came, context, neighbor) if came else decoded.malformed
    if any(one.reaction is Reaction.TREAT_AS_WITHDRAW for one in malformed):
        for family, (_, routes) in came.items():
            withdrawn[family] = {**withdrawn.get(family, {}), **routes}
        return Update({}, withdrawn, malformed)
    announced = {
        family: Announced(cache.get(decoded.fields, hop), routes)
        for family, (hop, routes) in came.items()
        if hop is not None
    }
    return Update(announced, withdrawn, malformed, ended)


def _parts(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the three fields of an UPDATE: withdrawn routes, attributes, NLRI."""
    removed = int.from_bytes(body[:2], "big")
    begin = 4 + removed
    listed = int.from_bytes(body[begin - 2 : begin], "big")
    if begin > len(body) or begin + listed > len(body):
        raise Notification(Code.UPDATE, UpdateError.ATTRIBUTE_LIST, why="a length in the UPDATE exceeds the message")
    return body[2 : 2 + removed], body[begin : begin + listed], body[begin + listed :]


_MANDATORY = (("origin", Type.ORIGIN), ("as_path", Type.AS_PATH))


def _missing(
    decoded: Decoded, came: dict[Family, tuple[Address | None, Routes]], context: Context, neighbor: int
) -> tuple[Malformed, ...]:
    """Return what makes the routes of an UPDATE unusable besides malformed attributes."""
    withdraw, fields = Reaction.TREAT_AS_WITHDRAW, decoded.fields
    found = [
        Malformed(kind, withdraw, f"attribute {kind} is missing", UpdateError.MISSING_WELL_KNOWN)
        for name, kind in _MANDATORY
        if name not in fields
    ]
    if context.internal and "local_pref" not in fields:
        found.append(Malformed(Type.LOCAL_PREF, withdraw, "LOCAL_PREF is missing", UpdateError.MISSING_WELL_KNOWN))
    for hop, _ in came.values():
        if hop is None or hop.is_unspecified or hop.is_multicast or hop.is_loopback:
            found.append(Malformed(Type.NEXT_HOP, withdraw, f"{hop} is not a valid next hop", UpdateError.NEXT_HOP))
    if neighbor and not context.internal:
        path: tuple[Segment, ...] = fields.get("as_path", ())  # type: ignore[assignment]
        if not path or path[0][0] != SEQUENCE or path[0][1][0] != neighbor:
            found.append(Malformed(Type.AS_PATH, withdraw, f"the AS path does not begin with {neighbor}"))
    return tuple(found)


_HOP_LENGTHS = {IPV4: (4,), IPV6: (16, 32)}
"""Lengths of next hops; for others 4 and 16."""


def decode_reach(value: bytes) -> tuple[Family, Address | None, bytes]:
    """Decode MP_REACH_NLRI: the family, the next hop, the NLRI; for a family that is not known, the last is empty."""
    if len(value) < 5 or len(value) < 5 + value[3]:
        raise Notification(Code.UPDATE, UpdateError.OPTIONAL_ATTRIBUTE, why="MP_REACH_NLRI is truncated")
    family, length = Family(value[0] << 8 | value[1], value[2]), value[3]
    if not is_known(family):
        return family, None, b""
    if length not in _HOP_LENGTHS.get(family, (4, 16)):
        raise Notification(
            Code.UPDATE, UpdateError.OPTIONAL_ATTRIBUTE, why=f"a next hop of {family} has {length} bytes"
        )
    hop = value[4 : 4 + length]
    return family, address(hop[:16]), value[5 + length :]


def _has_routes(reach: bytes | None) -> bool:
    """Whether there is NLRI in MP_REACH_NLRI, of whatever family; one that is truncated is another error."""
    return reach is not None and (len(reach) < 4 or len(reach) != 5 + reach[3])


def encode_reach(family: Family, hop: Address, nlri: bytes) -> bytes:
    """Encode the value of MP_REACH_NLRI."""
    return b"%b%c%c%b\0%b" % (family.afi.to_bytes(2, "big"), family.safi, len(hop.packed), hop.packed, nlri)


def decode_unreach(value: bytes) -> tuple[Family, bytes]:
    """Decode MP_UNREACH_NLRI; for a family that is not known, the NLRI are empty."""
    if len(value) < 3:
        raise Notification(Code.UPDATE, UpdateError.OPTIONAL_ATTRIBUTE, why="MP_UNREACH_NLRI is truncated")
    family = Family(value[0] << 8 | value[1], value[2])
    return family, value[3:] if is_known(family) else b""


def encode_unreach(family: Family, nlri: bytes) -> bytes:
    """Encode the value of MP_UNREACH_NLRI."""
    return family.afi.to_bytes(2, "big") + bytes((family.safi,)) + nlri


def announce(
    family: Family, routes: Collection[bytes], attributes: Attributes, context: Context, longest: int
) -> Iterator[bytes]:
    """Yield UPDATE messages that announce routes with the same attributes, each as full as it may be.

    If one of the routes has no room in a message beside the attributes, raise `TooLong` before the first message.
    """
    plain = family == IPV4
    listed = encode_attributes(attributes, context, next_hop=plain)
    overhead = HEADER + 4 + len(listed) + (0 if plain else 9 + len(attributes.next_hop.packed))
    if max(map(len, routes), default=0) > longest - overhead:
        raise TooLong
    for nlri in _packed(routes, longest - overhead):
        if plain:
            yield message(Kind.UPDATE, b"\0\0" + len(listed).to_bytes(2, "big") + listed + nlri)
        else:
            # First, so that the routes are known when a later attribute is malformed (RFC 7606 section 5.1).
            reach = attribute(OPTIONAL, Type.MP_REACH, encode_reach(family, attributes.next_hop, nlri))
            yield message(Kind.UPDATE, b"\0\0" + (len(reach) + len(listed)).to_bytes(2, "big") + reach + listed)


def withdraw(family: Family, routes: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Yield UPDATE messages that withdraw routes."""
    plain = family == IPV4
    for nlri in _packed(routes, longest - HEADER - (4 if plain else 11)):
        if plain:
            yield message(Kind.UPDATE, len(nlri).to_bytes(2, "big") + nlri + b"\0\0")
        else:
            yield _unreachable(family, nlri)


def end_of_rib(family: Family) -> bytes:
    """Return the End-of-RIB marker of a family (RFC 4724)."""
    return message(Kind.UPDATE, bytes(4)) if family == IPV4 else _unreachable(family, b"")


def _unreachable(family: Family, nlri: bytes) -> bytes:
    listed = attribute(OPTIONAL, Type.MP_UNREACH, encode_unreach(family, nlri))
    return message(Kind.UPDATE, b"\0\0" + len(listed).to_bytes(2, "big") + listed)


def _packed(routes: Iterable[bytes], room: int) -> Iterator[bytes]:
    """Join routes as far as each message has room for them."""
    pending: list[bytes] = []
    size = 0
    for route in routes:
        size += len(route)
        if size > room:
            yield b"".join(pending)
            pending, size = [], len(route)
        pending.append(route)
    if pending:
        yield b"".join(pending)
