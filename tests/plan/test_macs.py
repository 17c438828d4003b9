"""MACs made of VNI and address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.plan.addresses import macs
from netloom.plan.addresses.blocks import Address, address, lock_name

VECTORS = [
    (1, "192.168.10.2", "02:a8:0a:02:00:01", "v1-1-192-168-10-2"),
    (2, "192.168.11.200", "02:a8:0b:c8:00:02", "v1-2-192-168-11-200"),
    (1, "10.0.0.2", "06:00:00:02:00:01", "v1-1-10-0-0-2"),
    (65536, "172.24.0.5", "0a:18:00:05:00:00", "v1-65536-172-24-0-5"),
    (2097151, "10.255.255.254", "fe:ff:ff:fe:ff:ff", "v1-2097151-10-255-255-254"),
    (4660, "172.31.1.9", "02:1f:01:09:12:34", "v1-4660-172-31-1-9"),
    (66051, "192.168.0.77", "0a:a8:00:4d:02:03", "v1-66051-192-168-0-77"),
]


def at(text: str) -> Address:
    found = address(text)
    assert found is not None
    return found


@pytest.mark.parametrize(("vni", "ip", "mac", "name"), VECTORS)
def test_the_vectors_of_kos_hold(vni: int, ip: str, mac: str, name: str) -> None:
    assert macs.formula(vni, at(ip)) == mac
    assert next(macs.candidates(vni, at(ip))) == mac
    assert lock_name(vni, at(ip)) == name
    assert str(at(ip)) == ip


@pytest.mark.parametrize(("vni", "ip"), [(1 << 21, "10.0.0.2"), (1, "8.8.8.8"), (1, "172.32.0.1"), (1, "fd00::2")])
def test_what_the_formula_does_not_fit_gets_a_hash(vni: int, ip: str) -> None:
    assert macs.formula(vni, at(ip)) == ""
    first = next(macs.candidates(vni, at(ip)))
    assert first == macs.hashed(vni, at(ip))
    assert int(first[:2], 16) & 3 == 2


VNIS = st.integers(1, 2**24 - 1)
ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda n: Address(4, n)), st.integers(0, 2**128 - 1).map(lambda n: Address(6, n))
)
PRIVATE = st.one_of(
    st.integers(0x0A000000, 0x0AFFFFFF), st.integers(0xAC100000, 0xAC1FFFFF), st.integers(0xC0A80000, 0xC0A8FFFF)
)


@given(VNIS, ADDRESSES)
def test_all_candidates_are_unicast_locally_administered_and_distinct(vni: int, one: Address) -> None:
    found = list(macs.candidates(vni, one))
    assert len(found) == len(set(found)) == macs.CANDIDATES
    assert all(int(mac[:2], 16) & 3 == 2 and len(mac) == 17 for mac in found)


@given(st.tuples(st.integers(1, 2**21 - 1), PRIVATE), st.tuples(st.integers(1, 2**21 - 1), PRIVATE))
def test_the_formula_gives_no_mac_twice(one: tuple[int, int], other: tuple[int, int]) -> None:
    first, second = (macs.formula(vni, Address(4, number)) for vni, number in (one, other))
    assert first
    assert (first == second) == (one == other)


@given(st.tuples(VNIS, ADDRESSES), st.tuples(VNIS, ADDRESSES))
def test_no_two_addresses_share_the_name_of_a_lock(one: tuple[int, Address], other: tuple[int, Address]) -> None:
    assert (lock_name(*one) == lock_name(*other)) == (one == other)
