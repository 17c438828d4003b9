"""Flows as values, and their text format.  Pure.

    Flow(1, 100, match(tun_id=42, dl_dst=0x02AC10000002), (Output(3),))

Equivalent flows are equal: a match is sorted by its fields' names, an exact mask is None, bits outside the mask are 0,
and a field without conditions is left out. The caller writes the prerequisites: `nw_src` needs `dl_type=0x800`.
`str(flow)` is the output of `ovs-ofctl dump-flows` without statistics, and valid input of `ovs-ofctl add-flows`.
"""

from typing import NamedTuple

from msgspec import Struct

from netloom.openflow.fields import FIELDS, TAGGED, hex_text


class Cond(NamedTuple):
    """A condition on one field: it equals `value` in the bits of `mask`; None: in all bits."""

    field: str
    value: int
    mask: int | None = None


Match = tuple[Cond, ...]
"""The conditions on a packet: sorted by field, no field twice; made by `match`."""

Key = tuple[int, int, Match]
"""The identity of a flow: table, priority, match."""


def match(**fields: int | tuple[int, int]) -> Match:
    """Return a match: each field with its value, or value and mask.  KeyError, ValueError: invalid field, value."""
    made = [cond(name, fields[name]) for name in sorted(fields)]
    return tuple([one for one in made if one.mask != 0])


def cond(name: str, asked: int | tuple[int, int]) -> Cond:
    """Return the condition on one field."""
    ones = FIELDS[name].ones
    value, mask = (asked, ones) if isinstance(asked, int) else asked
    if not 0 <= value <= ones or not 0 <= mask <= ones:
        raise ValueError(f"{name} has {FIELDS[name].bits} bits: {asked} is out of range")
    if mask == ones:
        return Cond(name, value)
    return Cond(name, value & mask, mask)


class Output(Struct, frozen=True):
    """Send the packet out of a port; to send it out of its input port use `InPort`."""

    port: int

    def __str__(self) -> str:
        return f"output:{self.port}"


class InPort(Struct, frozen=True):
    """Send the packet out of its input port."""

    def __str__(self) -> str:
        return "IN_PORT"


class SetField(Struct, frozen=True):
    """Set a field to a value, in the bits of `mask`; None: in all bits."""

    field: str
    value: int
    mask: int | None = None

    def __str__(self) -> str:
        field = FIELDS[self.field]
        return f"set_field:{field.write_set(self.value, self.mask)}->{field.long}"


class Move(Struct, frozen=True):
    """Copy one field to another of the same width; not `ct_state`."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"move:{FIELDS[self.src].symbol}[]->{FIELDS[self.dst].symbol}[]"


class Resubmit(Struct, frozen=True):
    """Run another table on the packet as it is now, then continue here."""

    table: int

    def __str__(self) -> str:
        return f"resubmit(,{self.table})"


class Goto(Struct, frozen=True):
    """Continue in a later table; the last action."""

    table: int

    def __str__(self) -> str:
        return f"goto_table:{self.table}"


class Ct(Struct, frozen=True):
    """Pass the packet to the connection tracker; a copy of it then continues in `table`, if one is given.

    `zone` is a number, or the name of a field whose lower 16 bits are the zone (not `ct_state`). `exec` may set
    `ct_mark`.
    """

    zone: int | str
    commit: bool = False
    table: int | None = None
    exec: tuple[SetField, ...] = ()

    def __str__(self) -> str:
        parts = ["commit"] if self.commit else []
        if self.table is not None:
            parts.append(f"table={self.table}")
        if isinstance(self.zone, str):
            field = FIELDS[self.zone]
            parts.append(f"zone={field.symbol}[{'' if field.bits == 16 else '0..15'}]")
        elif self.zone:
            parts.append(f"zone={self.zone}")
        if self.exec:
            parts.append(f"exec({','.join(map(str, self.exec))})")
        return f"ct({','.join(parts)})"


class Conjunction(Struct, frozen=True):
    """This flow satisfies clause `clause` of the `of` clauses that together set `conj_id=id`."""

    id: int
    clause: int
    of: int

    def __str__(self) -> str:
        return f"conjunction({self.id},{self.clause}/{self.of})"


class Meter(Struct, frozen=True):
    """Limit the rate of packets with a meter; the first action."""

    id: int

    def __str__(self) -> str:
        return f"meter:{self.id}"


class Unknown(Struct, frozen=True):
    """An action that is not one of ours, as encoded by a switch."""

    data: bytes

    def __str__(self) -> str:
        return f"unknown({self.data.hex()})"


Action = Output | InPort | SetField | Move | Resubmit | Goto | Ct | Conjunction | Meter | Unknown


class Flow(Struct, frozen=True):
    """One flow: the actions for matching packets of a table, if no flow of higher priority matches."""

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...]
    cookie: int = 0

    @property
    def key(self) -> Key:
        """The identity of the flow."""
        return (self.table, self.priority, self.match)

    def __str__(self) -> str:
        words = ",".join([f"priority={self.priority}", *match_words(self.match)])
        actions = ",".join(map(str, self.actions)) or "drop"
        return (
            f"cookie={hex_text(self.cookie) if self.cookie else '0x0'}, table={self.table}, {words} actions={actions}"
        )


class Put(Struct, frozen=True):
    """Add this flow, or replace the one with the same table, priority and match."""

    flow: Flow


class Drop(Struct, frozen=True):
    """Delete the flow with this one's table, priority and match, whatever its actions; a missing one is no error."""

    flow: Flow


Mod = Put | Drop


class MeterSpec(Struct, frozen=True):
    """A meter: its rate in kilobits per second, and its burst in kilobits."""

    rate_kbps: int
    burst: int


_PROTOCOLS: dict[int, dict[int | None, str]] = {
    0x0800: {None: "ip", 1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"},
    0x86DD: {None: "ipv6", 58: "icmp6", 6: "tcp6", 17: "udp6", 132: "sctp6"},
    0x0806: {None: "arp"},
}


def match_words(asked: Match) -> list[str]:
    """Return the conditions of a match as text, in the order in which they are printed."""
    by_name = {one.field: one for one in asked}
    said = ""
    hidden: set[str] = set()
    kind = by_name.get("dl_type")
    if kind is not None and kind.value in _PROTOCOLS:
        names = _PROTOCOLS[kind.value]
        protocol = by_name.get("nw_proto")
        number = protocol.value if protocol is not None and protocol.value in names else None
        said = names[number]
        hidden = {"dl_type"} if number is None else {"dl_type", "nw_proto"}
    words = []
    for field in FIELDS.values():
        if field.name == "reg0" and said:
            words.append(said)
        if field.name in by_name and field.name not in hidden:
            one = by_name[field.name]
            plain = f"{field.short}={field.write(one.value, one.mask)}"
            words.append(_vlan_word(one) if field.name == "vlan_vid" else plain)
    return words


def _vlan_word(one: Cond) -> str:
    """Return the condition on a VLAN tag as text: the VLAN ID, or some bits."""
    if one.mask is None and one.value & TAGGED:
        return f"dl_vlan={one.value & ~TAGGED}"
    return f"vlan_tci=0x{one.value:04x}/0x{one.mask or FIELDS[one.field].ones:04x}"
