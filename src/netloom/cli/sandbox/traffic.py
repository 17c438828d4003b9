"""Packets between two network namespaces of this machine: round trips, loss and throughput, by UDP.

Sockets belong to the namespace that they were made in, so the threads of this process use them from outside. Bytes and
time are limited, whatever is measured.
"""

import contextlib
import selectors
import socket
import statistics
import threading
import time
from math import ceil, log
from types import TracebackType
from typing import NamedTuple

from netloom.lab.daemons.entering import inside

ECHO, SINK = b"E", b"S"
HEADERS = {socket.AF_INET: 42, socket.AF_INET6: 62}
"""Bytes of Ethernet, IP and UDP before a datagram."""
PAYLOAD = 1200
"""Bytes of a datagram: any link carries it."""
SMALL = 200
SLOW = 1_000_000
"""Bits per second below which datagrams are small, so that there are enough of them."""
MOST = 256 << 20
"""The most bytes that are offered for one measurement."""
FASTEST = 400_000_000
"""The most bits per second that are offered: Python sends no more."""
WINDOW = 3.0
LONGEST = 10.0
"""Seconds for which a rate is measured, and the longest."""
SLOTS = 15
"""Parts of that time that are counted by themselves."""
ROUNDS = 3
"""How often a rate is measured at most, while what arrives is not steady."""
STEADY = 0.1
"""The middle half of the slots differs at most by this part of their median: otherwise something else was busy."""
STEP = 0.001
TRIES, MOST_TRIES, UNLIKELY = 10, 200, 0.001
"""Datagrams by which an answer is tried, and how unlikely it may be that loss takes all of them."""
_BUFFER = 4 << 20


class Trips(NamedTuple):
    """Round trips of some datagrams."""

    sent: int
    seconds: list[float]
    """Of those that came back."""


class Flow(NamedTuple):
    """Throughput in one direction, in bits per second on the wire."""

    offered: float
    received: float


class Responder:
    """Answers and counts datagrams at an address of a namespace, until closed."""

    def __init__(self, netns: str, ip: str) -> None:
        self.ip = ip
        self._socket = inside(netns, lambda: _bound(ip))
        self.port: int = self._socket.getsockname()[1]
        self._from, self._slot = float("inf"), 1.0
        self._slots: list[int] = []
        self._thread = threading.Thread(target=self._answer, name=f"responder-{netns}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Responder":
        """Return the responder."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Stop answering."""
        self._stopped = True
        self._thread.join()
        self._socket.close()

    _stopped = False

    def count(self, begin: float, slot: float, number: int) -> None:
        """Count the bytes that arrive from a time on, in a number of slots of so many seconds."""
        self._from = float("inf")
        self._slots, self._slot = [0] * number, slot
        self._from = begin

    def counted(self) -> list[int]:
        """Return the bytes that were counted, with their headers, by slot."""
        return self._slots

    def _answer(self) -> None:
        headers = HEADERS[self._socket.family]
        self._socket.settimeout(0.1)
        while not self._stopped:
            try:
                data, whence = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            except OSError:  # As from ICMP: the other end is gone.
                continue
            if data[:1] == ECHO:
                with contextlib.suppress(OSError):
                    self._socket.sendto(data, whence)
            elif 0 <= (late := time.monotonic() - self._from) < len(self._slots) * self._slot:
                slots = self._slots
                slots[min(int(late / self._slot), len(slots) - 1)] += len(data) + headers


def client(netns: str, ip: str) -> socket.socket:
    """Return a socket that sends from an address of a namespace."""
    made = inside(netns, lambda: _bound(ip))
    made.setblocking(False)
    return made


def _bound(ip: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    try:
        made.bind((ip, 0))
    except OSError:
        made.close()
        raise
    return made


def answers(near: socket.socket, far: Responder, *, loss: float = 0.0, delay: float = 0.0) -> bool:
    """Whether a responder answers over a link that loses this part of round trips, each of which takes so long."""
    tries = TRIES if loss < 1 / TRIES else min(MOST_TRIES, ceil(log(UNLIKELY) / log(loss)))
    return bool(round_trips(near, far, count=tries, interval=0.05, wait=1.0 + 1.5 * delay).seconds)


def round_trips(near: socket.socket, far: Responder, *, count: int, interval: float, wait: float) -> Trips:
    """Send datagrams at an interval and time their answers; wait for the last ones."""
    token = time.monotonic_ns().to_bytes(8, "big")
    started: dict[int, float] = {}
    found: dict[int, float] = {}
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ)
        while len(found) < count:
            now = time.monotonic()
            number = len(started)
            if number < count and now >= begin + number * interval:
                started[number] = now
                with contextlib.suppress(OSError):
                    near.sendto(ECHO + token + number.to_bytes(4, "big") + bytes(32), (far.ip, far.port))
                continue
            until = begin + number * interval if number < count else started[count - 1] + wait
            if now >= until or not selector.select(until - now):
                if number == count:
                    break
                continue
            with contextlib.suppress(OSError):
                data = near.recv(2048)
                at = int.from_bytes(data[9:13], "big")
                if data[1:9] == token and at in started:
                    found.setdefault(at, time.monotonic() - started[at])
    return Trips(count, list(found.values()))


def throughput(near: socket.socket, far: Responder, *, rate: float, burst: float, delay: float) -> Flow:
    """Offer twice a rate, and return what arrives once the burst that a meter allows is used up.

    A machine that is busy stops the sender or the switch for moments, and then catches up with them: the median of many
    short slots is what the link carries. If the slots differ much all the same, it is measured again.
    """
    offered: list[float] = []
    slots: list[float] = []
    for _ in range(ROUNDS):
        sent, received = _offer(near, far, rate=rate, burst=burst, delay=delay)
        offered.append(sent)
        slots += received
        low, middle, high = statistics.quantiles(slots, n=4)
        if high - low <= STEADY * middle:
            break
    return Flow(statistics.median(offered), middle)


def _offer(
    near: socket.socket, far: Responder, *, rate: float, burst: float, delay: float
) -> tuple[float, list[float]]:
    """Offer twice a rate for some time; return the offered rate, and the received ones of the slots."""
    size = PAYLOAD if rate >= SLOW else SMALL
    headers = HEADERS[near.family]
    offered = min(2 * rate, FASTEST)
    warm = 1.2 * burst / max(offered - rate, rate / 10) + delay + 0.2
    window = min(LONGEST, max(WINDOW, 100 * (size + headers) * 8 / rate), MOST * 8 / offered)
    # A slot of a slow link has some packets, too.
    number = max(2, min(SLOTS, int(window * rate / 8 / (size + headers) / 20)))
    slot = window / number
    begin = time.monotonic()
    far.count(begin + warm, slot, number)
    packet, octets = SINK + bytes(size - 1), 0
    while (now := time.monotonic()) < begin + warm + window:
        due = (now - begin) * offered / 8
        with contextlib.suppress(OSError):  # The buffer is full: later.
            while octets < due:
                near.sendto(packet, (far.ip, far.port))
                octets += size + headers
        time.sleep(STEP)
    taken = time.monotonic() - begin
    return octets * 8 / taken, [one * 8 / slot for one in far.counted()]
