"""The encoding of actions and instructions: OpenFlow's, and those of Open vSwitch.  Pure.

    instruction   type(2) length(2) ...     meter: id(4); apply: zeros(4) actions; go to: table(1) zeros(3)
    action        type(2) length(2) ...     a multiple of 8 bytes
   OVS's own     0xffff(2) length(2) 0x2320(4) subtype(2) ...

A flow's actions are `meter`, the actions to apply, and `goto`, in this order, in which OpenFlow executes them.
`set_field` of some bits of a field is Open vSwitch's `reg_load2`, because OpenFlow before 1.5 has no such action. An
action of a switch that is not one of ours becomes `Unknown`: such a flow equals none of ours, and can be replaced.
"""

import struct

from netloom.openflow.fields import EXACT, FIELDS
from netloom.openflow.flows import (
    Action,
    Conjunction,
    Ct,
    Goto,
    InPort,
    Meter,
    Move,
    Output,
    Resubmit,
    SetField,
    Unknown,
)
from netloom.openflow.oxm import KEPT, UnknownField, decode_field, encode_field, head, named, padding
from netloom.openflow.wire import NICIRA, RemoteError

IN_PORT = 0xFFFFFFF8
_IN_PORT_16 = 0xFFF8
_NO_TABLE = 0xFF

_GOTO, _APPLY, _METER = 1, 4, 6
_OUTPUT, _SET_FIELD, _VENDOR = 0, 25, 0xFFFF
_MOVE, _RESUBMIT, _LOAD, _CONJUNCTION, _CT = 6, 14, 33, 34, 35
_COMMIT = 1

_TWO = struct.Struct("!HH")
_NICIRA = struct.Struct("!HHIH")
_OUTPUT_WIRE = struct.Struct("!HHIH6x")
_RESUBMIT_WIRE = struct.Struct("!HHIHHB3x")
_MOVE_WIRE = struct.Struct("!HHIHHHH")
_CONJUNCTION_WIRE = struct.Struct("!HHIHBBI")
_CT_WIRE = struct.Struct("!HHIHH4sHB3xH")
_NO_FIELD = bytes(4)


def encode_actions(actions: tuple[Action, ...]) -> bytes:
    """Return a flow's actions as instructions.  ValueError: they are not in the order of execution."""
    made = _encoded.get(actions)
    if made is None:
        if len(_encoded) >= KEPT:
            _encoded.clear()
        made = _encoded[actions] = _instructions(actions)
    return made


_encoded: dict[tuple[Action, ...], bytes] = {}


def _instructions(actions: tuple[Action, ...]) -> bytes:
    before, after, rest = b"", b"", actions
    if rest and isinstance(rest[0], Meter):
        before, rest = struct.pack("!HHI", _METER, 8, rest[0].id), rest[1:]
    if rest and isinstance(rest[-1], Goto):
        after, rest = struct.pack("!HHB3x", _GOTO, 8, _table(rest[-1].table)), rest[:-1]
    if not rest:
        return before + after
    applied = b"".join([_action(action) for action in rest])
    return before + struct.pack("!HH4x", _APPLY, 8 + len(applied)) + applied + after


def _action(action: Action) -> bytes:
    match action:
        case Output(port):
            return _OUTPUT_WIRE.pack(_OUTPUT, 16, port, 0)
        case InPort():
            return _OUTPUT_WIRE.pack(_OUTPUT, 16, IN_PORT, 0)
        case Resubmit(table):
            return _RESUBMIT_WIRE.pack(_VENDOR, 16, NICIRA, _RESUBMIT, _IN_PORT_16, _table(table))
        case SetField():
            return _set_field(action)
        case Move(src, dst):
            bits = FIELDS[src].bits
            if bits != FIELDS[dst].bits or "ct_state" in {src, dst}:
                raise ValueError(f"{action}: the fields differ in width")
            return _MOVE_WIRE.pack(_VENDOR, 24, NICIRA, _MOVE, bits, 0, 0) + head(src) + head(dst)
        case Ct():
            return _ct(action)
        case Conjunction(number, clause, of):
            return _CONJUNCTION_WIRE.pack(_VENDOR, 16, NICIRA, _CONJUNCTION, clause - 1, of, number)
    raise ValueError(f"{action} is not valid here")


def _table(table: int) -> int:
    if table == _NO_TABLE:  # It means none, this one, or any, depending on the context.
        raise ValueError(f"{table} is not a valid table number")
    return table


def _set_field(action: SetField) -> bytes:
    if action.mask is not None and action.field in EXACT:  # Open vSwitch accepts it, and encodes it unreadably.
        raise ValueError(f"{action.field} cannot be set with a mask")
    part = encode_field(action.field, action.value, action.mask)
    if action.mask is None:
        size = 4 + len(part)
        return _TWO.pack(_SET_FIELD, size + -size % 8) + part + padding(size)
    size = 10 + len(part)
    return _NICIRA.pack(_VENDOR, size + -size % 8, NICIRA, _LOAD) + part + padding(size)


def _ct(action: Ct) -> bytes:
    if action.zone == "ct_state":
        raise ValueError("ct_state cannot be a zone")
    inner = b"".join([_set_field(one) for one in action.exec])
    field, zone = (head(action.zone), 15) if isinstance(action.zone, str) else (_NO_FIELD, action.zone)
    table = _NO_TABLE if action.table is None else _table(action.table)
    return (
        _CT_WIRE.pack(_VENDOR, 24 + len(inner), NICIRA, _CT, _COMMIT if action.commit else 0, field, zone, table, 0)
        + inner
    )


_decoded: dict[bytes, tuple[Action, ...]] = {}


def decode_actions(data: bytes) -> tuple[Action, ...]:
    """Return the actions of instructions."""
    made = _decoded.get(data)
    if made is None:
        if len(_decoded) >= KEPT:
            _decoded.clear()
        made = _decoded[data] = _read_instructions(data)
    return made


def _read_instructions(data: bytes) -> tuple[Action, ...]:
    before: list[Action] = []
    applied: list[Action] = []
    after: list[Action] = []
    for kind, part in _cut(data, 8):
        if kind == _METER:
            before.append(Meter(int.from_bytes(part[4:8], "big")))
        elif kind == _APPLY:
            applied += [_read(number, one) for number, one in _cut(part[8:], 8)]
        elif kind == _GOTO:
            after.append(Goto(part[4]))
        else:
            applied.append(Unknown(part))
    return (*before, *applied, *after)


def _cut(data: bytes, least: int) -> list[tuple[int, bytes]]:
    parts = []
    at = 0
    while at < len(data):
        kind, length = _TWO.unpack_from(data, at)
        if length < least or length % 8 or at + length > len(data):
            raise RemoteError(f"invalid length of an action or instruction: {length} bytes")
        parts.append((kind, data[at : at + length]))
        at += length
    return parts


def _read(kind: int, data: bytes) -> Action:
    try:
        if kind == _OUTPUT and len(data) == 16:
            port = int.from_bytes(data[4:8], "big")
            return InPort() if port == IN_PORT else _port(port, data)
        if kind == _SET_FIELD:
            return SetField(*decode_field(data[4 : 8 + data[7]]))
        if kind == _VENDOR and int.from_bytes(data[4:8], "big") == NICIRA:
            return _read_nicira(int.from_bytes(data[8:10], "big"), data)
    except UnknownField:
        pass  # An action on a field that is not one of ours.
    return Unknown(data)


def _port(port: int, data: bytes) -> Action:
    return Output(port) if port < 0xFFFFFF00 else Unknown(data)  # NORMAL, FLOOD, CONTROLLER, ...


def _read_nicira(kind: int, data: bytes) -> Action:
    if kind == _RESUBMIT and len(data) == 16 and int.from_bytes(data[10:12], "big") == _IN_PORT_16:
        return Resubmit(data[12])
    if kind == _LOAD:
        return SetField(*decode_field(data[10 : 14 + data[13]]))
    if kind == _MOVE and len(data) == 24:
        return _read_move(data)
    if kind == _CONJUNCTION and len(data) == 16:
        return Conjunction(int.from_bytes(data[12:16], "big"), data[10] + 1, data[11])
    if kind == _CT:
        return _read_ct(data)
    return Unknown(data)


def _read_move(data: bytes) -> Action:
    bits, src_at, dst_at = struct.unpack_from("!HHH", data, 10)
    src, dst = named(data, 16), named(data, 20)
    if src_at or dst_at or bits != src.bits or bits != dst.bits:
        return Unknown(data)
    return Move(src.name, dst.name)


def _read_ct(data: bytes) -> Action:
    _, _, _, _, flags, source, zone, table, alg = _CT_WIRE.unpack_from(data)
    inner = [_read(kind, one) for kind, one in _cut(data[24:], 8)]
    sets = tuple([one for one in inner if isinstance(one, SetField)])
    if alg or flags & ~_COMMIT or len(sets) != len(inner) or (source != _NO_FIELD and zone != 15):
        return Unknown(data)
    where = zone if source == _NO_FIELD else named(source, 0).name
    return Ct(where, bool(flags & _COMMIT), None if table == _NO_TABLE else table, sets)
