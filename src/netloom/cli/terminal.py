"""Output to a terminal or a program: colours, unless it is piped or NO_COLOR is set, and JSON; and its signals."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec


def paint(text: str, colour: str, *, bold: bool = False) -> str:
    """Return text in a colour if standard output is a terminal, else unchanged."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None)


def print_json(value: object) -> None:
    """Print a value as JSON for people and programs."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=4, ensure_ascii=False))


def counted(number: int, word: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number} {word}{'s' * (number != 1)}"


@contextmanager
def ended_by_term() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a command cleans up what it has begun."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
