"""Flows as values, what stands on the wire for them, and what is refused."""

import asyncio

import pytest
from hypothesis import given

from netloom.openflow import checks, messages, oxm
from netloom.openflow.actions import decode_actions, encode_actions
from netloom.openflow.flows import (
    Conjunction,
    Ct,
    Drop,
    Flow,
    InPort,
    Match,
    Move,
    Output,
    Put,
    SetField,
    Unknown,
    cond,
    match,
)
from netloom.openflow.memory import Memory
from netloom.openflow.oxm import decode_match, encode_match
from netloom.openflow.switch import ChangeRefused, Switch
from netloom.openflow.words import error_words, experimenter_words
from tests.openflow import building
from tests.openflow.building import METERS


def test_matches_that_mean_the_same_are_equal() -> None:
    assert match(nw_dst=(0x0A000001, 0xFF000000), dl_type=0x800) == match(
        dl_type=0x800, nw_dst=(0x0A000000, 0xFF000000)
    )
    assert match(reg0=(5, 0xFFFFFFFF)) == match(reg0=5)
    assert match(reg0=(5, 0), reg1=(0, 0)) == ()
    assert match(ct_state=(1, 0xFF)) == match(ct_state=1)
    assert [one.field for one in match(tun_id=1, dl_dst=2)] == ["dl_dst", "tun_id"]


@pytest.mark.parametrize(("name", "value"), [("dl_dst", 1 << 48), ("nw_proto", -1), ("ct_state", (1, 0x100))])
def test_a_value_that_does_not_fit_is_no_match(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        cond(name, value)


def test_a_field_that_is_not_there_is_no_match() -> None:
    with pytest.raises(KeyError):
        match(colour=1)


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        (Flow(0, 0, (), ()), "cookie=0x0, table=0, priority=0 actions=drop"),
        (
            Flow(
                1, 100, match(dl_type=0x806, tun_id=42, arp_tpa=0x0A000001, arp_op=1),
                (SetField("tun_dst", 0xC0000201), Output(3)), 7,
            ),
            "cookie=0x7, table=1, priority=100,arp,tun_id=0x2a,arp_tpa=10.0.0.1,arp_op=1"
            " actions=set_field:192.0.2.1->tun_dst,output:3",
        ),
        (
            Flow(
                2, 9,
                match(dl_type=0x86DD, nw_proto=6, tcp_dst=(80, 0xFFF0), ct_state=(1, 33), ipv6_dst=(0, 1 << 127)),
                (Ct("reg5", True, 4, (SetField("ct_mark", 1),)), InPort()),
            ),
            "cookie=0x0, table=2, priority=9,ct_state=+new-trk,tcp6,ipv6_dst=::/1,tp_dst=0x50/0xfff0"
            " actions=ct(commit,table=4,zone=NXM_NX_REG5[0..15],exec(set_field:0x1->ct_mark)),IN_PORT",
        ),
        (
            Flow(3, 1, match(dl_src=(1 << 40, 1 << 40)), (Conjunction(5, 1, 2), Conjunction(6, 2, 2))),
            "cookie=0x0, table=3, priority=1,dl_src=01:00:00:00:00:00/01:00:00:00:00:00"
            " actions=conjunction(5,1/2),conjunction(6,2/2)",
        ),
        (
            Flow(3, 1, (), (Move("dl_src", "dl_dst"), SetField("reg0", 1, 3), Unknown(b"\x01"), Ct(0))),
            "cookie=0x0, table=3, priority=1"
            " actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:0x1/0x3->reg0,unknown(01),ct()",
        ),
    ],
)  # fmt: skip
def test_a_flow_is_written_as_ovs_ofctl_writes_it(flow: Flow, text: str) -> None:
    assert str(flow) == text


@pytest.mark.parametrize(
    ("asked", "data"),
    [
        ((), "0001000400000000"),
        (match(in_port=3), "0001000c800000040000000300000000"),
        (match(dl_type=0x800, nw_dst=(0x0A000000, 0xFF000000)), "0001001680000a020800800019080a000000ff0000000000"),
        (match(reg5=7), "0001000c00010a040000000700000000"),
    ],
)  # fmt: skip
def test_a_match_stands_on_the_wire_as_the_specification_says(asked: Match, data: str) -> None:
    assert encode_match(asked).hex() == data
    assert decode_match(bytes.fromhex(data), 0) == (asked, len(data) // 2)


@given(building.flows())
def test_every_flow_is_read_as_it_was_written(flow: Flow) -> None:
    assert checks.refusal(flow, METERS) is None
    data = encode_match(flow.match)
    assert decode_match(data, 0) == (flow.match, len(data))
    assert decode_actions(encode_actions(flow.actions)) == flow.actions
    assert len(messages.bundle_add(1, 1, Put(flow))) % 8 == 0
    assert len(messages.bundle_add(1, 1, Drop(flow))) % 8 == 0


def test_what_is_kept_of_encodings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    oxm._encoded.clear()
    oxm._decoded.clear()
    monkeypatch.setattr("netloom.openflow.oxm.KEPT", 10)
    monkeypatch.setattr("netloom.openflow.actions.KEPT", 10)
    for number in range(40):
        flow = Flow(0, 1, match(reg0=number), (Output(number + 1),))
        assert decode_match(encode_match(flow.match), 0)[0] == flow.match
        assert decode_actions(encode_actions(flow.actions)) == flow.actions
    assert len(oxm._encoded) <= 10
    assert len(oxm._decoded) <= 10


@pytest.mark.parametrize("flow", [*building.BAD, *building.ODD], ids=lambda flow: str(flow.actions)[:40])
def test_the_switch_in_memory_refuses_what_is_wrong_and_keeps_what_it_has(flow: Flow) -> None:
    async def story() -> None:
        switch: Switch = Memory([Flow(9, 9, (), ())])
        good = Put(Flow(1, 1, (), ()))
        with pytest.raises(ChangeRefused) as refused:
            await switch.change([good, Put(flow), good])
        assert (refused.value.index, refused.value.mod) == (1, Put(flow))
        assert await switch.flows() == [Flow(9, 9, (), ())]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (4, 9, "bad match: bad prerequisite"),
        (17, 13, "bundle failed: message failed"),
        (4, 77, "bad match: code 77"),
        (99, 1, "error of type 99: code 1"),
    ],
)
def test_errors_have_words(kind: int, code: int, words: str) -> None:
    assert error_words(kind, code) == words
    assert "conjunction" in experimenter_words(15)
    assert experimenter_words(999) == "Open vSwitch error 999"
