"""What a broken or hostile peer sends: the session may end, as the RFC says; nothing else happens."""

import os
from ipaddress import IPv4Address
from pathlib import Path
from random import Random

import pytest

from netloom.bgp import communities as ext
from netloom.bgp.attributes import AttributeCache, Context
from netloom.bgp.errors import Notification
from netloom.bgp.fsm import Close, Ended, Established, Local, Output, Received, Refreshed, Send, Session, State
from netloom.bgp.messages import (
    KEEPALIVE,
    Framer,
    Kind,
    decode_notification,
    encode_open,
)
from netloom.bgp.nlri import (
    EVPN,
    IPV4,
    IPV6,
    ROUTE_TARGETS,
    decode_evpn,
    split,
)
from netloom.bgp.update import decode_update

CASES = int(os.environ.get("NETLOOM_TEST_BGP_FUZZ", "500000"))
FAMILIES = (IPV4, IPV6, EVPN, ROUTE_TARGETS)
ONE = Local(65001, IPv4Address("10.0.0.1"), families=FAMILIES)
TWO = Local(65002, IPv4Address("10.0.0.2"), families=FAMILIES)
RD = ext.route_distinguisher("10.0.0.2:10")
MAC = b"\2\0\0\0\0\1"


def corpus() -> list[bytes]:
    """Return messages that a well-behaved peer may send, with everything in them."""
    lines = Path(__file__).with_name("corpus.hex").read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]


def mutated(data: bytes, random: Random, others: list[bytes]) -> bytes:
    """Return a message that was damaged in one to four places; most keep a header that is in order."""
    body = bytearray(data[19:])
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(body) + 1)
        match random.randrange(7):
            case 0 if at < len(body):
                body[at] = random.randrange(256)
            case 1 if at < len(body):
                body[at] = random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                del body[at : at + random.randint(1, 8)]
            case 3:
                body[at:at] = random.randbytes(random.randint(1, 8))
            case 4:
                other = random.choice(others)[19:]
                begin = random.randrange(len(other) + 1)
                body[at:at] = other[begin : begin + random.randint(1, 40)]
            case 5:
                del body[at:]
            case _ if at + 1 < len(body):
                body[at], body[at + 1] = body[at + 1], body[at]
    length = 19 + len(body)
    if random.random() < 0.03:
        length = random.randrange(65536)
    kind = data[18] if random.random() < 0.97 else random.randrange(256)
    marker = data[:16] if random.random() < 0.98 else random.randbytes(16)
    return marker + (length & 0xFFFF).to_bytes(2, "big") + bytes((kind,)) + bytes(body)


def established(random: Random) -> Session:
    session = Session(ONE, remote_asn=65002, random=random, cache=AttributeCache())
    session.start(0)
    session.connected(0)
    outputs = list(session.receive(encode_open(TWO.open()) + KEEPALIVE, 0))
    assert isinstance(outputs[-1], Established)
    return session


def check(outputs: list[Output]) -> None:
    """See that a session did only what sessions do, and said why it ended."""
    for output in outputs:
        assert isinstance(output, Send | Close | Received | Refreshed | Ended), output
        if isinstance(output, Received):
            for family, came in output.update.announced.items():
                assert came.routes
                if family == EVPN:
                    assert all(decode_evpn(route) is not None for route in came.routes.values())
    if any(isinstance(output, Ended) for output in outputs):
        [why] = [output.why for output in outputs if isinstance(output, Ended)]
        assert why
        notes = [output for output in outputs if isinstance(output, Send)]
        for _, body in Framer().feed(b"".join(note.data for note in notes)):
            assert decode_notification(body).code in range(1, 8)


@pytest.mark.slow
def test_malformed_messages_are_survived() -> None:
    good, random = corpus(), Random(1)
    session, ended, sessions = established(random), 0, 1
    for _ in range(CASES):
        data = mutated(random.choice(good), random, good)
        outputs = list(session.receive(data, 0))
        check(outputs)
        if session.state is not State.ESTABLISHED:
            session, ended, sessions = established(random), ended + 1, sessions + 1
    assert 0.05 < ended / CASES < 0.95, "some are survived, and some end the session"


@pytest.mark.slow
def test_malformed_updates_end_in_a_notification_or_an_update() -> None:
    good, random, cache = [one for one in corpus() if one[18] == Kind.UPDATE], Random(2), AttributeCache()
    malformed, codes = 0, set()
    for _ in range(CASES):
        body = mutated(random.choice(good), random, good)[19:]
        if len(body) < 4:
            continue
        try:
            update = decode_update(body, Context(random.random() < 0.5, random.random() < 0.5), FAMILIES, cache)
        except Notification as error:
            codes.add(error.code)
        else:
            malformed += bool(update.malformed)
    assert malformed > CASES / 50
    assert codes == {3}


@pytest.mark.parametrize("family", FAMILIES)
def test_any_bytes_are_routes_or_a_notification(family: object) -> None:
    random = Random(3)
    for _ in range(3000):
        data = random.randbytes(random.randrange(60))
        try:
            found = split(family, data)  # type: ignore[arg-type]
        except Notification:
            continue
        assert sum(map(len, found.values())) <= len(data)
