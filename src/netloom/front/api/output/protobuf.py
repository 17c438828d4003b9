"""Kubernetes' Protobuf: encodes and decodes documents by tables of fields.

Kubernetes generates its messages with gogo/protobuf from Go types, and the encoding of a field follows from its Go
type. A plain value is always written, even if it is zero; a pointer is written if it is set; lists and maps are written
if they are not empty, maps in the order of their keys; fields come in the order of their numbers. A table (see
`tables`) says all of that, so the output is, byte for byte, that of Go. The wire format is in `netloom/protobuf.py`.

    LeaseSpec       1 holderIdentity string?   2 leaseDurationSeconds int32?   3 acquireTime MicroTime?
    ObjectMeta      1 name string   11 labels map   13 ownerReferences OwnerReference*
    OwnerReference  1 kind string!

   TYPE            a plain value; the document omits it if it is zero
   TYPE!           a plain value that the document always has
    TYPE?           a pointer
    TYPE*           a list

Decoding follows Go as well: unknown fields are skipped, the last of a repeated plain value counts, repeated messages
are merged. It takes time linear in the size of the body, and the number of fields in one body is limited: a table
cannot nest without end, but two bytes can become an object.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import msgspec

from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.document import Document, Json
from netloom.protobuf import BYTES, VARINT, Body, Malformed, bytes_field, read_extent, read_varint, varint, whole_field

FIELD_LIMIT = 50_000
"""How many fields one body may have, including skipped ones."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO = "0001-01-01T00:00:00"

Writer = Callable[[list[bytes], Json], None]
"""Appends one field with this value to the parts of a message."""
Reader = Callable[["Body", int, int, Document], int]
"""Decodes one field's value, from a position on, into a document; returns the position after it."""


def broken(why: Malformed) -> BadRequest:
    """Return the error for bytes that are not a valid message."""
    return BadRequest(f"the body is not the Protobuf message that its Content-Type declares: {why}")


class MessageType:
    """One message type."""

    def __init__(self) -> None:
        """Create a type without fields; `tables` adds them."""
        self._writers: list[tuple[str, Writer]] = []
        self._readers: dict[int, tuple[int, Reader]] = {}
        self._always: list[tuple[str, Callable[[], Json]]] = []

    def add(self, number: int, name: str, wire: int, write: Writer, read: Reader) -> None:
        """Add a field; fields are added in the order of their numbers."""
        self._writers.append((name, write))
        self._readers[number] = wire, read

    def always(self, name: str, zero: Callable[[], Json]) -> None:
        """Add a field to every decoded document, with its zero value if the message does not have it."""
        self._always.append((name, zero))

    def encode(self, document: Document) -> bytes:
        """Return a document as this message, without fields that the message does not have."""
        parts: list[bytes] = []
        get = document.get
        for name, write in self._writers:
            write(parts, get(name))
        return b"".join(parts)

    def decode(self, data: bytes) -> Document:
        """Return the document of a message; `BadRequest` if it is not one."""
        found: Document = {}
        self.read_whole(data, found)
        return found

    def read_whole(self, data: bytes, into: Document) -> None:
        """Read a message into a document; `BadRequest` where it is none."""
        try:
            self.read(Body(data, FIELD_LIMIT), 0, len(data), into)
        except Malformed as error:
            raise broken(error) from None

    def read(self, body: Body, at: int, end: int, into: Document) -> None:
        """Decode the message between two positions into a document."""
        readers = self._readers
        while at < end:
            number, wire, at = body.tag(at, end)
            known = readers.get(number)
            if known is None:
                at = body.skip(wire, at, end)
                continue
            if wire != known[0]:
                raise Malformed(f"field {number} has the wrong wire type {wire}")
            at = known[1](body, at, end, into)
        for name, zero in self._always:
            if name not in into:
                into[name] = zero()


def tables(text: str) -> dict[str, MessageType]:
    """Return the messages that a table describes: a name on each line, then number, name and type of its fields."""
    lines = [line.split() for line in _joined(text)]
    made = {words[0]: MessageType() for words in lines}
    for name, *words in lines:
        fields = sorted(zip(map(int, words[::3]), words[1::3], words[2::3], strict=True))
        for number, field, kind in fields:
            _add(made[name], number, field, kind, made)
    return made


def _joined(text: str) -> list[str]:
    """Return the lines of a table; an indented line continues the one before."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            found[-1] += line
        elif line:
            found.append(line)
    return found


def _add(message: MessageType, number: int, name: str, kind: str, made: Mapping[str, MessageType]) -> None:
    mode = kind[-1] if kind[-1] in "?*!" else ""
    kind = kind.removesuffix(mode)
    if kind == "map":
        message.add(number, name, BYTES, _write_map(number), _read_map(name))
    elif kind in made:
        inner = made[kind]
        write = _write_all(number, inner.encode) if mode == "*" else _write_bytes(number, mode, inner.encode, {})
        message.add(number, name, BYTES, write, _read_message(name, inner, mode))
        if mode == "":
            message.always(name, dict)
    elif kind in ("string", "Time", "MicroTime", "FieldsV1"):
        encode, decode = _BY_BYTES[kind]
        write = _write_all(number, encode) if mode == "*" else _write_bytes(number, mode, encode, "")
        message.add(number, name, BYTES, write, _read_bytes(name, mode, decode))
        if mode == "!":
            message.always(name, str)
    else:
        message.add(number, name, VARINT, _write_whole(number, mode), _read_whole(name, mode, _BY_VARINT[kind]))
        if mode == "!":
            message.always(name, _BY_VARINT[kind])


# Writing.


def _write_bytes(number: int, mode: str, encode: Callable[[Any], bytes], zero: Json) -> Writer:
    tag = varint(number << 3 | BYTES)
    # Deferred: the inner message may have no fields yet.
    unset = cache(lambda: bytes_field(number, encode(zero)))

    def write(parts: list[bytes], value: Json) -> None:
        if value is not None:
            data = encode(value)
            parts += (tag, varint(len(data)), data)
        elif mode != "?":
            parts.append(unset())

    return write


def _write_all(number: int, encode: Callable[[Any], bytes]) -> Writer:
    tag = varint(number << 3 | BYTES)

    def write(parts: list[bytes], value: Json) -> None:
        for item in value or ():
            data = encode(item)
            parts += (tag, varint(len(data)), data)

    return write


def _write_map(number: int) -> Writer:
    def write(parts: list[bytes], value: Json) -> None:
        parts += (
            bytes_field(number, bytes_field(1, key.encode()) + bytes_field(2, value[key].encode()))
            for key in sorted(value or ())
        )

    return write


def _write_whole(number: int, mode: str) -> Writer:
    tag = varint(number << 3)

    def write(parts: list[bytes], value: Json) -> None:
        if value is None and mode == "?":
            return
        parts += (tag, varint(int(value or 0)))

    return write


# Reading.


def _read_bytes(name: str, mode: str, decode: Callable[[Body, int, int], Json]) -> Reader:
    def read(body: Body, at: int, end: int, into: Document) -> int:
        at, end = read_extent(body.data, at, end)
        value = decode(body, at, end)
        if mode == "*":
            into.setdefault(name, []).append(value)
        elif value is None or (value == "" and mode == ""):
            into.pop(name, None)
        else:
            into[name] = value
        return end

    return read


def _read_message(name: str, message: MessageType, mode: str) -> Reader:
    def read(body: Body, at: int, end: int, into: Document) -> int:
        at, end = read_extent(body.data, at, end)
        if mode == "*":
            place: Document = {}
            into.setdefault(name, []).append(place)
        else:
            place = into.setdefault(name, {})
        message.read(body, at, end, place)
        return end

    return read


def _read_map(name: str) -> Reader:
    def read(body: Body, at: int, end: int, into: Document) -> int:
        at, end = read_extent(body.data, at, end)
        entry: Document = {}
        _ENTRY.read(body, at, end, entry)
        into.setdefault(name, {})[entry["key"]] = entry["value"]
        return end

    return read


def _read_whole(name: str, mode: str, convert: Callable[[int], Json]) -> Reader:
    def read(body: Body, at: int, end: int, into: Document) -> int:
        whole, at = read_varint(body.data, at, end)
        value = convert(whole)
        if not value and mode == "":
            into.pop(name, None)
        else:
            into[name] = value
        return at

    return read


def _int64(value: int = 0) -> int:
    return value - (1 << 64) if value >> 63 else value


def _int32(value: int = 0) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


# Times are messages of seconds and nanoseconds; an unset time is an empty message.


def _encode_time(value: str, *, micro: bool) -> bytes:
    if not value or value.startswith(_ZERO):
        return b""
    try:
        since = datetime.fromisoformat(value.upper()) - _EPOCH
    except ValueError:  # RFC 3339 has a year 0, Python's calendar has none.
        return b""
    seconds = since.days * 86400 + since.seconds
    return whole_field(1, seconds) + whole_field(2, since.microseconds * 1000 if micro else 0)


def _decode_time(body: Body, at: int, end: int, *, micro: bool) -> str | None:
    if at == end:
        return None
    parts: Document = {}
    _TIMESTAMP.read(body, at, end, parts)
    try:
        found = _EPOCH + timedelta(seconds=parts["seconds"], microseconds=parts["nanos"] // 1000)
    except OverflowError:
        raise BadRequest("the body has a time outside of the years 1 to 9999") from None
    # strftime writes the year 1 without zeros before it.
    return f"{found:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0") if micro else f"{found:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


# The fields of a manager are JSON inside a message.


def _encode_fields(value: Json) -> bytes:
    return bytes_field(1, msgspec.json.encode(value))


def _decode_fields(body: Body, at: int, end: int) -> Json:
    raw = b""
    while at < end:
        number, wire, at = body.tag(at, end)
        if number != 1:
            at = body.skip(wire, at, end)
            continue
        if wire != BYTES:
            raise Malformed(f"field {number} has the wrong wire type {wire}")
        at, after = read_extent(body.data, at, end)
        raw, at = body.data[at:after], after
    return codec.decode(raw) if raw else None


_BY_BYTES: dict[str, tuple[Callable[[Any], bytes], Callable[[Body, int, int], Json]]] = {
    "string": (str.encode, Body.text),
    "Time": (partial(_encode_time, micro=False), partial(_decode_time, micro=False)),
    "MicroTime": (partial(_encode_time, micro=True), partial(_decode_time, micro=True)),
    "FieldsV1": (_encode_fields, _decode_fields),
}
_BY_VARINT: dict[str, Callable[..., Json]] = {"int32": _int32, "int64": _int64, "bool": bool}
_INTERNAL = tables("""
Entry       1 key string!  2 value string!
Timestamp   1 seconds int64!  2 nanos int32!
""")
_ENTRY, _TIMESTAMP = _INTERNAL["Entry"], _INTERNAL["Timestamp"]
