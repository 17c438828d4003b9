"""Splits a stream of bytes into JSON-RPC messages.  Pure, incremental, bounded.

OVSDB sends JSON objects one after another, without delimiters: only the braces show where one ends. Checking each byte
in Python would cost more than everything else, so this checks only at possible ends: a chunk that ends in a brace, or
has one object follow another. If the braces of the buffer balance, it most likely is one complete message, and the
decoder, which is C, is tried. Otherwise the text is scanned, token by token, once: each byte at most a few times,
whatever the chunks are and whatever the strings contain.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from netloom.ovsdb.errors import RemoteError

LIMIT = 512 << 20
"""The largest accepted message, in bytes: a southbound database of a million flows is smaller."""


class RpcMessage(Struct, gc=False):
    """One message; its contents are not decoded yet."""

    id: Any = None
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_decode = msgspec.json.Decoder(RpcMessage).decode
_FOLLOWED = re.compile(rb"\}\s*\{")
_TOKEN = re.compile(rb'[{}]|"[^"\\]*(?:\\.[^"\\]*)*+("?)', re.DOTALL)
_STRING_END = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*+("?)', re.DOTALL)


def decode(data: bytes) -> RpcMessage:
    """Return one complete message."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        raise RemoteError(f"not a JSON-RPC message: {problem}") from problem


class Framer:
    """Bytes in, messages out."""

    __slots__ = ("_balance", "_buffer", "_depth", "_doubt", "_in_string", "_scanned", "limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._restart()

    def _restart(self) -> None:
        self._balance = 0  # Open braces, including those in strings.
        self._doubt = False  # The balance was wrong once in this message: scan.
        self._scanned = 0  # The position of the scan,
        self._depth = 0  # its depth,
        self._in_string = False  # and whether it is inside a string.

    def __len__(self) -> int:
        """Return the size of the incomplete message."""
        return len(self._buffer)

    def receive(self, data: bytes) -> list[RpcMessage]:
        """Return the messages that are now complete."""
        if not self._buffer and not (data := data.lstrip()):
            return []
        if not self._buffer and data[0] != 0x7B:
            raise RemoteError("the data is not a JSON object")
        self._balance += data.count(b"{") - data.count(b"}")
        ends = data.rstrip().endswith(b"}")
        if ends and self._balance == 0 and not self._doubt and not _FOLLOWED.search(data):
            whole = bytes(self._buffer + data) if self._buffer else bytes(data)
            try:
                message = _decode(whole)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                self._doubt = True  # A string has braces, or the data is malformed: the scan will show.
            else:
                self._buffer.clear()
                self._restart()
                return [message]
        self._buffer += data
        if len(self._buffer) > self.limit:
            found = self._walk()
            if len(self._buffer) > self.limit:
                raise RemoteError(f"a message exceeds {self.limit} bytes")
            return found
        return self._split() + self._walk() if ends or _FOLLOWED.search(data) else []

    def _split(self) -> list[RpcMessage]:
        """Split where one object follows another: a server sends updates, then the answer that they belong to.

        The decoder verifies the split. If it fails, a string looks like an end: the scan will show.
        """
        found: list[RpcMessage] = []
        if self._scanned or self._doubt:
            return found
        data, start = bytes(self._buffer), 0
        for match in _FOLLOWED.finditer(data):
            try:
                found.append(_decode(data[start : match.start() + 1]))
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                break
            start = match.end() - 1
        self._keep(start, start, 0)
        if found and self._balance == 0:
            try:
                found.append(_decode(data[start:]))
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                return found
            self._buffer.clear()
            self._restart()
        return found

    def _walk(self) -> list[RpcMessage]:
        """Continue the scan through the buffer; return the messages that end in it."""
        data = self._buffer
        found: list[RpcMessage] = []
        start, position, depth = 0, self._scanned, self._depth
        if self._in_string:
            position = self._end_of_string(data, position)
            if self._in_string:
                self._scanned = position
                return found
        for token in _TOKEN.finditer(data, position):
            first = data[token.start()]
            if first == 0x7B:
                depth += 1
            elif first == 0x7D:
                depth -= 1
                if depth == 0:
                    found.append(decode(bytes(data[start : token.end()])))
                    start = self._next_start(data, token.end())
                elif depth < 0:
                    raise RemoteError("unbalanced closing brace")
            elif not token.group(1):
                self._in_string = True
                position = token.end()
        self._keep(start, position if self._in_string else len(data), depth)
        return found

    def _end_of_string(self, data: bytearray, position: int) -> int:
        match = _STRING_END.match(data, position)
        assert match is not None
        self._in_string = not match.group(1)
        return match.end()

    @staticmethod
    def _next_start(data: bytearray, position: int) -> int:
        """Return the position of the next message; only white space may precede it."""
        while position < len(data) and data[position] in b" \t\r\n":
            position += 1
        if position < len(data) and data[position] != 0x7B:
            raise RemoteError("the data is not a JSON object")
        return position

    def _keep(self, start: int, scanned: int, depth: int) -> None:
        """Save the state of the scan; discard what was returned."""
        self._depth, self._scanned = depth, scanned - start
        if start == 0:
            return
        del self._buffer[:start]
        self._balance = self._buffer.count(b"{") - self._buffer.count(b"}")
        self._doubt = False
