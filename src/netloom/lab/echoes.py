"""Pings of many pairs at once: one ICMP socket in each network namespace, and no program for any of them.

    pairs ──► rounds: send to those that have not answered ──► a short wait ──► the next round, or the end

A socket stays in the namespace in which it was opened, so one thread serves all of them. At most `BURST` requests are
sent before answers are read: a switch in userspace drops what comes faster than it can forward.
"""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from netloom.lab.daemons.entering import inside

BURST = 64
ROUND_SECONDS = 1.0
PAYLOAD = b"netloom"
_HEADER = struct.Struct("!BBHHH")
_REQUEST: dict[int, int] = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY: dict[int, int] = {socket.AF_INET: 0, socket.AF_INET6: 129}


class Pair(NamedTuple):
    """A network namespace, by its name, and the address to ping from it."""

    netns: str
    address: str


def pings(
    pairs: Collection[Pair], *, rounds: int, on_answer: Callable[[int], object] = lambda number: None
) -> set[Pair]:
    """Return the pairs that answer within some rounds of a second each.

    `on_answer` is called with the number of those that answered since the last call.
    """
    with contextlib.closing(_Pinger(pairs)) as pinger:
        return pinger.answered(rounds, on_answer)


class _Pinger:
    """The sockets of some pairs."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = list(dict.fromkeys(pairs))
        self._idents: dict[str, int] = {}
        """The identifier of each namespace's requests: a router that translates addresses tells them apart by it."""
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._by_socket: dict[int, tuple[socket.socket, str]] = {}
        self._poll = select.poll()
        self._numbers: dict[Pair, int] = {}
        counts: dict[str, int] = {}
        try:
            for pair in self._pairs:
                counts[pair.netns] = self._numbers[pair] = counts.get(pair.netns, 0) + 1
                self._idents.setdefault(pair.netns, (os.getpid() + len(self._idents)) & 0xFFFF)
                self._open(pair.netns, _family(pair.address))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the sockets."""
        for one in self._sockets.values():
            one.close()

    def answered(self, rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
        """Return the pairs that answer within some rounds."""
        found: set[Pair] = set()
        for _ in range(rounds):
            waiting = [pair for pair in self._pairs if pair not in found]
            for at in range(0, len(waiting), BURST):
                for pair in waiting[at : at + BURST]:
                    self._send(pair)
                on_answer(self._collect(found, 0.002))
            deadline = time.monotonic() + ROUND_SECONDS
            while len(found) < len(self._pairs) and (left := deadline - time.monotonic()) > 0:
                on_answer(self._collect(found, left))
            if len(found) == len(self._pairs):
                break
        return found

    def _open(self, netns: str, family: socket.AddressFamily) -> None:
        if (netns, family) in self._sockets:
            return
        protocol = socket.IPPROTO_ICMPV6 if family == socket.AF_INET6 else socket.IPPROTO_ICMP
        made = inside(netns, lambda: socket.socket(family, socket.SOCK_RAW, protocol))
        made.setblocking(False)
        self._sockets[netns, family] = made
        self._by_socket[made.fileno()] = made, netns
        self._poll.register(made, select.POLLIN)

    def _send(self, pair: Pair) -> None:
        family = _family(pair.address)
        fields = (_REQUEST[family], 0, self._idents[pair.netns], self._numbers[pair])
        # The kernel computes the checksum of ICMPv6.
        check = 0 if family == socket.AF_INET6 else _checksum(_packet(*fields, 0))
        # No route, or a neighbour that does not answer: no answer.
        with contextlib.suppress(OSError):
            self._sockets[pair.netns, family].sendto(_packet(*fields, check), (pair.address, 0))

    def _collect(self, found: set[Pair], seconds: float) -> int:
        """Read the answers that are there, or the next ones; return how many pairs answered for the first time."""
        before = len(found)
        for descriptor, _ in self._poll.poll(seconds * 1000):
            made, netns = self._by_socket[descriptor]
            while True:
                try:
                    data, (sender, *_) = made.recvfrom(2048)
                except OSError:  # Nothing more, or an ICMP error for something that was sent.
                    break
                number = _answer(made.family, data, self._idents[netns])
                pair = Pair(netns, sender.partition("%")[0])
                if number is not None and self._numbers.get(pair) == number:
                    found.add(pair)
        return len(found) - before


def _answer(family: int, data: bytes, wanted: int) -> int | None:
    """Return the number of the request with this identifier that a packet answers."""
    start = (data[0] & 15) * 4 if family == socket.AF_INET else 0
    if len(data) < start + _HEADER.size:
        return None
    kind, _, _, ident, number = _HEADER.unpack_from(data, start)
    return number if kind == _REPLY[family] and ident == wanted else None


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _packet(kind: int, code: int, ident: int, number: int, check: int) -> bytes:
    return _HEADER.pack(kind, code, check, ident, number) + PAYLOAD


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return 0xFFFF - ((total + (total >> 16)) & 0xFFFF)
