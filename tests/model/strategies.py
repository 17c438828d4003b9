"""Documents made from the schemas: mostly right, and what is wrong with them is wrong in interesting ways."""

import copy
import re
from typing import Any

from hypothesis import strategies as st

from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.schemas import rules
from netloom.model.schemas.schema import LIST_TYPE, MAP_KEYS, PRESERVE, Schema, tree

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)

WORTHWHILE = {
    rules.IP: ["10.0.0.1", "10.0.0.9", "fd00::1"],
    rules.IPV4: ["10.0.0.1", "192.0.2.1"],
    rules.CIDR: ["10.0.0.0/24", "10.0.0.0/8", "fd00::/64"],
    rules.INTERFACE: ["10.0.0.1/24", "fd00::1/64"],
    rules.IP_OR_CIDR: ["10.0.0.1", "10.0.0.0/24", "fd00::1"],
    rules.IP_RANGE: ["10.0.0.2", "10.0.0.2-10.0.0.7", "fd00::2"],
    rules.DISTINGUISHER: ["auto", "65000:10", "192.0.2.1:10"],
}


def documents(kind: Kind) -> st.SearchStrategy[Document]:
    """Give documents of a kind."""
    metadata: Document = {"name": "x"} | ({"namespace": "default"} if kind.namespaced else {})
    properties = tree(kind)["properties"]
    parts = {name: node(part) for name, part in properties.items() if name not in ("apiVersion", "kind", "metadata")}
    required = {name: parts.pop(name) for name in tree(kind).get("required", ())}
    identity = {"apiVersion": st.just(kind.api_version), "kind": st.just(kind.name), "metadata": st.just(metadata)}
    return st.fixed_dictionaries({**identity, **required}, optional=parts).map(_copied)


def altered(kind: Kind, good: Document) -> st.SearchStrategy[Document]:
    """Give documents with a good spec, of which one field is something else."""
    metadata: Document = {"name": "x"} | ({"namespace": "default"} if kind.namespaced else {})
    fields: Schema = tree(kind)["properties"]["spec"]["properties"]

    def with_other(name: str) -> st.SearchStrategy[Document]:
        identity = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        return node(fields[name]).map(lambda value: copy.deepcopy({**identity, "spec": good | {name: value}}))

    return st.sampled_from(sorted(fields)).flatmap(with_other)


def _copied(document: Document) -> Document:
    return document | {"metadata": dict(document["metadata"])}


def node(schema: Schema) -> st.SearchStrategy[Any]:
    """Give values of a schema, and now and then something else."""
    right = _right(schema)
    return st.sampled_from([right] * 12 + [st.none(), JSON]).flatmap(lambda chosen: chosen)


def _right(schema: Schema) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return _object(schema)
        case "object" if "additionalProperties" in schema:
            keys = st.sampled_from(["a", "b", "c"])
            return st.dictionaries(keys, _right(schema["additionalProperties"]), max_size=2)
        case "array":
            unique = (lambda item: repr(item)) if schema[LIST_TYPE] != "atomic" and not schema.get(MAP_KEYS) else None
            least = schema.get("minItems", 0)
            return st.lists(node(schema["items"]), min_size=least, max_size=least + 2, unique_by=unique)
        case "string":
            return _string(schema)
        case "integer":
            return st.integers(schema.get("minimum", -9), min(schema.get("maximum", 9), 2**31))
        case "boolean":
            return st.booleans()
        case _:
            assert schema.get(PRESERVE)
            return st.dictionaries(st.text(max_size=3), JSON, max_size=2)


def _object(schema: Schema) -> st.SearchStrategy[Any]:
    parts: Schema = schema["properties"]
    always = list(schema.get("required", ()))
    either = [name for rule in schema.get("rules", ()) for name in re.findall(r"has\(self\.(\w+)\) \? 1 : 0", rule.cel)]
    right = {name: _right(part) for name, part in parts.items()}
    loose = {name: node(part) for name, part in parts.items() if name not in always and name not in either}

    def with_one(chosen: list[str]) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries({name: right[name] for name in (*always, *chosen)}, optional=loose)

    return st.sampled_from([[name] for name in either] or [[]]).flatmap(with_one)


def _string(schema: Schema) -> st.SearchStrategy[str]:
    for rule in schema.get("rules", ()):
        if rule in WORTHWHILE:
            return st.sampled_from(WORTHWHILE[rule])
    if schema.get("format") == "date-time":
        return st.sampled_from(["2026-11-15T09:00:00Z", "2026-11-15T09:00:00.123456+01:00"])
    if "pattern" in schema:
        pattern = re.compile(schema["pattern"].replace("$", r"\Z"), re.ASCII)
        return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= schema["maxLength"])
    return st.text(min_size=schema.get("minLength", 0), max_size=8)
