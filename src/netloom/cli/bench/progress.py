"""The progress of a run, on standard error: a line that is updated on a terminal, a new line now and then elsewhere."""

import sys
import time

import click

from netloom.load.driver import Now
from netloom.load.reports import bar

EVERY = 5.0
WIDTH = 24


class Progress:
    """Prints the progress of a run."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = 0.0
        self._phase = ""
        self._shown = ""

    def show(self, now: Now) -> None:
        """Print the current state."""
        at = time.monotonic() - self._began
        if self._terminal:
            line = self._line(now, at)
            click.echo("\r" + line.ljust(len(self._shown)), nl=False, err=True)
            self._shown = line
        elif now.phase != self._phase or at >= self._next:
            self._phase, self._next = now.phase, at + EVERY
            click.echo(f"{at:6.1f} s  {now.phase}: {self._figures(now)}", err=True)

    def _line(self, now: Now, at: float) -> str:
        share = now.done / now.steps if now.steps else 0.0
        return f"{at:6.1f} s  {now.phase:10} ▕{bar(share, WIDTH):{WIDTH}}▏{share:4.0%}  {self._figures(now)}"

    def _figures(self, now: Now) -> str:
        text = f"{now.done} of {now.steps} operations, {now.alive} alive, {now.ready} became Ready"
        return f"{text}, {now.broken} failed" if now.broken else text

    def __enter__(self) -> "Progress":
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the progress line."""
        if self._shown:
            click.echo(err=True)
