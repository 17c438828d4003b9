"""When operations are due.  Pure: times are seconds from the beginning, chance comes from outside.

    steady    one every 1/rate seconds
    poisson   independent of each other: the gaps between them are exponential, the rate is the same on average

Operations are due whether or not those before them are done: who waits for a slow server before he asks the next thing
does not see how slow it is.
"""

from collections.abc import Iterator
from enum import StrEnum
from random import Random


class Arrivals(StrEnum):
    """How operations follow each other."""

    STEADY = "steady"
    POISSON = "poisson"


def times(how: Arrivals, rate: float, random: Random, *, start: float = 0.0) -> Iterator[float]:
    """Give the times at which operations are due, for ever, from `start` on."""
    number, at = 0, start
    while True:
        yield at
        number += 1
        at = start + number / rate if how is Arrivals.STEADY else at + random.expovariate(rate)
