"""Passes the packets of one port on, later or not at all.  A process beside the agent; uses only the standard library.

    workload ═══ near          far ═══ switch
                  │ packet sockets │
                  └──► sent ───────►│      a Line for each direction
                  ◄──── received ◄─┘

It outlives the agent, so that packets flow while the agent restarts. The next agent finds it by its control socket,
whose name follows from the device: an abstract one, which belongs to the network namespace and goes with the process.
It ends when one of its devices is gone, or is another device of the same name.

The agent sends one line of JSON, and gets one back:

    {"sent": [DELAY, JITTER, LOSS], "received": [DELAY, JITTER, LOSS]}      seconds, and a loss from 0 to 1
    {"passed": N, "lost": N, "overflowed": N}

Until the first line, packets pass as they are. Only root in the same network namespace is answered.
"""

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

PACKETS = 10_000
"""The most packets that a direction holds."""
OCTETS = 32 << 20
"""The most bytes that a direction holds."""
PRESENT = 1.0
"""Seconds between two checks that the devices are the same."""
TURN = 64
"""Packets that are read from one device before the other direction has its turn."""
LONGEST_LINE = 4096
CLIENTS = 4
_EVERYTHING = 0x0003
_SOL_PACKET, _AUXDATA, _VNET_HEADER, _IGNORE_OUTGOING = 263, 8, 15, 23
_BUFFER, _RECEIVE_FORCED = 4 << 20, 33
_LONGEST = 1 << 17
_AUX = struct.Struct("=IIIHHHH")
_CREDENTIALS = struct.Struct("=iII")
_VLAN_VALID, _TPID_VALID, _DOT1Q = 0x10, 0x40, 0x8100
_HEADER = struct.Struct("=BBHHHH")
"""virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset."""
_NEEDS_CHECKSUM, _MACS = 1, 12


class Line:
    """The packets of one direction, in order, each with the time at which it is due.  Does no IO.

    A packet is due no earlier than the one before, so jitter changes no order. Memory is limited: a packet that does
    not fit is dropped.
    """

    def __init__(self, random: Random, *, packets: int = PACKETS, octets: int = OCTETS) -> None:
        self.passed = self.lost = self.overflowed = 0
        self._random = random
        self._most_packets, self._most_octets = packets, octets
        self._held: deque[tuple[float, bytes]] = deque()
        self._octets = 0
        self._last = float("-inf")
        self._delay = self._jitter = self._loss = 0.0

    def set(self, delay: float, jitter: float, loss: float) -> None:
        """Change the delay, its variation and the loss for packets to come."""
        self._delay, self._jitter, self._loss = delay, jitter, loss

    def put(self, packet: bytes, now: float) -> None:
        """Take a packet that arrived at `now`."""
        if self._loss and self._random.random() < self._loss:
            self.lost += 1
            return
        if len(self._held) >= self._most_packets or self._octets + len(packet) > self._most_octets:
            self.overflowed += 1
            return
        wait = self._delay + (self._random.uniform(-self._jitter, self._jitter) if self._jitter else 0.0)
        self._last = max(self._last, now + max(0.0, wait))
        self._held.append((self._last, packet))
        self._octets += len(packet)

    def due(self, now: float) -> Iterator[bytes]:
        """Yield the packets that are due, and forget them."""
        while self._held and self._held[0][0] <= now:
            _, packet = self._held.popleft()
            self._octets -= len(packet)
            self.passed += 1
            yield packet

    def deadline(self) -> float | None:
        """Return when the next packet is due; None while there is none."""
        return self._held[0][0] if self._held else None


def tagged(packet: bytes, auxiliary: bytes) -> bytes:
    """Return a packet, with its virtio_net_hdr, as it was on the device: the kernel reports its VLAN tag apart."""
    if len(auxiliary) < _AUX.size:
        return packet
    status, _, _, _, _, tag, protocol = _AUX.unpack_from(auxiliary)
    if not status & _VLAN_VALID:
        return packet
    flags, kind, length, size, start, offset = _HEADER.unpack_from(packet)
    if flags & _NEEDS_CHECKSUM:
        start += 4
    header = _HEADER.pack(flags, kind, length + 4 if length else 0, size, start, offset)
    body = _HEADER.size + _MACS
    tpid = protocol if status & _TPID_VALID else _DOT1Q
    return header + packet[_HEADER.size : body] + struct.pack("!HH", tpid, tag) + packet[body:]


class End:
    """One device, through a packet socket."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = socket.if_nametoindex(name)
        # Without a protocol it receives nothing, not even from other devices, before it is bound.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setblocking(False)
        self.socket.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
        self.socket.setsockopt(_SOL_PACKET, _AUXDATA, 1)
        self.socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_FORCED, _BUFFER)
        self.socket.bind((name, _EVERYTHING))

    def present(self) -> bool:
        """Whether the device is still the one that was opened."""
        try:
            return socket.if_nametoindex(self.name) == self.index
        except OSError:
            return False

    def receive(self, line: Line, now: Callable[[], float]) -> None:
        """Put some packets that have arrived on a line."""
        for _ in range(TURN):
            try:
                packet, auxiliary, _, _ = self.socket.recvmsg(_LONGEST, 64)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # It may come back.
                    return
                raise
            line.put(tagged(packet, auxiliary[0][2] if auxiliary else b""), now())

    def send(self, packet: bytes) -> None:
        """Send a packet; one that the device does not take is lost, as on a wire."""
        with contextlib.suppress(OSError):
            self.socket.send(packet)


class Relay:
    """The two devices, the two directions, and the control socket."""

    def __init__(self, near: str, far: str, control: str) -> None:
        self._near, self._far = End(near), End(far)
        random = Random()  # noqa: S311  # not for secrets
        self._sent, self._received = Line(random), Line(random)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{control}")
        self._listener.listen(CLIENTS)
        self._listener.setblocking(False)
        self._lines: dict[socket.socket, bytes] = {}
        now = time.monotonic
        watch = self._selector.register
        watch(self._near.socket, selectors.EVENT_READ, lambda: self._near.receive(self._sent, now))
        watch(self._far.socket, selectors.EVENT_READ, lambda: self._far.receive(self._received, now))
        watch(self._listener, selectors.EVENT_READ, self._accept)

    def run(self) -> None:
        """Pass packets on until a device is gone."""
        check = time.monotonic() + PRESENT
        while True:
            now = time.monotonic()
            for packet in self._sent.due(now):
                self._far.send(packet)
            for packet in self._received.due(now):
                self._near.send(packet)
            if now >= check:
                if not (self._near.present() and self._far.present()):
                    return
                check = now + PRESENT
            deadlines = [one for line in (self._sent, self._received) if (one := line.deadline()) is not None]
            wait = min([check, *deadlines]) - time.monotonic()
            for key, _ in self._selector.select(max(0.0, wait)):
                key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.geteuid() or len(self._lines) >= CLIENTS:
            client.close()
            return
        client.setblocking(False)
        self._lines[client] = b""
        self._selector.register(client, selectors.EVENT_READ, lambda: self._answer(client))

    def _answer(self, client: socket.socket) -> None:
        try:
            data = client.recv(LONGEST_LINE)
            text = self._lines[client] + data
            if not data or len(text) > LONGEST_LINE:
                raise ConnectionError
            *lines, self._lines[client] = text.split(b"\n")
            for line in lines:
                client.sendall(json.dumps(self._command(json.loads(line))).encode() + b"\n")
        except (OSError, ValueError, TypeError, KeyError):
            self._selector.unregister(client)
            del self._lines[client]
            client.close()

    def _command(self, asked: dict[str, Any]) -> dict[str, int]:
        sent, received = ([float(one) for one in asked[name]] for name in ("sent", "received"))
        self._sent.set(*sent)
        self._received.set(*received)
        both = self._sent, self._received
        return {
            "passed": sum(line.passed for line in both),
            "lost": sum(line.lost for line in both),
            "overflowed": sum(line.overflowed for line in both),
        }


def main(near: str, far: str, control: str) -> None:
    """Start a relay in the background; return when it passes packets."""
    try:
        relay = Relay(near, far, control)
    except OSError as error:
        sys.exit(f"{error.strerror or error}")
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    relay.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
