"""Rates, sizes and durations."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.schemas import rules
from netloom.model.values import quantities


@pytest.mark.parametrize(
    ("text", "bits"),
    [("10mbit", 10_000_000), ("1.5gbit", 1_500_000_000), ("64kibit", 65_536), ("1tbit", 10**12)],
)
def test_rates_are_bits_per_second(text: str, bits: int) -> None:
    assert quantities.rate(text) == bits


@pytest.mark.parametrize(("text", "size"), [("64kb", 65_536), ("1500b", 1500), ("0.5mb", 524_288), ("1gb", 2**30)])
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert quantities.size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("20ms", 0.02), ("1.5s", 1.5), ("300us", 0.0003), ("5ns", 5e-9)])
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert quantities.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "mbit", "10mbps", "-1mbit", "1 mbit", "10MBIT", "1e3bit", "10mbit\n"])
def test_what_is_no_rate_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate: a number and one of bit, kbit, mbit"):
        quantities.rate(text)


READERS = {
    rules.RATE_PATTERN: quantities.rate,
    rules.SIZE_PATTERN: quantities.size,
    rules.DURATION_PATTERN: quantities.duration,
}


@pytest.mark.parametrize("pattern", READERS)
def test_what_the_schema_lets_in_can_be_read(pattern: str) -> None:
    @given(st.from_regex(re.compile(pattern.replace("$", r"\Z"), re.ASCII), fullmatch=True))
    def check(text: str) -> None:
        assert READERS[pattern](text) >= 0

    check()


@given(st.integers(0, 10**9), st.sampled_from(sorted(quantities.RATES)))
def test_a_rate_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert quantities.rate(f"{number}{unit}") == number * quantities.RATES[unit]
    assert quantities.rate(f"{number}.5{unit}") == int((Decimal(number) + Decimal("0.5")) * quantities.RATES[unit])
