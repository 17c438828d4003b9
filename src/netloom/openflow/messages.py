"""OpenFlow's messages: encoding those we send, decoding those we receive.  Pure.

flow mod      cookie(8) cookie mask(8) table(1) command(1) idle(2) hard(2) priority(2) buffer(4) out port(4)
              out group(4) flags(2) importance(2) match instructions
flow stats    length(2) table(1) zero(1) seconds(4) nanoseconds(4) priority(2) idle(2) hard(2) flags(2)
              importance(2) zeros(2) cookie(8) packets(8) bytes(8) match instructions
aggregate     packets(8) bytes(8) flows(4) zeros(4)
bundle        control: id(4) type(2) flags(2);  add: id(4) zeros(2) flags(2), then the message with the same xid
meter mod     command(2) flags(2) meter(4) bands;  a band that drops: 1(2) 16(2) rate(4) burst(4) zeros(4)
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from netloom.openflow.actions import decode_actions, encode_actions
from netloom.openflow.flows import Drop, Flow, MeterSpec, Mod
from netloom.openflow.oxm import UnknownField, decode_match, encode_match
from netloom.openflow.wire import HEADER, VERSION, RemoteError, Type, frame, reading
from netloom.openflow.words import EXPERIMENTER, error_words, experimenter_words

_FLOW_MOD = struct.Struct("!QQBBHHHIIIHH")
_FLOW_STATS = struct.Struct("!HBxIIHHHHHxxQQQ")
_MULTIPART = struct.Struct("!HH4x")
_FLOW_REQUEST = struct.Struct("!B3xII4xQQ")
_AGGREGATE = struct.Struct("!QQI4x")
_BUNDLE = struct.Struct("!IHH")
_BUNDLE_ADD = struct.Struct("!BBHII2xH")
_METER_MOD = struct.Struct("!HHI")
_BAND = struct.Struct("!HHII4x")
_HELLO = struct.Struct("!HHI")

_ADD, _DELETE_STRICT = 0, 4
_ANY = 0xFFFFFFFF
_ALL_TABLES = 0xFF
_NO_COOKIE = 0
_ATOMIC_ORDERED = 3
_KBPS, _BURST = 1, 4
_BAND_DROPS = 1
_MORE = 1
_HAS_BITMAP = 1


class Multipart(IntEnum):
    """Types of multipart messages."""

    FLOW = 1
    AGGREGATE = 2
    METER_CONFIG = 10


class Bundle(IntEnum):
    """Types of bundle control messages; an answer's number is one more."""

    OPEN = 0
    COMMIT = 4
    DISCARD = 6


class MeterCommand(IntEnum):
    """The commands of a meter mod."""

    ADD = 0
    MODIFY = 1
    DELETE = 2


def hello(xid: int) -> bytes:
    """Return the first message: our version."""
    return frame(Type.HELLO, xid, _HELLO.pack(_HAS_BITMAP, 8, 1 << VERSION))


def speaks(version: int, body: bytes) -> bool:
    """Whether a switch with this hello supports our version."""
    with reading("a hello"):
        at = 0
        while at < len(body):
            kind, length = struct.unpack_from("!HH", body, at)
            if length < 4:
                raise RemoteError(f"invalid length of an element in a hello: {length} bytes")
            if kind == _HAS_BITMAP and length >= 8:
                return bool(int.from_bytes(body[at + 4 : at + 8], "big") >> VERSION & 1)
            at += (length + 7) // 8 * 8
    return version >= VERSION


def bundle_control(xid: int, bundle: int, kind: Bundle) -> bytes:
    """Return a message that opens, commits or discards a bundle."""
    return frame(Type.BUNDLE_CONTROL, xid, _BUNDLE.pack(bundle, kind, _ATOMIC_ORDERED))


def bundle_add(xid: int, bundle: int, mod: Mod) -> bytes:
    """Return a message that adds a mod to a bundle.  ValueError and others: the flow is invalid."""
    flow = mod.flow
    match = encode_match(flow.match)
    if isinstance(mod, Drop):
        command, cookie, actions = _DELETE_STRICT, _NO_COOKIE, b""
    else:
        command, cookie, actions = _ADD, flow.cookie, encode_actions(flow.actions)
    length = 48 + len(match) + len(actions)
    return b"".join((
        _BUNDLE_ADD.pack(VERSION, Type.BUNDLE_ADD, 16 + length, xid, bundle, _ATOMIC_ORDERED),
        HEADER.pack(VERSION, Type.FLOW_MOD, length, xid),
        _FLOW_MOD.pack(cookie, 0, flow.table, command, 0, 0, flow.priority, _ANY, _ANY, _ANY, 0, 0),
        match,
        actions,
    ))  # fmt: skip


def flows_request(xid: int, kind: Multipart, cookie: int, cookie_mask: int) -> bytes:
    """Return a request for flows, or for their number."""
    asked = _FLOW_REQUEST.pack(_ALL_TABLES, _ANY, _ANY, cookie, cookie_mask)
    return frame(Type.MULTIPART_REQUEST, xid, _MULTIPART.pack(kind, 0) + asked + encode_match(()))


def meters_request(xid: int) -> bytes:
    """Return a request for all meters."""
    return frame(Type.MULTIPART_REQUEST, xid, _MULTIPART.pack(Multipart.METER_CONFIG, 0) + struct.pack("!I4x", _ANY))


def meter_mod(xid: int, command: MeterCommand, meter: int, spec: MeterSpec | None) -> bytes:
    """Return a message that changes a meter."""
    flags, bands = 0, b""
    if spec is not None:
        flags = _KBPS | (_BURST if spec.burst else 0)
        bands = _BAND.pack(_BAND_DROPS, _BAND.size, spec.rate_kbps, spec.burst)
    return frame(Type.METER_MOD, xid, _METER_MOD.pack(command, flags, meter) + bands)


class MultipartReply(NamedTuple):
    """One message of a multipart answer."""

    kind: int
    more: bool
    body: bytes


def read_part(body: bytes) -> MultipartReply:
    """Return the contents of a multipart answer."""
    with reading("a multipart answer"):
        kind, flags = _MULTIPART.unpack_from(body)
    return MultipartReply(kind, bool(flags & _MORE), body[_MULTIPART.size :])


class Listed(NamedTuple):
    """The flows of a switch."""

    flows: list[Flow]
    foreign: int
    """The number of flows with a match that no flow of ours can have."""


def read_flows(body: bytes) -> Listed:
    """Return the flows of one part of an answer."""
    flows: list[Flow] = []
    foreign = at = 0
    size = _FLOW_STATS.size
    with reading("a flow"):
        while at < len(body):
            length, table, _, _, priority, _, _, _, _, cookie, _, _ = _FLOW_STATS.unpack_from(body, at)
            if length < size or at + length > len(body):
                raise RemoteError(f"invalid length of a flow: {length} bytes")
            entry = body[at : at + length]
            try:
                match, end = decode_match(entry, size)
                flows.append(Flow(table, priority, match, decode_actions(entry[end:]), cookie))
            except UnknownField:
                foreign += 1
            at += length
    return Listed(flows, foreign)


def read_count(body: bytes) -> int:
    """Return the number of flows."""
    with reading("a number of flows"):
        _, _, count = _AGGREGATE.unpack_from(body)
    return int(count)


def read_meters(body: bytes) -> dict[int, MeterSpec]:
    """Return the meters of one part of an answer that are like ours: with one band, which drops."""
    meters: dict[int, MeterSpec] = {}
    at = 0
    with reading("a meter"):
        while at < len(body):
            length, flags, meter = _METER_MOD.unpack_from(body, at)
            if length < _METER_MOD.size or at + length > len(body):
                raise RemoteError(f"invalid length of a meter: {length} bytes")
            if length == _METER_MOD.size + _BAND.size and flags & _KBPS:
                _, _, rate, burst = _BAND.unpack_from(body, at + _METER_MOD.size)
                meters[meter] = MeterSpec(rate, burst if flags & _BURST else 0)
            at += length
    return meters


class Fault(NamedTuple):
    """An error of a switch."""

    kind: int
    code: int

    def __str__(self) -> str:
        return experimenter_words(self.code) if self.kind == EXPERIMENTER else error_words(self.kind, self.code)


def read_error(body: bytes) -> Fault:
    """Return the error."""
    with reading("an error"):
        kind, code = struct.unpack_from("!HH", body)
    return Fault(kind, code)


def read_bundle(body: bytes) -> tuple[int, int]:
    """Return the bundle that an answer is about, and the type of the answer."""
    with reading("an answer about a bundle"):
        bundle, kind, _ = _BUNDLE.unpack_from(body)
    return bundle, kind
