"""Addresses, read as Go reads them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.values import addresses

ADDRESSES = st.ip_addresses().filter(lambda ip: getattr(ip, "ipv4_mapped", None) is None)


@given(ADDRESSES)
def test_every_address_is_read_back(ip: addresses.Address) -> None:
    assert addresses.is_ip(str(ip))
    assert addresses.address(str(ip)) == ip
    assert addresses.is_ipv4(str(ip)) == (ip.version == 4)
    assert addresses.family(str(ip)) == ip.version


@given(st.text(alphabet="0123456789abcdef:./%-", max_size=45))
def test_nothing_is_read_that_the_standard_library_refuses(text: str) -> None:
    if addresses.is_ip(text):
        ipaddress.ip_address(text)
    if addresses.is_cidr(text):
        ipaddress.ip_interface(text)
    if addresses.is_block(text):
        ipaddress.ip_network(text, strict=True)


@given(ADDRESSES, st.integers(0, 128))
def test_a_block_has_no_bits_behind_its_prefix(ip: addresses.Address, length: int) -> None:
    text = f"{ip}/{min(length, ip.max_prefixlen)}"
    network = ipaddress.ip_interface(text).network
    assert addresses.is_cidr(text)
    assert addresses.is_block(str(network))
    assert addresses.is_block(text) == (network.network_address == ip)
    assert addresses.block(str(network)) == network
    assert addresses.within(str(ip), text)
    assert addresses.inside(text, str(network))


@given(ADDRESSES, ADDRESSES)
def test_a_range_holds_both_its_ends(one: addresses.Address, other: addresses.Address) -> None:
    low, high = sorted((one, other), key=int)
    text = f"{low}-{high}"
    assert addresses.is_range(text) == (one.version == other.version)
    if one.version == other.version:
        assert addresses.span(text) == (low, high)
        assert str(addresses.span(text)) == (text if low != high else str(low))
        assert addresses.is_range(f"{high}-{low}") == (one.version == 6 or low == high)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0",
        "10.0.0.256",
        "010.0.0.1",
        "10.0.0.1 ",
        "10.0.0.1\n",
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
        ":::",
        "1:2:3:4:5:6:7:8:9",
        "\u0661.1.1.1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    assert not addresses.is_ip(text)
    with pytest.raises(ValueError, match="is not an IPv4 or IPv6 address"):
        addresses.address(text)


@pytest.mark.parametrize("text", ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "fd00::/129", "fd00::/-1", "/8", "a/8"])
def test_what_is_no_cidr(text: str) -> None:
    assert not addresses.is_cidr(text)
    with pytest.raises(ValueError, match="prefix length"):
        addresses.interface(text)
    with pytest.raises(ValueError, match="address block"):
        addresses.block(text)


def test_an_ipv6_range_may_be_written_either_way_round() -> None:
    assert str(addresses.span("fd00::9-fd00::1")) == "fd00::1-fd00::9"


def test_what_is_no_range() -> None:
    with pytest.raises(ValueError, match="range of addresses"):
        addresses.span("10.0.0.9-10.0.0.1")
    assert not addresses.is_range("10.0.0.9-")


def test_blocks_of_different_families_are_never_inside_each_other() -> None:
    assert not addresses.inside("10.0.0.0/8", "::/0")
    assert not addresses.inside("10.0.0.0/8", "10.0.0.0/16")
    assert addresses.inside("10.1.0.0/16", "10.0.0.0/8")
    assert not addresses.within("10.0.0.1", "::/0")
