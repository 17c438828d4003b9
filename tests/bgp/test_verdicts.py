"""Malformed attributes and routes: the reaction that the RFC prescribes, and what FRR does with the same bytes.

Each attribute is truncated, too long, with a wrong flag, there twice, or longer than the message; routes have
impossible lengths. What becomes of a route that was announced before, and is announced again with it: it stays, it is
withdrawn, or the session ends.
"""

import time
from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address
from random import Random
from socket import socket
from typing import NamedTuple

import pytest

from netloom.bgp import communities as ext
from netloom.bgp.attributes import OPTIONAL, TRANSITIVE, Type, attribute
from netloom.bgp.fsm import Local, State
from netloom.bgp.messages import KEEPALIVE, Framer, Kind, encode_open, message
from netloom.bgp.nlri import EVPN, MacIp, encode_evpn, split
from netloom.bgp.peer import Side
from netloom.bgp.speaker import PeerConfig, Speaker
from netloom.bgp.update import encode_reach
from netloom.lab.daemons.entering import inside
from tests.bgp.test_frr import routes_of
from tests.support.frr import OURS, THEIRS, Bgpd, frr

RD = ext.route_distinguisher(f"{OURS}:10")
TESTED, MARKER = (encode_evpn(MacIp(RD, bytes((2, 0, 0, 0, 0, n)), None, 10)) for n in (1, 2))
BOTH = OPTIONAL | TRANSITIVE
VALID: dict[Type, tuple[int, bytes]] = {
    Type.ORIGIN: (TRANSITIVE, b"\0"),
    Type.AS_PATH: (TRANSITIVE, b"\2\1" + (65001).to_bytes(4, "big")),
    Type.NEXT_HOP: (TRANSITIVE, IPv4Address(OURS).packed),
    Type.MED: (OPTIONAL, bytes(4)),
    Type.LOCAL_PREF: (TRANSITIVE, bytes(4)),
    Type.ATOMIC_AGGREGATE: (TRANSITIVE, b""),
    Type.AGGREGATOR: (BOTH, (65001).to_bytes(4, "big") + bytes((10, 0, 0, 1))),
    Type.COMMUNITIES: (BOTH, bytes((0xFD, 0xE9, 0, 1))),
    Type.ORIGINATOR_ID: (OPTIONAL, bytes((10, 0, 0, 7))),
    Type.CLUSTER_LIST: (OPTIONAL, bytes((10, 0, 0, 8))),
    Type.EXTENDED_COMMUNITIES: (BOTH, ext.route_target("65001:10") + ext.encapsulation()),
    Type.PMSI_TUNNEL: (BOTH, bytes((0, 6, 0, 0, 10)) + IPv4Address(OURS).packed),
    Type.LARGE_COMMUNITIES: (BOTH, bytes(12)),
}
ALWAYS = (Type.ORIGIN, Type.AS_PATH, Type.EXTENDED_COMMUNITIES)


class Verdict(Enum):
    STAYS = "the route stays"
    WITHDRAWN = "the route is withdrawn"
    RESET = "the session ends"


DISCARDED = {
    Type.ATOMIC_AGGREGATE: "RFC 7606 section 7.6",
    Type.AGGREGATOR: "RFC 7606 section 7.7",
    Type.LOCAL_PREF: "RFC 7606 section 7.5: from an external peer",
    Type.ORIGINATOR_ID: "RFC 7606 section 7.9: from an external peer",
    Type.CLUSTER_LIST: "RFC 7606 section 7.10: from an external peer",
}
"""Attributes that are discarded when their length is wrong; the others cost the route."""


class Case(NamedTuple):
    kind: Type
    damage: str
    body: bytes
    expected: Verdict

    def __str__(self) -> str:
        return f"{self.kind.name} {self.damage}"


def body_of(route: bytes, **changed: bytes) -> bytes:
    """Return the body of an UPDATE, with attributes by name in place of or besides the valid ones."""
    reach = attribute(OPTIONAL, Type.MP_REACH, encode_reach(EVPN, IPv4Address(OURS), route))
    listed = {kind.name: attribute(VALID[kind][0], kind, VALID[kind][1]) for kind in ALWAYS} | changed
    joined = reach + b"".join(listed.values())
    return b"\0\0" + len(joined).to_bytes(2, "big") + joined


def cases() -> Iterator[Case]:
    for kind, (flags, value) in VALID.items():
        withdrawn = Verdict.STAYS if kind in DISCARDED else Verdict.WITHDRAWN
        twice = attribute(flags, kind, value)
        yield Case(kind, "valid", body_of(TESTED, **{kind.name: twice}), Verdict.STAYS)
        yield Case(kind, "twice", body_of(TESTED, **{kind.name: twice + twice}), Verdict.STAYS)
        yield Case(kind, "longer", body_of(TESTED, **{kind.name: attribute(flags, kind, value + b"\1")}), withdrawn)
        if value:
            yield Case(kind, "shorter", body_of(TESTED, **{kind.name: attribute(flags, kind, value[:-1])}), withdrawn)
        # RFC 7606 section 3: a wrong flag costs the route, whatever another error costs.
        for bit, name in ((OPTIONAL, "optional"), (TRANSITIVE, "transitive")):
            damage, data = f"not {name}" if flags & bit else name, attribute(flags ^ bit, kind, value)
            yield Case(kind, damage, body_of(TESTED, **{kind.name: data}), Verdict.WITHDRAWN)
        last = attribute(flags, kind, value)
        last = last[:2] + bytes((len(value) + 40,)) + value
        others = {name.name: b"" for name in [kind]}
        yield Case(kind, "beyond the end", body_of(TESTED, **others, last=last), Verdict.WITHDRAWN)


def nlri_cases() -> Iterator[Case]:
    """Yield UPDATEs whose MP_REACH_NLRI is wrong, or has a route that is."""
    hop, kind = IPv4Address(OURS), Type.MP_REACH
    good = encode_reach(EVPN, hop, TESTED)
    listed = b"".join(attribute(VALID[one][0], one, VALID[one][1]) for one in ALWAYS)

    def case(damage: str, expected: Verdict, *parts: bytes) -> Case:
        joined = b"".join((*parts, listed))
        return Case(kind, damage, b"\0\0" + len(joined).to_bytes(2, "big") + joined, expected)

    def reach(value: bytes, flags: int = OPTIONAL) -> bytes:
        return attribute(flags, kind, value)

    def with_route(route: bytes) -> bytes:
        return reach(encode_reach(EVPN, hop, TESTED + route))

    yield case("valid", Verdict.STAYS, reach(good))
    # RFC 7606 section 3: of this attribute, unlike others, there may be one only.
    yield case("twice", Verdict.RESET, reach(good), reach(good))
    yield case("not optional", Verdict.WITHDRAWN, reach(good, 0))
    yield case("transitive", Verdict.WITHDRAWN, reach(good, BOTH))
    # RFC 7606 sections 5.3 and 7.11: the routes cannot be known, so they cannot be withdrawn.
    yield case("shorter", Verdict.RESET, reach(good[:-1]))
    yield case("longer", Verdict.RESET, reach(good + b"\2"))
    yield case("empty", Verdict.RESET, reach(b""))
    yield case("next hop of 5 bytes", Verdict.RESET, reach(good[:3] + b"\5" + hop.packed + b"\1\0" + TESTED))
    yield case("next hop of 200 bytes", Verdict.RESET, reach(good[:3] + bytes((200,)) + good[4:]))
    for length in (0, 32, 34, 255):
        yield case(f"route of {length} bytes", Verdict.RESET, with_route(bytes((2, length)) + TESTED[2 : 2 + length]))
    yield case("MAC of 40 bits", Verdict.RESET, with_route(MARKER[:24] + b"\x28" + MARKER[25:]))
    yield case("IP of 33 bits", Verdict.RESET, with_route(MARKER[:31] + b"\x21" + MARKER[32:]))
    # RFC 7606 section 5.4: a type that is not known is discarded, the routes beside it are not.
    yield case("route of type 200", Verdict.STAYS, with_route(bytes((200, 4)) + bytes(4)))


CASES = [*cases(), *nlri_cases()]


def ours(case: Case) -> Verdict:
    """Return what our speaker does."""
    speaker = Speaker(65002, IPv4Address(THEIRS), random=Random(1))
    speaker.add_peer(PeerConfig(OURS, 65001, passive=True), 0)
    assert speaker.accepted(OURS, 0)
    sender = Local(65001, IPv4Address(OURS))
    first = message(Kind.UPDATE, body_of(TESTED))
    speaker.receive(OURS, Side.THEIRS, encode_open(sender.open()) + KEEPALIVE + first, 0)
    [key] = split(EVPN, TESTED)
    assert key in speaker.rib.best[EVPN]
    speaker.receive(OURS, Side.THEIRS, message(Kind.UPDATE, case.body), 0)
    if speaker.neighbor(OURS).peer.state is not State.ESTABLISHED:
        return Verdict.RESET
    return Verdict.STAYS if key in speaker.rib.best[EVPN] else Verdict.WITHDRAWN


@pytest.mark.parametrize("case", CASES, ids=str)
def test_our_reaction_is_that_of_the_rfc(case: Case) -> None:
    assert ours(case) is case.expected


class Sender:
    """A session with FRR, made again when it has ended."""

    def __init__(self, daemon: Bgpd) -> None:
        self._daemon = daemon
        self._sock: socket | None = None

    def _connect(self) -> socket:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            sock = socket()
            sock.settimeout(120)
            try:
                sock.bind((OURS, 0))
                sock.connect((THEIRS, 179))
                sock.sendall(encode_open(Local(65001, IPv4Address(OURS)).open()))
                framer = Framer()
                while data := sock.recv(65536):
                    kinds = [kind for kind, _ in framer.feed(data)]
                    if Kind.OPEN in kinds:
                        sock.sendall(KEEPALIVE)
                    if Kind.KEEPALIVE in kinds:
                        return sock
            except OSError:
                pass
            sock.close()
            time.sleep(0.1)
        raise AssertionError("FRR takes no session")

    def _shows(self, wanted: dict[bytes, bool]) -> bool:
        # A route is there once its best path is chosen, and is gone once that is noticed; both in their order.
        shown = [prefix for prefix, path in routes_of(self._daemon).items() if "bestpath" in str(path)]
        names = {TESTED: "[02:00:00:00:00:01]", MARKER: "[02:00:00:00:00:02]"}
        return all(any(names[route] in prefix for prefix in shown) == there for route, there in wanted.items())

    def _wait(self, wanted: dict[bytes, bool]) -> bool:
        """Wait until FRR shows routes; return False if the session has ended."""
        assert self._sock is not None
        self._sock.setblocking(False)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if not self._sock.recv(65536):
                    return False
            except BlockingIOError:
                pass
            except OSError:
                return False
            if self._shows(wanted):
                return True
            time.sleep(0.01)
        raise AssertionError("FRR does not show the marker")

    def verdict(self, case: Case) -> Verdict:
        """Return what FRR does."""
        for _ in range(20):
            if self._sock is None:
                self._sock = self._connect()
            self._sock.setblocking(True)
            self._sock.sendall(message(Kind.UPDATE, body_of(TESTED)))
            if self._wait({TESTED: True}):
                break
            self.close()
        assert self._sock is not None
        self._sock.setblocking(True)
        before = self._shows({MARKER: True})
        assert not before
        self._sock.sendall(message(Kind.UPDATE, case.body) + message(Kind.UPDATE, body_of(MARKER)))
        if not self._wait({MARKER: True}):
            self.close()
            return Verdict.RESET
        found = Verdict.STAYS if self._shows({TESTED: True}) else Verdict.WITHDRAWN
        self.close()
        return found

    def close(self) -> None:
        """End the session."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


CONFIG = f"""
router bgp 65002
 bgp router-id {THEIRS}
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor {OURS} remote-as 65001
 neighbor {OURS} passive
 address-family l2vpn evpn
  neighbor {OURS} activate
 exit-address-family
"""

DIFFERENT = {
    # RFC 7606 section 3: the first of two counts, unless they are MP_REACH_NLRI or MP_UNREACH_NLRI.
    **{f"{kind.name} twice": Verdict.RESET for kind in VALID},
    # RFC 7606 section 4: the routes are known from the MP_REACH_NLRI before it, so they are withdrawn.
    **{f"{kind.name} beyond the end": Verdict.RESET for kind in VALID},
    # RFC 6514 section 5: routes with a malformed PMSI tunnel attribute are handled as if they were withdrawn.
    **{f"PMSI_TUNNEL {damage}": Verdict.RESET for damage in ("shorter", "longer")},
    # RFC 7606 sections 7.9 and 7.10: from an external peer they are discarded, whatever they contain.
    **{
        f"{kind} {damage}": Verdict.WITHDRAWN
        for kind in ("ORIGINATOR_ID", "CLUSTER_LIST")
        for damage in ("shorter", "longer")
    },
    # RFC 7606 section 3: with a wrong flag the routes are withdrawn; nothing else is said for these.
    "ATOMIC_AGGREGATE optional": Verdict.STAYS,
    "ATOMIC_AGGREGATE not transitive": Verdict.STAYS,
    **{f"MP_REACH {damage}": Verdict.RESET for damage in ("not optional", "transitive")},
    **{
        f"{kind} {damage}": Verdict.STAYS
        for kind in ("AGGREGATOR", "PMSI_TUNNEL")
        for damage in ("not optional", "not transitive")
    },
}
"""What FRR 8.4 does where it does something else than the RFC says and we do."""


@pytest.mark.root
@pytest.mark.slow
def test_frr_differs_only_where_it_is_known() -> None:
    with frr(CONFIG) as (netns, daemon):
        sender = Sender(daemon)

        def go() -> dict[str, Verdict]:
            found = {}
            for case in CASES:
                verdict = sender.verdict(case)
                if verdict is not case.expected:
                    found[str(case)] = verdict
                deadline = time.monotonic() + 120
                while routes_of(daemon) and time.monotonic() < deadline:
                    time.sleep(0.01)
            return found

        assert inside(netns, go) == DIFFERENT
