"""BGP messages other than UPDATE: framing, OPEN with its capabilities, NOTIFICATION, ROUTE-REFRESH.

    framer = Framer()
    for kind, body in framer.feed(data): ...

A wrong message raises the `Notification` to send. Sizes are bounded: 4,096 bytes, or 65,535 once both sides have agreed
on extended messages (RFC 8654).
"""

from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final

from msgspec import Struct

from netloom.bgp.errors import Cease, Code, Header, Notification, OpenError, describe
from netloom.bgp.nlri import Family

MARKER: Final = b"\xff" * 16
HEADER, LONGEST, LONGEST_EXTENDED = 19, 4096, 65535
AS_TRANS = 23456
"""The AS number that stands for one of four octets, in fields of two (RFC 6793)."""


class Kind(IntEnum):
    """The types of messages."""

    OPEN = 1
    UPDATE = 2
    NOTIFICATION = 3
    KEEPALIVE = 4
    ROUTE_REFRESH = 5


_SHORTEST = {Kind.OPEN: 29, Kind.UPDATE: 23, Kind.NOTIFICATION: 21, Kind.KEEPALIVE: 19, Kind.ROUTE_REFRESH: 19}


def message(kind: Kind, body: bytes = b"") -> bytes:
    """Return a message with its header."""
    return b"%b%b%c%b" % (MARKER, (HEADER + len(body)).to_bytes(2, "big"), kind, body)


KEEPALIVE: Final = message(Kind.KEEPALIVE)


class Framer:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self.longest = LONGEST
        """How long messages may be; that of OPEN and KEEPALIVE does not change."""
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = HEADER
        """How many bytes the next message needs, as far as it is known: a message in many parts is joined once."""

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Yield the type and the body of each message that is complete; keep the rest."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        at, end = 0, len(data)
        self._parts, self._size, self._wanted = [], 0, HEADER
        try:
            while end - at >= HEADER:
                length = data[at + 16] << 8 | data[at + 17]
                kind = self._checked(data[at : at + HEADER], length)
                if end - at < length:
                    self._wanted = length
                    break
                body = data[at + HEADER : at + length]
                at += length
                yield kind, body
        finally:
            self._parts, self._size = [data[at:]], end - at

    def _checked(self, header: bytes, length: int) -> Kind:
        if not header.startswith(MARKER):
            raise Notification(Code.HEADER, Header.NOT_SYNCHRONIZED)
        number = header[18]
        if not 1 <= number <= 5:
            raise Notification(Code.HEADER, Header.BAD_TYPE, bytes((number,)), f"message type {number} is unknown")
        kind = Kind(number)
        longest = LONGEST if kind in (Kind.OPEN, Kind.KEEPALIVE) else self.longest
        if not _SHORTEST[kind] <= length <= longest or (kind is Kind.KEEPALIVE and length != HEADER):
            raise Notification(
                Code.HEADER, Header.BAD_LENGTH, header[16:18], f"{kind.name} has a length of {length} bytes"
            )
        return kind


class GracefulRestart(Struct, frozen=True):
    """The graceful restart capability (RFC 4724, 8538)."""

    seconds: int
    families: dict[Family, bool] = {}
    """The families whose routes survive a restart, and whether forwarding was preserved in the last one."""
    restarting: bool = False
    notification: bool = False
    """Whether a NOTIFICATION, too, is a restart (RFC 8538)."""


class Capabilities(Struct, frozen=True):
    """The capabilities of a speaker."""

    families: tuple[Family, ...] = ()
    asn: int | None = None
    """The AS number in four octets, if the speaker supports those."""
    refresh: bool = False
    enhanced_refresh: bool = False
    extended_messages: bool = False
    graceful_restart: GracefulRestart | None = None
    other: tuple[tuple[int, bytes], ...] = ()
    """Unknown capabilities, as they were received."""


class Open(Struct, frozen=True):
    """An OPEN message."""

    asn: int
    router_id: IPv4Address
    hold: int
    capabilities: Capabilities = Capabilities()


_MULTIPROTOCOL, _REFRESH, _EXTENDED, _RESTART, _AS4, _ENHANCED = 1, 2, 6, 64, 65, 70
_CAPABILITY_PARAMETER = 2
_EXTENDED_PARAMETERS = 255
"""RFC 9072: parameters with lengths of two octets."""


def encode_open(value: Open) -> bytes:
    """Encode an OPEN message; each capability is a parameter of its own, as other speakers have it."""
    has = value.capabilities
    items = [(_MULTIPROTOCOL, family.afi.to_bytes(2, "big") + bytes((0, family.safi))) for family in has.families]
    items += has.other
    if has.refresh:
        items.append((_REFRESH, b""))
    if has.enhanced_refresh:
        items.append((_ENHANCED, b""))
    if has.extended_messages:
        items.append((_EXTENDED, b""))
    if has.asn is not None:
        items.append((_AS4, has.asn.to_bytes(4, "big")))
    if has.graceful_restart is not None:
        items.append((_RESTART, _encode_restart(has.graceful_restart)))
    parameters = b"".join(bytes((_CAPABILITY_PARAMETER, 2 + len(data), code, len(data))) + data for code, data in items)
    if len(parameters) < _EXTENDED_PARAMETERS:
        parameters = bytes((len(parameters),)) + parameters
    else:
        wide = b"".join(
            bytes((_CAPABILITY_PARAMETER, 0, 2 + len(data), code, len(data))) + data for code, data in items
        )
        parameters = bytes((_EXTENDED_PARAMETERS,) * 2) + len(wide).to_bytes(2, "big") + wide
    asn = value.asn if value.asn <= 0xFFFF else AS_TRANS
    fixed = b"\x04" + asn.to_bytes(2, "big") + value.hold.to_bytes(2, "big") + value.router_id.packed
    return message(Kind.OPEN, fixed + parameters)


def decode_open(body: bytes) -> Open:
    """Decode the body of an OPEN message; the AS number is that of four octets if there is one."""
    if body[0] != 4:
        raise Notification(Code.OPEN, OpenError.VERSION, b"\x00\x04", f"BGP version {body[0]} is not supported")
    hold = int.from_bytes(body[3:5], "big")
    if hold in (1, 2):
        raise Notification(Code.OPEN, OpenError.HOLD_TIME, why=f"a hold time of {hold} s is too short")
    router_id = IPv4Address(body[5:9])
    if not int(router_id):
        raise Notification(Code.OPEN, OpenError.BAD_IDENTIFIER, why="the BGP identifier is 0.0.0.0")
    capabilities = _decode_capabilities(list(_parameters(body)))
    asn = int.from_bytes(body[1:3], "big") if capabilities.asn is None else capabilities.asn
    if not asn or (capabilities.asn is None and asn == AS_TRANS):
        raise Notification(Code.OPEN, OpenError.BAD_PEER_AS, why=f"AS {asn} is reserved")
    return Open(asn, router_id, hold, capabilities)


def _parameters(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the capabilities in the optional parameters."""
    length, wide = body[9], 1
    data = body[10:]
    if length and data[:1] == bytes((_EXTENDED_PARAMETERS,)):
        length, wide = int.from_bytes(data[1:3], "big"), 2
        data = data[3:]
    if length != len(data):
        raise Notification(Code.OPEN, OpenError.MALFORMED, why="the length of the optional parameters is wrong")
    for kind, value in _items(data, wide):
        if kind != _CAPABILITY_PARAMETER:
            raise Notification(
                Code.OPEN, OpenError.OPTIONAL_PARAMETER, why=f"optional parameter {kind} is not supported"
            )
        yield from _items(value, 1)


def _items(data: bytes, wide: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        begin = at + 1 + wide
        length = int.from_bytes(data[at + 1 : begin], "big")
        if begin > len(data) or begin + length > len(data):
            raise Notification(Code.OPEN, OpenError.MALFORMED, why="an optional parameter is truncated")
        yield data[at], data[begin : begin + length]
        at = begin + length


def _decode_capabilities(items: list[tuple[int, bytes]]) -> Capabilities:
    families: dict[Family, None] = {}
    flags: set[int] = set()
    asn: int | None = None
    restart: GracefulRestart | None = None
    other: list[tuple[int, bytes]] = []
    for code, data in items:
        if code == _MULTIPROTOCOL and len(data) == 4:
            families[Family(data[0] << 8 | data[1], data[3])] = None
        elif code == _AS4 and len(data) == 4:
            asn = int.from_bytes(data, "big")
        elif code == _RESTART and len(data) >= 2 and len(data) % 4 == 2:
            restart = _decode_restart(data)
        elif code in (_REFRESH, _ENHANCED, _EXTENDED) and not data:
            flags.add(code)
        else:
            # A capability of a wrong length is one that is not understood: ignored, as RFC 5492 says of those.
            other.append((code, data))
    return Capabilities(
        tuple(families), asn, _REFRESH in flags, _ENHANCED in flags, _EXTENDED in flags, restart, tuple(other)
    )


def _encode_restart(restart: GracefulRestart) -> bytes:
    head = restart.restarting << 15 | restart.notification << 14 | restart.seconds
    return head.to_bytes(2, "big") + b"".join(
        family.afi.to_bytes(2, "big") + bytes((family.safi, kept << 7)) for family, kept in restart.families.items()
    )


def _decode_restart(data: bytes) -> GracefulRestart:
    head = int.from_bytes(data[:2], "big")
    entries = (data[at : at + 4] for at in range(2, len(data), 4))
    families = {Family(one[0] << 8 | one[1], one[2]): bool(one[3] & 0x80) for one in entries}
    return GracefulRestart(head & 0xFFF, families, bool(head & 0x8000), bool(head & 0x4000))


def encode_notification(error: Notification) -> bytes:
    """Encode a NOTIFICATION message; its data, which a peer may have chosen, is cut to what any peer takes."""
    return message(Kind.NOTIFICATION, bytes((error.code, error.subcode)) + error.data[: LONGEST - HEADER - 2])


def decode_notification(body: bytes) -> Notification:
    """Decode the body of a NOTIFICATION message, which a peer sent; a hard reset has another one in it (RFC 8538)."""
    code, subcode, data = body[0], body[1], body[2:]
    if code == Code.CEASE and subcode == Cease.HARD_RESET and len(data) >= 2:
        return Notification(code, subcode, data, f"{_described(data[0], data[1], data[2:])} (hard reset)")
    return Notification(code, subcode, data, _described(code, subcode, data))


def shutdown_data(text: str) -> bytes:
    """Encode a shutdown message for the operator of a peer (RFC 9003), cut to 255 bytes."""
    encoded = text.encode()[:255].decode(errors="ignore").encode()
    return bytes((len(encoded),)) + encoded if encoded else b""


def _described(code: int, subcode: int, data: bytes) -> str:
    """Describe an error; with the text of a shutdown, in which nothing can be mistaken for something of ours."""
    text = ""
    if code == Code.CEASE and subcode in (Cease.SHUTDOWN, Cease.RESET) and data and len(data) == 1 + data[0]:
        text = "".join(one if one.isprintable() else " " for one in data[1:].decode(errors="replace"))
    return f"{describe(code, subcode)}: {text!r}" if text else describe(code, subcode)


class Refresh(IntEnum):
    """The subtypes of ROUTE-REFRESH (RFC 7313)."""

    REQUEST = 0
    BEGIN = 1
    END = 2


def encode_refresh(family: Family, what: Refresh = Refresh.REQUEST) -> bytes:
    """Encode a ROUTE-REFRESH message."""
    return message(Kind.ROUTE_REFRESH, family.afi.to_bytes(2, "big") + bytes((what, family.safi)))


def decode_refresh(body: bytes) -> tuple[Family, Refresh | None]:
    """Decode the body of a ROUTE-REFRESH message; None if it says what is to be ignored."""
    if len(body) != 4:
        # Route filters (RFC 5291) make it longer; they are not offered.
        raise Notification(Code.ROUTE_REFRESH, 1, message(Kind.ROUTE_REFRESH, body), "ROUTE-REFRESH has a wrong length")
    what = Refresh(body[2]) if body[2] <= Refresh.END else None
    return Family(body[0] << 8 | body[1], body[3]), what
