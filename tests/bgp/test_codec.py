"""Messages on the wire: captures, what is encoded is decoded, and what is wrong gets the reaction of the RFC."""

import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from netloom.bgp import communities as ext
from netloom.bgp.attributes import (
    OPTIONAL,
    SEQUENCE,
    SET,
    TRANSITIVE,
    AttributeCache,
    Attributes,
    Context,
    Pmsi,
    Type,
    attribute,
    decode_attributes,
    encode_attributes,
)
from netloom.bgp.errors import Code, Header, Notification, OpenError, Reaction, UpdateError
from netloom.bgp.messages import (
    AS_TRANS,
    KEEPALIVE,
    Capabilities,
    Framer,
    GracefulRestart,
    Kind,
    Open,
    Refresh,
    decode_notification,
    decode_open,
    decode_refresh,
    encode_notification,
    encode_open,
    encode_refresh,
    message,
    shutdown_data,
)
from netloom.bgp.nlri import (
    EVPN,
    IPV4,
    IPV6,
    ROUTE_TARGETS,
    EthernetAd,
    EthernetSegment,
    EvpnRoute,
    Family,
    IpPrefix,
    MacIp,
    Multicast,
    Routes,
    decode_evpn,
    decode_prefix,
    encode_evpn,
    encode_prefix,
    split,
)
from netloom.bgp.update import (
    Update,
    announce,
    decode_reach,
    decode_unreach,
    decode_update,
    encode_reach,
    encode_unreach,
    end_of_rib,
    withdraw,
)

CAPTURES = Path(__file__).parent / "captures"
INTERNAL, EXTERNAL = Context(True), Context(False)
ALL = (IPV4, IPV6, EVPN, ROUTE_TARGETS)
RD = ext.route_distinguisher("10.0.0.1:10")

fours = st.integers(1, 2**32 - 1)
v4 = st.integers(0x01000000, 0x7EFFFFFF).map(IPv4Address)
v6 = st.integers(2**125, 2**126 - 1).map(IPv6Address)
addresses = st.one_of(v4, v6)
labels = st.integers(0, 2**24 - 1)
eights, tens, macs = (st.binary(min_size=size, max_size=size) for size in (8, 10, 6))
routes: st.SearchStrategy[EvpnRoute] = st.one_of(
    st.builds(EthernetAd, eights, tens, fours, labels),
    st.builds(MacIp, eights, macs, st.none() | addresses, labels, st.none() | labels, fours, tens),
    st.builds(Multicast, eights, addresses, fours),
    st.builds(EthernetSegment, eights, tens, addresses),
    st.builds(IpPrefix, eights, v4, st.integers(0, 32), v4, labels, fours, tens),
    st.builds(IpPrefix, eights, v6, st.integers(0, 128), v6, labels, fours, tens),
)
families = st.builds(Family, st.integers(0, 0xFFFF), st.integers(0, 0xFF))
capabilities = st.builds(
    Capabilities,
    st.lists(families, unique=True, max_size=80).map(tuple),
    fours,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none()
    | st.builds(
        GracefulRestart, st.integers(0, 4095), st.dictionaries(families, st.booleans()), st.booleans(), st.booleans()
    ),
    st.lists(st.tuples(st.integers(128, 255), st.binary(max_size=20)), max_size=3).map(tuple),
)
attributes = st.builds(
    Attributes,
    origin=st.integers(0, 2),
    as_path=st.lists(
        st.tuples(st.sampled_from((SEQUENCE, SET)), st.lists(fours, min_size=1, max_size=255).map(tuple)), max_size=3
    ).map(tuple),
    next_hop=addresses,
    med=st.none() | fours,
    local_pref=fours,
    communities=st.lists(st.binary(min_size=4, max_size=4), max_size=3).map(b"".join),
    originator_id=st.none() | v4,
    cluster_list=st.lists(v4, max_size=3).map(tuple),
    extended=st.lists(eights, max_size=40).map(tuple),
    pmsi=st.none() | st.builds(Pmsi, labels, st.binary(min_size=4, max_size=4), st.just(6), st.integers(0, 255)),
    large_communities=st.lists(st.binary(min_size=12, max_size=12), max_size=3).map(b"".join),
    atomic_aggregate=st.booleans(),
    aggregator=st.none() | st.tuples(fours, v4),
    other=st.lists(
        st.tuples(st.just(0xE0), st.integers(200, 250), st.binary(max_size=300)),
        max_size=2,
        unique_by=lambda one: one[1],
    ).map(lambda found: tuple(sorted(found))),
)


def fields(value: Attributes) -> dict[str, Any]:
    return {name: getattr(value, name) for name in Attributes.__struct_fields__}


def messages_of(capture: Path) -> list[tuple[Kind, bytes]]:
    """Return the BGP messages of a capture of single packets over Ethernet, IPv4 and TCP."""
    data = capture.read_bytes()
    at, framer = 24, Framer()
    found: list[tuple[Kind, bytes]] = []
    while at < len(data):
        size = struct.unpack_from("<IIII", data, at)[2]
        packet = data[at + 16 : at + 16 + size]
        begin = 14 + (packet[14] & 15) * 4
        total = 14 + int.from_bytes(packet[16:18], "big")
        found += framer.feed(packet[begin + (packet[begin + 12] >> 4) * 4 : total])
        at += 16 + size
    return found


def decoded(data: bytes, context: Context = INTERNAL, **options: Any) -> Update:
    [(kind, body)] = Framer().feed(data)
    assert kind is Kind.UPDATE
    return decode_update(body, context, ALL, AttributeCache(), **options)


def update_of(*listed: bytes, nlri: bytes = b"") -> bytes:
    joined = b"".join(listed)
    return message(Kind.UPDATE, b"\0\0" + len(joined).to_bytes(2, "big") + joined + nlri)


ORIGIN, PATH = attribute(TRANSITIVE, Type.ORIGIN, b"\0"), attribute(TRANSITIVE, Type.AS_PATH, b"")
PREFERENCE = attribute(TRANSITIVE, Type.LOCAL_PREF, bytes(4))
ROUTE = encode_evpn(MacIp(RD, b"\2\0\0\0\0\1", IPv4Address("10.1.0.1"), 10))
REACH = attribute(OPTIONAL, Type.MP_REACH, encode_reach(EVPN, IPv4Address("10.0.0.1"), ROUTE))
WHOLE = (REACH, ORIGIN, PATH, PREFERENCE)


# Captures --------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.glob("*.pcap")))
def test_a_capture_is_decoded_and_encoded_byte_for_byte(name: str) -> None:
    for kind, body in messages_of(CAPTURES / name):
        assert message(kind, again(kind, body)) == message(kind, body)


def again(kind: Kind, body: bytes) -> bytes:
    """Decode the body of a message to values, and encode it again."""
    match kind:
        case Kind.KEEPALIVE:
            return body
        case Kind.OPEN:
            return encode_open(decode_open(body))[19:]
        case _:
            at = 2 + int.from_bytes(body[:2], "big")
            end = at + 2 + int.from_bytes(body[at : at + 2], "big")
            removed, listed, nlri = body[2:at], body[at + 2 : end], body[end:]
            decoded = decode_attributes(listed, INTERNAL)
            made = b""
            if decoded.reach is not None:
                family, hop, rest = decode_reach(decoded.reach)
                assert hop is not None
                packed = b"".join(encode_evpn(decode_evpn(route)) for route in split(family, rest).values())
                made += attribute(OPTIONAL, Type.MP_REACH, encode_reach(family, hop, packed))
            if "origin" in decoded.fields:
                kept: dict[str, Any] = {"next_hop": IPv4Address(0), **decoded.fields}
                made += encode_attributes(Attributes(**kept), INTERNAL, next_hop=True)
            nlri = b"".join(encode_prefix(*decode_prefix(IPV4, one)) for one in split(IPV4, nlri))
            assert not decoded.malformed
            sizes = (len(removed).to_bytes(2, "big"), len(made).to_bytes(2, "big"))
            return sizes[0] + removed + sizes[1] + made + nlri


# Framing ---------------------------------------------------------------------


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=6), st.data())
def test_messages_are_found_however_the_stream_is_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(message(Kind.UPDATE, body) for body in bodies)
    framer, found, at = Framer(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        found += [body for _, body in framer.feed(stream[at : at + size])]
        at += size
    assert found == bodies


@pytest.mark.parametrize(
    ("data", "subcode", "told"),
    [
        (b"\0" + KEEPALIVE[1:], Header.NOT_SYNCHRONIZED, b""),
        (KEEPALIVE[:16] + b"\0\x12\4", Header.BAD_LENGTH, b"\0\x12"),
        (KEEPALIVE[:16] + b"\0\x14\4\0", Header.BAD_LENGTH, b"\0\x14"),
        (KEEPALIVE[:16] + b"\x10\x01\2", Header.BAD_LENGTH, b"\x10\x01"),
        (KEEPALIVE[:16] + b"\0\x16\2\0\0\0", Header.BAD_LENGTH, b"\0\x16"),
        (KEEPALIVE[:16] + b"\0\x13\6", Header.BAD_TYPE, b"\6"),
    ],
)
def test_a_wrong_header_ends_the_session(data: bytes, subcode: int, told: bytes) -> None:
    with pytest.raises(Notification) as error:
        list(Framer().feed(data))
    assert (error.value.code, error.value.subcode, error.value.data) == (Code.HEADER, subcode, told)


def test_long_messages_are_taken_once_they_are_agreed_on() -> None:
    framer = Framer()
    framer.longest = 65535
    assert [len(body) for _, body in framer.feed(message(Kind.UPDATE, bytes(65516)))] == [65516]
    with pytest.raises(Notification):
        list(framer.feed(message(Kind.OPEN, bytes(4100))))


# OPEN ------------------------------------------------------------------------


@given(fours.filter(lambda asn: asn != AS_TRANS), v4, st.sampled_from((0, 3, 90, 65535)), capabilities)
def test_an_open_is_decoded_as_it_was_encoded(asn: int, router_id: IPv4Address, hold: int, has: Capabilities) -> None:
    value = Open(has.asn or asn, router_id, hold, has)
    [(_, body)] = Framer().feed(encode_open(value))
    assert decode_open(body) == value


@pytest.mark.parametrize(
    ("body", "subcode"),
    [
        (b"\3\0\1\0\x5a\1\1\1\1\0", OpenError.VERSION),
        (b"\4\0\0\0\x5a\1\1\1\1\0", OpenError.BAD_PEER_AS),
        (b"\4\x5b\xa0\0\x5a\1\1\1\1\0", OpenError.BAD_PEER_AS),
        (b"\4\0\1\0\2\1\1\1\1\0", OpenError.HOLD_TIME),
        (b"\4\0\1\0\x5a\0\0\0\0\0", OpenError.BAD_IDENTIFIER),
        (b"\4\0\1\0\x5a\1\1\1\1\5", OpenError.MALFORMED),
        (b"\4\0\1\0\x5a\1\1\1\1\2\2\5", OpenError.MALFORMED),
        (b"\4\0\1\0\x5a\1\1\1\1\3\2\1\1", OpenError.MALFORMED),
        (b"\4\0\1\0\x5a\1\1\1\1\2\1\0", OpenError.OPTIONAL_PARAMETER),
    ],
)
def test_a_wrong_open_ends_the_session(body: bytes, subcode: int) -> None:
    with pytest.raises(Notification) as error:
        decode_open(body)
    assert (error.value.code, error.value.subcode) == (Code.OPEN, subcode)


def test_a_capability_of_a_wrong_length_is_not_understood() -> None:
    opened = decode_open(b"\4\0\1\0\x5a\1\1\1\1\5\2\3\x41\1\1")
    assert opened.asn == 1
    assert opened.capabilities == Capabilities(other=((0x41, b"\1"),))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (shutdown_data("back at 10"), "cease: shutdown: 'back at 10'"),
        (shutdown_data("\u00e4" * 200), "cease: shutdown: '" + "\u00e4" * 127 + "'"),
        (shutdown_data(""), "cease: shutdown"),
        (b"\5a\n\x1b[m", "cease: shutdown: 'a  [m'"),
        (b"\2\xff!", "cease: shutdown: '\ufffd!'"),
        (b"\x09short", "cease: shutdown"),
    ],
)
def test_the_text_of_a_shutdown(data: bytes, told: str) -> None:
    for error in (Notification(6, 2, data), Notification(6, 9, b"\6\2" + data)):
        [(_, body)] = Framer().feed(encode_notification(error))
        assert str(decode_notification(body)).removesuffix(" (hard reset)") == told


@pytest.mark.parametrize("length", [1, 4, 255])
def test_parameters_with_long_lengths_are_known_by_their_type(length: int) -> None:
    """RFC 9072 section 2: the length before it is ignored, as long as it is not zero."""
    families = tuple(Family(number, 1) for number in range(1, 60))
    body = encode_open(Open(65001, IPv4Address(1), 90, Capabilities(families, 65001)))[19:]
    assert body[9:11] == b"\xff\xff"
    assert decode_open(body[:9] + bytes((length,)) + body[10:]).capabilities.families == families


def test_a_send_hold_timer_that_has_expired_has_a_name() -> None:
    assert str(decode_notification(b"\x08\0")) == "send hold timer"  # RFC 9687.


def test_notifications_and_refreshes() -> None:
    [(_, body)] = Framer().feed(encode_notification(Notification(6, 2, b"\4bye!")))
    said = decode_notification(body)
    assert (said.code, said.subcode, said.data, str(said)) == (6, 2, b"\4bye!", "cease: shutdown: 'bye!'")
    [(_, body)] = Framer().feed(encode_refresh(EVPN, Refresh.BEGIN))
    assert decode_refresh(body) == (EVPN, Refresh.BEGIN)
    assert decode_refresh(b"\0\x19\x09\x46") == (EVPN, None)
    with pytest.raises(Notification):
        decode_refresh(b"\0\x19\0\x46\0")


# Routes ----------------------------------------------------------------------


@given(st.lists(routes, max_size=10))
def test_evpn_routes_are_decoded_as_they_were_encoded(made: list[EvpnRoute]) -> None:
    packed = {encode_evpn(route): route for route in made}
    found = split(EVPN, b"".join(packed))
    assert len(found) <= len(packed)
    assert all(decode_evpn(route) == packed[route] for route in found.values())


def test_a_route_is_replaced_by_one_with_another_label_esi_or_gateway() -> None:
    mac, ip = b"\2\0\0\0\0\1", IPv4Address("10.1.0.1")
    same: list[tuple[EvpnRoute, EvpnRoute]] = [
        (MacIp(RD, mac, ip, 10), MacIp(RD, mac, ip, 11, 12, esi=b"\1" * 10)),
        (EthernetAd(RD, bytes(10), 0, 5), EthernetAd(RD, bytes(10), 0, 6)),
        (IpPrefix(RD, ip, 24, ip, 1), IpPrefix(RD, ip, 24, IPv4Address(9), 2, esi=b"\1" * 10)),
    ]
    for one, other in same:
        assert list(split(EVPN, encode_evpn(one))) == list(split(EVPN, encode_evpn(other)))
    others: list[EvpnRoute] = [
        MacIp(RD, mac, None, 10),
        MacIp(RD, mac, ip, 10, tag=1),
        MacIp(bytes(8), mac, ip, 10),
        MacIp(RD, bytes(6), ip, 10),
        IpPrefix(RD, ip, 25, ip),
        EthernetAd(RD, b"\1" * 10, 0, 5),
        Multicast(RD, ip),
        EthernetSegment(RD, bytes(10), ip),
    ]
    assert len(split(EVPN, b"".join(map(encode_evpn, [*others, same[0][0]])))) == len(others) + 1


@given(
    made=st.lists(
        st.builds(MacIp, st.just(RD) | eights, macs, v4, labels, st.none(), fours, tens), min_size=1, max_size=5
    ),
    at=st.integers(0, 200),
    value=st.integers(0, 255),
    cut=st.integers(0, 40),
)
def test_routes_that_are_alike_are_split_as_others_are(made: list[MacIp], at: int, value: int, cut: int) -> None:
    def tried(data: bytes) -> Routes | str:
        try:
            return split(EVPN, data)
        except Notification as error:
            return str(error)

    alike = b"".join(map(encode_evpn, made))
    other = encode_evpn(Multicast(RD, IPv4Address("10.0.0.1")))
    key = b"\3" + other[2:]
    damaged = bytearray(alike)
    damaged[at % len(alike)] = value
    for data in (alike, bytes(damaged), alike[:-cut], bytes(damaged[:-cut])):
        found, expected = tried(data), tried(other + data)
        if isinstance(expected, dict):
            expected.pop(key)
        assert found == expected
    assert split(EVPN, alike) == {key: route for one in made for key, route in split(EVPN, encode_evpn(one)).items()}


def test_routes_of_unknown_types_are_discarded() -> None:
    assert list(split(EVPN, b"\x63\3abc" + ROUTE).values()) == [ROUTE]


@pytest.mark.parametrize(
    "data",
    [
        b"\2",
        b"\x63\4abc",
        ROUTE[:-1],
        bytes((2, 38)) + ROUTE[2:] + b"\0",
        ROUTE[:24] + b"\x2f" + ROUTE[25:],
        ROUTE[:31] + b"\x21" + ROUTE[32:],
        b"\2\5abcde",
        b"\1\x18" + bytes(24),
        b"\3\x11" + bytes(12) + b"\x21" + bytes(4),
        b"\4\x17" + bytes(18) + b"\x21" + bytes(4),
        b"\5\x22" + bytes(22) + b"\x21" + bytes(11),
    ],
)
def test_routes_with_impossible_lengths_end_the_session(data: bytes) -> None:
    with pytest.raises(Notification) as error:
        split(EVPN, data)
    assert (error.value.code, error.value.subcode) == (Code.UPDATE, UpdateError.NETWORK_FIELD)


@given(addresses, st.data())
def test_prefixes(address: IPv4Address | IPv6Address, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, address.max_prefixlen))
    family = IPV4 if address.version == 4 else IPV6
    route = encode_prefix(address, length)
    assert list(split(family, route)) == [route]
    found, bits = decode_prefix(family, route)
    shift = address.max_prefixlen - length
    assert (int(found), bits) == (int(address) >> shift << shift, length)


def test_bits_after_a_prefix_mean_nothing() -> None:
    assert list(split(IPV4, b"\x09\x0a\xff")) == [b"\x09\x0a\x80"]
    for family, data in ((IPV4, b"\x21" + bytes(5)), (IPV4, b"\x18\1\2"), (ROUTE_TARGETS, b"\x10\1\2")):
        with pytest.raises(Notification):
            split(family, data)


# Attributes ------------------------------------------------------------------


@given(attributes, st.booleans())
def test_attributes_are_decoded_as_they_were_encoded(value: Attributes, as4: bool) -> None:
    context = Context(True, as4)
    found = decode_attributes(encode_attributes(value, context), context)
    assert not found.malformed
    assert fields(AttributeCache().get(found.fields, value.next_hop)) == fields(value)


def test_equal_attributes_are_one_object_while_a_route_has_them() -> None:
    cache = AttributeCache()
    one = cache.get({"origin": 1, "extended": (b"x" * 8,)}, IPv4Address(1))
    assert cache.get({"extended": (b"x" * 8,), "origin": 1}, IPv4Address(1)) is one
    assert cache.get({"origin": 1, "extended": (b"x" * 8,)}, IPv4Address(2)) is not one


@pytest.mark.parametrize(
    ("flags", "kind", "value", "reaction"),
    [
        (TRANSITIVE, Type.ORIGIN, b"\3", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.ORIGIN, b"", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL, Type.ORIGIN, b"\0", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.AS_PATH, b"\2\1", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.AS_PATH, b"\2\0", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.AS_PATH, b"\3\1\0\0\0\1", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.AS_PATH, b"\2\1\0\0\0\0", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.NEXT_HOP, b"\1\2\3", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL, Type.MED, b"\1", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.LOCAL_PREF, b"\1", Reaction.TREAT_AS_WITHDRAW),
        (TRANSITIVE, Type.ATOMIC_AGGREGATE, b"\1", Reaction.DISCARD_ATTRIBUTE),
        (OPTIONAL | TRANSITIVE, Type.AGGREGATOR, b"\1", Reaction.DISCARD_ATTRIBUTE),
        (OPTIONAL | TRANSITIVE, Type.COMMUNITIES, b"\1", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL, Type.ORIGINATOR_ID, b"\1", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL, Type.CLUSTER_LIST, b"", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL | TRANSITIVE, Type.EXTENDED_COMMUNITIES, b"123456789", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL | TRANSITIVE, Type.AS4_PATH, b"\2", Reaction.DISCARD_ATTRIBUTE),
        (OPTIONAL | TRANSITIVE, Type.AS4_AGGREGATOR, b"\2", Reaction.DISCARD_ATTRIBUTE),
        (OPTIONAL | TRANSITIVE, Type.PMSI_TUNNEL, b"\0\6\0\0", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL | TRANSITIVE, Type.PMSI_TUNNEL, b"\0\6\0\0\0\1", Reaction.TREAT_AS_WITHDRAW),
        (OPTIONAL | TRANSITIVE, Type.LARGE_COMMUNITIES, b"1234", Reaction.TREAT_AS_WITHDRAW),
    ],
)
def test_each_malformed_attribute_has_its_reaction(flags: int, kind: Type, value: bytes, reaction: Reaction) -> None:
    listed = [one for one in WHOLE if one[1] != kind]
    update = decoded(update_of(*listed, attribute(flags, kind, value)))
    assert (kind, reaction) in [(one.attribute, one.reaction) for one in update.malformed]
    if reaction is Reaction.DISCARD_ATTRIBUTE:
        assert list(update.announced[EVPN].routes.values()) == [ROUTE]
    else:
        assert not update.announced
        assert list(update.withdrawn[EVPN].values()) == [ROUTE]


def test_what_only_internal_peers_say_is_discarded_from_others() -> None:
    listed = [
        attribute(OPTIONAL, Type.ORIGINATOR_ID, b"\1\2\3\4"),
        attribute(OPTIONAL, Type.CLUSTER_LIST, b"\1\2\3"),
        attribute(TRANSITIVE, Type.LOCAL_PREF, b"\1"),
    ]
    update = decoded(update_of(REACH, ORIGIN, PATH, *listed), EXTERNAL)
    assert {one.reaction for one in update.malformed} == {Reaction.DISCARD_ATTRIBUTE}
    got = update.announced[EVPN].attributes
    assert (got.originator_id, got.cluster_list, got.local_pref) == (None, (), None)


@pytest.mark.parametrize("missing", [ORIGIN, PATH, PREFERENCE])
def test_routes_without_a_mandatory_attribute_are_withdrawn(missing: bytes) -> None:
    update = decoded(update_of(*(one for one in WHOLE if one is not missing)))
    assert not update.announced
    assert list(update.withdrawn[EVPN].values()) == [ROUTE]


def test_the_first_of_two_attributes_counts() -> None:
    update = decoded(update_of(*WHOLE, attribute(TRANSITIVE, Type.ORIGIN, b"\2")))
    assert update.announced[EVPN].attributes.origin == 0


@pytest.mark.parametrize(
    ("listed", "subcode"),
    [
        ((REACH, *WHOLE), UpdateError.ATTRIBUTE_LIST),
        ((ORIGIN, PATH, PREFERENCE, REACH[:-5]), UpdateError.ATTRIBUTE_LIST),
        ((*WHOLE, attribute(TRANSITIVE, 99, b"")), UpdateError.UNKNOWN_WELL_KNOWN),
        ((attribute(OPTIONAL, Type.MP_REACH, b"\0\x19\x46\4\1"),), UpdateError.OPTIONAL_ATTRIBUTE),
        ((attribute(OPTIONAL, Type.MP_REACH, b"\0\x19\x46\5\1\2\3\4\5\0"),), UpdateError.OPTIONAL_ATTRIBUTE),
        ((attribute(OPTIONAL, Type.MP_UNREACH, b"\0\x19"),), UpdateError.OPTIONAL_ATTRIBUTE),
    ],
)
def test_what_hides_routes_ends_the_session(listed: tuple[bytes, ...], subcode: int) -> None:
    with pytest.raises(Notification) as error:
        decoded(update_of(*listed))
    assert (error.value.code, error.value.subcode) == (Code.UPDATE, subcode)


UNREACH = attribute(OPTIONAL, Type.MP_UNREACH, b"\0\x19\x46" + ROUTE)
EMPTY = attribute(OPTIONAL, Type.MP_REACH, encode_reach(EVPN, IPv4Address("10.0.0.1"), b""))


@pytest.mark.parametrize("listed", [(), (UNREACH,), (EMPTY,)], ids=["none", "withdrawn", "an empty field"])
def test_a_malformed_attribute_without_routes_ends_the_session(listed: tuple[bytes, ...]) -> None:
    """RFC 7606 section 5.2: the routes that it is for may have been overlooked."""
    decoded(update_of(*listed, ORIGIN, attribute(OPTIONAL | TRANSITIVE, Type.AGGREGATOR, b"\1")))
    with pytest.raises(Notification) as error:
        decoded(update_of(*listed, attribute(TRANSITIVE, Type.ORIGIN, b"\3")))
    assert (error.value.code, error.value.subcode) == (Code.UPDATE, UpdateError.ORIGIN)


def test_a_malformed_attribute_of_routes_that_are_ignored_is_survived() -> None:
    bad = attribute(TRANSITIVE, Type.ORIGIN, b"\3")
    update = decode_update(update_of(REACH, bad)[19:], INTERNAL, (IPV6,), AttributeCache())
    assert (update.announced, update.withdrawn) == ({}, {})
    unknown = attribute(OPTIONAL, Type.MP_REACH, b"\0\x09\x46\0\0abc")
    assert decoded(update_of(unknown, bad)).malformed


@pytest.mark.parametrize("flags", [0, TRANSITIVE, OPTIONAL | TRANSITIVE])
def test_routes_in_an_attribute_with_wrong_flags_are_withdrawn(flags: int) -> None:
    """RFC 7606 section 3."""
    update = decoded(update_of(attribute(flags, Type.MP_REACH, REACH[3:]), *WHOLE[1:]))
    assert (update.announced, list(update.withdrawn[EVPN].values())) == ({}, [ROUTE])
    other = encode_evpn(MacIp(RD, b"\2\0\0\0\0\7", None, 10))
    gone = attribute(flags, Type.MP_UNREACH, b"\0\x19\x46" + other)
    update = decoded(update_of(REACH, gone, *WHOLE[1:]))
    assert (update.announced, set(update.withdrawn[EVPN].values())) == ({}, {ROUTE, other})


def test_routes_of_a_family_that_was_not_negotiated_are_ignored() -> None:
    prefix, hop = b"\x08\x0a", attribute(TRANSITIVE, Type.NEXT_HOP, b"\x0a\0\0\1")
    listed = b"".join((hop, ORIGIN, PATH, PREFERENCE))
    body = b"\0\2" + prefix + len(listed).to_bytes(2, "big") + listed + prefix
    update = decode_update(body, INTERNAL, (EVPN,), AttributeCache())
    assert (update.announced, update.withdrawn) == ({}, {})
    update = decode_update(body, INTERNAL, (IPV4,), AttributeCache())
    assert (list(update.announced), list(update.withdrawn)) == ([IPV4], [IPV4])
    gone = attribute(OPTIONAL, Type.MP_UNREACH, b"\0\1\1\x08\x0b")
    update = decode_update(b"\0\2" + prefix + bytes((0, len(gone))) + gone, INTERNAL, (IPV4,), AttributeCache())
    assert list(update.withdrawn[IPV4]) == [prefix, b"\x08\x0b"], "both fields count"


@pytest.mark.parametrize("body", [b"\0\5\0\0\0\0", b"\0\0\0\5\0\0", b"\xff\xff\0\0"])
def test_lengths_beyond_the_message_end_the_session(body: bytes) -> None:
    with pytest.raises(Notification) as error:
        decode_update(body, INTERNAL, ALL, AttributeCache())
    assert (error.value.code, error.value.subcode) == (Code.UPDATE, UpdateError.ATTRIBUTE_LIST)


def test_a_truncated_attribute_after_the_routes_withdraws_them() -> None:
    update = decoded(update_of(*WHOLE, b"\xc0\x10\xff"))
    assert list(update.withdrawn[EVPN].values()) == [ROUTE]


def test_unknown_transitive_attributes_are_kept_and_others_are_not() -> None:
    update = decoded(update_of(*WHOLE, attribute(0xC0, 99, b"keep"), attribute(0x80, 98, b"drop")))
    assert update.announced[EVPN].attributes.other == ((0xE0, 99, b"keep"),)


@pytest.mark.parametrize("hop", ["0.0.0.0", "224.0.0.5", "127.0.0.1", "::", "ff02::1"])
def test_routes_with_an_impossible_next_hop_are_withdrawn(hop: str) -> None:
    address = IPv6Address(hop) if ":" in hop else IPv4Address(hop)
    reach = attribute(OPTIONAL, Type.MP_REACH, encode_reach(EVPN, address, ROUTE))
    update = decoded(update_of(reach, *WHOLE[1:]))
    assert not update.announced
    assert [one.subcode for one in update.malformed] == [UpdateError.NEXT_HOP]


def test_the_path_of_an_external_peer_begins_with_its_as() -> None:
    path = attribute(TRANSITIVE, Type.AS_PATH, b"\2\1\0\0\xfd\xe9")
    assert decoded(update_of(REACH, ORIGIN, path), EXTERNAL, neighbor=65001).announced
    assert not decoded(update_of(REACH, ORIGIN, path), EXTERNAL, neighbor=65002).announced
    assert not decoded(update_of(REACH, ORIGIN, PATH), EXTERNAL, neighbor=65001).announced


# UPDATE ----------------------------------------------------------------------


@given(st.lists(routes, min_size=1, max_size=300), attributes, st.sampled_from((4096, 65535)))
def test_routes_are_packed_and_found_again(made: list[EvpnRoute], value: Attributes, longest: int) -> None:
    packed = split(EVPN, b"".join(map(encode_evpn, made)))
    big = len(encode_attributes(value, INTERNAL)) > 3900
    sent = list(announce(EVPN, packed.values(), value, INTERNAL, 65535 if big else longest))
    found: dict[bytes, bytes] = {}
    framer = Framer()
    framer.longest = 65535
    for data in sent:
        assert len(data) <= (65535 if big else longest)
        [(_, body)] = framer.feed(data)
        update = decode_update(body, INTERNAL, ALL, AttributeCache())
        assert fields(update.announced[EVPN].attributes) == fields(value)
        found |= update.announced[EVPN].routes
    assert found == packed
    gone: dict[bytes, bytes] = {}
    for data in withdraw(EVPN, packed.values(), longest):
        [(_, body)] = framer.feed(data)
        gone |= decode_update(body, INTERNAL, ALL, AttributeCache()).withdrawn[EVPN]
    assert gone == packed


def test_prefixes_of_ipv4_are_outside_the_attributes() -> None:
    value = Attributes(next_hop=IPv4Address("10.0.0.1"), local_pref=100)
    route = encode_prefix(IPv4Address("10.1.0.0"), 16)
    [data] = announce(IPV4, [route], value, INTERNAL, 4096)
    update = decoded(data)
    assert update.announced[IPV4].routes == {route: route}
    assert update.announced[IPV4].attributes.next_hop == IPv4Address("10.0.0.1")
    [data] = withdraw(IPV4, [route], 4096)
    assert decoded(data).withdrawn == {IPV4: {route: route}}


def test_the_end_of_a_rib() -> None:
    for family in ALL:
        assert decoded(end_of_rib(family)).end_of_rib == family
    assert decoded(update_of(*WHOLE)).end_of_rib is None


def test_families_that_were_not_negotiated_are_ignored() -> None:
    for data in (update_of(*WHOLE), next(withdraw(EVPN, [ROUTE], 4096))):
        [(_, body)] = Framer().feed(data)
        update = decode_update(body, INTERNAL, (IPV4,), AttributeCache())
        assert (update.announced, update.withdrawn) == ({}, {})
    assert decode_unreach(encode_unreach(Family(1, 4), b"abc")) == (Family(1, 4), b"")
    assert decode_reach(b"\0\1\4\3abc\0xyz") == (Family(1, 4), None, b"")


# Communities -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("65000:10", "0002fde80000000a"),
        ("4200000000:10", "0202fa56ea00000a"),
        ("10.0.0.1:10", "01020a000001000a"),
        ("0:4294967295", "00020000ffffffff"),
    ],
)
def test_route_targets_have_three_forms(text: str, encoded: str) -> None:
    assert ext.route_target(text).hex() == encoded
    assert ext.community_text(bytes.fromhex(encoded)) == f"RT:{text}"
    assert ext.route_distinguisher_text(ext.route_distinguisher(text)) == text


@pytest.mark.parametrize("text", ["", "1", "x:1", "1:x", "65536:65536", "1.2.3.4:65536", "1:4294967296", "-1:1", "1:²"])
def test_wrong_targets_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not AS:NUMBER|is out of range"):
        ext.route_target(text)


def test_targets_that_are_derived_from_a_vni() -> None:
    assert ext.community_text(ext.auto_target(65000, 10)) == "RT:65000:10"
    assert ext.community_text(ext.auto_target(65000, 10, rfc8365=True)) == f"RT:65000:{0x10000000 + 10}"
    assert ext.community_text(ext.auto_target(4200000000, 10)) == "RT:59904:10"


@given(st.integers(0, 2**32 - 1), st.booleans(), macs, labels)
def test_communities_of_evpn(sequence: int, sticky: bool, mac: bytes, label: int) -> None:
    moved = ext.Mobility(sequence, sticky)
    every = (
        ext.route_target("1:1"),
        ext.encapsulation(),
        ext.mac_mobility(moved),
        ext.routers_mac(mac),
        ext.esi_label(label, single_active=sticky),
        ext.es_import(mac),
        ext.DEFAULT_GATEWAY,
    )
    assert all(len(one) == 8 for one in every)
    assert ext.mobility_of(every) == moved
    assert ext.mobility_of(()) == ext.Mobility(0, False)
    assert (ext.encapsulation_of(every), ext.encapsulation_of(())) == (ext.VXLAN, None)
    assert (ext.routers_mac_of(every), ext.routers_mac_of(())) == (mac, None)
    assert not any(ext.community_text(one).startswith("UNK") for one in every)
    assert ext.community_text(b"\x80" + bytes(7)) == "UNK:8000000000000000"
