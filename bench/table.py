"""One line of a benchmark's table: our figure, the reference, the ratio, and whether the target is met.

Machines are noisy, so a target about time is a ratio to a measurement in the same run: another program that does the
same, or the necessary part of the work. Only figures that do not depend on the machine's speed (writes, transactions,
memory) have absolute targets.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One line of a table."""

    what: str
    figure: float
    unit: str
    other: float | None = None
    """The reference; then the target is about the ratio."""
    wanted: float | None = None
    """The target, if any."""
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """The ratio to the reference."""
        return self.figure / self.other if self.other else None

    @property
    def kept(self) -> bool:
        """Whether the target is met."""
        value = self.figure if self.other is None else self.ratio
        if self.wanted is None or value is None:
            return self.wanted is None
        return value >= self.wanted if self.more_is_better else value <= self.wanted

    def __str__(self) -> str:
        other = f"{self.other:>9,.1f} {self.unit:4}" if self.other is not None else " " * 14
        ratio = f"{self.ratio:>7.2f}" if self.ratio is not None else " " * 7
        sign = ">=" if self.more_is_better else "<="
        verdict = "" if self.wanted is None else f"{sign} {self.wanted:g}  {'met' if self.kept else 'NOT MET'}"
        return f"{self.what:52} {self.figure:>9,.1f} {self.unit:4} {other} {ratio}   {verdict}".rstrip()


def show(name: str, beside: str, rows: list[Row]) -> bool:
    """Print a table; return whether all its targets are met."""
    print(f"\n{name:52} {'netloom':>14} {beside:>14} {'ratio':>7}   target")
    for row in rows:
        print(row, flush=True)
    return all(row.kept for row in rows)
