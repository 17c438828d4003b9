"""Plain numbers about what goes on, for whoever exports metrics.

Everybody counts on objects of his own, in integers; nothing here knows who reads them, or locks: one process, one loop.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from netloom.errors import NetloomError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""For durations by one clock, in seconds."""
LIFETIMES = (0.0, *BUCKETS)
"""For differences between the clocks of two machines, of which one may be behind: what is not after is in the first."""
OK = "ok"


@dataclass(slots=True)
class Histogram:
    """How often a duration, in seconds, fell below each of its bounds; the last count is of those above all."""

    bounds: tuple[float, ...] = BUCKETS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    """The sum of all; a negative duration, which is a clock that is behind, adds nothing."""

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        if seconds > 0:
            self.total += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


@dataclass(slots=True)
class Histograms:
    """Histograms of one thing, by a few words each of which has few values."""

    labels: tuple[str, ...]
    bounds: tuple[float, ...] = BUCKETS
    found: dict[tuple[str, ...], Histogram] = field(default_factory=dict)

    def observe(self, words: tuple[str, ...], seconds: float) -> None:
        """Count one duration."""
        histogram = self.found.get(words)
        if histogram is None:
            histogram = self.found[words] = Histogram(self.bounds)
        histogram.observe(seconds)

    def timing(self, *words: str, clock: Callable[[], float]) -> "Timing":
        """Return a block whose duration is counted, by these words and by how it ended: the last label."""
        return Timing(self, words, clock)


class Timing:
    """Counts one operation by how long it took and how its block ended.

    "ok", the reason of an error of ours (which are few), or "other". A class, since a generator costs more than the
    counting.
    """

    __slots__ = ("_began", "_clock", "_histograms", "_words")

    def __init__(self, histograms: Histograms, words: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._histograms = histograms
        self._words = words
        self._clock = clock
        self._began = clock()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome = OK if error is None else error.reason if isinstance(error, NetloomError) else "other"
        self._histograms.observe((*self._words, outcome), self._clock() - self._began)
