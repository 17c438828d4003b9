"""The part of JSONPath that `--for=jsonpath=` and `-o jsonpath=` are used with.

`{.status.vni}`, `.spec.ips[0]`, `{.status.ips[*]}`, `{.status.conditions[?(@.type=="Ready")].status}`, `['a.b/c']`.
Parsed once into steps; a step maps a list of values to a list of values, so a path never fails, it finds nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from netloom.errors import BadRequest

Step = Callable[[Any], Iterable[Any]]

_STEP = re.compile(
    r"""\.(?P<key>[A-Za-z0-9_$-]+|\*)
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \['(?P<quoted>[^']*)'\]
      | \[\?\(@\.(?P<left>[A-Za-z0-9_.-]+)\s*==\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[\w.-]+))\)\]
    """,
    re.VERBOSE,
)


class JSONPath:
    """One parsed path."""

    def __init__(self, text: str) -> None:
        """Parse `text`, or raise `BadRequest` naming the place it cannot be read from."""
        inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
        inner = inner.removeprefix("$")
        inner = inner if inner.startswith((".", "[")) else f".{inner}"
        self._steps: list[Step] = []
        position = 0
        while position < len(inner):
            found = _STEP.match(inner, position)
            if found is None:
                raise BadRequest(f"cannot read the JSONPath {text!r} from {inner[position:]!r} on")
            self._steps.append(_step(found))
            position = found.end()

    def find(self, document: object) -> list[Any]:
        """Return every value the path leads to."""
        values = [document]
        for step in self._steps:
            values = [result for value in values for result in step(value)]
        return values


def shown(value: object) -> str:
    """Return a value as JSONPath output prints it: text as it is, the rest as JSON."""
    import json  # rarely needed

    return value if isinstance(value, str) else json.dumps(value)


def _step(found: re.Match[str]) -> Step:
    if found["all"] or found["key"] == "*":
        return lambda value: value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if found["index"]:
        index = int(found["index"])
        return lambda value: value[index:][:1] if isinstance(value, list) and -len(value) <= index < len(value) else ()
    if found["left"]:
        wanted = next(found[name] for name in ("double", "single", "bare") if found[name] is not None)
        keys = found["left"].split(".")
        return lambda value: (item for item in value if _equals(item, keys, wanted)) if isinstance(value, list) else ()
    key = found["quoted"] if found["quoted"] is not None else found["key"]
    return lambda value: _child(value, key)


def _child(value: object, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]


def _equals(item: object, keys: list[str], wanted: str) -> bool:
    for key in keys:
        if not isinstance(item, dict) or key not in item:
            return False
        item = item[key]
    return shown(item) == wanted
