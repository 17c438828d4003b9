"""Schemas compiled to functions: each node of a schema becomes a closure that checks a value and returns all problems.

A check returns None for a valid value, so that a valid document costs almost nothing: paths and messages are built only
when there is a problem, and each level prepends its own name to the path. A check also changes the value in place as
Kubernetes does: it fills in defaults, removes nulls and unknown fields, and turns 10.0 into 10 where the schema has an
integer.
"""

import re
from collections.abc import Callable, Collection

import msgspec

from netloom.errors import Cause
from netloom.model.document import Json
from netloom.model.schemas.rules import Rule
from netloom.model.schemas.schema import LIST_TYPE, MAP_KEYS, PRESERVE, Schema

REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TYPE_INVALID = "FieldValueTypeInvalid"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"

QUOTED_LENGTH = 100
"""The maximum number of characters of a value in a message."""
KEY_LENGTH = 300
"""The maximum number of characters of an unknown field's name in its path."""


class UnknownField(Cause):
    """A field that the schema does not have: `admit` decides how to treat it.  The message is its name."""

    known: Collection[str] = ()
    """The names of the known fields."""


Problems = list[Cause] | None
"""What is wrong with a value; the fields are relative to it, with a leading dot."""
Check = Callable[[Json], Problems]


def compiled(node: Schema) -> Check:
    """Return the check for a schema (`schema.tree`)."""
    kind = node.get("type")
    match kind:
        case "object" if "properties" in node:
            check = _object(node)
        case "object" if "additionalProperties" in node:
            check = _map(node)
        case "object":
            check = _anything_in_an_object
        case "array":
            check = _list(node)
        case "string":
            return _string(node)
        case "integer":
            return _integer(node)
        case "boolean":
            check = _boolean
        case _:
            check = _anything
    rules = tuple(rule for rule in node.get("rules", ()) if not rule.transition)
    return _ruled(check, rules) if rules else check


def quoted(value: Json) -> str:
    """Return a value as JSON for a message, shortened."""
    value, _ = _cut(value, QUOTED_LENGTH)  # A YAML alias may repeat a long text: quoting must not cost its length.
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # A lone surrogate: `codec` never makes one, but it must not hide the error.
        text = ascii(value)
    return text if len(text) <= QUOTED_LENGTH else f"{text[:96]}…{text[-1]}"


def _cut(value: Json, room: int) -> tuple[Json, int]:
    """Return the beginning of a value whose JSON has more than `room` characters, and what is left of these."""
    if type(value) is str:
        return value[: room + 1], room - len(value)
    if type(value) not in (dict, list):
        return value, room - 1
    is_object = type(value) is dict
    kept: list[tuple[str, Json]] = []
    for key, inner in value.items() if is_object else (("", item) for item in value):
        if room < 0:
            break
        part, room = _cut(inner, room - 1)
        kept.append((key[: QUOTED_LENGTH + 1], part))
        room -= len(key)
    return dict(kept) if is_object else [part for _, part in kept], room


def nearest(word: str, known: Collection[str]) -> str:
    """Return ` (did you mean "…"?)` with the most similar known word, or an empty text if none is similar."""
    from difflib import get_close_matches  # Slow to import, and needed only after a mistake.

    folded = {name.lower(): name for name in known}
    near = get_close_matches(word.lower()[:64], folded, n=1, cutoff=0.6)
    return f' (did you mean "{folded[near[0]]}"?)' if near else ""


def broken(problems: Problems) -> bool:
    """Whether types are wrong or fields missing, so that rules about the whole value cannot be evaluated."""
    return problems is not None and any(p.reason in (TYPE_INVALID, REQUIRED) for p in problems)


def wrong_type(value: Json, wanted: str) -> list[Cause]:
    """Return the problem that a value does not have the expected type."""
    return [Cause("", f"Invalid value: {quoted(value)}: must be {wanted}", TYPE_INVALID)]


def failed(rule: Rule, value: Json) -> Cause:
    """Return the problem that a value violates a rule."""
    at_fault = value.get(rule.path[1:]) if rule.path and isinstance(value, dict) else value
    match rule.reason:
        case "FieldValueRequired":
            return Cause(rule.path, f"Required value: {rule.message}", rule.reason)
        case "FieldValueForbidden":
            return Cause(rule.path, f"Forbidden: {rule.message}", rule.reason)
        case _:
            return Cause(rule.path, f"Invalid value: {quoted(at_fault)}: {rule.message}", rule.reason)


def under(prefix: str, problems: list[Cause]) -> list[Cause]:
    """Return the problems with `prefix` prepended to their fields."""
    for problem in problems:
        problem.field = prefix + problem.field
    return problems


def _ruled(check: Check, rules: tuple[Rule, ...]) -> Check:
    def with_rules(value: Json) -> Problems:
        problems = check(value)
        if broken(problems):
            return problems
        for rule in rules:
            if not rule.check(value):
                problems = [*(problems or ()), failed(rule, value)]
        return problems

    return with_rules


def _object(node: Schema) -> Check:
    properties = {name: compiled(part) for name, part in node["properties"].items()}
    integers = frozenset(name for name, part in node["properties"].items() if part.get("type") == "integer")
    required = frozenset(node.get("required", ()))
    defaults = [
        (name, msgspec.json.encode(part["default"])) for name, part in node["properties"].items() if "default" in part
    ]
    keeps_unknown = node.get(PRESERVE, False)

    def check(value: Json) -> Problems:
        if type(value) is not dict:
            return wrong_type(value, "an object")
        problems: list[Cause] = []
        dropped = []
        for name, default in defaults:
            if value.get(name) is None:
                value[name] = msgspec.json.decode(default)
        for key, item in value.items():
            if item is None:
                dropped.append(key)
                continue
            part = properties.get(key)
            if part is None:
                if not keeps_unknown:
                    dropped.append(key)
                    problems.append(UnknownField(f".{key[:KEY_LENGTH]}", key, known=properties))
                continue
            if type(item) is float and key in integers and item.is_integer():
                value[key] = item = int(item)
            found = part(item)
            if found is not None:
                problems += under(f".{key}", found)
        for key in dropped:
            del value[key]
        if not required <= value.keys():
            problems += [Cause(f".{name}", "Required value", REQUIRED) for name in sorted(required - value.keys())]
        return problems or None

    return check


def _map(node: Schema) -> Check:
    item_check = compiled(node["additionalProperties"])
    most = node.get("maxProperties", 2**31)

    def check(value: Json) -> Problems:
        if type(value) is not dict:
            return wrong_type(value, "an object")
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        if len(value) > most:
            return [Cause("", f"Too many: {len(value)}: must have at most {most} entries", TOO_MANY)]
        problems: list[Cause] = []
        for key, item in value.items():
            found = item_check(item)
            if found is not None:
                problems += under(f"[{key}]" if "." in key or "/" in key else f".{key}", found)
        return problems or None

    return check


def _list(node: Schema) -> Check:
    item_check = compiled(node["items"])
    least, most = node.get("minItems", 0), node.get("maxItems", 2**31)
    keys = node.get(MAP_KEYS, ())
    unique = node[LIST_TYPE] != "atomic"

    def check(value: Json) -> Problems:
        if type(value) is not list:
            return wrong_type(value, "a list")
        if len(value) > most:
            return [Cause("", f"Too many: {len(value)}: must have at most {most} items", TOO_MANY)]
        if len(value) < least:
            return [Cause("", f"Invalid value: {quoted(value)}: must have at least {least} item{'s' * (least > 1)}")]
        problems: list[Cause] = []
        for i, item in enumerate(value):
            found = item_check(item)
            if found is not None:
                problems += under(f"[{i}]", found)
        if unique and len(value) > 1 and not broken(problems):
            problems += _duplicates(value, keys)
        return problems or None

    return check


def _duplicates(value: list[Json], keys: list[str]) -> list[Cause]:
    """Return a problem for every repeated item."""
    seen = set()
    problems = []
    for i, item in enumerate(value):
        key = tuple(item.get(k) for k in keys) if keys else item
        if key in seen:
            shown = quoted({k: item[k] for k in keys if k in item} if keys else item)
            problems.append(Cause(f"[{i}]", f"Duplicate value: {shown}", DUPLICATE))
        seen.add(key)
    return problems


def _string(node: Schema) -> Check:
    least, most = node.get("minLength", 0), node.get("maxLength", 2**31)
    matches = fullmatch(node["pattern"]) if "pattern" in node else None
    must = node.get("must") or f"match {node.get('pattern')}"
    choices = node.get("enum")
    timestamp = node.get("format") == "date-time"
    rules: tuple[Rule, ...] = node.get("rules", ())

    def check(value: Json) -> Problems:
        if type(value) is not str:
            return wrong_type(value, "a string")
        if choices is not None:
            return None if value in choices else [_unsupported(value, choices)]
        if len(value) > most:
            return [Cause("", f"Too long: may not be more than {most} characters", TOO_LONG)]
        if matches is not None and not matches(value):
            return [Cause("", f"Invalid value: {quoted(value)}: must {must}")]
        if len(value) < least:
            return [Cause("", f"Invalid value: {quoted(value)}: must not be empty")]
        if timestamp and not is_timestamp(value):
            return [Cause("", f"Invalid value: {quoted(value)}: must be a time such as 2026-11-15T09:00:00Z")]
        for rule in rules:
            if not rule.check(value):
                return [failed(rule, value)]
        return None

    return check


def _unsupported(value: str, choices: list[str]) -> Cause:
    supported = ", ".join(map(quoted, choices))
    return Cause("", f"Unsupported value: {quoted(value)}: supported values: {supported}", NOT_SUPPORTED)


def _integer(node: Schema) -> Check:
    low, high = node.get("minimum", -(2**63)), node.get("maximum", 2**63 - 1)
    rules: tuple[Rule, ...] = node.get("rules", ())

    def check(value: Json) -> Problems:
        if type(value) is not int:
            return wrong_type(value, "an integer")
        if not low <= value <= high:
            return [Cause("", f"Invalid value: {quoted(value)}: must be between {low} and {high}")]
        for rule in rules:
            if not rule.check(value):
                return [failed(rule, value)]
        return None

    return check


def _boolean(value: Json) -> Problems:
    return None if type(value) is bool else wrong_type(value, "true or false")


def _anything(_value: Json) -> Problems:
    return None


def _anything_in_an_object(value: Json) -> Problems:
    return None if type(value) is dict else wrong_type(value, "an object")


def fullmatch(pattern: str) -> Callable[[str], object]:
    """Return a function that matches a schema's pattern against a whole text: ^ and $ do not match at line breaks."""
    return re.compile(pattern.removeprefix("^").removesuffix("$")).fullmatch


_TIME = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-([0-9]{2})[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_timestamp(text: str) -> bool:
    """Whether `text` is a time of RFC 3339 with a valid date."""
    found = _TIME.fullmatch(text)
    if not found:
        return False
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _DAYS[month - 1] + leap
