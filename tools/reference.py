"""Print docs/reference.md: all kinds of netloom.dev and their fields, from the model.

    make reference

The source is the internal schema of each kind (`netloom.model.schemas.schema.tree`), which the API validates by.
tests/test_docs.py fails when the page is out of date.
"""

import inspect
from collections.abc import Iterator

import msgspec

from netloom.model.document import Condition
from netloom.model.kind import Kind
from netloom.model.registry import GROUP, KINDS, NODE, NOT_IMPLEMENTED, SECURITY_PROFILE, VERSION
from netloom.model.schemas import rules
from netloom.model.schemas.rules import Rule
from netloom.model.schemas.schema import LIST_TYPE, MAP_KEYS, PRESERVE, Schema, tree
from netloom.model.selection import LabelSelector

INTRODUCTION = f"""\
# Reference of all kinds

The kinds of `{GROUP}/{VERSION}` and their fields. `make reference` writes this page from the types in
`src/netloom/model`; do not edit it. `kubectl explain KIND.FIELD` shows the same descriptions.

- `[]` in a field's name stands for every item of a list, `{{}}` for every value of a map.
- *required*: the object is refused without the field. *immutable*: the field cannot be changed after creation.
- A default in the table is written into the object when the field is absent.
- Fields under `status` are written by Netloom; a client that writes the object cannot change them.
- `metadata` is that of Kubernetes. A name refers to an object in the same namespace, or to a cluster-scoped object.
"""


def main() -> None:
    """Print the page."""
    kinds = [kind for kind in KINDS if kind.group == GROUP]
    print(INTRODUCTION)
    print("| kind | scope | short name | |\n|---|---|---|---|")
    for kind in kinds:
        scope = "namespace" if kind.namespaced else "cluster"
        names = ", ".join(f"`{name}`" for name in kind.short_names)
        print(f"| [{kind.name}](#{kind.name.lower()}) | {scope} | {names} | {kind.description} |")
    for kind in kinds:
        print("\n" + "\n".join(_kind(kind)))
    for name, properties in SHARED.items():
        print(f"\n## {name}\n\n{inspect.getdoc(TYPES[name])}\n\n{HEADER}")
        print("\n".join(_rows({"type": "object", "properties": properties}, "")))


HEADER = "| field | type | default | description |\n|---|---|---|---|"


def _part(kind: Kind, *path: str) -> Schema:
    node = tree(kind)
    for name in path:
        node = node["items"] if name == "[]" else node["properties"][name]
    return node


SHARED = {
    "LabelSelector": _part(SECURITY_PROFILE, "spec", "selector")["properties"],
    "Condition": _part(NODE, "status", "conditions", "[]")["properties"],
}
"""Objects that many kinds contain, described once, by the properties that identify them."""
TYPES = {"LabelSelector": LabelSelector, "Condition": Condition}
WELL_KNOWN = {rules.IP: "IP address", rules.CIDR: "address block"}
"""Rules that the name of a type expresses."""


def _kind(kind: Kind) -> Iterator[str]:
    whole = tree(kind)
    yield f"## {kind.name}\n"
    yield whole["description"]
    if kind in NOT_IMPLEMENTED:
        yield "\n**Not implemented**: objects are validated and stored, and nothing else happens."
    if kind.selectable:
        yield f"\nSelectable fields: {', '.join(f'`{field}`' for field in kind.selectable)}."
    for name in ("spec", "status"):
        if name not in whole["properties"]:
            continue
        node = whole["properties"][name]
        yield f"\n{HEADER}"
        yield from _rows(node, name)
        if words := [_sentence(rule.message) for rule in node.get("rules", ()) if not rule.path]:
            yield f"\nRules for `{name}`: {' '.join(words)}"


def _rows(node: Schema, prefix: str) -> Iterator[str]:
    """Yield a row for each field of an object, and for the fields below it."""
    required = node.get("required", ())
    of_object: tuple[Rule, ...] = node.get("rules", ())
    for name, field in node["properties"].items():
        path = f"{prefix}.{name}" if prefix else name
        about = [rule for rule in of_object if rule.path == f".{name}"]
        notes = ["*Required.*"] if name in required else []
        notes += [
            "*Immutable once set.*" if "once set" in rule.message else "*Immutable.*"
            for rule in about
            if _immutable(rule)
        ]
        words = [field.get("description", ""), *notes, *_constraints(field)]
        words += [_sentence(rule.message) for rule in about if not _immutable(rule)]
        default = f"`{msgspec.json.encode(field['default']).decode()}`" if "default" in field else ""
        text = " ".join(word for word in words if word).replace("|", "\\|").replace("\n", " ")
        yield f"| `{path}` | {_type(field)} | {default} | {text} |"
        yield from _below(field, path)


def _below(field: Schema, path: str) -> Iterator[str]:
    while _shared(field) is None:
        if "properties" in field:
            yield from _rows(field, path)
            return
        if "items" in field:
            field, path = field["items"], path + "[]"
        elif "additionalProperties" in field:
            field, path = field["additionalProperties"], path + "{}"
        else:
            return


def _immutable(rule: Rule) -> bool:
    return rule.transition and rule.message.startswith("is immutable")


def _shared(field: Schema) -> str | None:
    return next((name for name, properties in SHARED.items() if field.get("properties") == properties), None)


def _type(field: Schema) -> str:
    if name := _shared(field):
        return f"[{name}](#{name.lower()})"
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}"
        case "object" if "additionalProperties" in field:
            return f"map of {_type(field['additionalProperties'])}"
        case "string" if field.get("format") == "date-time":
            return "time"
        case "string" if field.get("pattern") == rules.SUBDOMAIN_PATTERN:
            return "name"
        case "string" if known := [WELL_KNOWN[rule] for rule in field.get("rules", ()) if rule in WELL_KNOWN]:
            return known[0]
        case None:
            return "any"
        case str(kind):
            return kind
        case other:
            raise TypeError(f"unsupported type: {other}")


def _constraints(field: Schema) -> Iterator[str]:
    """Yield what a value must satisfy, as sentences."""
    inner = field
    while "items" in inner or "additionalProperties" in inner:
        inner = inner.get("items") or inner["additionalProperties"]
    if values := inner.get("enum"):
        yield f"One of {', '.join(f'`{value}`' for value in values)}."
    if (must := inner.get("must")) and inner.get("pattern") != rules.SUBDOMAIN_PATTERN:
        yield _sentence(f"must {must}")
    if inner.get("type") == "integer" and inner.get("maximum", 2**31) < 2**31 - 1:
        yield f"{inner['minimum']} to {inner['maximum']}."
    if "maxItems" in field:
        least = f"{field['minItems']} to " if field.get("minItems") else "At most "
        yield f"{least}{field['maxItems']} items."
    if "maxProperties" in field:
        yield f"At most {field['maxProperties']} entries."
    if field.get(LIST_TYPE) == "set":
        yield "No item may occur twice."
    if keys := field.get(MAP_KEYS):
        yield f"Items are identified by {', '.join(f'`{key}`' for key in keys)}."
    if field.get(PRESERVE):
        yield "Not validated further."
    nested = () if inner is field else inner.get("rules", ())
    for rule in (*field.get("rules", ()), *nested):
        if not rule.path and not rule.transition and rule not in WELL_KNOWN:
            yield _sentence(rule.message)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    main()
