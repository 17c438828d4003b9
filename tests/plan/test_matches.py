"""Match expressions: blocks with holes, sets and ranges."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.kinds.policy import PortRange, RuleProtocol
from netloom.plan.policy.matches import addressed, carried, either, left, merged, one_of


def ports(*written: str) -> list[PortRange]:
    """Return ranges written as `tcp`, `tcp/80`, `tcp/80-90`."""
    found = []
    for one in written:
        protocol, _, numbers = one.partition("/")
        first, _, last = numbers.partition("-")
        found.append(
            PortRange(
                protocol=RuleProtocol(protocol),
                port=int(first) if first else None,
                end_port=int(last) if last else None,
            )
        )
    return found


@pytest.mark.parametrize(
    ("cidr", "exceptions", "blocks"),
    [
        ("10.0.0.0/8", [], ["10.0.0.0/8"]),
        ("10.0.0.0/30", ["10.0.0.1/32"], ["10.0.0.0/32", "10.0.0.2/31"]),
        ("10.0.0.0/8", ["10.0.0.0/8"], []),
        ("10.0.0.0/9", ["10.0.0.0/8"], []),
        ("10.0.0.0/8", ["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"], []),
        ("10.0.0.0/8", ["192.0.2.0/24", "fd00::/8"], ["10.0.0.0/8"]),
        ("fd00::/126", ["fd00::2/127", "10.0.0.0/8"], ["fd00::/127"]),
    ],
)
def test_what_is_left_of_a_block(cidr: str, exceptions: list[str], blocks: list[str]) -> None:
    assert left(cidr, exceptions) == blocks


@given(st.data())
def test_what_is_left_is_the_block_without_the_exceptions(data: st.DataObject) -> None:
    bases = st.tuples(st.integers(0, 255), st.integers(24, 32))
    blocks = bases.map(lambda one: str(ip_network(f"10.0.0.{one[0]}/{one[1]}", strict=False)))
    whole, holes = data.draw(blocks), data.draw(st.lists(blocks, max_size=4))
    remaining = [ip_network(one) for one in left(whole, holes)]
    for number in range(256):
        ip = ip_address(f"10.0.0.{number}")
        wanted = ip in ip_network(whole) and not any(ip in ip_network(hole) for hole in holes)
        assert [ip in one for one in remaining].count(True) == wanted


@pytest.mark.parametrize(
    ("blocks", "fewest"),
    [
        ([], []),
        (["10.0.1.0/24", "10.0.0.0/24"], ["10.0.0.0/23"]),
        (["10.9.0.0/24", "10.2.0.0/24", "10.9.0.7/32"], ["10.2.0.0/24", "10.9.0.0/24"]),
        (["fd00:0::/64", "fd00::/64"], ["fd00::/64"]),
    ],
)
def test_blocks_are_written_as_few(blocks: list[str], fewest: list[str]) -> None:
    assert merged(blocks) == fewest


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(26, 32)), max_size=8))
def test_few_blocks_are_the_same_addresses(drawn: list[tuple[int, int]]) -> None:
    blocks = [str(ip_network(f"10.0.0.{base}/{length}", strict=False)) for base, length in drawn]
    fewest = [ip_network(one) for one in merged(blocks)]
    assert len(fewest) <= len(set(blocks))
    for number in range(256):
        ip = ip_address(f"10.0.0.{number}")
        assert sum(ip in one for one in fewest) == any(ip in ip_network(one) for one in blocks)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        (["tcp/80"], "tcp.dst == 80"),
        (["tcp/443", "tcp/80", "tcp/80"], "tcp.dst == {80, 443}"),
        (["tcp/80-90"], "80 <= tcp.dst <= 90"),
        (["tcp/80-90", "tcp/85-100", "tcp/101", "tcp/200"], "(tcp.dst == 200 || 80 <= tcp.dst <= 101)"),
        (["tcp/80", "tcp"], "tcp"),
        (["icmp", "udp/53", "sctp"], "(udp.dst == 53 || sctp || icmp4)"),
    ],
)
def test_ports_are_written_shortly(written: list[str], match: str) -> None:
    assert carried(ports(*written), 4) == match


def test_icmp_is_of_one_family_or_of_both() -> None:
    assert [carried(ports("icmp"), version) for version in (4, 6, None)] == ["icmp4", "icmp6", "icmp"]


def test_a_block_of_everything_is_the_family() -> None:
    assert addressed(6, "src", ["fd00::/8", "::/0"]) == "ip6"
    assert addressed(4, "dst", ["10.0.0.0/8"]) == "ip4.dst == 10.0.0.0/8"


def test_alternatives_stand_in_a_set() -> None:
    assert one_of("ip4.src", ["10.0.0.1", "$set"]) == "ip4.src == {10.0.0.1, $set}"
    assert either(["a", "b"]) == "(a || b)"
    assert either(["a"]) == "a"
