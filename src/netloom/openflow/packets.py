"""Packets as the values of their fields, for `pipeline`; and constructors for a few protocols.  Pure.

    echo(dl_src=..., dl_dst=..., nw_src=..., nw_dst=...)

A packet has the given fields, and all others are 0, including those that a switch adds (registers, tunnel metadata). A
packet that arrives through a tunnel has `tun_id` and `tun_src`.
"""

from collections.abc import Mapping

from msgspec import Struct

from netloom.openflow.checks import ARP, IPV4, IPV6
from netloom.openflow.fields import FIELDS

BROADCAST = 0xFFFFFFFFFFFF
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132


class Packet(Struct, frozen=True):
    """One packet."""

    fields: Mapping[str, int]
    inner: "Packet | None" = None
    """The packet in an ICMP error."""

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)

    def having(self, **fields: int) -> "Packet":
        """Return the packet with some fields changed."""
        return packet(self.inner, **{**self.fields, **fields})


def packet(inner: Packet | None = None, /, **fields: int) -> Packet:
    """Return a packet.  KeyError, ValueError: invalid field, value."""
    for name, value in fields.items():
        if not 0 <= value <= FIELDS[name].ones:
            raise ValueError(f"{name} has {FIELDS[name].bits} bits: {value} is out of range")
    return Packet(fields, inner)


def arp_request(*, mac: int, sender: int, target: int, **fields: int) -> Packet:
    """Return an ARP request."""
    given = {"dl_src": mac, "dl_dst": BROADCAST, "arp_sha": mac, **fields}
    return packet(dl_type=ARP, arp_op=1, arp_spa=sender, arp_tpa=target, **given)


def arp_reply(*, mac: int, sender: int, to_mac: int, target: int, **fields: int) -> Packet:
    """Return an ARP reply: this address is at this MAC."""
    given = {"dl_src": mac, "dl_dst": to_mac, "arp_sha": mac, "arp_tha": to_mac, **fields}
    return packet(dl_type=ARP, arp_op=2, arp_spa=sender, arp_tpa=target, **given)


def ip(*, src: int, dst: int, proto: int, version: int = 4, **fields: int) -> Packet:
    """Return an IP packet."""
    if version == 4:
        return packet(**{"dl_type": IPV4, "nw_src": src, "nw_dst": dst, "nw_proto": proto, "nw_ttl": 64, **fields})
    return packet(**{"dl_type": IPV6, "ipv6_src": src, "ipv6_dst": dst, "nw_proto": proto, "nw_ttl": 64, **fields})


def echo(*, src: int, dst: int, version: int = 4, **fields: int) -> Packet:
    """Return an ICMP echo request."""
    if version == 4:
        return ip(**{"src": src, "dst": dst, "proto": ICMP, "icmp_type": 8, **fields})
    return ip(**{"src": src, "dst": dst, "proto": ICMPV6, "version": 6, "icmpv6_type": 128, **fields})


def tcp(*, src: int, dst: int, port: int, source: int = 40000, version: int = 4, **fields: int) -> Packet:
    """Return a packet of a TCP connection."""
    given = {"tcp_src": source, "tcp_dst": port, **fields}
    return ip(src=src, dst=dst, proto=TCP, version=version, **given)


def udp(*, src: int, dst: int, port: int, source: int = 40000, version: int = 4, **fields: int) -> Packet:
    """Return a UDP packet."""
    given = {"udp_src": source, "udp_dst": port, **fields}
    return ip(src=src, dst=dst, proto=UDP, version=version, **given)


def solicitation(*, mac: int, src: int, target: int, **fields: int) -> Packet:
    """Return a neighbour solicitation; from `::` it is duplicate address detection."""
    group = 0xFF0200000000000000000001FF000000 | target & 0xFFFFFF
    given = {"dl_src": mac, "dl_dst": 0x333300000000 | group & 0xFFFFFFFF, "icmpv6_type": 135, "nd_target": target}
    if src:
        given["nd_sll"] = mac
    return ip(**{"src": src, "dst": group, "proto": ICMPV6, "version": 6, "nw_ttl": 255, **given, **fields})


def advertisement(*, mac: int, src: int, to_mac: int, dst: int, **fields: int) -> Packet:
    """Return a neighbour advertisement: this IPv6 address is at this MAC."""
    given = {"dl_src": mac, "dl_dst": to_mac, "icmpv6_type": 136, "nd_target": src, "nd_tll": mac}
    return ip(**{"src": src, "dst": dst, "proto": ICMPV6, "version": 6, "nw_ttl": 255, **given, **fields})


_TURNED = (
    ("dl_src", "dl_dst"), ("nw_src", "nw_dst"), ("ipv6_src", "ipv6_dst"), ("tcp_src", "tcp_dst"),
    ("udp_src", "udp_dst"), ("sctp_src", "sctp_dst"), ("tun_src", "tun_dst"),
)  # fmt: skip
_ECHOES = {"icmp_type": {8: 0}, "icmpv6_type": {128: 129}}


def reply(to: Packet) -> Packet:
    """Return the receiver's answer: with the ends exchanged, as an echo reply to a ping; without fields of switches."""
    fields = {name: value for name, value in to.fields.items() if not name.startswith(("reg", "ct_", "metadata"))}
    for one, other in _TURNED:
        if one in to.fields or other in to.fields:
            fields[one], fields[other] = to[other], to[one]
    for name, answers in _ECHOES.items():
        if name in fields:
            fields[name] = answers.get(fields[name], fields[name])
    return packet(to.inner, **fields)


def unreachable(about: Packet, **fields: int) -> Packet:
    """Return the ICMP error that its receiver sends for a packet."""
    turned = reply(about)
    keep = ("dl_src", "dl_dst", "dl_type", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst")
    ends = {name: value for name, value in turned.fields.items() if name in keep}
    four = about["dl_type"] == IPV4
    kind = {"nw_proto": ICMP, "icmp_type": 3} if four else {"nw_proto": ICMPV6, "icmpv6_type": 1}
    return packet(about, **{**ends, **kind, "nw_ttl": 64, **fields})
