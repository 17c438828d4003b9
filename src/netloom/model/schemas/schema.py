"""A structural OpenAPI v3 schema for each kind, derived from its types and their annotations (`scalars.meta`).

The validator, the CRDs, the OpenAPI documents and server-side apply use these schemas.

The internal form (`tree`) also has `rules`, the `Rule` values for the validator, and `must`, which describes a pattern
in words for error messages. The public form (`schema`) has CEL rules in x-kubernetes-validations instead.
"""

import inspect
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as types

from netloom.model.document import ObjectMeta
from netloom.model.kind import Kind
from netloom.model.schemas.rules import Rule

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
MAP_KEYS = "x-kubernetes-list-map-keys"


@cache
def schema(kind: Kind) -> Schema:
    """Return the public schema of a kind, as in its CRD.  It is shared: do not change it.

    `metadata` is only an object here, as a CRD requires; `metadata_tree` has its fields.
    """
    return _public(tree(kind))


@cache
def metadata_tree() -> Schema:
    """Return the internal schema of metadata."""
    return struct(ObjectMeta)


@cache
def tree(kind: Kind) -> Schema:
    """Return the internal schema of a kind, with rules as values."""
    built = struct(kind.type)
    built["description"] = kind.description
    built["properties"] |= {
        "apiVersion": {"type": "string", "description": f"Always {kind.api_version}."},
        "kind": {"type": "string", "description": f"Always {kind.name}."},
        "metadata": {"type": "object"},  # A CRD may not specify more here.
    }
    built["required"] = [name for name in built.get("required", ()) if name not in ("apiVersion", "kind", "metadata")]
    if not built["required"]:
        del built["required"]
    return built


_PRIVATE = ("rules", "key_rules", "must")


def _public(node: Schema) -> Schema:
    """Return the public form of an internal schema."""
    public = {key: value for key, value in node.items() if key not in _PRIVATE}
    if "properties" in node:
        public["properties"] = {name: _public(value) for name, value in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            public[key] = _public(node[key])
    if rules := node.get("rules"):
        public["x-kubernetes-validations"] = [_cel(rule) for rule in rules]
    return public


def _cel(rule: Rule) -> Schema:
    written = {"rule": rule.cel, "message": rule.message}
    if rule.path:
        written["fieldPath"] = rule.path
    if rule.reason != "FieldValueInvalid":
        written["reason"] = rule.reason
    return written


def struct(cls: type[Struct]) -> Schema:
    """Return the internal schema of a struct."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    properties: Schema = {}
    required = []
    for field in info.fields:
        properties[field.encode_name] = _node(field.type)
        if field.required:
            required.append(field.encode_name)
    built: Schema = {"type": "object", "description": inspect.cleandoc(cls.__doc__ or ""), "properties": properties}
    if required:
        built["required"] = required
    if rules := getattr(cls, "RULES", ()):
        built["rules"] = rules
    return built


def _node(info: types.Type) -> Schema:
    """Return the schema of a type."""
    match info:
        case types.Metadata():
            return _annotated(_node(info.type), dict(info.extra or {}))
        case types.UnionType():
            (inner,) = (t for t in info.types if not isinstance(t, types.NoneType))
            return _node(inner)
        case types.StructType():
            return struct(info.cls)
        case types.EnumType():
            return {"type": "string", "enum": [member.value for member in info.cls]}
        case types.VarTupleType() | types.ListType():
            return {"type": "array", "items": _node(info.item_type), LIST_TYPE: "atomic"}
        case types.DictType():
            return _map(info)
        case types.StrType():
            return {"type": "string"}
        case types.IntType():
            return {"type": "integer"}
        case types.BoolType():
            return {"type": "boolean"}
        case types.AnyType():
            return {PRESERVE: True}
        case _:
            raise TypeError(f"unsupported type in a schema: {info}")


def _map(info: types.DictType) -> Schema:
    value, key = _node(info.value_type), _node(info.key_type)
    if value.get(PRESERVE):
        return {"type": "object", PRESERVE: True}
    built: Schema = {"type": "object", "additionalProperties": value}
    if rules := key.get("key_rules"):
        built["rules"] = rules
    return built


def _annotated(built: Schema, extra: Schema) -> Schema:
    """Return a schema with the keywords of an annotation."""
    rules = (*built.get("rules", ()), *extra.pop("rules", ()))
    if keys := extra.pop("list_map_keys", None):
        extra |= {LIST_TYPE: "map", MAP_KEYS: list(keys)}
    if kind := extra.pop("list_type", None):
        extra[LIST_TYPE] = kind
    built = built | extra
    if rules:
        built["rules"] = rules
    return built
