"""The records of each attachment, and their summaries.  Pure: times are seconds on the driver's own clock.

    asked ──► answered ──► addressed ──► ready ──► half tested ──► tested      asked ──► answered ──► gone
    └──────────────── create ────────────────────────────────────────────┘    └────────── delete ──────┘

All times of a life are measured from the request of its create, as the driver observes them: by the answers and by its
watch. So two clocks are never compared.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from netloom.load.plan import Phase


class Measure(NamedTuple):
    """A measured time of an attachment: from one field of its `Life` to another."""

    label: str
    start: str
    end: str


MEASURES = {
    "lag": Measure("delay of the driver", "due", "asked"),
    "create": Measure("create to its answer", "asked", "answered"),
    "addressed": Measure("create to addresses", "asked", "addressed"),
    "ready": Measure("create to Ready", "asked", "ready"),
    "half tested": Measure("create to device seen", "asked", "half_tested"),
    "tested": Measure("create to ping answered", "asked", "tested"),
    "informed": Measure("addresses to last agent", "addressed", "informed"),
    "delete": Measure("delete to its answer", "ending", "ended"),
    "gone": Measure("delete to gone", "ending", "gone"),
}
"""The measures, in the order in which they happen."""


@dataclass(slots=True)
class Life:
    """One attachment, from its creation to its end."""

    name: str
    slot: int
    network: str
    node: str
    phase: Phase
    due: float
    asked: float = math.nan
    answered: float = math.nan
    addressed: float = math.nan
    ready: float = math.nan
    half_tested: float = math.nan
    tested: float = math.nan
    informed: float = math.nan
    """When the last relevant agent received its addresses."""
    ended_due: float = math.nan
    ending: float = math.nan
    """When its delete was requested."""
    ended: float = math.nan
    gone: float = math.nan
    ips: tuple[str, ...] = ()
    uid: str = ""
    errors: list[str] = field(default_factory=list)

    def took(self, measure: str) -> float:
        """Return how long a measure took, NaN if it did not happen."""
        _, start, end = MEASURES[measure]
        took: float = getattr(self, end) - getattr(self, start)
        return 0.0 if took < 0 and measure == "informed" else took  # An agent may receive it before the driver.


class Summary(Struct, frozen=True, kw_only=True):
    """The summary of one measure, in seconds."""

    count: int
    least: float
    mean: float
    p50: float
    p90: float
    p99: float
    most: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the (sorted) values that `share` of them do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def times(lives: Iterable[Life], measure: str) -> list[float]:
    """Return the durations of a measure, sorted."""
    return sorted(took for life in lives if not math.isnan(took := life.took(measure)))


def summary(ordered: Sequence[float]) -> Summary | None:
    """Return the summary of (sorted) durations; None if there are none."""
    if not ordered:
        return None
    return Summary(
        count=len(ordered),
        least=ordered[0],
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p99=percentile(ordered, 0.99),
        most=ordered[-1],
    )


@dataclass(slots=True)
class RunResult:
    """The outcome of a run."""

    run: str
    lives: list[Life] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """The number of errors, by kind."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first of each kind, in full."""
    notes: dict[str, float] = field(default_factory=dict)
    """Further figures, by name."""
    seconds: float = 0.0

    def broke(self, kind: str, text: str, life: Life | None = None) -> None:
        """Record an error."""
        self.errors[kind] += 1
        self.examples.setdefault(kind, f"{life.name}: {text}" if life is not None else text)
        if life is not None:
            life.errors.append(kind)

    def summaries(self, phase: Phase | None = None) -> dict[str, Summary]:
        """Return the summary of each measure with values, of one phase's creates or of all."""
        lives = [life for life in self.lives if phase is None or life.phase is phase]
        found = {measure: summary(times(lives, measure)) for measure in MEASURES}
        return {measure: one for measure, one in found.items() if one is not None}
