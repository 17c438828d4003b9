"""Frames of the vxlan fabric: made by hand, to lie with, and read on the underlay."""

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from tests.lab.capturing import IPV4, Frame

PORT = 4789
BROADCAST = "ff:ff:ff:ff:ff:ff"


class Tunnelled(NamedTuple):
    """One frame in a tunnel."""

    vni: int
    source: str
    """The node it comes from."""
    target: str
    inner: bytes


def tunnelled(frames: Iterable[Frame]) -> list[Tunnelled]:
    """Return what of some frames is VXLAN over IPv4."""
    found = []
    for frame in frames:
        packet = frame.data[14:]
        if frame.kind != IPV4 or packet[9] != socket.IPPROTO_UDP:
            continue
        datagram = packet[(packet[0] & 15) * 4 :]
        if int.from_bytes(datagram[2:4], "big") == PORT:
            ends = [socket.inet_ntop(socket.AF_INET, packet[at : at + 4]) for at in (12, 16)]
            found.append(Tunnelled(int.from_bytes(datagram[12:15], "big"), ends[0], ends[1], datagram[16:]))
    return found


def mac(text: str) -> bytes:
    """Return a MAC as it is on the wire."""
    return bytes.fromhex(text.replace(":", ""))


def udp(sender: tuple[str, str], target: tuple[str, str], words: bytes) -> bytes:
    """Return a frame with a datagram over IPv4; ends are MAC and address."""
    length = 28 + len(words)
    source, there = socket.inet_aton(sender[1]), socket.inet_aton(target[1])
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, source, there)
    head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
    return mac(target[0]) + mac(sender[0]) + b"\x08\x00" + head + struct.pack("!HHHH", 9, 9, 8 + len(words), 0) + words


def arp(sender: str, told: tuple[str, str], asked: str, *, to: str = BROADCAST) -> bytes:
    """Return an ARP request: who sends it, of whom it tells, and whom it asks for."""
    ends = mac(told[0]) + socket.inet_aton(told[1]) + bytes(6) + socket.inet_aton(asked)
    return mac(to) + mac(sender) + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + ends


def _checksum(head: bytes) -> int:
    total = sum(int.from_bytes(head[at : at + 2], "big") for at in range(0, len(head), 2))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
