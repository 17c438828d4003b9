"""What is on a wire: frames as a packet socket sees them, each with its VLAN.

with capturing(netns, "eth0") as wire:
    ...
    wire.wait(lambda frame: frame.vlan == 100, what="a tagged frame")

The kernel takes a frame's tag out before anybody sees it, and tells of it beside the frame.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from netloom.lab.daemons.entering import inside
from tests.support.process import wait_until

ALL = 0x0003
IPV4, ARP, VLAN, IPV6 = 0x0800, 0x0806, 0x8100, 0x86DD
ICMP, ICMPV6 = 1, 58
_SOL_PACKET, _PACKET_AUXDATA, _VLAN_VALID = 263, 8, 0x10
_AUXDATA = struct.Struct("IIIHHHH")
BESIDE = socket.CMSG_SPACE(_AUXDATA.size)
"""How much room the kernel needs for that."""


class Frame(NamedTuple):
    """One frame: its VLAN (0: untagged), what it carries, and all of it without the tag."""

    vlan: int
    kind: int
    data: bytes

    @property
    def ip(self) -> tuple[str, str, int] | None:
        """Source, destination and protocol of what is IP; `None` for the rest."""
        payload = self.data[14:]
        if self.kind == IPV4:
            found = socket.inet_ntop(socket.AF_INET, payload[12:16]), socket.inet_ntop(socket.AF_INET, payload[16:20])
            return *found, payload[9]
        if self.kind == IPV6:
            v6 = socket.AF_INET6
            return socket.inet_ntop(v6, payload[8:24]), socket.inet_ntop(v6, payload[24:40]), payload[6]
        return None


class Wire:
    """What was seen so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.frames: list[Frame] = []

    def wait(self, fits: Callable[[Frame], bool], *, what: str) -> Frame:
        """Return the first frame that fits, waiting for it."""
        return wait_until(lambda: next((frame for frame in list(self.frames) if fits(frame)), None), what=what)

    def seen(self, source: str, target: str) -> list[Frame]:
        """Return the frames from one address to another."""
        return [frame for frame in list(self.frames) if frame.ip is not None and frame.ip[:2] == (source, target)]


@contextmanager
def capturing(netns: str, device: str) -> Iterator[Wire]:
    """Note all frames that pass a device until the end."""

    wire, ending = Wire(), threading.Event()
    with inside(netns, lambda: opened(device)) as tap:
        tap.settimeout(0.2)
        noting = threading.Thread(target=_note, args=(tap, wire, ending), name="capture")
        noting.start()
        try:
            yield wire
        finally:
            ending.set()
            noting.join()


def opened(device: str) -> socket.socket:
    """Return a socket that gets all frames of a device of this namespace, and what the kernel tells beside them."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    made.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    made.bind((device, ALL))
    return made


def send(netns: str, device: str, frame: bytes) -> None:
    """Put a frame on a wire."""

    def sent() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((device, 0))
            raw.send(frame)

    inside(netns, sent)


def _note(tap: socket.socket, wire: Wire, ending: threading.Event) -> None:
    while not ending.is_set():
        try:
            data, beside, _, _ = tap.recvmsg(65536, BESIDE)
        except TimeoutError:
            continue
        except OSError:  # The device may go.
            return
        wire.frames.append(frame(data, beside))


def frame(data: bytes, beside: list[tuple[int, int, bytes]]) -> Frame:
    """Return a frame of what a socket got, and of what the kernel told beside it."""
    vlan = 0
    for level, kind, value in beside:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, *_, tag, _ = _AUXDATA.unpack(value[: _AUXDATA.size])
            vlan = tag & 0xFFF if status & _VLAN_VALID else 0
    (kind,) = struct.unpack("!H", data[12:14])
    if kind == VLAN:
        (tag, kind) = struct.unpack("!HH", data[14:18])
        vlan, data = tag & 0xFFF, data[:12] + data[16:]
    return Frame(vlan, kind, data)
