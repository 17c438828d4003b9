"""OpenFlow's framing: the header of a message, and the limits of a stream.  Pure.

    version(1) type(1) length(2) xid(4) body(length - 8)

`Framer` splits a stream into messages. The parts of a body are decoded with `struct.unpack_from`; its errors, like
those of any other read beyond the end, become `RemoteError` in `reading`.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from netloom import errors

VERSION = 5
"""OpenFlow 1.4, the first with bundles."""
NICIRA = 0x00002320

HEADER = struct.Struct("!BBHI")


class RemoteError(errors.Unreachable):
    """The switch sent data that is not OpenFlow 1.4: close the connection and reconnect."""


class Type(IntEnum):
    """Types of messages that are sent or decoded here."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FLOW_MOD = 14
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    METER_MOD = 29
    BUNDLE_CONTROL = 33
    BUNDLE_ADD = 34


class Message(NamedTuple):
    """One message."""

    version: int
    type: int
    xid: int
    body: bytes


def frame(kind: Type, xid: int, body: bytes = b"") -> bytes:
    """Return an encoded message."""
    return HEADER.pack(VERSION, kind, 8 + len(body), xid) + body


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Decode received bytes: every error becomes a `RemoteError`."""
    try:
        yield
    except (struct.error, IndexError, ValueError) as problem:
        raise RemoteError(f"invalid data in {what}: {problem}") from problem


class Framer:
    """Splits a stream into messages.  The 16-bit length limits their size."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def begun(self) -> int | None:
        """The type of an incomplete message; None if there is none, or its type is not known yet."""
        return self._rest[1] if len(self._rest) > 1 else None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are now complete."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        self._rest = b""
        while end - at >= HEADER.size:
            version, kind, length, xid = HEADER.unpack_from(data, at)
            if length < HEADER.size:
                raise RemoteError(f"invalid length of a message: {length} bytes")
            if end - at < length:
                break
            yield Message(version, kind, xid, data[at + 8 : at + length])
            at += length
        self._rest = data[at:]
