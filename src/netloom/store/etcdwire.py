"""etcd's messages as protobuf: those few of its API that a store needs, written and read by hand.

A message is a row of fields; a field is a number, a wire type and a value (a varint, or bytes of a known length). The
numbers are those of etcd's `rpc.proto` and `kv.proto`. Fields nobody here knows are skipped, as protobuf has it.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from netloom.errors import Unreachable

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EQUAL, _MOD = 0, 2


class Header(Struct, frozen=True):
    """The revision of the whole store when it answered."""

    revision: int = 0


class KeyValue(Struct, frozen=True):
    """One key."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0


class Range(Struct, frozen=True):
    """What a read found."""

    header: Header = Header()
    kvs: list[KeyValue] = []
    more: bool = False
    count: int = 0


class Done(Struct, frozen=True):
    """What became of a transaction."""

    header: Header = Header()
    succeeded: bool = False


class KeyEvent(Struct, frozen=True):
    """One change of one key."""

    kv: KeyValue
    prev_kv: KeyValue | None = None
    type: str = "PUT"


class Told(Struct, frozen=True):
    """One message of a watch."""

    header: Header = Header()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[KeyEvent] = []


# Writing.


def put(key: str, value: bytes) -> bytes:
    """Return the operation that sets a key."""
    return _bytes(2, _bytes(1, key.encode()) + _bytes(2, value))


def delete_key(key: str) -> bytes:
    """Return the operation that removes a key."""
    return _bytes(3, _bytes(1, key.encode()))


def unless_changed(key: str, revision: int) -> bytes:
    """Return the condition that a key was last written at `revision`; 0: that it is not there."""
    return _number(1, _EQUAL) + _number(2, _MOD) + _bytes(3, key.encode()) + _tag(6, _VARINT) + _varint(revision)


def txn(conditions: Sequence[bytes], operations: Sequence[bytes]) -> bytes:
    """Return a transaction: all `operations` if all `conditions` hold."""
    return b"".join([_bytes(1, one) for one in conditions] + [_bytes(2, one) for one in operations])


def range_(key: str, end: str, limit: int, revision: int, *, count_only: bool) -> bytes:
    """Return a read of a key, or with `end` of the keys up to there."""
    first = _bytes(1, _key(key)) + (_bytes(2, end.encode()) if end else b"")
    return first + _number(3, limit) + _number(4, revision) + _number(9, int(count_only))


def compaction(revision: int) -> bytes:
    """Return the wish that history before `revision` be dropped."""
    return _number(1, revision)


def watch(key: str, end: str, first: int) -> bytes:
    """Return the beginning of a watch of a range of keys, from the revision `first` on."""
    # Progress reports, what was there before, and large messages in parts: a message has up to 1,000 revisions in it.
    flags = _number(4, 1) + _number(6, 1) + _number(8, 1)
    return _bytes(1, _bytes(1, key.encode()) + _bytes(2, end.encode()) + _number(3, first) + flags)


def _tag(number: int, wire: int) -> bytes:
    return bytes((number << 3 | wire,))  # All the numbers here are below 16.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value) if value else b""


def _key(key: str) -> bytes:
    """Return a key as bytes.  Other programs' keys need not be UTF-8, and lists go on behind them."""
    return key.encode(errors="surrogateescape")


def _bytes(number: int, value: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(value)) + value


# Reading.


def read_range(data: bytes) -> Range:
    """Read what a read found."""
    header, kvs, more, count = Header(), [], False, 0
    for number, value in _fields(data):
        if number == 1:
            header = _header(_blob(value))
        elif number == 2:
            kvs.append(_key_value(_blob(value)))
        elif number == 3:
            more = bool(value)
        elif number == 4:
            count = _whole(value)
    return Range(header, kvs, more, count)


def read_done(data: bytes) -> Done:
    """Read what became of a transaction."""
    header, succeeded = Header(), False
    for number, value in _fields(data):
        if number == 1:
            header = _header(_blob(value))
        elif number == 2:
            succeeded = bool(value)
    return Done(header, succeeded)


def read_told(data: bytes) -> Told:
    """Read a message of a watch."""
    header, created, canceled, compacted, reason = Header(), False, False, 0, ""
    events: list[KeyEvent] = []
    for number, value in _fields(data):
        if number == 11:
            events.append(_event(_blob(value)))
        elif number == 1:
            header = _header(_blob(value))
        elif number == 3:
            created = bool(value)
        elif number == 4:
            canceled = bool(value)
        elif number == 5:
            compacted = _whole(value)
        elif number == 6:
            reason = _blob(value).decode("utf-8", "replace")
    return Told(header, created, canceled, compacted, reason, events)


def _header(data: bytes) -> Header:
    return Header(next((_whole(value) for number, value in _fields(data) if number == 3), 0))


def _key_value(data: bytes) -> KeyValue:
    key, body, revision = b"", b"", 0
    for number, value in _fields(data):
        if number == 1:
            key = _blob(value)
        elif number == 3:
            revision = _whole(value)
        elif number == 5:
            body = _blob(value)
    return KeyValue(key, body, revision)


def _event(data: bytes) -> KeyEvent:
    kind, kv, before = "PUT", KeyValue(b""), None
    for number, value in _fields(data):
        if number == 1:
            kind = "DELETE" if value == 1 else "PUT"
        elif number == 2:
            kv = _key_value(_blob(value))
        elif number == 3:
            before = _key_value(_blob(value))
    return KeyEvent(kv, before, kind)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: its number, and a number or bytes."""
    at, end = 0, len(data)
    try:
        while at < end:
            tag, at = _read_varint(data, at)
            wire = tag & 7
            if wire == _VARINT:
                value, at = _read_varint(data, at)
                yield tag >> 3, value
                continue
            if wire == _BYTES:
                length, at = _read_varint(data, at)
            elif wire in (_FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
            else:
                raise Unreachable(f"etcd sent a field of the unknown type {wire}")
            if at + length > end:
                raise Unreachable("etcd sent a message that is cut off")
            yield tag >> 3, data[at : at + length]
            at += length
    except IndexError:
        raise Unreachable("etcd sent a message that is cut off") from None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Unreachable("etcd sent a number that is too large")


def _blob(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Unreachable("etcd sent a number where bytes belong")
    return value


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Unreachable("etcd sent bytes where a number belongs")
    return value
