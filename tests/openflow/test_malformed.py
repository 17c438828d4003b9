"""Malformed messages: only the library's own error comes out, nothing hangs, nothing grows.

Sixteen thousand of them; NETLOOM_TEST_MALFORMED=100000 for more.
"""

import os
import struct
from random import Random

import pytest

from netloom.openflow import messages
from netloom.openflow.actions import encode_actions
from netloom.openflow.flows import (
    Conjunction,
    Ct,
    Flow,
    Goto,
    InPort,
    Meter,
    Move,
    Output,
    Put,
    Resubmit,
    SetField,
    match,
)
from netloom.openflow.oxm import encode_match
from netloom.openflow.session import Answered, OpenFlowSession
from netloom.openflow.wire import RemoteError, Type, frame

SEEDS = 4
ROUNDS = int(os.environ.get("NETLOOM_TEST_MALFORMED", "16000")) // SEEDS

FLOWS = (
    Flow(0, 1, (), ()),
    Flow(1, 2, match(dl_type=0x800, nw_proto=6, tcp_dst=(80, 0xFFF0), ct_state=(1, 3), tun_id=7), (Meter(1), Goto(3))),
    Flow(2, 3, match(reg5=1, dl_dst=(1, 1)), (SetField("reg0", 1, 3), SetField("tun_dst", 9), Output(1), InPort())),
    Flow(3, 4, match(dl_type=0x86DD, ipv6_dst=1), (Ct("reg5", True, 4, (SetField("ct_mark", 1),)), Resubmit(9))),
    Flow(4, 5, match(metadata=3), (Conjunction(1, 1, 2), Conjunction(2, 2, 2))),
    Flow(5, 6, (), (Move("dl_src", "dl_dst"),)),
)


def shown(flow: Flow) -> bytes:
    """Return a flow as a switch shows it."""
    rest = encode_match(flow.match) + encode_actions(flow.actions)
    head = struct.pack(
        "!HBxIIHHHHHxxQQQ", 48 + len(rest), flow.table, 1, 2, flow.priority, 0, 0, 0, 0, flow.cookie, 3, 4
    )
    return head + rest


def asking() -> tuple[OpenFlowSession, list[bytes]]:
    """Return a session that waits for something of each kind, and what the switch may say."""
    session = OpenFlowSession(limit=1 << 20)
    session.start()
    session.receive(messages.hello(9))
    flows, meters, count = session.ask_flows(0, 0), session.ask_meters(), session.ask_count(0, 0)
    order = session.change_meter(messages.MeterCommand.ADD, 1)
    change = session.open_bundle()
    session.add(change, [Put(flow) for flow in FLOWS])
    session.close_bundle(change)
    band = struct.pack("!HHIHHII4x", 24, 5, 1, 1, 16, 1000, 100)
    said = [
        frame(Type.MULTIPART_REPLY, flows, struct.pack("!HH4x", 1, 1) + b"".join(map(shown, FLOWS))),
        frame(Type.MULTIPART_REPLY, flows, struct.pack("!HH4x", 1, 0) + b"".join(map(shown, FLOWS))),
        frame(Type.MULTIPART_REPLY, meters, struct.pack("!HH4x", 10, 0) + band),
        frame(Type.MULTIPART_REPLY, count, struct.pack("!HH4xQQI4x", 2, 0, 8, 800, 3)),
        frame(Type.ERROR, order, struct.pack("!HH", 12, 3)),
        frame(Type.ERROR, change + 2, struct.pack("!HHI", 0xFFFF, 15, 0x2320)),
        frame(Type.BARRIER_REPLY, order + 1),
        frame(Type.BARRIER_REPLY, change + len(FLOWS) + 1),
        frame(Type.BUNDLE_CONTROL, change + len(FLOWS) + 2, struct.pack("!IHH", change, 5, 3)),
        frame(Type.ECHO_REQUEST, 1, b"hello"),
        messages.hello(3),
    ]
    return session, said


def bent(data: bytes, random: Random) -> bytes:
    """Return a message with something wrong in it."""
    some = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(some))
        match random.randrange(6):
            case 0:
                some[at] = random.randrange(256)
            case 1:
                some[at] ^= 1 << random.randrange(8)
            case 2:
                some[at : at + 2] = random.choice((b"\x00\x00", b"\xff\xff", b"\x00\x08", b"\x00\x04"))
            case 3:
                del some[at : at + random.choice((1, 2, 4, 8))]
            case 4:
                some[at:at] = random.randbytes(random.choice((1, 4, 8)))
            case 5:
                del some[at + 8 :]
        if len(some) < 8:
            some += bytes(8)
    if random.random() < 0.8:  # A length that is right lets the rest be looked at.
        some[2:4] = struct.pack("!H", len(some))
    return bytes(some)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_a_switch_says_only_our_own_error_comes_of_it(seed: int) -> None:
    random = Random(seed)
    refused = taken = 0
    session, said = asking()
    for _ in range(ROUNDS):
        data = bent(random.choice(said), random)
        try:
            session.receive(data)
            taken += 1
        except RemoteError:
            refused += 1
            session, said = asking()
        session.to_send()
        if session._framer._rest:  # It waits for the rest of a message that said it was longer.
            session, said = asking()
    assert refused > ROUNDS // 10
    assert taken > ROUNDS // 10


def test_random_bytes_are_no_hello() -> None:
    random = Random(5)
    for _ in range(2000):
        session = OpenFlowSession()
        try:
            events = session.receive(random.randbytes(random.randrange(1, 64)))
        except RemoteError:
            continue
        assert events == []


def test_what_is_not_bent_is_understood() -> None:
    session, said = asking()
    events = session.receive(b"".join(said[:9]))
    flows, meters, count, order, change = events
    assert isinstance(flows, Answered)
    assert flows.flows == [*FLOWS, *FLOWS]
    assert isinstance(meters, Answered)
    assert meters.meters[1].rate_kbps == 1000
    assert isinstance(count, Answered)
    assert count.count == 3
    assert isinstance(order, Answered)
    assert order.fault == (12, 3)
    assert isinstance(change, Answered)
    assert change.error is not None
    assert change.error.index == 1
    assert "conjunction" in change.error.error


def test_an_answer_in_too_many_parts_is_refused() -> None:
    session, said = asking()
    count = (1 << 20) // len(said[0])
    session.receive(said[0] * count)
    with pytest.raises(RemoteError, match="more than"):
        session.receive(said[0] * 100)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(Type.ERROR, 1, struct.pack("!HH", 0, 0)), "hello failed: no version in common"),
        (frame(Type.ECHO_REQUEST, 1), "before hello"),
        (struct.pack("!BBHI", 1, 0, 8, 1), "its version is 1"),
        (struct.pack("!BBHIHHI", 6, 0, 16, 1, 1, 8, 0x50), "its version is 6"),
        (struct.pack("!BBHI", 1, 0, 7, 1), "invalid length of a message: 7 bytes"),
        (struct.pack("!BBHIHHI", 6, 0, 16, 1, 9, 2, 0), "element in a hello: 2 bytes"),
    ],
)
def test_a_switch_that_does_not_speak_our_version_is_told_from_one_that_does(data: bytes, words: str) -> None:
    with pytest.raises(RemoteError, match=words):
        OpenFlowSession().receive(data)


def test_a_hello_without_versions_means_all_up_to_its_own() -> None:
    session = OpenFlowSession()
    session.receive(struct.pack("!BBHI", 6, 0, 8, 1))
    assert session.ready
    with pytest.raises(RemoteError, match="version 6"):
        session.receive(struct.pack("!BBHI", 6, 2, 8, 1))
