"""Generated EVPN routes, encoded here and decoded by os-ken and ExaBGP, and the other way round: the same values.

Where one of them differs, a test says so, and what the RFC says. Everything else has to agree.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bgp_codecs import Evpn, ExaBgp, OsKen, Ours, Plain

OURS = Ours()
Other = OsKen | ExaBgp
OTHERS: list[Other] = [OsKen(), ExaBgp()]

numbers, labels = st.integers(0, 2**32 - 1), st.integers(0, 2**24 - 1)
v4, v6 = st.ip_addresses(v=4, network="10.0.0.0/8").map(str), st.ip_addresses(v=6, network="fd00::/8").map(str)
addresses = v4 | v6
macs = st.binary(min_size=6, max_size=6).map(lambda mac: mac.hex(":"))
administered = st.one_of(
    st.builds("{}:{}".format, st.integers(1, 0xFFFF), numbers),
    st.builds("{}:{}".format, st.integers(0x10001, 2**32 - 1), st.integers(0, 0xFFFF)),
    st.builds("{}:{}".format, v4, st.integers(0, 0xFFFF)),
)
"""Route distinguishers and route targets, in their three forms."""
# RFC 7432 section 5: types 0 to 5; the last octet of all but 0 and 3 is zero.
segments = st.one_of(
    st.builds(lambda kind, rest: f"{kind:02x}{rest.hex()}", st.sampled_from((0, 3)), st.binary(min_size=9, max_size=9)),
    st.builds(
        lambda kind, rest: f"{kind:02x}{rest.hex()}00",
        st.sampled_from((1, 2, 4, 5)),
        st.binary(min_size=8, max_size=8),
    ),
)
routes: st.SearchStrategy[Plain] = st.one_of(
    st.tuples(st.just(1), administered, segments, numbers, labels),
    st.tuples(
        st.just(2),
        administered,
        segments,
        numbers,
        macs,
        st.none() | addresses,
        st.tuples(labels) | st.tuples(labels, labels),
    ),
    st.tuples(st.just(3), administered, numbers, addresses),
    st.tuples(st.just(4), administered, segments, addresses),
    st.tuples(st.just(5), administered, segments, numbers, v4, st.integers(0, 32), v4 | st.just("0.0.0.0"), labels),
    st.tuples(st.just(5), administered, segments, numbers, v6, st.integers(0, 128), v6 | st.just("::"), labels),
)


def key_of(route: Plain) -> Plain:
    """Return what makes a route another one than a second: RFC 7432 section 7, 9136 section 3.1."""
    match route:
        case (1, rd, esi, tag, *_):
            return (1, rd, esi, tag)
        case (2, rd, _, tag, mac, ip, _):
            return (2, rd, tag, mac, ip)
        case (5, rd, _, tag, prefix, length, *_):
            return (5, rd, tag, prefix, length)
    return route


several = st.lists(routes, min_size=1, max_size=20, unique_by=key_of).map(tuple)
communities: st.SearchStrategy[Plain] = st.one_of(
    st.tuples(st.just("target"), administered),
    st.tuples(st.just("encapsulation"), st.integers(0, 0xFFFF)),
    st.tuples(st.just("mobility"), numbers, st.booleans()),
    st.tuples(st.just("mac"), macs),
    st.tuples(st.just("gateway")),
    st.tuples(st.just("esi-label"), labels, st.booleans()),
    st.tuples(st.just("es-import"), macs),
)
updates = st.builds(
    Evpn,
    next_hop=addresses,
    routes=several,
    communities=st.lists(communities, max_size=12, unique=True).map(tuple),
    as_path=st.lists(st.integers(1, 2**32 - 1), max_size=10).map(tuple),
    origin=st.integers(0, 2),
    med=st.none() | numbers,
    local_pref=numbers,
    originator=st.none() | v4,
    clusters=st.lists(v4, max_size=4).map(tuple),
    pmsi=st.none() | st.tuples(st.integers(0, 255), labels, addresses),
)


def common(value: Evpn, other: Other) -> Evpn:
    """Return an UPDATE without what `other` cannot say or understand, as the tests below show."""
    if isinstance(other, ExaBgp):
        value = value._replace(next_hop=_four(value.next_hop))
        if value.pmsi is not None:
            flags, vni, endpoint = value.pmsi
            value = value._replace(pmsi=(flags, vni, _four(endpoint)))
    elif OsKen.is_guessed_wrong(value.as_path):
        value = value._replace(as_path=())
    return value


def _four(address: str) -> str:
    return "10.0.0.1" if ":" in address else address


def unordered(value: Evpn) -> Evpn:
    """Return an UPDATE with its lists sorted: no order of routes or communities (RFC 4360) has a meaning."""
    routes, communities = (tuple(sorted(found, key=repr)) for found in (value.routes, value.communities))
    return value._replace(routes=routes, communities=communities)


def first_labels(routes: tuple[Plain, ...]) -> tuple[Plain, ...]:
    """Return routes without second labels.

    A MAC/IP route may have one, the VNI of the router (RFC 7432 section 7.2, RFC 9135 section 5.1). os-ken takes the
    two for a stack of MPLS labels, in which a bit of the first says whether there is a second; ExaBGP reads one.
    """
    return tuple((*route[:6], route[6][:1]) if route[0] == 2 else route for route in routes)


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: one.name)
@given(value=updates)
def test_what_we_encode_means_the_same_to_others(other: Other, value: Evpn) -> None:
    value = common(value, other)
    found = other.decode(OURS.encode(value))
    assert unordered(found) == unordered(value._replace(routes=first_labels(value.routes)))


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: one.name)
@given(value=updates)
def test_what_others_encode_means_the_same_to_us(other: Other, value: Evpn) -> None:
    value = common(value, other)
    assert unordered(OURS.decode(other.encode(value))) == unordered(value)


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: one.name)
@given(gone=several)
def test_withdrawals_agree(other: Other, gone: tuple[Plain, ...]) -> None:
    theirs = other.withdrawn(OURS.withdraw(gone))
    assert sorted(theirs, key=repr) == sorted(first_labels(gone), key=repr)
    assert sorted(OURS.withdrawn(other.withdraw(gone)), key=repr) == sorted(gone, key=repr)


# Where they differ -----------------------------------------------------------

ROUTE: Plain = (3, "10.0.0.1:10", 0, "10.0.0.1")


def test_exabgp_takes_no_next_hop_of_ipv6() -> None:
    """RFC 7432 sections 7 and 11, RFC 8365 section 5.1.3: the next hop is an IPv4 or an IPv6 address."""
    value = Evpn("fd00::1", (ROUTE,))
    with pytest.raises(Exception, match="invalid l2vpn evpn next-hop length 16 expected 4"):
        ExaBgp().decode(OURS.encode(value))
    assert OURS.decode(OURS.encode(value)) == value
    assert OsKen().decode(OURS.encode(value)) == value


def test_exabgp_loses_the_label_of_a_tunnel_to_ipv6() -> None:
    """RFC 6514 section 5, RFC 8365 section 9: the endpoint has four or sixteen bytes, the label is the VNI."""
    value = Evpn("10.0.0.1", (ROUTE,), pmsi=(0, 10, "fd00::1"))
    assert ExaBgp().decode(OURS.encode(value)).pmsi == (0, None, "fd00::1")
    assert OsKen().decode(OURS.encode(value)) == value


def test_exabgp_ignores_the_sticky_bit_beside_reserved_ones() -> None:
    """RFC 7432 section 7.7: the low-order bit of the flags is the sticky flag, the others are not to be examined."""
    value = Evpn("10.0.0.1", (ROUTE,), (("mobility", 7, True),))
    data = OURS.encode(value)
    data = data.replace(bytes.fromhex("0600010000000007"), bytes.fromhex("0600030000000007"))
    assert ExaBgp().decode(data).communities == (("mobility", 7, False),)
    assert OURS.decode(data) == OsKen().decode(data) == value


def test_osken_guesses_the_size_of_as_numbers() -> None:
    """RFC 6793 section 4.1: it is four octets between two speakers that have both said so, and never a guess."""
    value = Evpn("10.0.0.1", (ROUTE,), as_path=(0x0100,))
    assert OsKen.is_guessed_wrong(value.as_path)
    assert OsKen().decode(OURS.encode(value)).as_path != value.as_path
    assert OURS.decode(OURS.encode(value)) == ExaBgp().decode(OURS.encode(value)) == value


def test_osken_has_no_route_distinguisher_of_as_65536() -> None:
    """RFC 4364 section 4.2: an AS of more than two octets has the form of type 2."""
    value = Evpn("10.0.0.1", ((3, "65536:10", 0, "10.0.0.1"),))
    with pytest.raises(struct.error):
        OsKen().encode(value)
    assert OsKen().decode(OURS.encode(value)) == value


def test_others_do_not_see_the_second_label() -> None:
    """RFC 7432 section 7.2: the second label is there if the length of the route says so."""
    value = Evpn("10.0.0.1", ((2, "10.0.0.1:10", "00" * 10, 0, "02:00:00:00:00:01", "10.1.0.1", (11, 10)),))
    assert OURS.decode(OURS.encode(value)) == value
    for other in OTHERS:
        [route] = other.decode(OURS.encode(value)).routes
        assert route[6] == (11,)
