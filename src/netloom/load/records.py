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

from msgspec import Struct

from netloom.load.plan import Phase

MEASURES = ("lag", "create", "addressed", "ready", "half tested", "tested", "informed", "delete", "gone")
"""The measures, in the order in which they happen."""
LABELS = {
    "lag": "delay of the driver",
    "create": "create to its answer",
    "addressed": "create to addresses",
    "ready": "create to Ready",
    "half tested": "create to device seen",
    "tested": "create to ping answered",
    "informed": "addresses to last agent",
    "delete": "delete to its answer",
    "gone": "delete to gone",
}


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
        match measure:
            case "lag":
                return self.asked - self.due
            case "create":
                return self.answered - self.asked
            case "addressed" | "ready" | "tested":
                at: float = getattr(self, measure)
                return at - self.asked
            case "half tested":
                return self.half_tested - self.asked
            case "informed":
                after = self.informed - self.addressed
                return 0.0 if after < 0 else after  # An agent may receive it before the driver.
            case "delete":
                return self.ended - self.ending
            case "gone":
                return self.gone - self.ending
        raise ValueError(measure)


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
