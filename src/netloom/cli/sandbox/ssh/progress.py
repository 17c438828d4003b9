"""The progress of programs on hosts, on standard error: a bar on a terminal, a line for each step elsewhere.

The last word of each host is a line of its own: on standard output, or on standard error if it failed.
"""

import sys

import click

from netloom.cli.tables import clean
from netloom.drivers.remote.protocol import Result
from netloom.load.reports import bar

WIDTH = 24
_COLUMNS = 110


class HostProgress:
    """Prints steps and ends of hosts; in a dry run, the steps are the output."""

    def __init__(self, count: int, *, dry_run: bool = False, unchanged: str = "unchanged") -> None:
        self._count, self._dry_run, self._unchanged = count, dry_run, unchanged
        self._terminal = sys.stderr.isatty()
        self._ended: set[str] = set()
        self._shown = ""

    def on_step(self, host: str, step: str) -> None:
        """Print a step of a host."""
        text = clean(f"{host}: {step}")
        if self._dry_run:
            self._print(f"{text} (dry run)")
        elif self._terminal:
            self._draw(text)
        else:
            click.echo(text, err=True)

    def on_end(self, host: str, result: Result) -> None:
        """Print how a host ended; a host that is undone ends twice."""
        self._ended.add(host)
        for problem in result.problems:
            self._print(clean(f"{host}: warning: {problem}"), err=True)
        if result.error:
            self._print(clean(f"{host}: failed: {result.error}"), err=True)
            return
        plural = "" if result.changes == 1 else "s"
        done = f"{result.changes} change{plural}" if result.changes else self._unchanged
        self._print(f"{clean(host)}: {done}{' (dry run)' if self._dry_run else ''}")

    def _print(self, line: str, *, err: bool = False) -> None:
        self.clear()
        click.echo(line, err=err)
        if self._terminal and len(self._ended) < self._count:
            self._draw("")

    def _draw(self, text: str) -> None:
        share = len(self._ended) / self._count if self._count else 0.0
        head = f"▕{bar(share, WIDTH):{WIDTH}}▏{len(self._ended)} of {self._count} hosts  "
        line = (head + text)[:_COLUMNS]
        click.echo("\r" + line.ljust(len(self._shown)), nl=False, err=True)
        self._shown = line

    def clear(self) -> None:
        """Remove the bar."""
        if self._shown:
            click.echo("\r" + " " * len(self._shown) + "\r", nl=False, err=True)
            self._shown = ""
