"""How values of a kind merge: structural schemas, as server-side apply reads them.

For apply, a value is a scalar, a list or an object. Lists are atomic (one field), sets (each value a field) or maps
(each item identified by its keys); objects are granular unless the schema says atomic. `shape` reads that once from a
kind's schema; `documents` has the walks over documents that follow it.
"""

import functools
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from netloom.errors import BadRequest
from netloom.front.api.merge.fields import by_keys, by_value
from netloom.front.api.merge.patch import Json
from netloom.front.api.schemas.meta import METADATA
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.metadata import ENTRY_LIMIT
from netloom.model.schemas.schema import schema


class ShapeKind(Enum):
    """How a value is treated."""

    MAP = auto()
    SCALAR = auto()
    LIST = auto()


@dataclass(slots=True, eq=False)
class Shape:
    """The types that a value may have, and how it merges.  If the schema does not say, all three are possible."""

    scalar: bool = False
    map: bool = False
    map_atomic: bool = False
    fields: "dict[str, Shape]" = field(default_factory=dict)
    element: "Shape | None" = None
    """The shape of members that `fields` does not name; None: such members are not allowed."""
    list: bool = False
    list_type: str = "atomic"
    keys: tuple[str, ...] = ()
    item: "Shape | None" = None
    most: int = ENTRY_LIMIT
    """How many items or members are allowed: merging many is slow, so they are counted first."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Defaults of an item's keys."""

    def form(self, value: Json) -> ShapeKind:
        """Return how to treat `value`; a value of a wrong type is treated as the first allowed form."""
        if isinstance(value, dict):
            if self.map:
                return ShapeKind.MAP
        elif isinstance(value, list):
            if self.list:
                return ShapeKind.LIST
        elif value is not None and self.scalar:
            return ShapeKind.SCALAR
        if self.map:
            return ShapeKind.MAP
        return ShapeKind.SCALAR if self.scalar else ShapeKind.LIST

    def member(self, name: str) -> "Shape":
        """Return the shape of a member."""
        return self.fields.get(name) or self.element or UNKNOWN

    def key(self, item: Json) -> str:
        """Return the path element of an item of a list that is a set or a map."""
        if self.list_type != "map" or not isinstance(item, dict):
            return by_value(item)
        found = {key: item.get(key, self.defaults.get(key)) for key in self.keys if key in item or key in self.defaults}
        return by_keys(found) if found else by_value(item)


UNKNOWN = Shape(scalar=True, map=True, map_atomic=True, list=True)
"""For values outside the schema: one field."""
UNKNOWN.item = UNKNOWN
DEDUCED = Shape(scalar=True, map=True, list=True, item=UNKNOWN)
"""For values that the schema leaves open: objects are granular, lists atomic."""
DEDUCED.element = DEDUCED

_TEXT = {"type": "string"}


@functools.cache
def shape(kind: Kind) -> Shape:
    """Return how objects of a kind merge."""
    return of_schema(schema(kind))


def of_schema(root: Document) -> Shape:
    """Return how objects with this structural schema merge."""
    properties = {**root.get("properties", {}), "apiVersion": _TEXT, "kind": _TEXT, "metadata": METADATA}
    return _shape({**root, "type": "object", "properties": properties}, preserve=False)


def _shape(node: Document, *, preserve: bool) -> Shape:
    preserve = preserve or node.get("x-kubernetes-preserve-unknown-fields") is True
    match node.get("type", ""):
        case "object":
            return _object(Shape(), node, preserve=preserve)
        case "array":
            return _list(Shape(), node, preserve=preserve)
        case "":
            return _list(_object(Shape(scalar=True), node, preserve=preserve), node, preserve=preserve)
        case _:
            return Shape(scalar=True)


def _object(out: Shape, node: Document, *, preserve: bool) -> Shape:
    properties = node.get("properties", {})
    out.map = True
    out.map_atomic = node.get("x-kubernetes-map-type") == "atomic"
    out.most = node.get("maxProperties", ENTRY_LIMIT)
    out.fields = {name: _shape(member, preserve=preserve) for name, member in properties.items()}
    others = node.get("additionalProperties")
    if isinstance(others, dict):
        out.element = _shape(others, preserve=preserve)
    elif others is True or (others is None and (preserve or not properties)):
        out.element = DEDUCED
    return out


def _list(out: Shape, node: Document, *, preserve: bool) -> Shape:
    items = node.get("items")
    out.list = True
    out.most = node.get("maxItems", ENTRY_LIMIT)
    out.list_type = node.get("x-kubernetes-list-type", "atomic")
    out.keys = tuple(node.get("x-kubernetes-list-map-keys", ()))
    out.item = _shape(items, preserve=preserve) if items else UNKNOWN
    members = (items or {}).get("properties", {})
    out.defaults = {key: members[key]["default"] for key in out.keys if "default" in members.get(key, {})}
    return out


def check(like: Shape, value: Json, path: str = "") -> None:
    """Refuse a configuration that cannot be merged, naming the field; validation is separate."""
    if value is None:
        return
    if isinstance(value, dict | list) and len(value) > like.most and like is not UNKNOWN:
        raise BadRequest(f"{path}: Too many: {len(value)}: must have at most {like.most} entries")
    if isinstance(value, dict):
        if not like.map:
            raise BadRequest(f"{path}: expected {'a list' if like.list else 'a scalar'}, got an object")
        for name, member in value.items():
            if name not in like.fields and like.element is None and like is not UNKNOWN:
                raise BadRequest(f"{path}.{name}: field not declared in schema")
            check(like.member(name), member, f"{path}.{name}")
    elif isinstance(value, list):
        if not like.list:
            raise BadRequest(f"{path}: expected {'an object' if like.map else 'a scalar'}, got a list")
        _check_items(like, value, path)
    elif not like.scalar:
        raise BadRequest(f"{path}: expected {'an object' if like.map else 'a list'}, got a scalar")


def _check_items(like: Shape, value: list[Any], path: str) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        check(like.item or UNKNOWN, item, f"{path}[{index}]")
        if like.list_type == "atomic":
            continue
        if like.list_type == "set" and isinstance(item, dict | list | None):
            raise BadRequest(f"{path}[{index}]: the items of a set must be scalars")
        if like.list_type == "map" and not (
            isinstance(item, dict) and any(k in item or k in like.defaults for k in like.keys)
        ):
            raise BadRequest(
                f"{path}[{index}]: an item of this list must have at least one of its keys: {', '.join(like.keys)}"
            )
        key = like.key(item)
        if key in seen:
            raise BadRequest(f"{path}[{index}]: duplicate entries for key {key[2:]}")
        seen.add(key)
