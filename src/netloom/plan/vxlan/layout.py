"""The tables, registers and numbers of the vxlan fabric's switch. Pure.

A packet comes from a local port or from the tunnel, and goes to one local port, to one node, or to one VTEP of another
site. A broadcast that asks for an address goes only to the port that has it. Other broadcasts are flooded between sites
(`sites`), and within a site they are dropped. Packets that no flow matches are dropped.

    table  0 ENTRY      from the tunnel: to HERE; from a port: `tun_id` becomes its VNI
           1 SOURCE     a port sends from its own MAC and addresses only; ARP announces only these
           2 NEIGHBOUR  neighbour discovery announces only these
           3 OUT        of a port with profiles: classify the other end (OUT_PEER), and query the connection tracker
           4 OUT_JUDGE  replies pass; the rest goes through the rules of each profile (OUT_RULES), which set VERDICT
           5 OUT_PEER   the other end's address to its class (its memberships, in two registers)
           6 OUT_RULES  profile, class, address, protocol and ports to a verdict
           7 OUT_VERDICT  commits connections that may pass, marks those that no longer may
           8 OUT_RATE   meters
           9 HERE       a MAC, or an address that is asked for, to the local port that has it
          10 ELSEWHERE  the same, to the node or the VTEP that has it; not for packets from the tunnel
          11 FLOOD      a broadcast of a port to the VTEPs of other sites, and one of theirs to the ports here
          12 IN, 13 IN_JUDGE, 14 IN_PEER, 15 IN_RULES, 16 IN_VERDICT, 17 IN_RATE  as above, for the receiving port
          18 DELIVER    a port receives only packets for its own addresses, and broadcasts

    reg0   the OpenFlow number of the receiving port; from HERE on
    reg1   which part of the receivers FLOOD is at
    reg2,3 the other end's class
    reg4,5 the profile whose rules are evaluated
    reg6   VERDICT: one bit for each action that a matching rule has, in each tier

Each port with profiles has a conntrack zone of its own, so a connection between two of them is tracked twice, and ports
without profiles are not tracked at all. Zones are numbered from the top, those of ovn-controller from the bottom: the
two can share a node. A port's number, and with it the zone, may be reused by another port while the tracker still has
the connections of the first: so connections are marked (`ct_mark`) with their port, and one with another mark counts as
new. The lowest bit of the mark says that the connection is closed: it was allowed once, and is no longer.

The number of a class or a profile is a hash of 64 bits of what it stands for: it is the same on each node and after
each restart, and does not depend on an order.
"""

import hashlib
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from netloom.model.values import addresses
from netloom.openflow.flows import Action, Flow, match
from netloom.plan.addresses.macs import number as mac_number

__all__ = ["ip_number", "mac_number"]

ENTRY, SOURCE, NEIGHBOUR = 0, 1, 2
OUT, OUT_JUDGE, OUT_PEER, OUT_RULES, OUT_VERDICT, OUT_RATE = 3, 4, 5, 6, 7, 8
HERE, ELSEWHERE, FLOOD = 9, 10, 11
IN, IN_JUDGE, IN_PEER, IN_RULES, IN_VERDICT, IN_RATE = 12, 13, 14, 15, 16, 17
DELIVER = 18

TO_PORT, PART, CLASS, PROFILE, VERDICT = "reg0", "reg1", ("reg2", "reg3"), ("reg4", "reg5"), "reg6"

COOKIE = 0x6E6C << 48
"""The upper 16 bits of our flows' cookies; other flows are left alone."""
COOKIE_MASK = 0xFFFF << 48
METERS = range(5_001, 60_001)
"""The numbers of our meters, which have no cookie; other meters are left alone. Every datapath supports as many."""

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
ICMP, TCP, UDP, ICMP6, SCTP = 1, 6, 17, 58, 132
SOLICIT, ADVERTISE = 135, 136
ROUTER_SOLICIT, ROUTER_ADVERTISE = 133, 134
GROUP = (0x010000000000, 0x010000000000)
"""The group bit of a MAC."""
NEW, EST, REL, RPL, INV, TRK = 1, 2, 4, 8, 16, 32
"""Bits of `ct_state`."""
ALLOWED = 1
"""The verdict if some rule allows a packet and none forbids it."""
BROADCAST = 0xFFFFFFFFFFFF


def flow(table: int, priority: int, actions: tuple[Action, ...] = (), **fields: int | tuple[int, int]) -> Flow:
    """Return one of our flows; without actions it drops."""
    return Flow(table, priority, match(**fields), actions, COOKIE)


def zone(ofport: int) -> int:
    """Return the conntrack zone of a port."""
    return 0xFFFF - ofport


def mark(uid: str) -> int:
    """Return the mark of a port's connections; never 0, and without the lowest bit."""
    return identity("port", uid)[0] & ~1 or 2


CLOSED = 1
"""The bit of a mark that closes a connection."""


@lru_cache(maxsize=1 << 14)
def ip_number(ip: str) -> tuple[int, int]:
    """Return the family of an address, and the address as a number."""
    if ":" not in ip:  # It was validated, and `ipaddress` would take most of the time of a plan.
        first, second, third, fourth = map(int, ip.split("."))
        return 4, first << 24 | second << 16 | third << 8 | fourth
    one = addresses.address(ip)
    return one.version, int(one)


def ip_text(version: int, value: int) -> str:
    """Return an address in its usual notation."""
    return str(IPv4Address(value) if version == 4 else IPv6Address(value))


def link_local(mac: int) -> int:
    """Return the link-local address that is derived from a MAC."""
    halves = (mac >> 24) ^ 0x020000, mac & 0xFFFFFF
    return 0xFE80 << 112 | halves[0] << 40 | 0xFFFE << 24 | halves[1]


def identity(*words: str) -> tuple[int, int]:
    """Return the number of a name, in two registers; never 0, which stands for none."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big") or 1, int.from_bytes(digest[4:], "big")
