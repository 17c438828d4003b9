"""Sets of fields, in the form of `managedFields` (FieldsV1).

A set has the form in which it is stored: nested dicts whose keys are path elements,

    f:NAME            a member of an object
    k:{"KEY":VALUE}   an item of a list that is a map, by its keys
    v:VALUE           an item of a list that is a set, by its value
    i:INDEX           an item of any other list

and whose values are the sets below them. `{}` means that the path itself is in the set; `{".": {}, …}` that it is, and
so are paths below it; `{…}` without "." that only paths below it are. So decoding is checking, encoding does nothing,
and the operations are plain recursion over small dicts. Sets are values: no function modifies its arguments.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from netloom.front.api.merge.patch import Json, clone

Fields = dict[str, Any]
SELF = "."
MAX_DEPTH = 100
_PLAIN = re.compile(r"[A-Za-z0-9 ._:/-]*").fullmatch
"""Whether a string needs no escapes in JSON and in HTML."""


def union(left: Fields, right: Fields) -> Fields:
    """Return the paths that are in either."""
    if not left or not right:
        return left or right
    out = dict(left)
    for key, below in right.items():
        out[key] = both(out[key], below) if key in out else below
    return out


def both(left: Fields, right: Fields) -> Fields:
    """Return the union of the values of one path in two sets."""
    merged = union(_below(left), _below(right))
    return node(merged, member=_is_member(left) or _is_member(right))


def gathered(sets: Iterable[Fields]) -> Fields:
    """Return the union of many sets, in linear instead of quadratic time."""
    out: Fields = {}
    for one in sets:
        for key, below in one.items():
            _put(out, key, clone(below))
    return out


def _put(out: Fields, key: str, below: Fields) -> None:
    """Add the value of a path to a set that is being built; `below` becomes a part of it."""
    if key not in out:
        out[key] = below
        return
    there: Fields = out[key]
    member = _is_member(there) or _is_member(below)
    for inner, value in below.items():
        if inner != SELF:
            _put(there, inner, value)
    if member and there:
        there[SELF] = {}


def difference(left: Fields, right: Fields) -> Fields:
    """Return the paths of `left` that are not in `right`.  A path in `right` does not include the paths below it."""
    if not left or not right:
        return left
    out: Fields = {}
    for key, mine in left.items():
        theirs = right.get(key)
        if theirs is None:
            out[key] = mine
            continue
        member = _is_member(mine) and not _is_member(theirs)
        below = difference(_below(mine), _below(theirs))
        if member or below:
            out[key] = node(below, member=member)
    return out


def intersection(left: Fields, right: Fields) -> Fields:
    """Return the paths that are in both."""
    out: Fields = {}
    for key, mine in left.items():
        theirs = right.get(key)
        if theirs is None:
            continue
        member = _is_member(mine) and _is_member(theirs)
        below = intersection(_below(mine), _below(theirs))
        if member or below:
            out[key] = node(below, member=member)
    return out


def node(below: Fields, *, member: bool) -> Fields:
    """Return the value of a path: whether it is in the set, and what below it is."""
    return {SELF: {}, **below} if member and below else below


def marked(below: Fields | None) -> Fields:
    """Return the value of a path that is in the set, given its value before, if any."""
    return node(_below(below), member=True) if below else {}


def _is_member(below: Fields) -> bool:
    return not below or SELF in below


def _below(below: Fields) -> Fields:
    return {key: value for key, value in below.items() if key != SELF} if SELF in below else below


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Yield the paths in readable form (`.spec.mtu`), in Kubernetes' order: a path before the paths below it."""
    ordered = sorted(fields.items())
    for key, below in ordered:
        if _is_member(below):
            yield prefix + text(key)
    for key, below in ordered:
        if below:
            yield from paths(_below(below), prefix + text(key))


def text(element: str) -> str:
    """Return a path element in readable form: `.mtu`, `[name="x"]`, `[="x"]`, `[3]`."""
    kind, value = element[0], element[2:]
    if kind == "f":
        return f".{value}"
    if kind == "k":
        keys = msgspec.json.decode(value)
        return "[" + ",".join(f"{key}={_json(keys[key])}" for key in sorted(keys)) + "]"
    return f"[={_json(msgspec.json.decode(value))}]" if kind == "v" else f"[{value}]"


def by_value(value: Json) -> str:
    """Return the path element of an item of a set."""
    return f"v:{_escaped(value)}"


def by_keys(keys: dict[str, Any]) -> str:
    """Return the path element of an item of a list that is a map, by the values of its keys."""
    return "k:{" + ",".join([f"{_json(key)}:{_escaped(keys[key])}" for key in sorted(keys)]) + "}"


def _json(value: Json) -> str:
    if type(value) is str and _PLAIN(value):
        return f'"{value}"'
    # 1.0 and 1 are the same number and must be the same path.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _escaped(value: Json) -> str:
    """Return JSON as Go writes it: safe to embed in HTML."""
    encoded = _json(value)
    if type(value) is str and _PLAIN(value):
        return encoded
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


def decode(raw: Json) -> Fields:
    """Return a decoded set with each element in its canonical form; `ValueError` if it is not valid.

    Elements of an unknown type are dropped, as in Kubernetes: a newer version may know them.
    """
    return _decoded(raw, 0)


def _decoded(raw: Json, depth: int) -> Fields:
    if not isinstance(raw, dict) or depth > MAX_DEPTH:
        raise ValueError(f"fieldsV1 must consist of objects, nested at most {MAX_DEPTH} levels deep")
    out: Fields = {}
    for key, below in raw.items():
        element = SELF if key == SELF else _element(key)
        if element is None:
            continue
        inner = {} if element == SELF or below == {} else _decoded(below, depth + 1)
        _put(out, element, inner)  # Two spellings of one element are the same element.
    return {} if out.keys() == {SELF} else out


def _element(key: str) -> str | None:
    if len(key) < 2 or key[1] != ":":
        raise ValueError(f"{key!r:.100} is not a path element")
    kind, value = key[0], key[2:]
    try:
        match kind:
            case "f":
                return key
            case "v":
                return by_value(msgspec.json.decode(value))
            case "k":
                return by_keys(msgspec.json.decode(value, type=dict[str, Any]))
            case "i":
                return f"i:{int(value)}"
    except msgspec.MsgspecError as error:
        raise ValueError(f"{key!r:.100} is not a path element: {error}") from None
    return None
