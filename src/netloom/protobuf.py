"""Protobuf's wire format, for every message that is written or read here.  Pure.

    field    tag = number << 3 | wire type, then: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes

`front/api/output/protobuf.py` has Kubernetes' messages, `front/api/schemas/openapi_proto.py` an OpenAPI document, and
`store/etcd/wire.py` etcd's requests and answers. Reading takes time linear in the size of the data and never recurses;
data that is no message raises `Malformed`.
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5


class Malformed(ValueError):
    """The data is not a Protobuf message."""


# Writing.


def varint(value: int) -> bytes:
    """Return a whole number; a negative one is written as its two's complement in 64 bits."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes((value,)) for value in range(128)]


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that holds bytes, a text or a message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def whole_field(number: int, value: int) -> bytes:
    """Return a field that holds a whole number or a boolean."""
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Return a field that holds a floating point number."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


# Reading.


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    if at < end and data[at] < 128:
        return data[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Malformed("the message is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise Malformed("a number has more than 64 bits")


def read_extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the bytes begin and end whose length is at a position."""
    size, at = read_varint(data, at, end)
    if size > end - at:
        raise Malformed("the message is truncated")
    return at, at + size


class Body:
    """Bytes that are being read, and how many more fields they may have, counting those that are skipped."""

    __slots__ = ("_limit", "data", "left")

    def __init__(self, data: bytes, limit: int) -> None:
        self.data = data
        self.left = self._limit = limit

    def tag(self, at: int, end: int) -> tuple[int, int, int]:
        """Return the number and wire type of the next field, and the position after them."""
        self.left -= 1
        if self.left < 0:
            raise Malformed(f"it has more than {self._limit} fields")
        tag, at = read_varint(self.data, at, end)
        if not 0 < tag >> 3 < 1 << 29:
            raise Malformed("a field has a number that is out of range")
        return tag >> 3, tag & 7, at

    def skip(self, wire: int, at: int, end: int) -> int:
        """Return the position after the value of an unknown field."""
        depth = 0  # Groups nest; they are skipped without recursion.
        while True:
            if wire == VARINT:
                _, at = read_varint(self.data, at, end)
            elif wire == BYTES:
                _, at = read_extent(self.data, at, end)
            elif wire == FIXED64:
                at += 8
            elif wire == FIXED32:
                at += 4
            elif wire == GROUP:
                depth += 1
            elif wire == GROUP_END:
                depth -= 1
            else:
                raise Malformed(f"a field has the unknown wire type {wire}")
            if at > end or depth < 0:
                raise Malformed("the message is truncated")
            if depth == 0:
                return at
            _, wire, at = self.tag(at, end)

    def text(self, at: int, end: int) -> str:
        """Return the bytes between two positions as text."""
        try:
            return self.data[at:end].decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field; groups are left out."""
    body, at, end = Body(data, len(data)), 0, len(data)
    while at < end:
        number, wire, at = body.tag(at, end)
        if wire == VARINT:
            value, at = read_varint(data, at, end)
            yield number, value
        elif wire == BYTES:
            start, at = read_extent(data, at, end)
            yield number, data[start:at]
        else:
            start, at = at, body.skip(wire, at, end)
            if wire in (FIXED32, FIXED64):
                yield number, data[start:at]
