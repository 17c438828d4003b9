"""The flows of a local port, of a remote port, and those that are always installed. Pure.

A port may send what OVN's port security allows: from its MAC; IPv4 from its own addresses and those it is allowed; IPv6
also from the link-local address of its MAC, and from the unspecified address for duplicate address detection; ARP and
neighbour discovery that announce these addresses with this MAC. A port without addresses of a family sends nothing of
that family. A port receives packets for the same addresses. Packets that are neither IPv4, IPv6 nor ARP, or have a VLAN
tag, are dropped.

An ARP request, or a neighbour solicitation, goes only to the port that has the address. If other ports are allowed to
use the address, any of them may answer: then it goes to each (`shared`). A port that asks for its own address announces
it, or checks whether another has it: that goes to the others that claim the address, and to other sites.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from netloom.openflow.fields import TAGGED
from netloom.openflow.flows import Action, Flow, Goto, Output, Resubmit, SetField
from netloom.plan.vxlan.layout import (
    ADVERTISE,
    ALLOWED,
    ARP,
    BROADCAST,
    DELIVER,
    ELSEWHERE,
    ENTRY,
    FLOOD,
    GROUP,
    HERE,
    ICMP6,
    IN,
    IN_JUDGE,
    IN_RATE,
    IN_VERDICT,
    INV,
    IPV4,
    IPV6,
    NEIGHBOUR,
    OUT,
    OUT_JUDGE,
    OUT_RATE,
    OUT_VERDICT,
    ROUTER_ADVERTISE,
    ROUTER_SOLICIT,
    SOLICIT,
    SOURCE,
    TO_PORT,
    TRK,
    VERDICT,
    flow,
    ip_number,
    link_local,
    mac_number,
)


class FabricPort(Struct, frozen=True, kw_only=True):
    """A port of this node or of another one."""

    uid: str
    namespace: str
    name: str
    vni: int
    mac: str
    ips: tuple[str, ...]
    """Its addresses; prefix lengths are ignored."""
    allowed: tuple[str, ...] = ()
    """The other addresses that it may use."""
    profiles: tuple[str, ...] = ()
    """The SecurityProfiles that it names."""
    labels: Mapping[str, str] = {}
    network: str = ""
    node: str = ""


class LocalPort(FabricPort, frozen=True, kw_only=True):
    """A port of this node."""

    ofport: int
    """Its OpenFlow number."""


class Remote(FabricPort, frozen=True, kw_only=True):
    """A port of another node."""

    host_ip: str
    """The underlay address of its node."""


def numbers(ips: Iterable[str]) -> list[tuple[int, int]]:
    """Return the families and numbers of addresses, without duplicates."""
    return list(dict.fromkeys(ip_number(ip.partition("/")[0]) for ip in ips))


def base(vtep: int) -> tuple[Flow, ...]:
    """Return the flows that are always installed; `vtep` is the number of the tunnel port."""
    return (
        flow(ENTRY, 200, vlan_vid=(TAGGED, TAGGED)),
        flow(ENTRY, 100, (Goto(HERE),), in_port=vtep),
        flow(ENTRY, 0),
        flow(SOURCE, 0),
        # Neighbour discovery passes only by the flows of a port.
        flow(NEIGHBOUR, 50, dl_type=IPV6, nw_proto=ICMP6, icmpv6_type=SOLICIT),
        flow(NEIGHBOUR, 50, dl_type=IPV6, nw_proto=ICMP6, icmpv6_type=ADVERTISE),
        flow(NEIGHBOUR, 0, (Goto(OUT),)),
        *_evaluation(OUT, OUT_JUDGE, OUT_VERDICT, OUT_RATE, (SOLICIT, ADVERTISE, ROUTER_SOLICIT)),
        flow(OUT_RATE, 0, (Goto(HERE),)),
        # A question of another site is answered on the node that has the address: it gets a copy, too.
        flow(HERE, 20, in_port=vtep, dl_type=ARP, arp_op=1),
        flow(HERE, 20, in_port=vtep, dl_type=IPV6, nw_proto=ICMP6, icmpv6_type=SOLICIT),
        flow(HERE, 0, (Goto(ELSEWHERE),)),
        flow(ELSEWHERE, 1000, in_port=vtep),
        flow(ELSEWHERE, 10, (Goto(FLOOD),), dl_dst=GROUP),
        flow(ELSEWHERE, 0),
        flow(FLOOD, 150, in_port=vtep),
        flow(FLOOD, 0),
        *_evaluation(IN, IN_JUDGE, IN_VERDICT, IN_RATE, (SOLICIT, ADVERTISE, ROUTER_ADVERTISE)),
        flow(IN_RATE, 0, (Goto(DELIVER),)),
        flow(DELIVER, 50, dl_type=IPV4),
        flow(DELIVER, 50, dl_type=IPV6),
        flow(DELIVER, 0),
    )


def _evaluation(entry: int, judge: int, verdict: int, done: int, always: Sequence[int]) -> Iterator[Flow]:
    """Yield the flows of profile evaluation that are the same for all ports."""
    yield flow(entry, 200, (Goto(done),), dl_type=ARP)
    for kind in always:
        yield flow(entry, 200, (Goto(done),), dl_type=IPV6, nw_proto=ICMP6, icmpv6_type=kind)
    yield flow(entry, 0, (Goto(done),))
    yield flow(judge, 300, ct_state=(TRK | INV, TRK | INV))  # Packets that the tracker cannot classify.
    yield flow(judge, 0)
    yield flow(verdict, 100, (Goto(done),), **{VERDICT: ALLOWED}, ct_state=(0, TRK))
    yield flow(verdict, 0)


def local(port: LocalPort) -> tuple[Flow, ...]:
    """Return the flows of an open port: what it may send, and how it is reached."""
    mac, ofport = mac_number(port.mac), port.ofport
    own = numbers(port.ips)
    usable = numbers((*port.ips, *port.allowed))
    if any(version == 6 for version, _ in own):
        own.append((6, link_local(mac)))
    if any(version == 6 for version, _ in usable):
        usable.append((6, link_local(mac)))
    here: tuple[Action, ...] = (SetField(TO_PORT, ofport), Goto(IN))
    return (
        flow(ENTRY, 100, (SetField("tun_id", port.vni), Goto(SOURCE)), in_port=ofport),
        *_sends(ofport, mac, usable),
        flow(HERE, 100, here, tun_id=port.vni, dl_dst=mac),
        *(_asked(HERE, port.vni, version, ip, here) for version, ip in own),
        *(_asked(HERE, port.vni, version, ip, (Goto(ELSEWHERE),), 110, in_port=ofport) for version, ip in own),
        *_gets(ofport, usable),
    )


def _sends(ofport: int, mac: int, usable: Sequence[tuple[int, int]]) -> Iterator[Flow]:
    """Yield the flows of what a port may send."""
    on = {"in_port": ofport, "dl_src": mac}
    out = (Goto(OUT),)
    for version, ip in usable:
        if version == 4:
            yield flow(SOURCE, 100, out, **on, dl_type=IPV4, nw_src=ip)
            yield flow(SOURCE, 100, out, **on, dl_type=ARP, arp_sha=mac, arp_spa=ip)
            continue
        yield flow(SOURCE, 100, (Goto(NEIGHBOUR),), **on, dl_type=IPV6, ipv6_src=ip)
        for option in (mac, 0):  # The option with the MAC may be absent.
            yield flow(NEIGHBOUR, 100, out, **_neighbour(ADVERTISE), in_port=ofport, nd_target=ip, nd_tll=option)
    if any(version == 6 for version, _ in usable):
        # Duplicate address detection has no source address.
        yield flow(SOURCE, 100, (Goto(NEIGHBOUR),), **on, **_neighbour(SOLICIT), ipv6_src=0)
        for option in (mac, 0):
            yield flow(NEIGHBOUR, 100, out, **_neighbour(SOLICIT), in_port=ofport, nd_sll=option)


def _gets(ofport: int, usable: Sequence[tuple[int, int]]) -> Iterator[Flow]:
    """Yield the flows of what a port may receive."""
    on, send = {TO_PORT: ofport}, (Output(ofport),)
    for version, ip in usable:
        if version == 4:
            yield flow(DELIVER, 100, send, **on, dl_type=IPV4, nw_dst=ip)
        else:
            yield flow(DELIVER, 100, send, **on, dl_type=IPV6, ipv6_dst=ip)
    if any(version == 6 for version, _ in usable):
        yield flow(DELIVER, 100, send, **on, dl_type=IPV6, ipv6_dst=(0xFF << 120, 0xFF << 120))
    if any(version == 4 for version, _ in usable):
        yield flow(DELIVER, 100, send, **on, dl_type=IPV4, dl_dst=GROUP)
    yield flow(DELIVER, 40, send, **on)


def remote(one: Remote, vtep: int) -> tuple[Flow, ...]:
    """Return the flows that lead to a remote port's node."""
    mac = mac_number(one.mac)
    own = numbers(one.ips)
    if any(version == 6 for version, _ in own):
        own.append((6, link_local(mac)))
    there = towards(one.host_ip, vtep)
    return (
        flow(ELSEWHERE, 100, there, tun_id=one.vni, dl_dst=mac),
        *(_asked(ELSEWHERE, one.vni, version, ip, there) for version, ip in own),
    )


def machine(mac: str, ips: Iterable[str], vni: int, there: tuple[Action, ...]) -> tuple[Flow, ...]:
    """Return the flows that lead to a machine of another site."""
    return (
        flow(ELSEWHERE, 100, there, tun_id=vni, dl_dst=mac_number(mac)),
        *(_asked(ELSEWHERE, vni, version, ip, there) for version, ip in numbers(ips)),
    )


@lru_cache(maxsize=1 << 12)
def towards(host_ip: str, vtep: int) -> tuple[Action, ...]:
    """Return the actions that send a packet to another node."""
    version, value = ip_number(host_ip)
    return SetField("tun_dst" if version == 4 else "tun_ipv6_dst", value), Output(vtep)


def shared(
    vni: int, address: tuple[int, int], ports: Sequence[int], hosts: Sequence[str], vtep: int | None
) -> Iterator[Flow]:
    """Yield the flows that send a question to all users of an address: local ports, and one copy for each node.

    It goes to other sites, too: it may be that the address is there, or that a port here has just begun to use it.
    """
    if ports:
        each: list[Action] = []
        for ofport in ports:
            each += [SetField(TO_PORT, ofport), Resubmit(IN)]
        yield _asked(HERE, vni, *address, (*each, Goto(ELSEWHERE)), 120)
    if vtep is not None:
        there = tuple([act for host in hosts for act in towards(host, vtep)])
        yield _asked(ELSEWHERE, vni, *address, (*there, Goto(FLOOD)), 120)


def _asked(
    table: int, vni: int, version: int, ip: int, actions: tuple[Action, ...], priority: int = 100, **more: int
) -> Flow:
    """Return the flow for a broadcast question who has an address."""
    if version == 4:
        question: dict[str, int] = {"dl_type": ARP, "arp_op": 1, "arp_tpa": ip}
        return flow(table, priority, actions, **more, tun_id=vni, dl_dst=BROADCAST, **question)
    return flow(table, priority, actions, **more, tun_id=vni, dl_dst=GROUP, **_neighbour(SOLICIT), nd_target=ip)


def _neighbour(kind: int) -> dict[str, int]:
    return {"dl_type": IPV6, "nw_proto": ICMP6, "icmpv6_type": kind, "icmpv6_code": 0}
