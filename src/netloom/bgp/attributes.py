"""Path attributes: decoding with the reaction that RFC 7606 prescribes for each malformed one, and encoding.

One `Attributes` value belongs to all routes of an UPDATE. Equal ones are the same object while any route has them
(`AttributeCache`), so that a hundred thousand routes of one peer share a few, which were decoded once.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from ipaddress import IPv4Address
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec import Struct

from netloom.bgp.communities import Mobility, mobility_of
from netloom.bgp.errors import Code, Malformed, Notification, Reaction, TooLong, UpdateError
from netloom.bgp.messages import AS_TRANS
from netloom.bgp.nlri import Address

OPTIONAL, TRANSITIVE, PARTIAL, EXTENDED = 0x80, 0x40, 0x20, 0x10
SEQUENCE, SET = 2, 1


class Type(IntEnum):
    """The types of attributes that are understood."""

    ORIGIN = 1
    AS_PATH = 2
    NEXT_HOP = 3
    MED = 4
    LOCAL_PREF = 5
    ATOMIC_AGGREGATE = 6
    AGGREGATOR = 7
    COMMUNITIES = 8
    ORIGINATOR_ID = 9
    CLUSTER_LIST = 10
    MP_REACH = 14
    MP_UNREACH = 15
    EXTENDED_COMMUNITIES = 16
    AS4_PATH = 17
    AS4_AGGREGATOR = 18
    PMSI_TUNNEL = 22
    LARGE_COMMUNITIES = 32


INGRESS_REPLICATION = 6


class Pmsi(Struct, frozen=True):
    """The PMSI tunnel attribute (RFC 6514): how broadcast reaches the sender of a type 3 route."""

    label: int
    """With VXLAN: the VNI."""
    endpoint: bytes = b""
    tunnel: int = INGRESS_REPLICATION
    flags: int = 0


Segment = tuple[int, tuple[int, ...]]
"""A segment of an AS path: its type and its AS numbers."""


class Attributes(Struct, frozen=True, weakref=True, kw_only=True, eq=False, dict=True):
    """The attributes of a route.  Values are compared by identity: `AttributeCache` has each once.

    What is computed from them is computed once, however many routes have them: a peer may send both long attributes and
    many routes with them.
    """

    origin: int = 0
    as_path: tuple[Segment, ...] = ()
    next_hop: Address
    med: int | None = None
    local_pref: int | None = None
    communities: bytes = b""
    originator_id: IPv4Address | None = None
    cluster_list: tuple[IPv4Address, ...] = ()
    extended: tuple[bytes, ...] = ()
    pmsi: Pmsi | None = None
    large_communities: bytes = b""
    atomic_aggregate: bool = False
    aggregator: tuple[int, IPv4Address] | None = None
    other: tuple[tuple[int, int, bytes], ...] = ()
    """Transitive attributes that are not understood: flags, type, value. They are passed on."""

    @cached_property
    def path_length(self) -> int:
        """The length of the AS path, in which a set counts as one."""
        return _hops(self.as_path)

    @cached_property
    def mobility(self) -> Mobility:
        """How often the MAC address of the routes has moved."""
        return mobility_of(self.extended)


class Context(NamedTuple):
    """What the encoding depends on: the kind of context."""

    internal: bool
    """Whether the peer is of the same AS."""
    as4: bool = True
    """Whether both sides can do AS numbers of four octets."""


class Decoded(NamedTuple):
    """The attributes of one UPDATE."""

    fields: dict[str, object]
    """Those of `Attributes`, without next_hop for multiprotocol routes."""
    reach: bytes | None
    unreach: bytes | None
    malformed: tuple[Malformed, ...]


class _Wrong(Exception):
    """An attribute is malformed."""

    def __init__(self, why: str, subcode: int = UpdateError.LENGTH) -> None:
        super().__init__(why)
        self.subcode = subcode


def _exactly(length: int, data: bytes) -> bytes:
    if len(data) != length:
        raise _Wrong(f"has {len(data)} bytes instead of {length}")
    return data


def _multiple(of: int, data: bytes) -> bytes:
    if not data or len(data) % of:
        raise _Wrong(f"has {len(data)} bytes, not a multiple of {of}")
    return data


def _number(data: bytes) -> int:
    return int.from_bytes(_exactly(4, data), "big")


def _origin(data: bytes, _: bool) -> int:
    if _exactly(1, data)[0] > 2:
        raise _Wrong(f"is {data[0]}", UpdateError.ORIGIN)
    return data[0]


def _as_path(data: bytes, as4: bool) -> tuple[Segment, ...]:
    wide = 4 if as4 else 2
    found: list[Segment] = []
    at = 0
    while at < len(data):
        kind, count = data[at], data[at + 1] if at + 1 < len(data) else 0
        after = at + 2 + count * wide
        if kind not in (SEQUENCE, SET) or not count or after > len(data):
            raise _Wrong("has a malformed segment", UpdateError.AS_PATH)  # Or one of a confederation; there is none.
        asns = tuple(int.from_bytes(data[i : i + wide], "big") for i in range(at + 2, after, wide))
        if 0 in asns:
            raise _Wrong("contains AS 0", UpdateError.AS_PATH)
        found.append((kind, asns))
        at = after
    return tuple(found)


def _aggregator(data: bytes, as4: bool) -> tuple[int, IPv4Address]:
    _exactly(8 if as4 else 6, data)
    return int.from_bytes(data[:-4], "big"), IPv4Address(data[-4:])


def _pmsi(data: bytes, _: bool) -> Pmsi:
    if len(data) < 5:
        raise _Wrong(f"has {len(data)} bytes")
    endpoint = data[5:]
    if data[1] == INGRESS_REPLICATION and len(endpoint) not in (4, 16):
        raise _Wrong("has no address of a tunnel end", UpdateError.OPTIONAL_ATTRIBUTE)
    return Pmsi(int.from_bytes(data[2:5], "big"), endpoint, data[1], data[0])


class _Rule(NamedTuple):
    flags: int
    field: str
    decode: Callable[[bytes, bool], object]
    reaction: Reaction = Reaction.TREAT_AS_WITHDRAW
    internal_only: bool = False
    """Discarded if it is from an external peer, whatever it contains."""


_WELL_KNOWN, _BOTH = TRANSITIVE, OPTIONAL | TRANSITIVE
_DISCARD = Reaction.DISCARD_ATTRIBUTE

_RULES: Final[dict[int, _Rule]] = {
    Type.ORIGIN: _Rule(_WELL_KNOWN, "origin", _origin),
    Type.AS_PATH: _Rule(_WELL_KNOWN, "as_path", _as_path),
    Type.NEXT_HOP: _Rule(_WELL_KNOWN, "next_hop", lambda data, _: IPv4Address(_exactly(4, data))),
    Type.MED: _Rule(OPTIONAL, "med", lambda data, _: _number(data)),
    Type.LOCAL_PREF: _Rule(_WELL_KNOWN, "local_pref", lambda data, _: _number(data), internal_only=True),
    Type.ATOMIC_AGGREGATE: _Rule(
        _WELL_KNOWN, "atomic_aggregate", lambda data, _: not _exactly(0, data), reaction=_DISCARD
    ),
    Type.AGGREGATOR: _Rule(_BOTH, "aggregator", _aggregator, reaction=_DISCARD),
    Type.COMMUNITIES: _Rule(_BOTH, "communities", lambda data, _: _multiple(4, data)),
    Type.ORIGINATOR_ID: _Rule(
        OPTIONAL, "originator_id", lambda data, _: IPv4Address(_exactly(4, data)), internal_only=True
    ),
    Type.CLUSTER_LIST: _Rule(
        OPTIONAL,
        "cluster_list",
        lambda data, _: tuple(IPv4Address(data[at : at + 4]) for at in range(0, len(_multiple(4, data)), 4)),
        internal_only=True,
    ),
    Type.EXTENDED_COMMUNITIES: _Rule(
        _BOTH, "extended", lambda data, _: tuple(data[at : at + 8] for at in range(0, len(_multiple(8, data)), 8))
    ),
    Type.AS4_PATH: _Rule(_BOTH, "as4_path", lambda data, _: _as_path(data, True), reaction=_DISCARD),
    Type.AS4_AGGREGATOR: _Rule(_BOTH, "as4_aggregator", lambda data, _: _aggregator(data, True), reaction=_DISCARD),
    Type.PMSI_TUNNEL: _Rule(_BOTH, "pmsi", _pmsi),
    Type.LARGE_COMMUNITIES: _Rule(_BOTH, "large_communities", lambda data, _: _multiple(12, data)),
}


def _wrong_flags(kind: int, flags: int) -> Malformed:
    """Return the error of an attribute with wrong flags, whatever another error in it costs (RFC 7606 section 3)."""
    why = f"attribute {kind} has flags {flags:#x}"
    return Malformed(kind, Reaction.TREAT_AS_WITHDRAW, why, UpdateError.FLAGS)


def decode_attributes(data: bytes, context: Context) -> Decoded:
    """Decode the attributes of an UPDATE.

    Malformed ones are listed with their reactions. What the session cannot survive raises the `Notification` to send.
    """
    fields: dict[str, object] = {}
    other: list[tuple[int, int, bytes]] = []
    multiprotocol: dict[int, bytes] = {}
    malformed: list[Malformed] = []
    seen: set[int] = set()
    at, end = 0, len(data)
    while at < end:
        flags = data[at]
        head = 4 if flags & EXTENDED else 3
        kind = data[at + 1] if at + 1 < end else 0
        length = int.from_bytes(data[at + 2 : at + head], "big")
        after = at + head + length
        if at + head > end or after > end:
            # What follows is lost with it. If that may be routes, they cannot be withdrawn (RFC 7606 section 4).
            reaction = Reaction.TREAT_AS_WITHDRAW if Type.MP_REACH in multiprotocol else Reaction.RESET_SESSION
            malformed.append(Malformed(kind, reaction, f"attribute {kind} is longer than all attributes"))
            break
        value = data[at + head : after]
        at = after
        if kind in seen:
            if kind in (Type.MP_REACH, Type.MP_UNREACH):
                raise Notification(Code.UPDATE, UpdateError.ATTRIBUTE_LIST, why=f"attribute {kind} appears twice")
            continue  # The first counts (RFC 7606 section 3).
        seen.add(kind)
        if kind in (Type.MP_REACH, Type.MP_UNREACH):
            multiprotocol[kind] = value
            if flags & (OPTIONAL | TRANSITIVE) != OPTIONAL:
                malformed.append(_wrong_flags(kind, flags))
        elif (rule := _RULES.get(kind)) is None:
            if not flags & OPTIONAL:
                raise Notification(
                    Code.UPDATE,
                    UpdateError.UNKNOWN_WELL_KNOWN,
                    data[at - head - length : at],
                    f"attribute {kind} is an unrecognized well-known attribute",
                )
            if flags & TRANSITIVE:
                other.append((flags & ~EXTENDED | PARTIAL, kind, value))
        elif flags & (OPTIONAL | TRANSITIVE) != rule.flags:
            malformed.append(_wrong_flags(kind, flags))
        elif rule.internal_only and not context.internal:
            malformed.append(Malformed(kind, _DISCARD, f"attribute {kind} came from an external peer"))
        else:
            try:
                fields[rule.field] = rule.decode(value, context.as4)
            except _Wrong as wrong:
                malformed.append(Malformed(kind, rule.reaction, f"attribute {kind} {wrong}", wrong.subcode))
    if other:
        fields["other"] = tuple(other)
    _merge_as4(fields, context)
    return Decoded(fields, multiprotocol.get(Type.MP_REACH), multiprotocol.get(Type.MP_UNREACH), tuple(malformed))


def _merge_as4(fields: dict[str, object], context: Context) -> None:
    """Restore the AS path of a session with AS numbers of two octets (RFC 6793 section 4.2.3)."""
    as4_path: tuple[Segment, ...] = fields.pop("as4_path", ())  # type: ignore[assignment]
    as4_aggregator = fields.pop("as4_aggregator", None)
    if context.as4:
        return
    aggregator: tuple[int, IPv4Address] | None = fields.get("aggregator")  # type: ignore[assignment]
    if aggregator is not None and as4_aggregator is not None:
        if aggregator[0] != AS_TRANS:
            return  # A speaker of AS numbers of two octets has aggregated since.
        fields["aggregator"] = as4_aggregator
    path: tuple[Segment, ...] = fields.get("as_path", ())  # type: ignore[assignment]
    lacking = _hops(path) - _hops(as4_path)
    if not as4_path or lacking < 0:
        return
    first: list[Segment] = []
    for kind, asns in path:
        if lacking <= 0:
            break
        kept = asns[:lacking] if kind == SEQUENCE else asns
        first.append((kind, kept))
        lacking -= _hops(((kind, kept),))
    if first and first[-1][0] == SEQUENCE == as4_path[0][0]:
        first[-1] = (SEQUENCE, first[-1][1] + as4_path[0][1])
        as4_path = as4_path[1:]
    fields["as_path"] = (*first, *as4_path)


def _hops(path: tuple[Segment, ...]) -> int:
    return sum(len(asns) if kind == SEQUENCE else 1 for kind, asns in path)


class AttributeCache:
    """Makes equal attributes the same object, as long as any route has them."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[object, ...], Attributes] = WeakValueDictionary()

    def get(self, fields: dict[str, object], next_hop: Address) -> Attributes:
        """Return the attributes with these fields."""
        key = (next_hop, *sorted(fields.items()))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Attributes(**{**fields, "next_hop": next_hop})  # type: ignore[arg-type]
        return found


def encode_attributes(attributes: Attributes, context: Context, *, next_hop: bool = False) -> bytes:
    """Encode attributes, in the order of their types, without the multiprotocol ones.

    With `next_hop`, NEXT_HOP is among them, as routes outside MP_REACH need it.
    """
    path, aggregator = attributes.as_path, attributes.aggregator
    items: list[tuple[int, int, bytes]] = list(attributes.other)

    def put(kind: Type, value: bytes) -> None:
        items.append((_RULES[kind].flags, kind, value))

    put(Type.ORIGIN, bytes((attributes.origin,)))
    items.append((TRANSITIVE | EXTENDED, Type.AS_PATH, _encode_path(path, as4=context.as4)))  # As others send it.
    if next_hop:
        put(Type.NEXT_HOP, attributes.next_hop.packed)
    if attributes.med is not None:
        put(Type.MED, attributes.med.to_bytes(4, "big"))
    if attributes.local_pref is not None and context.internal:
        put(Type.LOCAL_PREF, attributes.local_pref.to_bytes(4, "big"))
    if attributes.atomic_aggregate:
        put(Type.ATOMIC_AGGREGATE, b"")
    if aggregator is not None:
        asn = aggregator[0] if context.as4 or aggregator[0] <= 0xFFFF else AS_TRANS
        put(Type.AGGREGATOR, asn.to_bytes(4 if context.as4 else 2, "big") + aggregator[1].packed)
        if asn != aggregator[0]:
            put(Type.AS4_AGGREGATOR, aggregator[0].to_bytes(4, "big") + aggregator[1].packed)
    if attributes.communities:
        put(Type.COMMUNITIES, attributes.communities)
    if attributes.originator_id is not None and context.internal:
        put(Type.ORIGINATOR_ID, attributes.originator_id.packed)
    if attributes.cluster_list and context.internal:
        put(Type.CLUSTER_LIST, b"".join(one.packed for one in attributes.cluster_list))
    if attributes.extended:
        put(Type.EXTENDED_COMMUNITIES, b"".join(attributes.extended))
    if not context.as4 and any(asn > 0xFFFF for _, asns in path for asn in asns):
        put(Type.AS4_PATH, _encode_path(path, as4=True))
    if (pmsi := attributes.pmsi) is not None:
        put(Type.PMSI_TUNNEL, bytes((pmsi.flags, pmsi.tunnel)) + pmsi.label.to_bytes(3, "big") + pmsi.endpoint)
    if attributes.large_communities:
        put(Type.LARGE_COMMUNITIES, attributes.large_communities)
    return b"".join(attribute(*item) for item in sorted(items, key=lambda item: item[1]))


def attribute(flags: int, kind: int, value: bytes) -> bytes:
    """Encode one attribute with its header; one that is longer than an attribute can be raises `TooLong`."""
    if len(value) > 0xFFFF:
        raise TooLong
    if len(value) > 255 or flags & EXTENDED:
        return bytes((flags | EXTENDED, kind)) + len(value).to_bytes(2, "big") + value
    return bytes((flags, kind, len(value))) + value


def _encode_path(path: tuple[Segment, ...], *, as4: bool) -> bytes:
    wide = 4 if as4 else 2
    parts = []
    for kind, asns in path:
        for at in range(0, len(asns), 255):
            part = asns[at : at + 255]
            numbers = (asn if as4 or asn <= 0xFFFF else AS_TRANS for asn in part)
            parts.append(bytes((kind, len(part))) + b"".join(asn.to_bytes(wide, "big") for asn in numbers))
    return b"".join(parts)


def prepended(attributes: Attributes, asn: int) -> tuple[Segment, ...]:
    """Return the AS path with an AS number before it, as an external peer gets it."""
    path = attributes.as_path
    if path and path[0][0] == SEQUENCE and len(path[0][1]) < 255:
        return ((SEQUENCE, (asn, *path[0][1])), *path[1:])
    return ((SEQUENCE, (asn,)), *path)
