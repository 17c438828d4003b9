"""Plain aligned columns, for people and for `awk`.

Cells hold text that other users wrote. Control characters are escaped, so that no object's name can move the cursor of
the terminal that lists it.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from netloom.model.document import Document

GAP = 3


def clean(value: object) -> str:
    """Return one cell: a single line without control characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    first, newline, _ = text.partition("\n")
    shown = first + "..." if newline else first
    return "".join(c if unicodedata.category(c)[0] != "C" else f"\\x{ord(c):02x}" for c in shown)


def safe(text: str) -> str:
    """Return text of several lines without control characters other than line ends and tabs."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


class Aligner:
    """Aligns rows; columns only widen, so that rows printed later line up with earlier ones."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def lines(self, rows: Iterable[Sequence[object]]) -> list[str]:
        """Return the rows as lines, the last column not padded."""
        cells = [[clean(cell) for cell in row] for row in rows]
        for row in cells:
            self._widths += [0] * (len(row) - len(self._widths))
            for column, cell in enumerate(row):
                self._widths[column] = max(self._widths[column], len(cell))
        padded = [[cell.ljust(width + GAP) for cell, width in zip(row, self._widths, strict=False)] for row in cells]
        return ["".join(row).rstrip() for row in padded]


def rows(
    table: Document, *, prefix: str = "", wide: bool, header: bool, namespaces: bool, labels: bool = False
) -> Iterator[list[object]]:
    """Yield the rows of a Table as lists of cells, the column names first."""
    columns = table.get("columnDefinitions") or ()
    chosen = [i for i, column in enumerate(columns) if wide or not column.get("priority")]
    metadata = [(row.get("object") or {}).get("metadata") or {} for row in table.get("rows") or ()]
    namespaced = namespaces and (not metadata or any(m.get("namespace") for m in metadata))
    if header:
        names = [str(columns[i]["name"]).upper() for i in chosen]
        yield [*(["NAMESPACE"] if namespaced else []), *names, *(["LABELS"] if labels else [])]
    for row, about in zip(table.get("rows") or (), metadata, strict=True):
        cells = [row["cells"][i] for i in chosen]
        if cells:
            cells[0] = f"{prefix}{cells[0]}"
        text = ",".join(f"{k}={v}" for k, v in sorted((about.get("labels") or {}).items())) or "<none>"
        yield [*([about.get("namespace", "")] if namespaced else []), *cells, *([text] if labels else [])]


def align(rows: Iterable[Sequence[object]], *, indent: str = "") -> str:
    """Return rows as one aligned text."""
    return "\n".join(indent + line for line in Aligner().lines(rows))
