"""A simple connection tracker that decides as the real ones do.  Pure.

   new   a packet of an unknown connection, or of a known one without an answer
   est   of a known (committed) connection with an answer, or the answer itself
   rpl   in the direction of the answers
   rel   an ICMP error about a packet of a known connection
   inv   neither begins nor belongs to a connection: an echo reply without a request, an error about nothing

Connections are known by zone, from `commit` on. They do not end: for that, a test makes another tracker.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from netloom.openflow.packets import ICMP, ICMPV6, SCTP, TCP, UDP, Packet

NEW, EST, REL, RPL, INV, TRK = 1, 2, 4, 8, 16, 32

Ends = tuple[int, int, int, int, int, int]
"""Type, protocol, and the two ends: address and port, address and port."""

_PORTS = {TCP: ("tcp_src", "tcp_dst"), UDP: ("udp_src", "udp_dst"), SCTP: ("sctp_src", "sctp_dst")}
_ERRORS = {ICMP: {3, 4, 5, 11, 12}, ICMPV6: {1, 2, 3, 4}}
_ANSWERS = {ICMP: {0, 14, 16, 18}, ICMPV6: {129}}


class _Connection(Struct):
    ends: Ends
    mark: int = 0
    answered: bool = False


@dataclass(slots=True)
class Tracker:
    """The known connections."""

    _known: dict[tuple[int, Ends], _Connection] = field(default_factory=dict)

    def track(self, packet: Packet, zone: int) -> tuple[int, int]:
        """Return the state and the mark of a packet's connection, and record the packet."""
        if _type(packet) in _ERRORS.get(packet["nw_proto"], ()):
            return self._track_inner(packet, zone)
        ends = _ends(packet)
        connection = self._known.get((zone, ends))
        if connection is None:
            begins = _type(packet) not in _ANSWERS.get(packet["nw_proto"], ())
            return TRK | (NEW if begins else INV), 0
        if connection.ends != ends:
            connection.answered = True
            return TRK | EST | RPL, connection.mark
        return TRK | (EST if connection.answered else NEW), connection.mark

    def commit(self, packet: Packet, zone: int, mark: int | None) -> None:
        """Record a packet's connection, with a mark; None: keep its mark."""
        if _type(packet) in _ERRORS.get(packet["nw_proto"], ()):
            return
        ends = _ends(packet)
        connection = self._known.get((zone, ends))
        if connection is None:
            connection = _Connection(ends)
            self._known[zone, ends] = self._known[zone, _turned(ends)] = connection
        if mark is not None:
            connection.mark = mark

    def _track_inner(self, packet: Packet, zone: int) -> tuple[int, int]:
        if packet.inner is None:
            return TRK | INV, 0
        ends = _ends(packet.inner)
        connection = self._known.get((zone, ends))
        if connection is None:
            return TRK | INV, 0
        return TRK | REL | (RPL if connection.ends == ends else 0), connection.mark


def _type(packet: Packet) -> int:
    return packet["icmp_type"] if packet["nw_proto"] == ICMP else packet["icmpv6_type"]


def _ends(packet: Packet) -> Ends:
    proto = packet["nw_proto"]
    src, dst = _PORTS.get(proto, ("", ""))
    if "nw_src" in packet.fields:
        addresses = packet["nw_src"], packet["nw_dst"]
    else:
        addresses = packet["ipv6_src"], packet["ipv6_dst"]
    return packet["dl_type"], proto, addresses[0], packet[src], addresses[1], packet[dst]


def _turned(ends: Ends) -> Ends:
    kind, proto, src, src_port, dst, dst_port = ends
    return kind, proto, dst, dst_port, src, src_port
