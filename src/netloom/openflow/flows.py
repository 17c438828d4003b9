"""Flows as values, and how they are written for people.  Pure.

    Flow(1, 100, match(tun_id=42, dl_dst=0x02AC10000002), (Output(3),))

Two flows that mean the same are equal: a match is sorted by its fields' names, a mask that is exact is None, bits
outside the mask are 0, and a field of which nothing is asked is left out. What a flow presupposes is written by whoever
makes it: `nw_src` needs `dl_type=0x800`. `str(flow)` is what `ovs-ofctl dump-flows` prints without statistics, and can
be read by `ovs-ofctl add-flows`.
"""

from typing import NamedTuple

from msgspec import Struct

from netloom.openflow.fields import FIELDS, TAGGED, hex_text


class Cond(NamedTuple):
    """What is asked of one field: that it is `value`, in the bits of `mask`; None: in all."""

    field: str
    value: int
    mask: int | None = None


Match = tuple[Cond, ...]
"""What is asked of a packet: sorted by field, no field twice; made by `match`."""

Key = tuple[int, int, Match]
"""What a table holds once: table, priority, match."""


def match(**fields: int | tuple[int, int]) -> Match:
    """Return a match: each field its value, or value and mask.  KeyError, ValueError: there is no such field, value."""
    made = [cond(name, fields[name]) for name in sorted(fields)]
    return tuple([one for one in made if one.mask != 0])


def cond(name: str, asked: int | tuple[int, int]) -> Cond:
    """Return what is asked of one field."""
    ones = FIELDS[name].ones
    value, mask = (asked, ones) if isinstance(asked, int) else asked
    if not 0 <= value <= ones or not 0 <= mask <= ones:
        raise ValueError(f"{name} has {FIELDS[name].bits} bits: {asked}")
    if mask == ones:
        return Cond(name, value)
    return Cond(name, value & mask, mask)


class Output(Struct, frozen=True):
    """Send the packet out of a port; not of the one it came in by, which takes `InPort`."""

    port: int

    def __str__(self) -> str:
        return f"output:{self.port}"


class InPort(Struct, frozen=True):
    """Send the packet back where it came from."""

    def __str__(self) -> str:
        return "IN_PORT"


class SetField(Struct, frozen=True):
    """Give a field a value, in the bits of `mask`; None: in all."""

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
    """Let another table act on the packet as it is now, then go on here."""

    table: int

    def __str__(self) -> str:
        return f"resubmit(,{self.table})"


class Goto(Struct, frozen=True):
    """Go on in a later table; the last action."""

    table: int

    def __str__(self) -> str:
        return f"goto_table:{self.table}"


class Ct(Struct, frozen=True):
    """Let the connection tracker look at the packet; a copy of it then goes on in `table`, if one is given.

    `zone` is a number, or the name of a field whose lower 16 bits are it (not `ct_state`). `exec` may set `ct_mark`.
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
    """This flow is one way to meet clause `clause` of the `of` clauses that together give `conj_id=id`."""

    id: int
    clause: int
    of: int

    def __str__(self) -> str:
        return f"conjunction({self.id},{self.clause}/{self.of})"


class Meter(Struct, frozen=True):
    """Let the packet pass only as fast as a meter says; the first action."""

    id: int

    def __str__(self) -> str:
        return f"meter:{self.id}"


class Unknown(Struct, frozen=True):
    """What only a switch shows: an action of somebody else's, as it stands on the wire."""

    data: bytes

    def __str__(self) -> str:
        return f"unknown({self.data.hex()})"


Action = Output | InPort | SetField | Move | Resubmit | Goto | Ct | Conjunction | Meter | Unknown


class Flow(Struct, frozen=True):
    """One flow: the actions for the packets of a table that match, where no other of higher priority does."""

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...]
    cookie: int = 0

    @property
    def key(self) -> Key:
        """What the table holds once."""
        return (self.table, self.priority, self.match)

    def __str__(self) -> str:
        words = ",".join([f"priority={self.priority}", *match_words(self.match)])
        actions = ",".join(map(str, self.actions)) or "drop"
        return (
            f"cookie={hex_text(self.cookie) if self.cookie else '0x0'}, table={self.table}, {words} actions={actions}"
        )


class Put(Struct, frozen=True):
    """Let this flow be there, whatever was there for the same table, priority and match."""

    flow: Flow


class Drop(Struct, frozen=True):
    """Let no flow be there for this one's table, priority and match, whatever it does; nothing there is no error."""

    flow: Flow


Mod = Put | Drop


class MeterSpec(Struct, frozen=True):
    """A meter: kilobits per second, and how many kilobits may come at once."""

    rate_kbps: int
    burst: int


_PROTOCOLS: dict[int, dict[int | None, str]] = {
    0x0800: {None: "ip", 1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"},
    0x86DD: {None: "ipv6", 58: "icmp6", 6: "tcp6", 17: "udp6", 132: "sctp6"},
    0x0806: {None: "arp"},
}


def match_words(asked: Match) -> list[str]:
    """Return what a match asks, in words, in the order in which they are printed."""
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
    """Return what is asked of a VLAN's tag: its number, or some of its bits."""
    if one.mask is None and one.value & TAGGED:
        return f"dl_vlan={one.value & ~TAGGED}"
    return f"vlan_tci=0x{one.value:04x}/0x{one.mask or FIELDS[one.field].ones:04x}"
