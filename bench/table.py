"""One line of a bench's table: our figure, what stands beside it, the ratio, and whether the promise is kept.

Machines are noisy, so a promise about time is a ratio to something that was measured in the same run: another program
that does the same, or the part of the work that nobody can avoid. Only what does not depend on the machine's speed
(writes, transactions, memory) is promised as it is.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One line of a table."""

    what: str
    figure: float
    unit: str
    other: float | None = None
    """What it is compared with; then the promise is about the ratio."""
    wanted: float | None = None
    """What is promised, if anything is."""
    more_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """How the two compare."""
        return self.figure / self.other if self.other else None

    @property
    def kept(self) -> bool:
        """Whether the promise is kept."""
        value = self.figure if self.other is None else self.ratio
        if self.wanted is None or value is None:
            return self.wanted is None
        return value >= self.wanted if self.more_is_better else value <= self.wanted

    def __str__(self) -> str:
        other = f"{self.other:>9,.1f} {self.unit:4}" if self.other is not None else " " * 14
        ratio = f"{self.ratio:>7.2f}" if self.ratio is not None else " " * 7
        sign = ">=" if self.more_is_better else "<="
        verdict = "" if self.wanted is None else f"{sign} {self.wanted:g}  {'kept' if self.kept else 'NOT KEPT'}"
        return f"{self.what:52} {self.figure:>9,.1f} {self.unit:4} {other} {ratio}   {verdict}".rstrip()


def show(name: str, beside: str, rows: list[Row]) -> bool:
    """Print a table; whether all that it promises is kept."""
    print(f"\n{name:52} {'netloom':>14} {beside:>14} {'ratio':>7}   promised")
    for row in rows:
        print(row, flush=True)
    return all(row.kept for row in rows)
