"""Colours on a terminal; text is plain if it is piped or if NO_COLOR is set."""

import os
import sys

import click


def paint(text: str, colour: str, *, bold: bool = False) -> str:
    """Return text in a colour if standard output is a terminal, else unchanged."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None)


def counted(number: int, word: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number} {word}{'s' * (number != 1)}"
