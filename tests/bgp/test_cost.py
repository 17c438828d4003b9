"""What a peer's input costs: no more than in proportion to its size, whatever its shape.

The work for n, 2n and 4n is counted in calls of functions, of ours and of the interpreter's, so the test tells nothing
about the machine. What is quadratic takes 16 times as many for 4n.
"""

import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from random import Random
from types import FrameType
from typing import Any

import pytest

from netloom.bgp import communities as ext
from netloom.bgp.attributes import OPTIONAL, SEQUENCE, TRANSITIVE, AttributeCache, Attributes, Context, Type, attribute
from netloom.bgp.evi import Instance, Instances
from netloom.bgp.fsm import Local
from netloom.bgp.messages import KEEPALIVE, Capabilities, Framer, Kind, Open, decode_open, encode_open, message
from netloom.bgp.nlri import EVPN, IPV4, ROUTE_TARGETS, Family, MacIp, Multicast, encode_evpn, split
from netloom.bgp.peer import Side
from netloom.bgp.rib import AdjOut, Path, Relation, Rib, Source, membership
from netloom.bgp.speaker import PeerConfig, Speaker
from netloom.bgp.update import announce, decode_update

Work = Callable[[], object]
TOLERANCE = 1.5
TARGET = ext.route_target("1:10")
ONE, TWO, THREE = (Source(f"10.0.0.{n}", Relation.EXTERNAL, IPv4Address(f"10.0.0.{n}"), 65000 + n) for n in (2, 3, 4))
PLAIN = Attributes(next_hop=IPv4Address("10.0.0.2"), extended=(TARGET,))


def counted(work: Work) -> int:
    """Return how many calls some work takes."""
    calls = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def update(*listed: bytes, nlri: bytes = b"") -> Work:
    joined = b"".join(listed)
    body = b"\0\0" + len(joined).to_bytes(2, "big") + joined + nlri
    return lambda: decode_update(body, Context(internal=True), (EVPN, IPV4), AttributeCache())


def routes(number: int, *, alike: bool = False, one_mac: bool = False) -> bytes:
    found = []
    for n in range(number):
        rd = ext.route_distinguisher(f"1:{n}")
        mac = b"\2\0\0\0\0\0" if one_mac else n.to_bytes(6, "big")
        found.append(encode_evpn(MacIp(rd, mac, None if alike or n % 2 else IPv4Address(n), 10)))
    return b"".join(found)


def flooded_rib(number: int) -> Work:
    """Two peers announce the same routes, and leave; a third gets all of them."""
    some = split(EVPN, routes(number))

    def work() -> None:
        rib = Rib(65001, IPv4Address("10.0.0.1"))
        out = AdjOut(
            rib, Source("10.0.0.4", Relation.EXTERNAL, IPv4Address("10.0.0.4"), 65004), Context(False), (EVPN,)
        )
        for source in (ONE, TWO):
            rib.add_source(source)
            for at in range(0, number, 90):
                rib.announce(source, EVPN, PLAIN, dict(list(some.items())[at : at + 90]) if number < 90 else some)
                break
        for source in (ONE, TWO):
            out.enqueue_chosen(EVPN, rib.take_chosen().get(EVPN, {}))
            while out.is_pending:
                out.flush()
            rib.remove_source(source)

    return work


class Counted(tuple[bytes, ...]):
    """Communities each of which is a call when they are looked through."""

    def __iter__(self) -> Iterator[bytes]:
        for at in range(len(self)):
            yield self[at]


def communities(number: int) -> Counted:
    return Counted(ext.route_target(f"2:{n}") for n in range(number))


def compared(number: int) -> Work:
    """Two peers announce the same routes, with as many communities, again and again."""
    some = split(EVPN, routes(number))
    rib = Rib(65001, IPv4Address("10.0.0.1"))

    def work() -> None:
        for source in (ONE, TWO, ONE, TWO):
            rib.add_source(source)
            made = Attributes(next_hop=IPv4Address("10.0.0.2"), extended=communities(number))
            rib.announce(source, EVPN, made, some)

    return work


def sorted_claims(number: int) -> Work:
    """As many routes, with as many communities, are for one address."""
    rib = Rib(65001, IPv4Address("10.0.0.1"))
    rib.add_source(ONE)
    many = Attributes(next_hop=IPv4Address("10.0.0.2"), extended=communities(number))
    rib.announce(ONE, EVPN, many, split(EVPN, routes(number, one_mac=True)))
    instance = Instance("blue", [])
    instance.put(rib.best[EVPN])
    return lambda: instance.mac(b"\2\0\0\0\0\0")


def imported(number: int) -> Work:
    """A route with many targets comes to as many instances that import others."""
    tables = Instances()
    for n in range(number):
        tables.add(Instance(str(n), [ext.route_target(f"1:{n}")]), {})
    key, raw = next(iter(split(EVPN, routes(1)).items()))

    def work() -> None:
        made = Attributes(next_hop=IPv4Address("10.0.0.2"), extended=communities(number))
        tables.apply({key: (None, Path(raw, made, ONE))})

    return work


def flooded_instance(number: int, *, one_mac: bool) -> Work:
    """Routes for as many addresses, or for one, come one after the other, and go."""
    rib = Rib(65001, IPv4Address("10.0.0.1"))
    rib.add_source(ONE)
    rib.announce(ONE, EVPN, PLAIN, split(EVPN, routes(number, one_mac=one_mac)))
    best = rib.best[EVPN]

    def work() -> None:
        tables = Instances()
        tables.add(Instance("blue", [TARGET]), {})
        for key, path in best.items():
            tables.apply({key: (None, path)})
        for key, path in best.items():
            tables.apply({key: (path, None)})
        assert not list(tables["blue"].macs())

    return work


def targeted(number: int) -> Work:
    """A peer that gets as many routes asks for as many route targets, each in a message of its own."""
    families, peer = (EVPN, ROUTE_TARGETS), Local(65002, IPv4Address("10.0.0.2"), families=(EVPN, ROUTE_TARGETS))
    speaker = Speaker(65001, IPv4Address("10.0.0.1"), random=Random(1))
    speaker.add_peer(PeerConfig("10.0.0.2", 65002, passive=True, families=families), 0)
    assert speaker.accepted("10.0.0.2", 0)
    speaker.receive("10.0.0.2", Side.THEIRS, encode_open(peer.open()) + KEEPALIVE, 0)
    speaker.originate(EVPN, PLAIN, split(EVPN, routes(number)))
    speaker.take_changes()
    context, sent = Context(internal=False), Attributes(next_hop=peer.router_id, as_path=((SEQUENCE, (65002,)),))
    wanted = [membership(65002, ext.route_target(f"1:{n}")) for n in range(number)]
    data = b"".join(one for target in wanted for one in announce(ROUTE_TARGETS, [target], sent, context, 4096))

    def work() -> None:
        speaker.receive("10.0.0.2", Side.THEIRS, data, 0)
        assert sum(len(message) for _, message in speaker.messages("10.0.0.2")) > 0

    return work


def bytewise(number: int) -> Work:
    framer, data = Framer(), message(Kind.UPDATE, bytes(number))
    framer.longest = 65535
    return lambda: [list(framer.feed(data[at : at + 1])) for at in range(len(data))]


CASES: dict[str, Callable[[int], Work]] = {
    "unknown attributes": lambda n: update(*(attribute(OPTIONAL | TRANSITIVE, 200, b"") for _ in range(n))),
    "an attribute again and again": lambda n: update(*(attribute(TRANSITIVE, Type.ORIGIN, b"\0") for _ in range(n))),
    "segments of an AS path": lambda n: update(attribute(TRANSITIVE, Type.AS_PATH, b"\2\1\0\0\0\1" * n)),
    "AS numbers of AS4_PATH": lambda n: update(
        attribute(OPTIONAL | TRANSITIVE, Type.AS4_PATH, bytes((SEQUENCE, 1, 0, 0, 0, 1)) * n)
    ),
    "communities": lambda n: update(attribute(OPTIONAL | TRANSITIVE, Type.EXTENDED_COMMUNITIES, bytes(8 * n))),
    "clusters": lambda n: update(attribute(OPTIONAL, Type.CLUSTER_LIST, b"\1" * 4 * n)),
    "prefixes": lambda n: update(nlri=b"".join(b"\x20" + n.to_bytes(4, "big") for n in range(n))),
    "routes": lambda n: lambda: split(EVPN, encode_evpn(Multicast(bytes(8), IPv4Address(1))) + routes(n)),
    "routes that are alike": lambda n: lambda: split(EVPN, routes(n, alike=True)),
    "routes of an unknown type": lambda n: lambda: split(EVPN, b"\x63\0" * n),
    "families": lambda n: (lambda body: lambda: decode_open(body))(
        encode_open(Open(65001, IPv4Address(1), 90, Capabilities(tuple(Family(i, 1) for i in range(n)), 65001)))[19:]
    ),
    "a message in single bytes": bytewise,
    "route targets": lambda n: targeted(8 * n),
    "routes of two peers": flooded_rib,
    "communities of routes of two peers": compared,
    "communities of routes of one address": sorted_claims,
    "targets that no instance imports": imported,
    "addresses": lambda n: flooded_instance(n, one_mac=False),
    "routes of one address": lambda n: flooded_instance(n, one_mac=True),
}


@pytest.mark.parametrize("name", CASES)
def test_cost_grows_no_faster_than_the_input(name: str) -> None:
    case, size = CASES[name], 60
    first, second, fourth = (counted(case(factor * size)) for factor in (1, 2, 4))
    assert first > 0
    assert second <= 2 * TOLERANCE * first
    assert fourth <= 4 * TOLERANCE * first


def test_the_parts_of_a_message_are_joined_once() -> None:
    framer, data = Framer(), message(Kind.UPDATE, bytes(4000))
    for at in range(len(data) - 1):
        assert not list(framer.feed(data[at : at + 1]))
    assert len(framer._parts) > len(data) - 30
    assert [body for _, body in framer.feed(data[-1:])] == [bytes(4000)]


def test_a_quadratic_cost_is_found() -> None:
    def work(number: int) -> int:
        return counted(lambda: [list(range(n)).count(1) for n in range(number) for _ in range(number)])

    assert work(240) > 4 * TOLERANCE * work(60)
