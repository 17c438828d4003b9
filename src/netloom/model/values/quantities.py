"""Parsing of rates, sizes and durations in the notation of tc.

As in tc, `kbit` is a thousand bits and `kibit` 1024, while `kb` of a size is 1024 bytes. All are exact: floats are used
in the last step only.
"""

import re
from decimal import Decimal

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)")

RATES = {
    f"{prefix}bit": factor
    for prefix, factor in {
        "": 1,
        "k": 10**3,
        "m": 10**6,
        "g": 10**9,
        "t": 10**12,
        "ki": 2**10,
        "mi": 2**20,
        "gi": 2**30,
        "ti": 2**40,
    }.items()
}
SIZES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}
DURATIONS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _split(text: str, units: dict[str, int], what: str) -> tuple[Decimal, int]:
    found = _QUANTITY.fullmatch(text)
    if not found or found[2] not in units:
        raise ValueError(f"{text!r} is not a {what}: a number and one of {', '.join(units)}")
    return Decimal(found[1]), units[found[2]]


def rate(text: str) -> int:
    """Return a rate (`10mbit`) in bits per second, rounded down."""
    number, factor = _split(text, RATES, "rate")
    return int(number * factor)


def size(text: str) -> int:
    """Return a size (`64kb`) in bytes, rounded down."""
    number, factor = _split(text, SIZES, "size")
    return int(number * factor)


def duration(text: str) -> float:
    """Return a duration (`20ms`) in seconds."""
    number, divisor = _split(text, DURATIONS, "duration")
    return float(number / divisor)
