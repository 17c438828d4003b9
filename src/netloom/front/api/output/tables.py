"""Objects as a `Table`: the columns that `kubectl get` shows, computed by the server.

A kind's columns are compiled once into functions from a document to a cell. A column's path is what a CRD's
additionalPrinterColumns take (`.spec.node`, `.status.conditions[?(@.type=="Ready")].status`, `.spec.ips[*]`,
`.metadata.labels['a.b/c']`), or text with such paths in braces (`{.kind}/{.name}`). Cells are typed as the column says;
dates are relative ages, as kube-apiserver sends them, because old clients print cells unchanged.
"""

import functools
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from netloom.front.api.merge.patch import Json
from netloom.model.document import Document
from netloom.model.kind import Column, Kind
from netloom.model.values.ages import age
from netloom.model.values.jsonpath import JSONPath, shown
from netloom.store.base import Stored

Find = Callable[[Document], list[Any]]
Cell = Callable[[Document, float], Json]
Show = Callable[[list[Any], float], Json]

_NAME: Document = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "The name, unique among the objects of its kind in its namespace.",
    "priority": 0,
}


def table(
    kind: Kind,
    items: Iterable[Stored | Document],
    *,
    now: float,
    include: str = "Metadata",
    as_version: str = "v1",
    metadata: Document | None = None,
) -> Document:
    """Return objects as a Table of meta.k8s.io/`as_version`.

    `include` is the part of the object that each row carries: "Metadata", "Object" or "None"; `metadata` is the list's,
    with its resourceVersion and continue; `now` is in seconds since 1970.
    """
    rows = [row(kind, item, now=now, include=include, as_version=as_version) for item in items]
    return head(kind, as_version=as_version, metadata=metadata) | {"rows": rows}


def head(kind: Kind, *, as_version: str = "v1", metadata: Document | None = None) -> Document:
    """Return a Table without its rows."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{as_version}",
        "metadata": metadata or {},
        "columnDefinitions": columns(kind),
    }


def row(
    kind: Kind, item: Stored | Document, *, now: float, include: str = "Metadata", as_version: str = "v1"
) -> Document:
    """Return the row of one object."""
    document = item.document() if isinstance(item, Stored) else item
    carried: Document | None = document
    if include == "Metadata":
        version = f"meta.k8s.io/{as_version}"
        carried = {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": document["metadata"]}
    elif include == "None":
        carried = None
    return {"cells": [cell(document, now) for cell in _cells(kind)], "object": carried}


@functools.cache
def columns(kind: Kind) -> list[Document]:
    """Return the Table's columnDefinitions; they are shared: do not modify them."""
    return [_NAME, *(_definition(column) for column in kind.columns)]


def _definition(column: Column) -> Document:
    return {
        "name": column.name,
        "type": column.type,
        "format": "",
        "description": column.description or f"Custom resource definition column (in JSONPath format): {column.path}",
        "priority": 1 if column.wide else 0,
    }


@functools.cache
def _cells(kind: Kind) -> list[Cell]:
    return [lambda document, _: document["metadata"].get("name", ""), *(_cell(column) for column in kind.columns)]


def _cell(column: Column) -> Cell:
    if "{" in column.path:
        return _template(column.path)
    find = _find(column.path)
    show: Show = _SHOWN.get(column.type, _text)

    def cell(document: Document, now: float) -> Json:
        found = find(document)
        return show(found, now) if found else None

    return cell


def _template(text: str) -> Cell:
    """Return a cell of several paths with text between them, or nothing if no path finds a value."""
    literals = re.split(r"\{[^{}]*\}", text)
    finds = [_find(inner) for inner in re.findall(r"\{([^{}]*)\}", text)]

    def cell(document: Document, now: float) -> Json:
        found = [find(document) for find in finds]
        if not any(found):
            return None
        words = [_text(values, now) if values else "" for values in found]
        return literals[0] + "".join(word + literal for word, literal in zip(words, literals[1:], strict=True))

    return cell


def _find(text: str) -> Find:
    """Return a function that finds what a JSONPath leads to, without nulls."""
    path = JSONPath(text)
    return lambda document: [value for value in path.find(document) if value is not None]


def _text(found: list[Any], _: float) -> str:
    """Return values as text: several, or a list of plain ones, joined by commas."""
    if len(found) == 1 and isinstance(found[0], list) and not any(isinstance(i, dict | list) for i in found[0]):
        found = found[0]
    return ",".join(map(shown, found))


def _integer(found: list[Any], _: float) -> int | None:
    value = found[0]
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(found: list[Any], _: float) -> float | None:
    value = found[0]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(found: list[Any], _: float) -> bool | None:
    return found[0] if isinstance(found[0], bool) else None


def _date(found: list[Any], now: float) -> str | None:
    if not isinstance(found[0], str):
        return None
    then = _seconds(found[0]) if len(found[0]) <= _LONGEST_TIME else None
    return "<invalid>" if then is None else age(now - then)


_SHOWN: dict[str, Show] = {"integer": _integer, "number": _number, "boolean": _boolean, "date": _date}
"""The columns that are not text, by type."""
_LONGEST_TIME = 64
"""Longer values are not cached: a fraction of a second may have any number of digits."""


@functools.lru_cache(maxsize=4096)
def _seconds(time: str) -> float | None:
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return None
    return then.timestamp() if then.tzinfo else None
