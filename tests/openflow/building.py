"""Flows of every shape that a switch takes, for hypothesis; and some it does not."""

from hypothesis import strategies as st

from netloom.openflow.checks import PRESUPPOSED, READ_ONLY, TRACKED
from netloom.openflow.fields import EXACT, FIELDS
from netloom.openflow.flows import (
    Action,
    Conjunction,
    Ct,
    Drop,
    Flow,
    Goto,
    InPort,
    Meter,
    Mod,
    Move,
    Output,
    Put,
    Resubmit,
    SetField,
    match,
)

METERS = (1, 2, 7)
IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806

KINDS: tuple[dict[str, int], ...] = (
    {},
    {"dl_type": 0x88CC},
    {"dl_type": ARP},
    {"dl_type": IPV4},
    {"dl_type": IPV6},
    *({"dl_type": kind, "nw_proto": proto} for kind in (IPV4, IPV6) for proto in (6, 17, 132, 50)),
    {"dl_type": IPV4, "nw_proto": 1},
    {"dl_type": IPV6, "nw_proto": 58},
    {"dl_type": IPV6, "nw_proto": 58, "icmpv6_type": 135},
    {"dl_type": IPV6, "nw_proto": 58, "icmpv6_type": 136, "icmpv6_code": 0},
)

ports = st.integers(0, 0xFEFF)
tables = st.integers(0, 253)


def fields_of(kind: dict[str, int]) -> list[str]:
    """Return the fields that packets of a kind have, and that may have any value."""
    fixed = {*kind, "icmpv6_code"} if kind.get("icmpv6_type") in {135, 136} else kind  # Neighbours' code is 0.
    return [
        name
        for name in FIELDS
        if name not in fixed and all(kind.get(need) in values for need, values in PRESUPPOSED.get(name, {}).items())
    ]


def _most(name: str) -> int:
    return 0xFF if name == "arp_op" else FIELDS[name].ones


@st.composite
def asked(draw: st.DrawFn, name: str) -> int | tuple[int, int]:
    """Give what may be asked of a field."""
    ones = _most(name)
    if name == "in_port":
        return draw(ports)
    value = draw(st.integers(0, ones))
    if name in EXACT or draw(st.booleans()):
        return value
    bits = FIELDS[name].bits
    prefix = st.integers(1, bits).map(lambda length: ((1 << length) - 1) << (bits - length))
    some = draw(st.one_of(prefix, st.integers(1, ones)))
    return value, some | 0xF << 124 if bits == 128 else some  # A digit first, and ovs-ofctl reads a prefix length.


@st.composite
def set_fields(draw: st.DrawFn, names: list[str], *, masked: bool = True) -> SetField:
    """Give an action that sets one of these fields."""
    name = draw(st.sampled_from(names))
    value = draw(st.integers(0, _most(name)))
    if name in EXACT or not masked or draw(st.booleans()):
        return SetField(name, value)
    mask = draw(st.integers(1, _most(name) - 1))
    return SetField(name, value & mask, mask)


@st.composite
def cts(draw: st.DrawFn, *, committing: bool, masked: bool) -> Ct:
    """Give an action of the connection tracker."""
    commit = committing and draw(st.booleans())
    marks = draw(st.lists(set_fields(["ct_mark"], masked=masked), max_size=2)) if commit else []
    zone = draw(st.one_of(st.integers(0, 0xFFFF), st.sampled_from(["reg0", "reg15", "ct_zone", "tun_id", "dl_dst"])))
    return Ct(zone, commit, draw(st.none() | tables), tuple(marks))


@st.composite
def moves(draw: st.DrawFn, names: list[str]) -> Move:
    """Give an action that copies one of these fields to another."""
    dst = draw(st.sampled_from([name for name in names if name not in READ_ONLY | TRACKED]))
    same = [name for name in names if FIELDS[name].bits == FIELDS[dst].bits and name != "ct_state"]
    return Move(draw(st.sampled_from(same)), dst)


@st.composite
def flows(draw: st.DrawFn, *, top: int = 253, masked: bool = True) -> Flow:
    """Give a flow that a switch with `METERS` takes; `masked`: some set bits of fields."""
    kind = draw(st.sampled_from(KINDS))
    there = fields_of(kind)
    chosen = draw(st.lists(st.sampled_from(there), max_size=5, unique=True))
    wanted = {**kind, **{name: draw(asked(name)) for name in chosen}}
    table = draw(st.integers(0, top))
    priority = draw(st.integers(0, 0xFFFF).filter(lambda one: one != 0x8000))  # ovs-ofctl does not print that one.
    asks = match(**wanted)
    valid = not any(one.field == "ct_state" and one.value & 16 for one in asks)
    done = draw(actions(kind, table, valid=valid, masked=masked))
    return Flow(table, priority, asks, done, draw(st.integers(0, 2**64 - 2)))


@st.composite
def actions(draw: st.DrawFn, kind: dict[str, int], table: int, *, valid: bool, masked: bool) -> tuple[Action, ...]:
    """Give what may be done with packets of a kind."""
    if draw(st.integers(0, 9)) == 0:
        of = draw(st.integers(2, 64))
        one = st.builds(Conjunction, st.integers(0, 2**32 - 1), st.integers(1, of), st.just(of))
        return tuple(draw(st.lists(one, min_size=1, max_size=3)))
    names = [*fields_of(kind), *kind]
    settable = [name for name in names if name not in READ_ONLY | TRACKED]
    some: list[st.SearchStrategy[Action]] = [
        st.builds(Output, ports), st.just(InPort()), set_fields(settable, masked=masked), st.builds(Resubmit, tables),
        moves(names),
    ]  # fmt: skip
    if kind.get("dl_type") in {IPV4, IPV6}:
        some.append(cts(committing=valid, masked=masked))
    done = draw(st.lists(st.one_of(some), max_size=4))
    if draw(st.integers(0, 4)) == 0:
        done.insert(0, Meter(draw(st.sampled_from(METERS))))
    if table < 253 and draw(st.integers(0, 2)) == 0:
        done.append(Goto(draw(st.integers(table + 1, 253))))
    return tuple(done)


BAD: tuple[Flow, ...] = (
    Flow(0, 1, match(nw_src=1), ()),
    Flow(0, 1, match(dl_type=IPV6, nw_src=1), ()),
    Flow(0, 1, match(dl_type=IPV4, tcp_dst=80), ()),
    Flow(0, 1, match(dl_type=IPV4, nw_proto=17, tcp_dst=80), ()),
    Flow(0, 1, match(dl_type=IPV6, nw_proto=58, nd_target=1), ()),
    Flow(0, 1, match(dl_type=IPV6, nw_proto=58, icmpv6_type=136, nd_sll=1), ()),
    Flow(0, 1, match(dl_type=(0x0800, 0xFF00)), ()),
    Flow(0, 1, match(dl_type=ARP, arp_op=256), ()),
    Flow(0, 1, match(dl_type=ARP), (SetField("arp_op", 256),)),
    Flow(255, 1, (), ()),
    Flow(254, 1, (), ()),
    Flow(0, 1, (), (Output(0xFF00),)),
    Flow(0, 1, (), (Output(0x10000),)),
    Flow(0, 1, (), (SetField("ct_mark", 1),)),
    Flow(0, 1, (), (SetField("conj_id", 1),)),
    Flow(0, 1, (), (SetField("in_port", 1),)),
    Flow(0, 1, match(dl_type=IPV4, ct_state=(16, 16)), (Ct(1, commit=True),)),
    Flow(0, 1, match(dl_type=IPV4), (SetField("nw_proto", 1),)),
    Flow(0, 1, (), (SetField("nw_dst", 1),)),
    Flow(0, 1, (), (Move("reg0", "nw_dst"),)),
    Flow(0, 1, (), (SetField("reg0", 4, 3),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct("nw_ttl"),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct("tcp_dst"),)),
    Flow(0, 1, (), (Move("reg0", "ct_mark"),)),
    Flow(0, 1, (), (Ct(1),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct(1, exec=(SetField("ct_mark", 1),)),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct(1, commit=True, exec=(SetField("reg0", 1),)),)),
    Flow(3, 1, (), (Goto(3),)),
    Flow(0, 1, (), (Conjunction(1, 1, 2), Output(1))),
    Flow(0, 1, (), (Conjunction(1, 1, 1),)),
    Flow(0, 1, (), (Conjunction(1, 3, 2),)),
    Flow(0, 1, (), (Conjunction(1, 1, 65),)),
    Flow(0, 1, (), (Meter(99),)),
    Flow(0, 1, (), (Meter(0),)),
)
"""Flows that a switch refuses."""

ODD: tuple[Flow, ...] = (
    Flow(0, 1, (), (Output(1), Meter(1))),
    Flow(0, 1, (), (Goto(1), Output(1))),
    Flow(0, 1, (), (Goto(255),)),
    Flow(0, 1, (), (Resubmit(255),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct(1, table=255),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct(1 << 16),)),
    Flow(0, 1 << 16, (), ()),
    Flow(256, 1, (), ()),
    Flow(0, 1, (), (Output(1 << 32),)),
    Flow(0, 1, (), (SetField("reg0", 1 << 32),)),
    Flow(0, 1, (), (Move("reg0", "metadata"),)),
    Flow(0, 1, (), (Move("ct_state", "reg0"),)),
    Flow(0, 1, match(dl_type=IPV4), (Ct("ct_state"),)),
    Flow(0, 1, match(dl_type=IPV4), (SetField("nw_ttl", 1, 3),)),
    Flow(0, 1, (), (SetField("colour", 1),)),
    Flow(0, 1, (), (Conjunction(1, 0, 2),)),
    Flow(0, 1, (), (), 1 << 64),
    Flow(0, 1, (), (Output(1),) * 5000),
)
"""Flows that cannot even be said."""


def mods(top: int = 3) -> st.SearchStrategy[list[Mod]]:
    """Give what a switch is asked at once: flows of few tables, so that some meet."""
    return st.lists(
        flows(top=top).flatmap(lambda flow: st.sampled_from([Put(flow), Put(flow), Drop(flow)])), max_size=8
    )
