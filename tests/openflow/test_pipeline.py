"""What the pipeline does with packets: by hand, and as a real Open vSwitch says it would."""

import os
import re
from random import Random

import pytest

from netloom.openflow import packets
from netloom.openflow.flows import (
    Action,
    Cond,
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
    match_words,
)
from netloom.openflow.io import Connection
from netloom.openflow.packets import Packet, echo, packet, reply, tcp, udp, unreachable
from netloom.openflow.pipeline import Sent, Tables, TooDeep, run
from netloom.openflow.tracking import EST, INV, NEW, REL, RPL, TRK, Tracker
from tests.openflow.real import Real, within

A, B = 0x020000000001, 0x020000000002
ONE, TWO = 0x0A000001, 0x0A000002
SIX_ONE, SIX_TWO = 0xFD00 << 112 | 1, 0xFD00 << 112 | 2


def ports(sent: list[Sent]) -> list[int]:
    return [one.port for one in sent]


def test_the_flow_of_highest_priority_acts() -> None:
    flows = [
        Flow(0, 1, (), (Output(9),)),
        Flow(0, 5, match(dl_dst=B), (Output(2),)),
        Flow(0, 3, match(dl_dst=(0, 1 << 40)), (Output(3),)),
    ]
    tables = Tables(flows)
    assert ports(run(tables, packet(dl_dst=B), 1)) == [2]
    assert ports(run(tables, packet(dl_dst=A), 1)) == [3]
    assert ports(run(tables, packet(dl_dst=packets.BROADCAST), 1)) == [9]
    assert run([], packet(dl_dst=A), 1) == []


def test_a_packet_does_not_leave_by_the_port_it_came_in_by_unless_it_is_said() -> None:
    flows = [Flow(0, 1, (), (Output(1), Output(2), InPort()))]
    assert ports(run(flows, packet(dl_dst=A), 1)) == [2, 1]


def test_what_a_table_changes_stays_changed_and_meters_are_noted() -> None:
    flows = [
        Flow(0, 1, (), (Meter(7), Resubmit(1), Output(2), Goto(2))),
        Flow(1, 1, (), (SetField("reg0", 0xF0, 0xF0), SetField("tun_id", 5), Move("dl_src", "dl_dst"))),
        Flow(2, 1, match(reg0=(0xF0, 0xFF)), (Output(3),)),
    ]
    seen: list[Flow] = []
    sent = run(flows, packet(dl_src=A, dl_dst=B), 1, seen=seen)
    assert ports(sent) == [2, 3]
    assert [sent[0].packet[name] for name in ("tun_id", "dl_dst", "reg0")] == [5, A, 0xF0]
    assert sent[0].meters == (7,)
    assert seen == [flows[0], flows[1], flows[2]]


def test_tables_that_call_each_other_for_ever_are_an_error() -> None:
    with pytest.raises(TooDeep):
        run([Flow(0, 1, (), (Resubmit(0),))], packet(), 1)


def test_a_conjunction_holds_when_each_clause_is_met() -> None:
    flows = [
        *(Flow(0, 10, match(dl_type=0x800, nw_src=source), (Conjunction(5, 1, 2),)) for source in (ONE, TWO)),
        Flow(0, 10, match(dl_type=0x800, nw_dst=TWO), (Conjunction(5, 2, 2), Conjunction(6, 1, 2))),
        Flow(0, 10, match(dl_type=0x800, conj_id=5), (Output(2),)),
        Flow(0, 1, (), (Output(9),)),
    ]
    assert ports(run(flows, echo(src=ONE, dst=TWO), 1)) == [2]
    assert ports(run(flows, echo(src=ONE, dst=ONE), 1)) == [9]
    assert ports(run([*flows, Flow(0, 20, (), (Output(8),))], echo(src=ONE, dst=TWO), 1)) == [8]
    without = [flow for flow in flows if flow.match and flow.match[0].field != "conj_id"]
    assert run(without, echo(src=ONE, dst=TWO), 1) == []


def states(flows: list[Packet], tracker: Tracker) -> list[int]:
    """Return what the tracker says of packets that are all let in."""
    table = [Flow(0, 1, match(dl_type=kind), (Ct("reg0", commit=True, table=1),)) for kind in (0x800, 0x86DD)]
    table.append(Flow(1, 1, (), (Output(2),)))
    return [run(table, one, 1, tracker=tracker)[0].packet["ct_state"] for one in flows]


@pytest.mark.parametrize(
    "first",
    [
        echo(src=ONE, dst=TWO),
        tcp(src=ONE, dst=TWO, port=80),
        udp(src=ONE, dst=TWO, port=53),
        echo(src=SIX_ONE, dst=SIX_TWO, version=6),
        tcp(src=SIX_ONE, dst=SIX_TWO, port=80, version=6),
    ],
)
def test_a_connection_is_new_then_answered_then_established(first: Packet) -> None:
    said = [first, first, reply(first), first, unreachable(first), unreachable(reply(first))]
    known = [TRK | NEW, TRK | NEW, TRK | EST | RPL, TRK | EST, TRK | REL | RPL, TRK | REL]
    assert states(said, Tracker()) == known


def test_what_begins_nothing_and_belongs_to_nothing_is_invalid() -> None:
    ping = echo(src=ONE, dst=TWO)
    alone = packet(dl_type=0x800, nw_proto=1, icmp_type=3)
    assert states([reply(ping), unreachable(ping), alone], Tracker()) == [TRK | INV] * 3


def test_zones_know_nothing_of_each_other_and_marks_stay_with_the_connection() -> None:
    mark = (SetField("ct_mark", 0x10, 0xF0),)
    flows = [
        Flow(0, 2, match(dl_type=0x800, in_port=1), (Ct("reg0", True, 1, mark),)),
        Flow(0, 2, match(dl_type=0x800, in_port=2), (Ct(0, table=1),)),
        Flow(0, 2, match(dl_type=0x800, in_port=3), (Ct(7, table=1),)),
        Flow(0, 2, match(dl_type=0x800, in_port=4), (Ct(7),)),
        Flow(1, 1, (), (Output(9),)),
    ]
    tracker = Tracker()
    ping = echo(src=ONE, dst=TWO)
    run(flows, ping, 1, tracker=tracker)
    [back] = run(flows, reply(ping), 2, tracker=tracker)
    [other] = run(flows, reply(ping).having(icmp_type=8), 3, tracker=tracker)
    assert (back.packet["ct_state"], back.packet["ct_mark"]) == (TRK | EST | RPL, 0x10)
    assert (other.packet["ct_state"], other.packet["ct_mark"], other.packet["ct_zone"]) == (TRK | NEW, 0, 7)
    assert run(flows, ping, 4, tracker=tracker) == []


def test_packets_are_made_as_their_protocols_say() -> None:
    question = packets.arp_request(mac=A, sender=ONE, target=TWO)
    answer = packets.arp_reply(mac=B, sender=TWO, to_mac=A, target=ONE)
    assert [question[name] for name in ("dl_dst", "arp_op", "arp_tpa")] == [packets.BROADCAST, 1, TWO]
    assert [answer[name] for name in ("dl_dst", "arp_op", "arp_spa")] == [A, 2, TWO]
    solicited = packets.solicitation(mac=A, src=SIX_ONE, target=SIX_TWO)
    assert (solicited["dl_dst"], solicited["nd_sll"]) == (0x3333FF000002, A)
    assert "nd_sll" not in packets.solicitation(mac=A, src=0, target=SIX_TWO).fields
    assert packets.advertisement(mac=B, src=SIX_TWO, to_mac=A, dst=SIX_ONE)["nd_tll"] == B
    with pytest.raises(ValueError, match="48 bits"):
        packet(dl_dst=1 << 48)


TRACES = int(os.environ.get("NETLOOM_TEST_TRACES", "40"))
MACS, ADDRESSES, PORTS = (A, B, 0x020000000003), (ONE, TWO, 0x0A000103), (22, 80)


class Chance:
    """Flows and packets of which many meet."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def asks(self) -> dict[str, int | tuple[int, int]]:
        some = self.random
        asks: dict[str, int | tuple[int, int]] = {}
        if some.random() < 0.4:
            asks["in_port"] = some.randint(1, 3)
        if some.random() < 0.3:
            asks["dl_dst"] = some.choice(MACS)
        if some.random() < 0.2:
            asks["reg1"] = some.choice((0, 1, (1, 1)))
        if some.random() < 0.5:
            asks["dl_type"] = 0x800
            asks["nw_dst"] = some.choice((*ADDRESSES, (0x0A000000, 0xFFFFFF00)))
            if some.random() < 0.4:
                asks["nw_proto"], asks["tcp_dst"] = 6, some.choice(PORTS)
        return asks

    def action(self, table: int) -> Action:
        some = self.random
        further: tuple[Action, ...] = (Resubmit(some.randint(table + 1, 4)),) * 3 if table < 4 else ()
        return some.choice((
            Output(some.randint(1, 4)), Output(some.randint(1, 4)), InPort(), SetField("reg1", some.randint(0, 1)),
            SetField("dl_dst", some.choice(MACS)), SetField("reg1", 1, 3), Move("reg1", "reg2"), *further,
        ))  # fmt: skip

    def actions(self, table: int, asks: dict[str, int | tuple[int, int]]) -> tuple[Action, ...]:
        some = self.random
        done = [self.action(table) for _ in range(some.randint(0, 3))]
        if table < 4 and asks.get("dl_type") == 0x800 and some.random() < 0.2:
            done.append(Ct(some.randint(0, 3), some.random() < 0.5, some.randint(table + 1, 4)))
        if table < 4 and some.random() < 0.5:
            done.append(Goto(some.randint(table + 1, 4)))
        return tuple(done)

    def flows(self) -> list[Flow]:
        """Return flows of which no two of the same table and priority meet, because which of them acts is not said."""
        some = self.random
        made: list[Flow] = []
        for table in range(5):
            for priority in some.sample(range(0, 60, 2), some.randint(3, 8)):
                asks = self.asks()
                made.append(Flow(table, priority, match(**asks), self.actions(table, asks)))
            for number in range(some.randint(0, 2)):
                priority = 2 * some.randint(0, 30) + 1
                held = Cond("conj_id", 10 * table + number)
                made.append(Flow(table, 100 + number, (held,), self.actions(table, {})))
                for clause in (1, 2):
                    for _ in range(2):
                        asks = self.asks()
                        made.append(Flow(table, priority, match(**asks), (Conjunction(held.value, clause, 2),)))
        return list({flow.key: flow for flow in made}.values())

    def packet(self) -> Packet:
        some = self.random
        one = tcp(src=some.choice(ADDRESSES), dst=some.choice(ADDRESSES), port=some.choice(PORTS))
        return one.having(dl_src=A, dl_dst=some.choice(MACS))


def traced(text: str) -> list[int | str]:
    """Return the ports that a trace sends a packet to."""
    found: list[int | str] = []
    for line in text.splitlines():
        if (output := re.match(r"\s+(?:output:(\d+)|(IN_PORT))$", line)) is not None:
            found.append(int(output[1]) if output[1] else "back")
        elif "skipping output to input port" in line:
            found.pop()
    return found


@pytest.mark.ovn
@pytest.mark.root
@pytest.mark.parametrize("seed", range(4))
def test_a_real_switch_would_send_packets_out_of_the_same_ports(switch: Real, seed: int) -> None:
    for number in range(1, 5):
        switch.add_port(f"p{number}", number)
    chance = Chance(seed)
    busy = 0
    for _ in range(TRACES // 8):
        flows = chance.flows()

        async def story(made: Connection, flows: list[Flow] = flows) -> None:
            await made.change([Put(flow) for flow in flows])

        switch.ofctl("del-flows")
        within(switch.socket, story)
        for _ in range(8):
            one, port = chance.packet(), chance.random.randint(1, 3)
            words = ",".join(match_words(match(**{**one.fields, "in_port": port})))
            text = switch.trace(words)
            sent = ["back" if out.port == port else out.port for out in run(flows, one, port)]
            assert sorted(map(str, sent)) == sorted(map(str, traced(text))), text + "\n".join(map(str, flows))
            busy += bool(sent)
    assert busy > TRACES // 10
