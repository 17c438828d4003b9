"""Sets of addresses and blocks, against a model that is a plain set."""

import itertools
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from netloom.plan.addresses.blocks import Address, AddressSet, Pool, address, pool

NUMBERS = st.one_of(st.integers(0, 40), st.integers(2**128 - 8, 2**128 - 1))
ENDS = st.integers(0, 44)


class Sets(RuleBasedStateMachine):
    """The same done to an `AddressSet` and to a set."""

    def __init__(self) -> None:
        super().__init__()
        self.set = AddressSet()
        self.model: set[int] = set()

    @rule(number=NUMBERS)
    def add(self, number: int) -> None:
        assert self.set.add(number) == (number not in self.model)
        self.model.add(number)

    @rule(number=NUMBERS)
    def discard(self, number: int) -> None:
        assert self.set.discard(number) == (number in self.model)
        self.model.discard(number)

    @rule(one=ENDS, other=ENDS)
    def ask(self, one: int, other: int) -> None:
        first, last = sorted((one, other))
        within = [number for number in range(first, last + 1) if number in self.model]
        free = [number for number in range(first, last + 1) if number not in self.model]
        assert self.set.count(first, last) == len(within)
        assert self.set.gap(first, last) == (free[0] if free else None)

    @invariant()
    def is_the_same(self) -> None:
        assert list(self.set) == sorted(self.model)
        assert len(self.set) == len(self.model)
        assert all(number in self.set for number in self.model)
        runs = self.set.runs()
        assert all(first <= last for first, last in runs)
        assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(runs))


Sets.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSets = Sets.TestCase


@st.composite
def subnets(draw: st.DrawFn) -> tuple[Pool, set[int]]:
    """Return a small Subnet, and the addresses of it that can be allocated, one by one."""
    length = draw(st.integers(26, 32))
    block = ip_network(f"10.0.{draw(st.integers(0, 1))}.0/{length}")
    base, last = int(block.network_address), int(block.broadcast_address)
    inside = st.integers(base, last)
    gateway = draw(st.none() | inside)
    spans = draw(st.lists(st.tuples(inside, inside).map(sorted), max_size=4))
    made = pool(
        "s",
        "blue",
        str(block),
        gateway=str(Address(4, gateway)) if gateway is not None else "",
        exclude=[f"{Address(4, low)}-{Address(4, high)}" for low, high in spans],
    )
    numbers = set(range(base, last + 1))
    if last - base >= 4:
        numbers -= {base, base + 1, last}
    numbers -= {gateway if gateway is not None else base + 1 if last - base >= 2 else -1}
    numbers -= {number for low, high in spans for number in range(low, high + 1)}
    return made, numbers


@given(subnets(), st.data())
def test_a_subnet_allocates_every_address_that_it_does_not_refuse(
    made: tuple[Pool, set[int]], data: st.DataObject
) -> None:
    where, numbers = made
    assert where.capacity() == len(numbers)
    assert {n for low, high in where.ranges for n in range(low, high + 1)} == numbers
    refused = {n for n in range(where.first, where.last + 1) if where.refusal(Address(4, n))}
    # The second address is never chosen; one that the gateway does not need may be requested.
    second = where.first + 1
    excluded = any(low <= second <= high for low, high in where.excluded)
    on_request = {second} if where.last - where.first >= 4 and second != where.gateway and not excluded else set()
    assert refused == set(range(where.first, where.last + 1)) - numbers - on_request
    assert {n for n in range(where.first, where.last + 1) if where.may_choose(Address(4, n))} == numbers
    used = data.draw(st.sets(st.integers(where.first, where.last)))
    taken = AddressSet(used)
    assert where.free(taken) == len(numbers - used)
    cursor = data.draw(st.integers(where.first - 2, where.last + 2))
    left = sorted(numbers - used)
    wanted = next((n for n in left if n >= cursor), left[0] if left else None)
    assert where.choose(taken, cursor) == wanted


@given(subnets(), st.data())
def test_a_reserved_address_counts_as_used_and_is_not_chosen(made: tuple[Pool, set[int]], data: st.DataObject) -> None:
    plain, numbers = made
    inside = st.sets(st.integers(plain.first, plain.last))
    used, reserved = data.draw(inside), data.draw(inside)
    where, taken = replace(plain, reserved=AddressSet(reserved)), AddressSet(used)
    assert where.capacity() == plain.capacity()
    assert where.used(taken) == len(numbers & (used | reserved))
    assert {n for n in range(where.first, where.last + 1) if where.may_choose(Address(4, n))} == numbers - reserved
    cursor = data.draw(st.integers(where.first - 2, where.last + 2))
    left = sorted(numbers - used - reserved)
    assert where.choose(taken, cursor) == next((n for n in left if n >= cursor), left[0] if left else None)


@given(subnets())
def test_a_subnet_is_filled_to_its_last_address(made: tuple[Pool, set[int]]) -> None:
    where, numbers = made
    taken, cursor, given_away = AddressSet(), 0, []
    while (number := where.choose(taken, cursor)) is not None:
        taken.add(number)
        given_away.append(number)
        cursor = number + 1
    assert sorted(given_away) == sorted(numbers)
    assert len(set(given_away)) == len(given_away)


def test_a_large_block_costs_no_more_than_a_small_one() -> None:
    huge = pool("s", "blue", "fd00::/64", exclude=["fd00::2-fd00::ffff:ffff"])
    assert huge.capacity() == 2**64 - 3 - (2**32 - 2)
    taken = AddressSet()
    for _ in range(1000):
        number = huge.choose(taken)
        assert number is not None
        taken.add(number)
    assert taken.runs() == [(0xFD00 << 112 | 1 << 32, (0xFD00 << 112) + (1 << 32) + 999)]


@pytest.mark.parametrize("text", ["10.0.0.1", "fd00::1", "::", "255.255.255.255", "fd00:1:2:3:4:5:6:7"])
def test_an_address_is_read_and_written_back(text: str) -> None:
    found = address(text)
    assert found is not None
    assert str(found) == text


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.256", "10.0.0.01", "::ffff:10.0.0.1", "fd00::1%eth0", "a.b.c.d"]
)
def test_what_is_no_address_is_not_read(text: str) -> None:
    assert address(text) is None


def test_the_gateway_of_another_family_and_the_exclusions_of_another_take_nothing() -> None:
    assert pool("s", "blue", "10.0.0.0/24", exclude=["fd00::1"]).capacity() == 253
    with pytest.raises(ValueError, match="does not appear"):
        pool("s", "blue", "10.0.0.0/33")
