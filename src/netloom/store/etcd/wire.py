"""etcd's messages as Protobuf: those of its API that a store needs, written and read by hand.

The numbers of fields are those of etcd's `rpc.proto` and `kv.proto`. Unknown fields are skipped. The wire format is in
`netloom/protobuf.py`.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from msgspec import Struct

from netloom.errors import Unreachable
from netloom.protobuf import Body, Malformed, bytes_field, fields, read_extent, whole_field

T = TypeVar("T")

_EQUAL, _MOD = 0, 2
_KVS = 0x12
"""The tag, number and wire type, of a key in a range."""
_KEY, _MOD_REVISION, _VALUE, _IGNORED = 0x0A, 0x18, 0x2A, (0x10, 0x20)
"""The tags of a key's fields; those ignored are create_revision and version."""


class KeyValue(Struct, frozen=True, gc=False):
    """One key."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0


class Range(Struct, frozen=True):
    """What a read found."""

    revision: int = 0
    """That of the whole store when it answered."""
    kvs: list[KeyValue] = []
    more: bool = False
    count: int = 0


class Done(Struct, frozen=True):
    """What became of a transaction."""

    revision: int = 0
    """That of the whole store when it answered."""
    succeeded: bool = False


class KeyEvent(Struct, frozen=True):
    """One change of one key."""

    kv: KeyValue
    prev_kv: KeyValue | None = None
    type: str = "PUT"


class WatchResponse(Struct, frozen=True):
    """One message of a watch."""

    revision: int = 0
    """That of the whole store when it answered."""
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[KeyEvent] = []


# Writing.


def put(key: str, value: bytes) -> bytes:
    """Return the operation that sets a key."""
    return bytes_field(2, bytes_field(1, key.encode()) + bytes_field(2, value))


def delete_key(key: str) -> bytes:
    """Return the operation that removes a key."""
    return bytes_field(3, bytes_field(1, key.encode()))


def unless_changed(key: str, revision: int) -> bytes:
    """Return the condition that a key was last written at `revision`; 0: that it is not there."""
    return _number(1, _EQUAL) + _number(2, _MOD) + bytes_field(3, key.encode()) + whole_field(6, revision)


def txn(conditions: Sequence[bytes], operations: Sequence[bytes]) -> bytes:
    """Return a transaction: all `operations` if all `conditions` hold."""
    return b"".join([bytes_field(1, one) for one in conditions] + [bytes_field(2, one) for one in operations])


def range_(key: str, end: str, limit: int, revision: int, *, count_only: bool) -> bytes:
    """Return a read of a key, or with `end` of the keys up to there."""
    first = bytes_field(1, _key(key)) + (bytes_field(2, end.encode()) if end else b"")
    return first + _number(3, limit) + _number(4, revision) + _number(9, int(count_only))


def compaction(revision: int) -> bytes:
    """Return the request to drop the history before `revision`."""
    return _number(1, revision)


def watch(key: str, end: str, first: int) -> bytes:
    """Return the beginning of a watch of a range of keys, from the revision `first` on."""
    # Progress reports, what was there before, and large messages in parts: a message has up to 1,000 revisions in it.
    flags = _number(4, 1) + _number(6, 1) + _number(8, 1)
    return bytes_field(1, bytes_field(1, key.encode()) + bytes_field(2, end.encode()) + _number(3, first) + flags)


def _number(number: int, value: int) -> bytes:
    return whole_field(number, value) if value else b""


def _key(key: str) -> bytes:
    """Return a key as bytes.  Other programs' keys need not be UTF-8, and lists go on behind them."""
    return key.encode(errors="surrogateescape")


# Reading.


def _of_etcd(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Raise `Unreachable` where etcd sends what is no message."""

    @wraps(read)
    def reading(data: bytes) -> T:
        try:
            return read(data)
        except (Malformed, IndexError) as error:
            raise Unreachable(f"etcd sent a message that cannot be read: {error}") from None

    return reading


@_of_etcd
def read_range(data: bytes) -> Range:
    """Read what a read found.

    A list has thousands of keys, and decoding them is most of its cost, so they are decoded in place.
    """
    kvs, rest = [], []
    at, end = 0, len(data)
    body = Body(data, end)
    while at < end:
        start = at
        if data[at] == _KVS:
            at, stop = read_extent(data, at + 1, end)
            kvs.append(_key_value(data, at, stop))
            at = stop
        else:  # The header, `more` and `count`: a few fields.
            _, wire, at = body.tag(at, end)
            at = body.skip(wire, at, end)
            rest.append(data[start:at])
    revision, more, count = 0, False, 0
    for number, value in fields(b"".join(rest)):
        if number == 1:
            revision = _revision(_blob(value))
        elif number == 3:
            more = bool(value)
        elif number == 4:
            count = _whole(value)
    return Range(revision, kvs, more, count)


@_of_etcd
def read_done(data: bytes) -> Done:
    """Read what became of a transaction."""
    revision, succeeded = 0, False
    for number, value in fields(data):
        if number == 1:
            revision = _revision(_blob(value))
        elif number == 2:
            succeeded = bool(value)
    return Done(revision, succeeded)


@_of_etcd
def read_watch_response(data: bytes) -> WatchResponse:
    """Read a message of a watch."""
    revision, created, canceled, compacted, reason = 0, False, False, 0, ""
    events: list[KeyEvent] = []
    for number, value in fields(data):
        if number == 11:
            events.append(_event(_blob(value)))
        elif number == 1:
            revision = _revision(_blob(value))
        elif number == 3:
            created = bool(value)
        elif number == 4:
            canceled = bool(value)
        elif number == 5:
            compacted = _whole(value)
        elif number == 6:
            reason = _blob(value).decode("utf-8", "replace")
    return WatchResponse(revision, created, canceled, compacted, reason, events)


def _revision(header: bytes) -> int:
    return next((_whole(value) for number, value in fields(header) if number == 3), 0)


def _key_value(data: bytes, at: int, end: int) -> KeyValue:
    """Read the key between two positions; its fields are key, create_revision, mod_revision, version and value.

    Each of them has a tag of one byte and then a varint, a value or a length. That is written out here, because calls
    cost more than the reading itself.
    """
    key, body, revision = b"", b"", 0
    while at < end:
        start = at
        tag, whole = data[at], data[at + 1]
        at += 2
        if whole > 127:
            whole &= 127
            shift = 7
            while (byte := data[at]) > 127 and shift < 63:
                whole |= (byte & 127) << shift
                shift += 7
                at += 1
            whole |= byte << shift
            at += 1
        if tag == _VALUE:
            body = data[at : at + whole]
            at += whole
        elif tag == _MOD_REVISION:
            revision = whole
        elif tag == _KEY:
            key = data[at : at + whole]
            at += whole
        elif tag not in _IGNORED:
            rest = Body(data, end)
            _, wire, at = rest.tag(start, end)
            at = rest.skip(wire, at, end)
    if at > end:
        raise Malformed("the message is truncated")
    return KeyValue(key, body, revision)


def _event(data: bytes) -> KeyEvent:
    kind, kv, before = "PUT", KeyValue(b""), None
    for number, value in fields(data):
        if number == 1:
            kind = "DELETE" if value == 1 else "PUT"
        elif number == 2:
            kv = _key_value(found := _blob(value), 0, len(found))
        elif number == 3:
            before = _key_value(found := _blob(value), 0, len(found))
    return KeyEvent(kv, before, kind)


def _blob(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Malformed("it has a number where bytes belong")
    return value


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Malformed("it has bytes where a number belongs")
    return value
