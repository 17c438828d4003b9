"""Colours, where a person looks: text that is piped, or that NO_COLOR asks for, is plain."""

import os
import sys

import click


def paint(text: str, colour: str, *, bold: bool = False) -> str:
    """Return text in a colour on a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None)


def counted(number: int, word: str) -> str:
    """Return a number of things."""
    return f"{number} {word}{'s' * (number != 1)}"
