"""The times at which operations are due.  Pure: times are seconds from the start, randomness is an argument.

    steady    one every 1/rate seconds
   poisson   independent of each other: the gaps between them are exponential, the average rate is the same

Operations are due whether or not earlier ones are done: a client that waits for a slow server before its next request
does not measure how slow the server is.
"""

from collections.abc import Iterator
from enum import StrEnum
from random import Random


class Arrivals(StrEnum):
    """The distribution of operations over time."""

    STEADY = "steady"
    POISSON = "poisson"


def times(how: Arrivals, rate: float, random: Random, *, start: float = 0.0) -> Iterator[float]:
    """Yield the times at which operations are due, from `start` on, for ever."""
    number, at = 0, start
    while True:
        yield at
        number += 1
        at = start + number / rate if how is Arrivals.STEADY else at + random.expovariate(rate)
