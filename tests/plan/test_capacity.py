from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.plan.addresses.blocks import MOST, block, capacity, default_gateway, overlap, usable


@pytest.mark.parametrize(
    ("cidr", "gateway", "exclude", "expected"),
    [
        ("10.10.0.0/24", "10.10.0.1", ["10.10.0.2", "10.10.0.200-10.10.0.254"], 197),
        ("10.10.0.0/24", "", [], 253),
        ("10.10.0.0/24", "10.10.0.254", [], 252),
        ("10.0.0.0/29", "", [], 5),
        ("10.0.0.0/30", "", [], 3),
        ("10.0.0.0/31", "", [], 2),
        ("10.0.0.0/32", "", [], 1),
        ("10.0.0.0/32", "10.0.0.0", [], 0),
        ("10.0.0.0/24", "", ["0.0.0.0-255.255.255.255"], 0),
        ("10.0.0.0/24", "", ["192.168.0.1", "fd00::1"], 253),
        ("fd00::/120", "", [], 253),
        ("fd00::/64", "", [], MOST),
        ("fd00::/8", "fd00::1", ["fd00::-fdff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"], 14),
    ],
)
def test_capacity_of_a_block(cidr: str, gateway: str, exclude: list[str], expected: int) -> None:
    assert capacity(block(cidr), gateway, exclude) == expected


@given(
    st.integers(24, 32), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=6), st.integers(-1, 260)
)
def test_capacity_is_what_counting_one_by_one_gives(length: int, spans: list[tuple[int, int]], gateway: int) -> None:
    network = ip_network(f"10.0.1.0/{length}")
    base, end = int(network.network_address), int(network.broadcast_address)
    exclude = [f"{ip_address(base + min(s))}-{ip_address(base + max(s))}" for s in spans]
    taken = {base + n for low, high in map(sorted, spans) for n in range(low, high + 1)}
    taken.add(base + gateway if gateway >= 0 else default_gateway(base, end) or -1)
    first, last = usable(base, end)
    expected = sum(address not in taken for address in range(first, last + 1))
    assert capacity(network, str(ip_address(base + gateway)) if gateway >= 0 else "", exclude) == expected


def test_blocks_overlap_within_a_family_only() -> None:
    assert overlap(block("10.0.0.0/8"), block("10.9.0.7/24"))
    assert not overlap(block("10.0.0.0/24"), block("10.0.1.0/24"))
    assert not overlap(block("0.0.0.0/0"), block("::/0"))
