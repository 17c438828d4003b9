"""Counters and histograms, for metrics.

Each component counts in its own objects, with plain numbers. They know nothing of the exporter and need no locks: a
process has one event loop.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from netloom.errors import NetloomError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds for durations measured by one clock, in seconds."""
LIFETIMES = (0.0, *BUCKETS)
"""Bounds for times between the clocks of two machines, which may differ: the first bucket has those below zero."""
OK = "ok"


@dataclass(slots=True)
class Histogram:
    """Counts of durations, in seconds, by bucket; the last bucket is for those above all bounds."""

    bounds: tuple[float, ...] = BUCKETS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    """The sum of all durations; a negative one, which is due to a clock that is behind, adds nothing."""

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        if seconds > 0:
            self.total += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)


@dataclass(slots=True)
class Histograms:
    """Histograms of one kind of duration, by labels that have few values."""

    labels: tuple[str, ...]
    bounds: tuple[float, ...] = BUCKETS
    found: dict[tuple[str, ...], Histogram] = field(default_factory=dict)

    def observe(self, values: tuple[str, ...], seconds: float) -> None:
        """Count one duration."""
        histogram = self.found.get(values)
        if histogram is None:
            histogram = self.found[values] = Histogram(self.bounds)
        histogram.observe(seconds)

    def timing(self, *values: str, clock: Callable[[], float]) -> "Timing":
        """Return a context manager that counts its duration by these label values, and its outcome as the last one."""
        return Timing(self, values, clock)


class Timing:
    """Counts the duration of one operation, by its outcome.

    The outcome is "ok", the reason of a `NetloomError` (there are few), or "other". This is a class because a generator
    would cost more than the counting.
    """

    __slots__ = ("_began", "_clock", "_histograms", "_values")

    def __init__(self, histograms: Histograms, values: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._histograms = histograms
        self._values = values
        self._clock = clock
        self._began = clock()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome = OK if error is None else error.reason if isinstance(error, NetloomError) else "other"
        self._histograms.observe((*self._values, outcome), self._clock() - self._began)
