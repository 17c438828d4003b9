"""Ping from the network namespaces of one host: `main(argv, document)`.

    python3 prober.py ping OWNER < document.json

    {"pairs": [["range-alice", "10.1.0.5"], ...], "rounds": 3}
    {"show": {"document": "c0"}}    the pairs that answered, as bits, in hexadecimal: the first pair is the highest bit

It needs Python 3.9 and root, and changes nothing. One ICMP socket in each namespace serves all of its pairs: a socket
stays in the namespace in which it was opened. At most `BURST` requests are sent before answers are read.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import socket
import struct
import sys
import time
from typing import Any

NETNS = "/run/netns"
BURST = 64
ROUND_SECONDS = 1.0
MOST_ROUNDS = 600
MOST_NUMBERS = 65535
PAYLOAD = b"netloom"
REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_HEADER = struct.Struct("!BBHHH")
_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """Why nothing can be probed."""


def emit(line: dict[str, Any]) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def parse(data: bytes) -> tuple[list[tuple[str, str]], int]:
    """Return the pairs and the number of rounds of a document."""
    try:
        document = json.loads(data)
        pairs, rounds = document["pairs"], document["rounds"]
        found = [(str(space), str(address)) for space, address in pairs]
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"the document is not valid: {type(error).__name__} {error}") from None
    if type(rounds) is not int or not 0 < rounds <= MOST_ROUNDS:
        raise Failure(f"document.rounds: {rounds!r} is not between 1 and {MOST_ROUNDS}")
    for space, address in found:
        if not _SPACE.fullmatch(space):
            raise Failure(f"document.pairs: {space[:80]!r} is not a name")
        try:
            socket.inet_pton(family_of(address), address)
        except OSError:
            raise Failure(f"document.pairs: {address[:80]!r} is not an address") from None
    return found, rounds


def family_of(address: str) -> socket.AddressFamily:
    """Return the family of an address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def opened(space: str, family: socket.AddressFamily) -> socket.socket:
    """Return an ICMP socket in a namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(f"{NETNS}/{space}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
            protocol = socket.IPPROTO_ICMPV6 if family == socket.AF_INET6 else socket.IPPROTO_ICMP
            made = socket.socket(family, socket.SOCK_RAW, protocol)
        finally:
            _enter(home)
            os.close(there)
    finally:
        os.close(home)
    made.setblocking(False)
    return made


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Pinger:
    """The sockets of some pairs."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self._ident = os.getpid() & 0xFFFF
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._by_socket: dict[int, tuple[socket.socket, str]] = {}
        self._poll = select.poll()
        self._numbers: dict[tuple[str, str], int] = {}
        counts: dict[str, int] = {}
        missing: set[str] = set()
        for pair in dict.fromkeys(pairs):
            space, family = pair[0], family_of(pair[1])
            counts[space] = counts.get(space, 0) + 1
            if counts[space] > MOST_NUMBERS:
                raise Failure(f"{space} has more than {MOST_NUMBERS} addresses to ping")
            self._numbers[pair] = counts[space]
            if (space, family) in self._sockets or space in missing:
                continue
            try:
                made = opened(space, family)
            except FileNotFoundError:
                missing.add(space)
                emit({"problem": f"namespace {space} does not exist: nothing is probed from there"})
                continue
            self._sockets[space, family] = made
            self._by_socket[made.fileno()] = made, space
            self._poll.register(made, select.POLLIN)

    def answered(self, rounds: int) -> set[tuple[str, str]]:
        """Return the pairs that answer within some rounds."""
        found: set[tuple[str, str]] = set()
        every = [pair for pair in self._numbers if (pair[0], family_of(pair[1])) in self._sockets]
        for _ in range(rounds):
            waiting = [pair for pair in every if pair not in found]
            for at in range(0, len(waiting), BURST):
                for pair in waiting[at : at + BURST]:
                    self._send(pair)
                self._collect(found, 0.002)
            deadline = time.monotonic() + ROUND_SECONDS
            while len(found) < len(every) and time.monotonic() < deadline:
                self._collect(found, deadline - time.monotonic())
            if len(found) == len(every):
                break
        return found

    def _send(self, pair: tuple[str, str]) -> None:
        family = family_of(pair[1])
        fields = (REQUEST[family], 0, self._ident, self._numbers[pair])
        # The kernel computes the checksum of ICMPv6.
        check = 0 if family == socket.AF_INET6 else checksum(packet(*fields, 0))
        try:
            self._sockets[pair[0], family].sendto(packet(*fields, check), (pair[1], 0))
        except OSError:
            pass  # No route, or a neighbour that does not answer: no answer.

    def _collect(self, found: set[tuple[str, str]], seconds: float) -> None:
        """Read the answers that are there, or the next ones."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            made, space = self._by_socket[descriptor]
            while True:
                try:
                    data, (sender, *_rest) = made.recvfrom(2048)
                except OSError:  # Nothing more, or an ICMP error for something that was sent.
                    break
                pair = (space, sender.partition("%")[0])
                number = self._answer(made.family, data)
                if number is not None and self._numbers.get(pair) == number:
                    found.add(pair)

    def _answer(self, family: int, data: bytes) -> int | None:
        """Return the number of the request that a packet answers."""
        start = (data[0] & 15) * 4 if family == socket.AF_INET else 0
        if len(data) < start + _HEADER.size:
            return None
        kind, _, _, ident, number = _HEADER.unpack_from(data, start)
        return int(number) if kind == REPLY[socket.AddressFamily(family)] and ident == self._ident else None


def packet(kind: int, code: int, ident: int, number: int, check: int) -> bytes:
    """Return an echo request."""
    return _HEADER.pack(kind, code, check, ident, number) + PAYLOAD


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return int(0xFFFF - ((total + (total >> 16)) & 0xFFFF))


def bits(flags: list[bool]) -> str:
    """Return flags as hexadecimal digits, the first one as the highest bit."""
    text = "".join("01"[flag] for flag in flags)
    text += "0" * (-len(text) % 4)
    return "".join(f"{int(text[at : at + 4], 2):x}" for at in range(0, len(text), 4))


def main(argv: list[str], document: bytes) -> int:
    """Do what `argv`, a verb and an owner, asks for; print lines; return the exit status."""
    error = ""
    try:
        if argv[:1] != ["ping"]:
            raise Failure("usage: prober.py ping OWNER < document.json")
        if os.geteuid() != 0:
            raise Failure("this needs root: run it with sudo")
        pairs, rounds = parse(document)
        found = Pinger(pairs).answered(rounds)
        emit({"show": {"document": bits([pair in found for pair in pairs])}})
    except (Failure, OSError) as failure:
        error = str(failure)
    emit({"result": "failed" if error else "done", "changes": 0, "error": error})
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.buffer.read()))
