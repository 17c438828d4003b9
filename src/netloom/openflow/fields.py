"""The fields of a packet and of its metadata, by Open vSwitch's names.  Pure.

Each has its width, its number on the wire (the OXM class and field), its names in other parts of Open vSwitch's
notation, and the format of its values. All values are integers, addresses too. The order of `FIELDS` is the order on
the wire: a field comes after its prerequisites (`dl_type` before `nw_src`, `nw_proto` before `tcp_dst`, `icmpv6_type`
before `nd_target`), as a switch requires.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

NXM, OXM = 0x0001, 0x8000

TAGGED = 0x1000
"""The bit of `vlan_vid` that is set if a packet has a VLAN tag; the lower ones are the VLAN ID."""

CT_STATES = ("new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat")
"""The bits of `ct_state`, the lowest first."""


class Field(Struct, frozen=True):
    """One field."""

    name: str
    bits: int
    oxm_class: int
    number: int
    long: str
    """Its name in `set_field`."""
    short: str
    """Its name in a printed match: ports and ICMP types have one name for all protocols."""
    symbol: str
    """Its name in `move`."""
    write: Callable[[int, int | None], str]
    """Formats a value, with its mask, as in a match."""
    order: int
    size: int
    """Its size on the wire, in bytes."""
    ones: int
    """The exact mask."""

    def write_set(self, value: int, mask: int | None) -> str:
        """Return a value, with its mask, as in `set_field`."""
        return f"{value}/{mask:#x}" if mask is not None and self.write is _decimal else self.write(value, mask)


def mac_text(value: int) -> str:
    """Return an Ethernet address in the usual notation."""
    return value.to_bytes(6, "big").hex(":")


def _hex(value: int, mask: int | None) -> str:
    return hex_text(value) if mask is None else f"{hex_text(value)}/{hex_text(mask)}"


def hex_text(value: int) -> str:
    """Return a number in the format of C's %#x."""
    return f"{value:#x}" if value else "0"


def _decimal(value: int, mask: int | None) -> str:
    return str(value) if mask is None else f"{value:#x}/{mask:#x}"


def _four(value: int, mask: int | None) -> str:
    return f"0x{value:04x}" if mask is None else f"0x{value:04x}/0x{mask:04x}"


def _mac(value: int, mask: int | None) -> str:
    return mac_text(value) if mask is None else f"{mac_text(value)}/{mac_text(mask)}"


def prefix_length(mask: int, bits: int) -> int | None:
    """Return the prefix length of a mask; None if it is not a prefix."""
    length = mask.bit_count()
    return length if mask == ((1 << length) - 1) << (bits - length) else None


def _v4(value: int, mask: int | None) -> str:
    if mask is None:
        return str(IPv4Address(value))
    length = prefix_length(mask, 32)
    return f"{IPv4Address(value)}/{IPv4Address(mask) if length is None else length}"


def v6_text(value: int) -> str:
    """Return an IPv6 address as C's library formats it: with an IPv4 suffix if the rest is 0, or ::ffff."""
    if 0xFFFF < value < 1 << 32:
        return f"::{IPv4Address(value)}"
    if value >> 32 == 0xFFFF:
        return f"::ffff:{IPv4Address(value & 0xFFFFFFFF)}"
    return str(IPv6Address(value))


def _v6(value: int, mask: int | None) -> str:
    if mask is None:
        return v6_text(value)
    length = prefix_length(mask, 128)
    return f"{v6_text(value)}/{v6_text(mask) if length is None else length}"


def _ct_state(value: int, mask: int | None) -> str:
    if mask is None:
        return "|".join(name for bit, name in enumerate(CT_STATES) if value >> bit & 1) or "0"
    return "".join(("+" if value >> bit & 1 else "-") + name for bit, name in enumerate(CT_STATES) if mask >> bit & 1)


# Name, bits, class, number, name in set_field, name in move, format.
_TABLE: tuple[tuple[str, int, int, int, str, str, Callable[[int, int | None], str]], ...] = (
    ("conj_id", 32, NXM, 37, "conj_id", "NXM_NX_CONJ_ID", _decimal),
    ("ct_state", 8, NXM, 105, "ct_state", "NXM_NX_CT_STATE", _ct_state),
    ("ct_zone", 16, NXM, 106, "ct_zone", "NXM_NX_CT_ZONE", _decimal),
    ("ct_mark", 32, NXM, 107, "ct_mark", "NXM_NX_CT_MARK", _hex),
    *((f"reg{at}", 32, NXM, at, f"reg{at}", f"NXM_NX_REG{at}", _hex) for at in range(16)),
    ("tun_id", 64, OXM, 38, "tun_id", "NXM_NX_TUN_ID", _hex),
    ("tun_src", 32, NXM, 31, "tun_src", "NXM_NX_TUN_IPV4_SRC", _v4),
    ("tun_dst", 32, NXM, 32, "tun_dst", "NXM_NX_TUN_IPV4_DST", _v4),
    ("tun_ipv6_src", 128, NXM, 109, "tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC", _v6),
    ("tun_ipv6_dst", 128, NXM, 110, "tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST", _v6),
    ("metadata", 64, OXM, 2, "metadata", "OXM_OF_METADATA", _hex),
    ("in_port", 32, OXM, 0, "in_port_oxm", "OXM_OF_IN_PORT", _decimal),
    ("vlan_vid", 13, OXM, 6, "vlan_vid", "OXM_OF_VLAN_VID", _four),
    ("dl_src", 48, OXM, 4, "eth_src", "NXM_OF_ETH_SRC", _mac),
    ("dl_dst", 48, OXM, 3, "eth_dst", "NXM_OF_ETH_DST", _mac),
    ("dl_type", 16, OXM, 5, "eth_type", "NXM_OF_ETH_TYPE", _four),
    ("ipv6_src", 128, OXM, 26, "ipv6_src", "NXM_NX_IPV6_SRC", _v6),
    ("ipv6_dst", 128, OXM, 27, "ipv6_dst", "NXM_NX_IPV6_DST", _v6),
    ("arp_spa", 32, OXM, 22, "arp_spa", "NXM_OF_ARP_SPA", _v4),
    ("arp_tpa", 32, OXM, 23, "arp_tpa", "NXM_OF_ARP_TPA", _v4),
    ("nw_src", 32, OXM, 11, "ip_src", "NXM_OF_IP_SRC", _v4),
    ("nw_dst", 32, OXM, 12, "ip_dst", "NXM_OF_IP_DST", _v4),
    ("arp_op", 16, OXM, 21, "arp_op", "NXM_OF_ARP_OP", _decimal),
    ("nw_proto", 8, OXM, 10, "nw_proto", "NXM_OF_IP_PROTO", _decimal),
    ("arp_sha", 48, OXM, 24, "arp_sha", "NXM_NX_ARP_SHA", _mac),
    ("arp_tha", 48, OXM, 25, "arp_tha", "NXM_NX_ARP_THA", _mac),
    ("nw_ttl", 8, NXM, 29, "nw_ttl", "NXM_NX_IP_TTL", _decimal),
    ("icmp_type", 8, OXM, 19, "icmp_type", "NXM_OF_ICMP_TYPE", _decimal),
    ("icmp_code", 8, OXM, 20, "icmp_code", "NXM_OF_ICMP_CODE", _decimal),
    ("icmpv6_type", 8, OXM, 29, "icmpv6_type", "NXM_NX_ICMPV6_TYPE", _decimal),
    ("icmpv6_code", 8, OXM, 30, "icmpv6_code", "NXM_NX_ICMPV6_CODE", _decimal),
    ("nd_target", 128, OXM, 31, "nd_target", "NXM_NX_ND_TARGET", _v6),
    ("nd_sll", 48, OXM, 32, "nd_sll", "NXM_NX_ND_SLL", _mac),
    ("nd_tll", 48, OXM, 33, "nd_tll", "NXM_NX_ND_TLL", _mac),
    ("tcp_src", 16, OXM, 13, "tcp_src", "NXM_OF_TCP_SRC", _decimal),
    ("tcp_dst", 16, OXM, 14, "tcp_dst", "NXM_OF_TCP_DST", _decimal),
    ("udp_src", 16, OXM, 15, "udp_src", "NXM_OF_UDP_SRC", _decimal),
    ("udp_dst", 16, OXM, 16, "udp_dst", "NXM_OF_UDP_DST", _decimal),
    ("sctp_src", 16, OXM, 17, "sctp_src", "OXM_OF_SCTP_SRC", _decimal),
    ("sctp_dst", 16, OXM, 18, "sctp_dst", "OXM_OF_SCTP_DST", _decimal),
)


def _short(name: str) -> str:
    if name in {f"{protocol}_{end}" for protocol in ("tcp", "udp", "sctp") for end in ("src", "dst")}:
        return f"tp_{name[-3:]}"
    return name.replace("icmpv6_", "icmp_")


def _size(name: str, bits: int) -> int:
    return 4 if name == "ct_state" else -(-bits // 8)  # Of its 32 bits on the wire, 8 are used.


FIELDS: dict[str, Field] = {
    name: Field(
        name, bits, oxm_class, number, long, _short(name), symbol, write, order, _size(name, bits), (1 << bits) - 1
    )
    for order, (name, bits, oxm_class, number, long, symbol, write) in enumerate(_TABLE)
}
"""All fields, in the order of the wire."""

EXACT = frozenset(
    {"conj_id", "ct_zone", "in_port", "dl_type", "arp_op", "nw_proto", "nw_ttl"}
    | {"icmp_type", "icmp_code", "icmpv6_type", "icmpv6_code"}
)
"""Fields that cannot be masked."""
