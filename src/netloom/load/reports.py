"""Reports of a run, for people on a terminal and for programs in a file.  Pure.

Times are in milliseconds, the scale of these operations; the steps of a histogram grow, because a few operations are
always very late, and it matters how late.
"""

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from netloom.load.plan import Load
from netloom.load.records import MEASURES, Life, RunResult, Summary, times

STEPS = (1, 2, 5)
BAR = " ▏▎▍▌▋▊▉█"
TIMES = (
    *("due", "asked", "answered", "addressed", "ready", "half_tested", "tested", "informed"),
    *("ended_due", "ending", "ended", "gone"),
)
COLUMNS = ("name", "slot", "network", "node", "phase", *TIMES, "ips", "errors")


def rows(summaries: Mapping[str, Summary]) -> list[list[str]]:
    """Return the table of latencies, beginning with its header."""
    head = ["LATENCY (ms)", "COUNT", "MIN", "MEAN", "P50", "P90", "P99", "MAX"]
    found = [head]
    for measure, one in summaries.items():
        figures = (one.least, one.mean, one.p50, one.p90, one.p99, one.most)
        found.append([MEASURES[measure].label, str(one.count), *(milliseconds(figure) for figure in figures)])
    return found


def milliseconds(seconds: float) -> str:
    """Return a time with its significant digits."""
    value = seconds * 1000
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def buckets(ordered: Sequence[float]) -> list[tuple[float, int]]:
    """Return how many (sorted) times, in seconds, are in each bucket; the upper bounds are 1, 2, 5, 10, … ms."""
    if not ordered:
        return []
    bounds: list[float] = []
    power = math.floor(math.log10(max(ordered[0], 1e-6)))
    while not bounds or bounds[-1] < ordered[-1]:
        bounds += [step * 10.0**power for step in STEPS]
        power += 1
    found, at = [], 0
    for bound in bounds:
        found.append((bound, bisect_right(ordered, bound) - at))
        at = bisect_right(ordered, bound)
    while found and not found[0][1]:
        found.pop(0)
    while found and not found[-1][1]:
        found.pop()
    return found


def histogram(outcome: RunResult, measure: str, *, width: int = 50) -> list[str]:
    """Return a measure's histogram as lines for a terminal."""
    found = buckets(times(outcome.lives, measure))
    most = max((count for _, count in found), default=0)
    lines = [f"{MEASURES[measure].label}:"] if found else []
    for bound, count in found:
        lines.append(f"  up to {bound * 1000:>8g} ms  {count:>7}  {bar(count / most, width)}")
    return lines


def bar(share: float, width: int) -> str:
    """Return a bar for a share of a width, to an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return (BAR[8] * whole + (BAR[rest] if rest else "")).rstrip()


def as_json(load: Load, outcome: RunResult) -> bytes:
    """Return a whole run: the load, the summaries, and the times of every attachment, in seconds."""
    start = min((life.due for life in outcome.lives), default=0.0)
    whole = {
        "run": outcome.run,
        "load": load,
        "seconds": outcome.seconds,
        "errors": dict(outcome.errors),
        "examples": outcome.examples,
        "notes": outcome.notes,
        "summaries": outcome.summaries(),
        "attachments": [_row(life, start) for life in outcome.lives],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def as_csv(outcome: RunResult) -> bytes:
    """Return the times of every attachment, one line each, in seconds from the start."""
    start = min((life.due for life in outcome.lives), default=0.0)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for life in outcome.lives:
        row = _row(life, start)
        cells = (" ".join(cell) if isinstance(cell, list) else cell for cell in (row[name] for name in COLUMNS))
        writer.writerow("" if cell is None else cell for cell in cells)
    return text.getvalue().encode()


def _row(life: Life, start: float) -> dict[str, object]:
    fixed = {"name": life.name, "slot": life.slot, "network": life.network, "node": life.node, "phase": life.phase}
    moments = {name: _since(getattr(life, name), start) for name in TIMES}
    return {**fixed, **moments, "ips": list(life.ips), "errors": list(life.errors)}


def _since(at: float, start: float) -> float | None:
    return None if math.isnan(at) else round(at - start, 6)


def measured(outcome: RunResult) -> list[str]:
    """Return the measures with values."""
    return [measure for measure in MEASURES if times(outcome.lives, measure)]
