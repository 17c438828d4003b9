"""The plot of a run, as SVG: the distribution of each measure, and the times over the run.  Pure.

   above   for each measure, the share that took at most so long: one line each, time on a logarithmic axis
   below   each attachment's time to Ready over the time of its request, one dot each, with the phases behind them

Text is text, and the colours are distinguishable without colour vision, on white, whatever the viewer's theme.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

from netloom.load.records import MEASURES, Life, RunResult, percentile, times

WIDTH, HEIGHT = 1080, 680
LEFT, RIGHT = 70, 230
"""The legend is on the right."""
TOP, BETWEEN, BOTTOM = 66, 74, 52
PANEL = (HEIGHT - TOP - BETWEEN - BOTTOM) / 2
SHOWN = [measure for measure in MEASURES if measure != "lag"]
# Okabe and Ito's colours.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d1f", "#444444")
SHADES = {"warm-up": "#f1f5f9", "cruise": "#ffffff", "cool-down": "#f1f5f9"}
DOTS = 4000
"""The most attachments to draw: more make a file that viewers cannot open, and a black area."""
POINTS = 200

Scale = Callable[[float], float]


def plot(outcome: RunResult, *, title: str, subtitle: str = "") -> str:
    """Return a run as an SVG document."""
    found = {measure: times(outcome.lives, measure) for measure in SHOWN}
    shown = {measure: ordered for measure, ordered in found.items() if ordered}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 26, title, size=17, weight="600"),
        _text(LEFT, 46, subtitle, colour="#6b7280"),
    ]
    if not shown:
        parts.append(_text(WIDTH / 2, HEIGHT / 2, "Nothing was measured.", anchor="middle"))
    else:
        least = min(ordered[0] for ordered in shown.values())
        most = max(ordered[-1] for ordered in shown.values())
        low, high = _decades(least, most)
        parts += _shares(shown, low, high)
        parts += _course(outcome.lives, low, high)
    return "\n".join([*parts, "</svg>", ""])


def _decades(least: float, most: float) -> tuple[int, int]:
    """Return the powers of ten around all times, at least one decade."""
    low = math.floor(math.log10(max(least, 1e-5)))
    return low, max(low + 1, math.ceil(math.log10(max(most, 1e-5))))


def _shares(shown: dict[str, list[float]], low: int, high: int) -> Iterator[str]:
    """Draw the upper panel."""
    top, bottom = TOP, TOP + PANEL

    def x(seconds: float) -> float:
        return LEFT + (math.log10(max(seconds, 10.0**low)) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return bottom - share * PANEL

    for share in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0):
        yield _line(LEFT, y(share), WIDTH - RIGHT, y(share), "#e5e7eb")
        yield _text(LEFT - 8, y(share) + 4, f"{share:.0%}", anchor="end", colour="#6b7280")
    for seconds, strong in _ticks(low, high):
        yield _line(x(seconds), top, x(seconds), bottom, "#d1d5db" if strong else "#f3f4f6")
        if strong:
            yield _text(x(seconds), bottom + 18, _time(seconds), anchor="middle", colour="#6b7280")
    yield _text(WIDTH - RIGHT, bottom + 36, "took up to", anchor="end", colour="#6b7280")
    for number, ordered in enumerate(shown.values()):
        colour = COLOURS[number % len(COLOURS)]
        yield _path(_steps(ordered), x, y, colour)
    yield from _legend(shown, top)


def _steps(ordered: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the points of the cumulative distribution, no more than are distinguishable."""
    count = len(ordered)
    yield ordered[0], 0.0
    for number in sorted({math.ceil(count * i / POINTS) for i in range(1, POINTS + 1)}):
        yield ordered[number - 1], number / count


def _legend(shown: dict[str, list[float]], top: float) -> Iterator[str]:
    left = WIDTH - RIGHT + 22
    for number, (measure, ordered) in enumerate(shown.items()):
        at = top + 12 + 34 * number
        yield _line(left, at - 4, left + 16, at - 4, COLOURS[number % len(COLOURS)], width=3)
        yield _text(left + 24, at, MEASURES[measure].label)
        figures = f"p50 {_time(percentile(ordered, 0.5))}, p99 {_time(percentile(ordered, 0.99))}"
        yield _text(left + 24, at + 14, figures, size=11, colour="#6b7280")


def _course(lives: Sequence[Life], low: int, high: int) -> Iterator[str]:
    """Draw the lower panel."""
    top, bottom = TOP + PANEL + BETWEEN, HEIGHT - BOTTOM
    start = min(life.due for life in lives)
    ends = [at for life in lives for at in (life.due, life.ready, life.ended) if not math.isnan(at)]
    length = max(max(ends) - start, 1e-3)

    def x(at: float) -> float:
        return LEFT + (at - start) / length * (WIDTH - LEFT - RIGHT)

    def y(seconds: float) -> float:
        share = (math.log10(max(seconds, 10.0**low)) - low) / (high - low)
        return bottom - share * (bottom - top)

    for name, begin, end in _phases(lives):
        yield (
            f'<rect x="{x(begin):.1f}" y="{top:.1f}" width="{max(0.0, x(end) - x(begin)):.1f}" '
            f'height="{bottom - top:.1f}" fill="{SHADES[name]}"/>'
        )
        if x(end) - x(begin) > 60:
            yield _text((x(begin) + x(end)) / 2, top - 6, name, anchor="middle", colour="#6b7280")
    for seconds, strong in _ticks(low, high):
        if strong:
            yield _line(LEFT, y(seconds), WIDTH - RIGHT, y(seconds), "#d1d5db")
            yield _text(LEFT - 8, y(seconds) + 4, _time(seconds), anchor="end", colour="#6b7280")
    yield from _dots([life for life in lives if not math.isnan(life.ready)], x, y)
    for at in _even(length):
        yield _text(x(start + at), bottom + 18, f"{at:g} s", anchor="middle", colour="#6b7280")
    yield _text(WIDTH - RIGHT, bottom + 36, "since the beginning", anchor="end", colour="#6b7280")
    yield _text(LEFT, top - 22, "create to Ready, each attachment", weight="600")


def _dots(lives: Sequence[Life], x: Scale, y: Scale) -> Iterator[str]:
    every = max(1, math.ceil(len(lives) / DOTS))
    yield '<g fill="#009e73" fill-opacity="0.45">'
    for life in lives[::every]:
        yield f'<circle cx="{x(life.asked):.1f}" cy="{y(life.took("ready")):.1f}" r="1.8"/>'
    yield "</g>"


def _phases(lives: Sequence[Life]) -> Iterator[tuple[str, float, float]]:
    """Yield the phases with their beginnings and ends, if anything was due in them."""
    found: dict[str, list[float]] = {}
    for life in lives:
        found.setdefault(life.phase.value, []).append(life.due)
    end = max(max(moments) for moments in found.values())
    for name in ("warm-up", "cruise"):
        if name in found:
            later = found["cruise"] if name == "warm-up" and "cruise" in found else None
            yield name, min(found[name]), min(later) if later else max(found[name])
    last = [life.ended for life in lives if not math.isnan(life.ended)]
    if last and max(last) > end:
        yield "cool-down", end, max(last)


def _ticks(low: int, high: int) -> Iterator[tuple[float, bool]]:
    """Yield the positions of lines on a logarithmic axis, and whether each is a power of ten."""
    for power in range(low, high):
        for step in range(1, 10):
            yield step * 10.0**power, step == 1
    yield 10.0**high, True


def _even(length: float) -> list[float]:
    """Return about five round numbers up to a length."""
    power = 10.0 ** math.floor(math.log10(length))
    step = next(step * power / 10 for step in (1, 2, 5, 10, 20, 50) if length / (step * power / 10) <= 8)
    return [round(number * step, 6) for number in range(int(length / step) + 1)]


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def _path(points: Iterable[tuple[float, float]], x: Scale, y: Scale, colour: str) -> str:
    """Return a line that climbs in steps: a share stays until the next one."""
    text, before = "", 0.0
    for seconds, share in points:
        text += f"M{x(seconds):.1f} {y(share):.1f}" if not text else f"H{x(seconds):.1f}"
        if share != before:
            text += f"V{y(share):.1f}"
        before = share
    return f'<path d="{text}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "400", colour: str = ""
) -> str:
    fill = f' fill="{colour}"' if colour else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"{fill}>'
        f"{escape(text)}</text>"
    )
