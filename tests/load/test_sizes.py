"""How large Networks are, and which blocks they get."""

from ipaddress import ip_address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Invalid
from netloom.load.sizes import SPARE, Shape, average_peers, blocks, divided, sizes


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (Shape(count=4, top=100), [100, 50, 34, 25]),
        (Shape(count=3, top=10, exponent=0), [10, 10, 10]),
        (Shape(count=3, top=10, exponent=2), [10, 3, 2]),
        (Shape(count=3, top=10, bias=1), [10, 7, 5]),
        (Shape(count=2, top=1), [1, 1]),
    ],
)
def test_sizes_follow_zipf(shape: Shape, found: list[int]) -> None:
    assert sizes(shape) == found


SHAPES = st.builds(
    Shape,
    count=st.integers(1, 300),
    top=st.integers(1, 2000),
    exponent=st.floats(0, 4),
    bias=st.floats(0, 100),
)


@given(SHAPES)
def test_sizes_fall_and_are_what_the_formula_says(shape: Shape) -> None:
    found = sizes(shape)
    assert len(found) == shape.count
    assert found == sorted(found, reverse=True)
    assert min(found) >= 1
    for number, size in enumerate(found, 1):
        value = (1 + shape.bias) * shape.top / (number + shape.bias) ** shape.exponent
        assert value - 1e-6 * value <= size < value + 1 + 1e-6


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_the_average_of_peers_is_what_counting_them_gives(found: list[int]) -> None:
    each = [size - 1 for size in found for _ in range(size)]
    assert average_peers(found) == pytest.approx(sum(each) / len(each))


def test_nobody_has_peers_where_nobody_is() -> None:
    assert average_peers([]) == 0


@given(st.integers(1, 1000), st.integers(0, 1000), st.booleans())
def test_every_other_network_has_two_parts_and_nobody_is_lost(size: int, number: int, single: bool) -> None:
    parts = divided(size, number, single=single)
    assert sum(parts) == size
    assert all(part > 0 for part in parts)
    assert len(parts) == (2 if number % 2 and size > 1 and not single else 1)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    st.sampled_from(["172.24.0.0", "10.0.0.1", "10.255.3.7", "fd00::", "2001:db8::5"]),
)
def test_blocks_are_disjoint_large_enough_and_not_below_the_base(wanted: list[int], base: str) -> None:
    found = blocks(wanted, base)
    assert int(found[0].network_address) >= int(ip_address(base))
    for before, after in pairwise(found):
        assert int(before.broadcast_address) < int(after.network_address)
    for count, block in zip(wanted, found, strict=True):
        assert block.num_addresses >= count + SPARE


def test_blocks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Invalid, match="do not fit above"):
        blocks([100, 100, 100], "255.255.255.0")
