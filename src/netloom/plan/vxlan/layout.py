"""The tables, registers and numbers of the vxlan fabric's switch.  Pure.

A packet comes in from a local port or from the tunnel, and goes out to one local port or to one node. Nothing is ever
flooded: a frame for everybody is passed on only where it asks for somebody, and then only to him. What no flow knows is
dropped.

    table  0 ENTRY      from the tunnel: to HERE; from a port: `tun_id` becomes its VNI
           1 SOURCE     a port sends from its own MAC and addresses only; ARP tells only of them
           2 NEIGHBOUR  neighbour discovery tells only of them
           3 OUT        of a port with profiles: who is the other end (OUT_PEER), and the connection tracker's word
           4 OUT_JUDGE  replies pass; for the rest each profile's rules are asked (OUT_RULES), which leave VERDICT
           5 OUT_PEER   the other end's address to its class (what memberships it has, in two registers)
           6 OUT_RULES  profile, class, address, protocol and ports to a verdict
           7 OUT_VERDICT  commits what may pass, marks what no longer may
           8 OUT_RATE   meters
           9 HERE       a MAC, or an address that is asked for, to the local port that has it
          10 ELSEWHERE  the same, to the node that has it; not for what came from there
          11 IN, 12 IN_JUDGE, 13 IN_PEER, 14 IN_RULES, 15 IN_VERDICT, 16 IN_RATE  as above, for the port that gets it
          17 DELIVER    a port gets what is for its own addresses only

    reg0   the port (its number on the switch) that gets the packet; from HERE on
    reg2,3 the other end's class
    reg4,5 the profile whose rules are asked
    reg6   VERDICT: bits, one for each action that some rule asks for

Each port with profiles has a zone of its own, so a connection between two of them is tracked twice, once for each, and
those without are not tracked at all. Zones are counted from the top, ovn-controller counts from the bottom: the two can
share a node. A port's number, and with it the zone, may be another's later, and what the tracker knows of the first
stays: so connections are marked (`ct_mark`) with whose they are, and one that is marked otherwise is as good as new.
The lowest bit of the mark says that the connection is closed: it was allowed once, and is no longer.

Classes and profiles are numbered by a hash of 64 bits of what they are: the number is the same on each node and after
each restart, and does not depend on who came first.
"""

import hashlib
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from netloom.model import addresses
from netloom.openflow.flows import Action, Flow, match
from netloom.plan.addresses.macs import number as mac_number

__all__ = ["ip_number", "mac_number"]

ENTRY, SOURCE, NEIGHBOUR = 0, 1, 2
OUT, OUT_JUDGE, OUT_PEER, OUT_RULES, OUT_VERDICT, OUT_RATE = 3, 4, 5, 6, 7, 8
HERE, ELSEWHERE = 9, 10
IN, IN_JUDGE, IN_PEER, IN_RULES, IN_VERDICT, IN_RATE = 11, 12, 13, 14, 15, 16
DELIVER = 17

TO_PORT, CLASS, PROFILE, VERDICT = "reg0", ("reg2", "reg3"), ("reg4", "reg5"), "reg6"

COOKIE = 0x6E6C << 48
"""The upper 16 bits of our flows' cookies; flows with others are left alone."""
COOKIE_MASK = 0xFFFF << 48
METERS = range(5_001, 60_001)
"""The numbers of our meters, which carry no mark; others are left alone. No datapath has fewer."""

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
ICMP, TCP, UDP, ICMP6, SCTP = 1, 6, 17, 58, 132
SOLICIT, ADVERTISE = 135, 136
ROUTER_SOLICIT, ROUTER_ADVERTISE = 133, 134
GROUP = (0x010000000000, 0x010000000000)
"""The bit of a MAC that says it is for many."""
NEW, EST, REL, RPL, INV, TRK = 1, 2, 4, 8, 16, 32
"""The bits of `ct_state`."""
ALLOWED = 1
"""The verdict of what some rule allows and none forbids."""
BROADCAST = 0xFFFFFFFFFFFF


def flow(table: int, priority: int, actions: tuple[Action, ...] = (), **fields: int | tuple[int, int]) -> Flow:
    """Return one of our flows; without actions it drops."""
    return Flow(table, priority, match(**fields), actions, COOKIE)


def zone(ofport: int) -> int:
    """Return the connection tracker's zone of a port."""
    return 0xFFFF - ofport


def mark(uid: str) -> int:
    """Return what marks the connections of a port; never 0, and without the lowest bit."""
    return identity("port", uid)[0] & ~1 or 2


CLOSED = 1
"""The bit of a mark that closes a connection."""


@lru_cache(maxsize=1 << 14)
def ip_number(ip: str) -> tuple[int, int]:
    """Return an address's family and number."""
    one = addresses.address(ip)
    return one.version, int(one)


def ip_text(version: int, value: int) -> str:
    """Return an address as people write it."""
    return str(IPv4Address(value) if version == 4 else IPv6Address(value))


def link_local(mac: int) -> int:
    """Return the link-local address that a machine makes of its MAC."""
    halves = (mac >> 24) ^ 0x020000, mac & 0xFFFFFF
    return 0xFE80 << 112 | halves[0] << 40 | 0xFFFE << 24 | halves[1]


def identity(*words: str) -> tuple[int, int]:
    """Return the number of what some words name, in two registers; never 0, which is nobody."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big") or 1, int.from_bytes(digest[4:], "big")
