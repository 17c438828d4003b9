"""Extended communities, route targets and route distinguishers: eight bytes each, and their texts.

A community stays bytes on its way through the RIBs; only what looks into it decodes it. A route target has three forms
(RFC 4360, 5668): `AS:n` with an AS of two octets and n of four, the same with four and two, and `IPv4:n`.
"""

from ipaddress import IPv4Address

from msgspec import Struct

TRANSITIVE_AS2, TRANSITIVE_IP4, TRANSITIVE_AS4 = 0x00, 0x01, 0x02
_OPAQUE, _EVPN = 0x03, 0x06
_TARGET = 0x02
VXLAN = 8
"""The tunnel type of VXLAN (RFC 8365)."""
NO_EXPORT, NO_ADVERTISE, NO_EXPORT_SUBCONFED = (bytes((0xFF, 0xFF, 0xFF, number)) for number in (1, 2, 3))
"""Communities of four bytes that say which peers get a route (RFC 1997)."""
LAST_SEQUENCE = 2**32 - 1
"""The highest sequence with which a MAC address can be announced."""

DEFAULT_GATEWAY = bytes((_OPAQUE, 0x0D, 0, 0, 0, 0, 0, 0))
_MOBILITY, _ESI_LABEL, _ES_IMPORT, _ROUTERS_MAC = (bytes((_EVPN, sub)) for sub in (0, 1, 2, 3))
_ENCAPSULATION = bytes((_OPAQUE, 0x0C))


def _administered(text: str) -> tuple[int, bytes]:
    """Encode `ADMINISTRATOR:NUMBER` in six bytes, and return the form: 0, 1 or 2."""
    administrator, colon, number = text.rpartition(":")
    if not colon or not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is not AS:NUMBER or IPv4:NUMBER")
    assigned = int(number)
    try:
        if "." in administrator:
            return TRANSITIVE_IP4, IPv4Address(administrator).packed + assigned.to_bytes(2, "big")
        asn = int(administrator)
        if asn > 0xFFFF:
            return TRANSITIVE_AS4, asn.to_bytes(4, "big") + assigned.to_bytes(2, "big")
        return TRANSITIVE_AS2, asn.to_bytes(2, "big") + assigned.to_bytes(4, "big")
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is out of range: the AS or address and the number share six bytes") from None


def _text(form: int, six: bytes) -> str:
    if form == TRANSITIVE_AS2:
        return f"{int.from_bytes(six[:2], 'big')}:{int.from_bytes(six[2:], 'big')}"
    number = int.from_bytes(six[4:], "big")
    if form == TRANSITIVE_IP4:
        return f"{IPv4Address(six[:4])}:{number}"
    return f"{int.from_bytes(six[:4], 'big')}:{number}"


def route_distinguisher(text: str) -> bytes:
    """Encode a route distinguisher."""
    form, six = _administered(text)
    return bytes((0, form)) + six


def route_distinguisher_text(rd: bytes) -> str:
    """Return the text of a route distinguisher; one of an unknown type as hexadecimal digits."""
    form = int.from_bytes(rd[:2], "big")
    return _text(form, rd[2:]) if form <= TRANSITIVE_AS4 else rd.hex()


def route_target(text: str) -> bytes:
    """Encode a route target."""
    form, six = _administered(text)
    return bytes((form, _TARGET)) + six


def is_transitive(community: bytes) -> bool:
    """Whether a community is for other ASes, too (RFC 4360)."""
    return not community[0] & 0x40


def is_route_target(community: bytes) -> bool:
    """Whether a community is a route target."""
    return community[1] == _TARGET and community[0] <= TRANSITIVE_AS4


def auto_target(asn: int, vni: int, *, rfc8365: bool = False) -> bytes:
    """Return the route target that is derived from a VNI: `AS:VNI`, as most speakers do, or the form of RFC 8365.

    Of an AS of four octets the lower two are used, as the RFC says and others do.
    """
    number = 0x10000000 | vni if rfc8365 else vni
    return bytes((TRANSITIVE_AS2, _TARGET)) + (asn & 0xFFFF).to_bytes(2, "big") + number.to_bytes(4, "big")


def encapsulation(tunnel: int = VXLAN) -> bytes:
    """Encode the tunnel type (RFC 9012)."""
    return _ENCAPSULATION + bytes(4) + tunnel.to_bytes(2, "big")


def encapsulation_of(communities: tuple[bytes, ...]) -> int | None:
    """Return the tunnel type among communities, None if there is none."""
    return next((int.from_bytes(one[6:], "big") for one in communities if one[:2] == _ENCAPSULATION), None)


class Mobility(Struct, frozen=True, order=True):
    """How often a MAC address has moved (RFC 7432 section 15)."""

    sequence: int = 0
    sticky: bool = False


def mac_mobility(mobility: Mobility) -> bytes:
    """Encode how often a MAC address has moved; nothing is higher than the highest, which any site may announce."""
    return _MOBILITY + bytes((mobility.sticky, 0)) + min(mobility.sequence, LAST_SEQUENCE).to_bytes(4, "big")


def mobility_of(communities: tuple[bytes, ...]) -> Mobility:
    """Return how often a MAC address has moved; without a community it is 0 (RFC 7432 section 7.7)."""
    for one in communities:
        if one[:2] == _MOBILITY:
            return Mobility(int.from_bytes(one[4:], "big"), bool(one[2] & 1))
    return Mobility()


def routers_mac(mac: bytes) -> bytes:
    """Encode the MAC address of a router (RFC 9135)."""
    return _ROUTERS_MAC + mac


def routers_mac_of(communities: tuple[bytes, ...]) -> bytes | None:
    """Return the MAC address of a router among communities."""
    return next((one[2:] for one in communities if one[:2] == _ROUTERS_MAC), None)


def esi_label(label: int, *, single_active: bool = False) -> bytes:
    """Encode the label of an Ethernet segment (RFC 7432 section 7.5)."""
    return _ESI_LABEL + bytes((single_active, 0, 0)) + label.to_bytes(3, "big")


def es_import(mac: bytes) -> bytes:
    """Encode the target of an Ethernet segment's routes (RFC 7432 section 7.6): six bytes of the ESI."""
    return _ES_IMPORT + mac


def community_text(community: bytes) -> str:
    """Return a community as text, as FRR prints it."""
    kind, sub = community[0], community[1]
    if is_route_target(community):
        return f"RT:{_text(kind, community[2:])}"
    if sub == 0x03 and kind <= TRANSITIVE_AS4:
        return f"SoO:{_text(kind, community[2:])}"
    if community == DEFAULT_GATEWAY:
        return "Default Gateway"
    match community[:2]:
        case head if head == _ENCAPSULATION:
            return f"ET:{int.from_bytes(community[6:], 'big')}"
        case head if head == _MOBILITY:
            moved = mobility_of((community,))
            return f"MM:{moved.sequence}{', sticky MAC' if moved.sticky else ''}"
        case head if head == _ROUTERS_MAC:
            return f"Rmac:{community[2:].hex(':')}"
        case head if head == _ES_IMPORT:
            return f"ES-Import-Rt:{community[2:].hex(':')}"
        case head if head == _ESI_LABEL:
            return f"ESI-label:{int.from_bytes(community[5:], 'big')}{' S' if community[2] & 1 else ''}"
    return f"UNK:{community.hex()}"
