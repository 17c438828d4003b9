"""The rules by which Open vSwitch refuses flows, checked before sending them.  Pure.

   prerequisites a field exists only in some packets: `tcp_dst` in those with nw_proto=6, and nw_proto only where
                 dl_type is IP; a match on it, and an action that sets or moves it, needs that in the match
   writable      not every field can be set: not those that define the kind of a packet, nor those of the tracker
   actions       where each is allowed, and which tables, ports and meters exist

`refusal` returns OpenFlow's text for an error (`words`). The in-memory switch uses it, and a test compares it with the
real one.
"""

from collections.abc import Container, Mapping

from netloom.openflow.fields import CT_STATES, EXACT, FIELDS
from netloom.openflow.flows import (
    Action,
    Conjunction,
    Ct,
    Flow,
    Goto,
    Match,
    Meter,
    Move,
    Output,
    SetField,
    Unknown,
)

TABLES = 254
"""Open vSwitch reserves the last table."""
PORTS = 0xFF00

ARP, RARP, IPV4, IPV6 = 0x0806, 0x8035, 0x0800, 0x86DD

_Needs = Mapping[str, frozenset[int | None]]


def _kind(*types: int) -> _Needs:
    return {"dl_type": frozenset(types)}


def _protocol(number: int, *types: int) -> _Needs:
    return {**_kind(*types), "nw_proto": frozenset({number})}


def _neighbour(*types: int) -> _Needs:
    return {**_protocol(58, IPV6), "icmpv6_code": frozenset({0, None}), "icmpv6_type": frozenset(types)}


PRESUPPOSED: Mapping[str, _Needs] = {
    **{name: _kind(ARP, RARP) for name in ("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha")},
    **{name: _kind(IPV4) for name in ("nw_src", "nw_dst")},
    **{name: _kind(IPV6) for name in ("ipv6_src", "ipv6_dst")},
    **{name: _kind(IPV4, IPV6) for name in ("nw_proto", "nw_ttl")},
    **{name: _protocol(1, IPV4) for name in ("icmp_type", "icmp_code")},
    **{name: _protocol(58, IPV6) for name in ("icmpv6_type", "icmpv6_code")},
    **{name: _protocol(6, IPV4, IPV6) for name in ("tcp_src", "tcp_dst")},
    **{name: _protocol(17, IPV4, IPV6) for name in ("udp_src", "udp_dst")},
    **{name: _protocol(132, IPV4, IPV6) for name in ("sctp_src", "sctp_dst")},
    "nd_target": _neighbour(135, 136),
    "nd_sll": _neighbour(135),
    "nd_tll": _neighbour(136),
}
"""The prerequisites of each field, as values of other fields; None: any value."""

READ_ONLY = frozenset({"conj_id", "ct_state", "ct_zone", "in_port", "vlan_vid", "dl_type", "nw_proto"})
TRACKED = frozenset({"ct_mark"})
"""Fields that can be set only inside `Ct.exec`."""

INVALID = 1 << CT_STATES.index("inv")
"""The tracker's state of a packet that it cannot track and does not commit."""

MOST_ARP_OP = 0xFF

BAD_FIELD = "bad match: bad prerequisite"
BAD_MASK = "bad match: bad mask"
INCONSISTENT = "bad action: inconsistent with the match"
BAD_SET = "bad action: bad value in set_field"
BAD_ARGUMENT = "bad action: bad argument"
BAD_CONJUNCTION = "bad action: a conjunction must be the only action, with 2 to 64 clauses"


def refusal(flow: Flow, meters: Container[int]) -> str | None:
    """Return why a switch with these meters would refuse a flow; None if it would not."""
    if flow.table >= TABLES:
        return "bad request: not permitted" if flow.table == TABLES else "flow mod failed: bad table"
    asked = {one.field: one.value for one in flow.match if one.mask is None}
    return bad_match(flow.match) or _bad_actions(flow, asked, meters)


def _invalid(flow: Flow) -> bool:
    return any(one.field == "ct_state" and one.value & INVALID for one in flow.match)


def bad_match(match: Match) -> str | None:
    """Return why a switch would refuse a match."""
    asked = {one.field: one.value for one in match if one.mask is None}
    for one in match:
        if not _holds(one.field, asked):
            return BAD_FIELD
        if one.mask is not None and one.field in EXACT:
            return BAD_MASK
        if one.field == "arp_op" and one.value > MOST_ARP_OP:
            return "bad match: bad value"
    return None


def _holds(field: str, asked: Mapping[str, int]) -> bool:
    return all(asked.get(name) in values for name, values in PRESUPPOSED.get(field, {}).items())


def _bad_actions(flow: Flow, asked: Mapping[str, int], meters: Container[int]) -> str | None:
    conjunctions = sum(isinstance(action, Conjunction) for action in flow.actions)
    if 0 < conjunctions < len(flow.actions):
        return BAD_CONJUNCTION
    for at, action in enumerate(flow.actions):
        if isinstance(action, Meter) and at:
            return "bad action: unsupported order"
        if isinstance(action, Goto) and at != len(flow.actions) - 1:
            return "bad action: unsupported order"
        if (why := _bad_action(action, flow, asked, meters)) is not None:
            return why
    return None


def _bad_action(action: Action, flow: Flow, asked: Mapping[str, int], meters: Container[int]) -> str | None:
    match action:
        case Output(port):
            return None if port < PORTS else "bad action: bad output port"
        case SetField():
            return BAD_SET if action.field in TRACKED else _bad_set(action, asked)
        case Move(src, dst):
            return _bad_move(src, dst, asked)
        case Goto(table):
            return None if flow.table < table else "bad instruction: bad table"
        case Ct():
            return INCONSISTENT if action.commit and _invalid(flow) else _bad_ct(action, asked)
        case Conjunction(_, clause, of):
            return None if 2 <= of <= 64 and 1 <= clause <= of else BAD_CONJUNCTION
        case Meter(meter):
            return None if meter in meters else "meter mod failed: bad meter"
        case Unknown():
            return "bad action: bad type"
    return None


def _bad_set(action: SetField, asked: Mapping[str, int]) -> str | None:
    if action.field in READ_ONLY or (action.field == "arp_op" and action.value > MOST_ARP_OP):
        return BAD_SET
    if action.mask is not None and action.value & ~action.mask:
        return "bad match: bad wildcards"
    return None if _holds(action.field, asked) else INCONSISTENT


def _bad_move(src: str, dst: str, asked: Mapping[str, int]) -> str | None:
    if dst in READ_ONLY or dst in TRACKED:
        return BAD_SET
    return None if _holds(src, asked) and _holds(dst, asked) else INCONSISTENT


def _bad_ct(action: Ct, asked: Mapping[str, int]) -> str | None:
    if asked.get("dl_type") not in {IPV4, IPV6}:
        return INCONSISTENT
    if action.exec and not action.commit:
        return BAD_ARGUMENT
    if any(one.field not in TRACKED for one in action.exec):
        return BAD_ARGUMENT
    if isinstance(action.zone, int):
        return None
    if FIELDS[action.zone].bits < 16:
        return "bad action: bad length of set_field"
    return None if _holds(action.zone, asked) else INCONSISTENT
