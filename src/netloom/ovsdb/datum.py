"""Values by their column's type, for a server: parsing, constraints, conditions, mutations.  Pure.

For the in-memory server (`memory`); a client trusts the server in all this. Errors are `Fault`s with ovsdb-server's
tags, so that this server refuses the same operations for the same reasons.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from netloom.ovsdb.notation import ZERO, Uuid, Wire
from netloom.ovsdb.schema import BaseType, ColumnType

INTEGERS = range(-(2**63), 2**63)
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
Names = Callable[[str], Uuid]
"""Returns the uuid for a named-uuid."""


class Fault(Exception):
    """Why an operation, or a transaction, failed."""

    def __init__(self, error: str, details: str = "") -> None:
        super().__init__(error, details)
        self.error, self.details = error, details


def _syntax(details: str) -> Fault:
    return Fault("syntax error", details)


def _constraint(details: str) -> Fault:
    return Fault("constraint violation", details)


# Parsing.

_DEFAULTS: dict[str, Any] = {"integer": 0, "real": 0.0, "boolean": False, "string": "", "uuid": ZERO}


def default(kind: ColumnType) -> Wire:
    """Return the default value of a column."""
    if kind.is_map:
        return {}
    if kind.is_optional:
        return None
    atom = _DEFAULTS[kind.key.type]
    if kind.is_required:
        return atom
    return frozenset() if kind.min == 0 else frozenset({atom})


def parse_atom(wire: Wire, base: BaseType, names: Names) -> Wire:
    """Return one atom."""
    match base.type, wire:
        case "integer", bool() | float():
            raise _syntax("expected integer")
        case "integer", int() if wire in INTEGERS:
            value: Any = wire
        case "real", bool():
            raise _syntax("expected real")
        case "real", int() | float():
            value = float(wire)
        case ("boolean", bool()) | ("string", str()):
            value = wire
        case "uuid", ["uuid", str() as text] if _UUID.fullmatch(text):
            value = Uuid(text.lower())
        case "uuid", ["named-uuid", str() as name]:
            value = names(name)
        case _:
            raise _syntax(f"expected {base.type}")
    _check(value, base)
    return value


def _check(value: Wire, base: BaseType) -> None:
    if base.enum is not None and value not in base.enum:
        raise _constraint(f"{value!r} is not one of the allowed values {list(base.enum)}")
    measure = len(value) if base.type == "string" else value
    if base.minimum is not None and measure < base.minimum:
        raise _constraint(f"{value!r} is below the minimum {base.minimum}")
    if base.maximum is not None and measure > base.maximum:
        raise _constraint(f"{value!r} is above the maximum {base.maximum}")


def parse(
    wire: Wire, kind: ColumnType, names: Names, *, least: int | None = None, most: int | None = None
) -> frozenset[Any] | dict[Any, Any]:
    """Return a column's elements: a set, or for a map a dict."""
    least, most = kind.min if least is None else least, kind.max if most is None else most
    if kind.value is not None:
        match wire:
            case ["map", list() as pairs]:
                found = _pairs(pairs, kind, names)
            case _:
                raise _syntax("expected map")
        _count(len(found), least, most)
        return found
    match wire:
        case ["set", list() as elements]:
            _count(len(elements), least, most)
            atoms = [parse_atom(one, kind.key, names) for one in elements]
        case _:
            atoms = [parse_atom(wire, kind.key, names)]
            _count(1, least, most)
    if len(set(atoms)) != len(atoms):
        raise Fault("ovsdb error", "set contains duplicate")
    return frozenset(atoms)


def _pairs(pairs: list[Any], kind: ColumnType, names: Names) -> dict[Any, Any]:
    assert kind.value is not None
    found: dict[Any, Any] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise _syntax("expected 2-element array")
        key = parse_atom(pair[0], kind.key, names)
        value = parse_atom(pair[1], kind.value, names)
        if key in found:
            raise Fault("ovsdb error", "map contains duplicate key")
        found[key] = value
    return found


def _count(number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise _syntax(f"set or map must have {least} to {most} members but {number} are present")


def shaped(elements: frozenset[Any] | Mapping[Any, Any], kind: ColumnType) -> Wire:
    """Return elements as the value of a column."""
    if kind.is_map or kind.is_set:
        return elements
    return next(iter(elements), None)


def elements_of(value: Wire) -> frozenset[Any] | dict[Any, Any]:
    """Return a column's value as its elements."""
    if isinstance(value, (frozenset, dict)):
        return value
    return frozenset() if value is None else frozenset({value})


def parse_value(wire: Wire, kind: ColumnType, names: Names) -> Wire:
    """Return a column's value."""
    return shaped(parse(wire, kind, names), kind)


# Conditions.

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def condition(function: str, wire: Wire, kind: ColumnType, names: Names) -> Callable[[Any], bool]:
    """Return a test of a column's value."""
    if order := _ORDER.get(function):
        if kind.key.type not in ("integer", "real") or not (kind.is_required or kind.is_optional):
            raise _syntax(f'Type mismatch: "{function}" operator may not be applied to this column')
        bound = next(iter(parse(wire, kind, names, least=1, most=1)))
        return lambda value: value is not None and order(value, bound)
    if function in ("==", "!="):
        wanted = parse_value(wire, kind, names)
        return (lambda value: value == wanted) if function == "==" else (lambda value: value != wanted)
    if function not in ("includes", "excludes"):
        raise Fault("unknown function", f"No function named {function}.")
    least = kind.min if kind.is_required else 0
    most = kind.max if kind.is_required or function == "includes" else None
    some = parse(wire, kind, names, least=least, most=most if most is not None else 2**62)
    if function == "includes":
        return lambda value: _includes(elements_of(value), some)
    return lambda value: _excludes(elements_of(value), some)


def _includes(elements: Wire, some: Wire) -> bool:
    if isinstance(some, dict):
        return all(key in elements and elements[key] == value for key, value in some.items())
    return bool(some <= elements)


def _excludes(elements: Wire, some: Wire) -> bool:
    if isinstance(some, dict):
        return not any(key in elements and elements[key] == value for key, value in some.items())
    return not some & elements


# Mutations.


def _divide(one: int, other: int) -> int:
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


_REAL: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.add, "-=": operator.sub, "*=": operator.mul, "/=": operator.truediv,
}  # fmt: skip
_INTEGER = {**_REAL, "/=": _divide, "%=": lambda one, other: one - other * _divide(one, other)}
_OPERATORS = {"integer": _INTEGER, "real": _REAL}


def mutation(mutator: str, wire: Wire, kind: ColumnType, names: Names) -> Callable[[Any], Any]:
    """Return a function from a column's old value to its new one."""
    if mutator in _INTEGER:
        operators = _OPERATORS.get(kind.key.type, {})
        if kind.is_map or mutator not in operators:
            raise _syntax(f'Type mismatch: "{mutator}" operator may not be applied to this column')
        by = parse_atom(wire, BaseType(kind.key.type), names)
        return lambda value: _calculate(value, operators[mutator], by, kind)
    if mutator not in ("insert", "delete"):
        raise Fault("unknown mutator", f"No mutator named {mutator}.")
    if kind.is_required:
        raise _syntax(f'Type mismatch: "{mutator}" operator may not be applied to this column')
    if mutator == "insert":
        some = parse(wire, kind, names, least=0)
        return lambda value: _sized(_insert(elements_of(value), some), kind)
    some = _parse_deleted(wire, kind, names)
    return lambda value: _sized(_delete(elements_of(value), some), kind)


def _parse_deleted(wire: Wire, kind: ColumnType, names: Names) -> Wire:
    """Parse the argument of `delete`: a map's entries can be deleted by their keys alone."""
    if kind.is_map and not (isinstance(wire, list) and wire and wire[0] == "map"):
        return parse(wire, ColumnType(kind.key, min=0, max=2**62), names)
    return parse(wire, kind, names, least=0, most=2**62)


def _insert(elements: Wire, some: Wire) -> Wire:
    return {**some, **elements} if isinstance(some, dict) else elements | some


def _delete(elements: Wire, some: Wire) -> Wire:
    if not isinstance(elements, dict):
        return elements - some
    if isinstance(some, dict):
        return {key: value for key, value in elements.items() if key not in some or some[key] != value}
    return {key: value for key, value in elements.items() if key not in some}


def _sized(elements: Wire, kind: ColumnType) -> Wire:
    if not kind.min <= len(elements) <= kind.max:
        raise _constraint(f"{len(elements)} elements where {kind.min} to {kind.max} are allowed")
    return shaped(elements, kind)


def _calculate(value: Wire, calculate: Callable[[Any, Any], Any], by: Wire, kind: ColumnType) -> Wire:
    results = []
    for one in elements_of(value):
        try:
            result = calculate(one, by)
        except ZeroDivisionError:
            raise Fault("domain error", "Division by zero.") from None
        except OverflowError:
            raise Fault("range error", "Result is not a representable number.") from None
        if kind.key.type == "integer" and result not in INTEGERS:
            raise Fault("range error", "Integer overflow.")
        if kind.key.type == "real" and not math.isfinite(result):
            raise Fault("range error", "Real overflow.")
        _check(result, kind.key)
        results.append(result)
    if len(set(results)) != len(results):
        raise _constraint("Result of operation contains duplicates.")
    return shaped(frozenset(results), kind)
