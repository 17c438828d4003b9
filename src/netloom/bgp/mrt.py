"""MRT dumps (RFC 6396): the RIB of a speaker as TABLE_DUMP_V2, the messages of a session as BGP4MP.  Pure.

    for record in table(speaker.rib, now): file.write(record)

    stream = Stream(peer="10.0.0.2", peer_asn=65002, local="10.0.0.1", local_asn=65001)
    for record in stream.received(data, now): file.write(record)

EVPN has no table type of its own: its routes are RIB_GENERIC records. Tools read them, and FRR, GoBGP and bgpdump write
the same formats.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address
from typing import Final

from netloom.bgp.attributes import OPTIONAL, Context, Type, attribute, encode_attributes
from netloom.bgp.errors import Notification, TooLong
from netloom.bgp.messages import LONGEST_EXTENDED, Framer, message
from netloom.bgp.nlri import IPV4, IPV6, Family
from netloom.bgp.rib import Path, Relation, Rib, Source

_TABLE_DUMP_V2, _BGP4MP = 13, 16
_PEER_INDEX_TABLE, _RIB_GENERIC = 1, 6
_UNICAST: Final = {IPV4: 2, IPV6: 4}
_MESSAGE_TYPES: Final = {(False, False): 1, (True, False): 4, (False, True): 6, (True, True): 7}
"""By whether AS numbers have four octets, and whether we have sent the message."""
_AS4, _IPV6 = 2, 1
"""Bits of the type of a peer."""
_AS_STORED = Context(internal=True)
"""With all attributes, and AS numbers of four octets (section 4.3.4)."""


def _record(now: float, kind: int, subtype: int, body: bytes) -> bytes:
    head = int(now).to_bytes(4, "big") + kind.to_bytes(2, "big") + subtype.to_bytes(2, "big")
    return head + len(body).to_bytes(4, "big") + body


def table(rib: Rib, now: float, *, view: str = "") -> Iterator[bytes]:
    """Yield the records of all paths of a RIB: first the peers, then each route with its paths, the best first."""
    sources = rib.sources()
    numbers = {source: number for number, source in enumerate(sources)}
    peers = b"".join(map(_peer, sources))
    name = view.encode()
    head = rib.router_id.packed + len(name).to_bytes(2, "big") + name + len(sources).to_bytes(2, "big")
    yield _record(now, _TABLE_DUMP_V2, _PEER_INDEX_TABLE, head + peers)
    since = int(now).to_bytes(4, "big")
    sequence = 0
    for family, best in list(rib.best.items()):
        for key in list(best):
            paths = [path for path in rib.paths(family, key) if path.source in numbers]  # A peer may have come since.
            if not paths:
                continue  # It has gone since this began, or has come.
            entries = [_entry(family, path, numbers[path.source], since) for path in paths]
            entries = [entry for entry in entries if entry]
            kind = _UNICAST.get(family, _RIB_GENERIC)
            body = sequence.to_bytes(4, "big") + (b"" if family in _UNICAST else _family(family)) + paths[0].route
            count = len(entries).to_bytes(2, "big")
            yield _record(now, _TABLE_DUMP_V2, kind, body + count + b"".join(entries))
            sequence += 1


def _entry(family: Family, path: Path, number: int, since: bytes) -> bytes:
    """Encode a path of a route; b"" if its attributes are longer than an entry can be."""
    hop = path.attributes.next_hop.packed
    # Of MP_REACH_NLRI only the next hop (section 4.3.4).
    reach = b"" if family == IPV4 else attribute(OPTIONAL, Type.MP_REACH, bytes((len(hop),)) + hop)
    try:
        listed = encode_attributes(path.attributes, _AS_STORED, next_hop=family == IPV4) + reach
    except TooLong:
        return b""
    return number.to_bytes(2, "big") + since + len(listed).to_bytes(2, "big") + listed if len(listed) <= 0xFFFF else b""


def _family(family: Family) -> bytes:
    return family.afi.to_bytes(2, "big") + bytes((family.safi,))


def _peer(source: Source) -> bytes:
    """Encode an entry of the table of peers; our own routes have the address 0.0.0.0, as FRR has it."""
    address = IPv4Address(0) if source.relation is Relation.LOCAL else ip_address(source.name)
    bits = _AS4 | (_IPV6 if address.version == 6 else 0)
    return bytes((bits,)) + source.router_id.packed + address.packed + source.asn.to_bytes(4, "big")


class Stream:
    """The messages of one session, from the bytes of its connection; a new connection has a new one."""

    def __init__(self, *, peer: str, peer_asn: int, local: str, local_asn: int, as4: bool = True) -> None:
        """Without `as4`, the AS numbers in the messages have two octets."""
        size = 4 if as4 else 2
        addresses = (ip_address(peer), ip_address(local))
        self._as4 = as4
        self._head = b"".join(
            (
                peer_asn.to_bytes(size, "big"),
                local_asn.to_bytes(size, "big"),
                b"\0\0",  # No interface.
                (1 if addresses[0].version == 4 else 2).to_bytes(2, "big"),
                *(address.packed for address in addresses),
            )
        )
        self._framers = {True: Framer(), False: Framer()}
        for framer in self._framers.values():
            framer.longest = LONGEST_EXTENDED

    def received(self, data: bytes, now: float) -> Iterator[bytes]:
        """Yield a record for each message that is complete with these bytes of the peer."""
        return self._records(data, now, sent=False)

    def sent(self, data: bytes, now: float) -> Iterator[bytes]:
        """Yield a record for each message that is complete with these bytes to the peer."""
        return self._records(data, now, sent=True)

    def _records(self, data: bytes, now: float, *, sent: bool) -> Iterator[bytes]:
        subtype = _MESSAGE_TYPES[self._as4, sent]
        try:
            for kind, body in self._framers[sent].feed(data):
                yield _record(now, _BGP4MP, subtype, self._head + message(kind, body))
        except Notification:
            return  # The session ends at this, and what comes after it is no message.
