"""The schemas: bounded everywhere, as structural as Kubernetes wants them, and one with the types."""

import re
from collections.abc import Iterator

import msgspec
import pytest

from netloom.model.kind import Kind
from netloom.model.registry import EVENT, KINDS, NETWORK, SUBNET
from netloom.model.schemas.crds import crds
from netloom.model.schemas.schema import Schema, metadata_tree, schema, tree
from netloom.model.schemas.validation import admit

OURS = [kind for kind in KINDS if kind.group == "netloom.dev"]
each_kind = pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.name)


def nodes(root: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Give every node below one, with its path."""
    yield path, root
    for name, part in root.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in root:
            yield from nodes(root[key], path + mark)


@each_kind
def test_everything_has_an_end(kind: Kind) -> None:
    for path, node in nodes(schema(kind)):
        if path in (".apiVersion", ".kind", ".metadata"):
            continue
        match node.get("type"):
            case "string":
                assert "enum" in node or "maxLength" in node, path
            case "integer":
                assert {"minimum", "maximum"} <= node.keys(), path
            case "array":
                assert "maxItems" in node, path
                assert "x-kubernetes-list-type" in node, path
            case "object" if "additionalProperties" in node:
                assert "maxProperties" in node, path


@each_kind
def test_everything_is_described(kind: Kind) -> None:
    for path, node in nodes(schema(kind)):
        if path == ".metadata" or path.endswith(("[]", "{}")) or kind is EVENT or ".matchExpressions[]." in path:
            continue
        assert node.get("description", "").strip().endswith((".", "%", "ms", "kb")), path


@each_kind
def test_patterns_mean_the_same_to_python_and_to_go(kind: Kind) -> None:
    for path, node in nodes(schema(kind)):
        if "pattern" in node:
            assert re.fullmatch(r"\^.*\$", node["pattern"]), path
            assert "(?" not in node["pattern"], path
            assert "\\d" not in node["pattern"], path
            top = re.sub(r"\[[^]]*\]|\\.", "", node["pattern"])
            while "(" in top:
                top = re.sub(r"\([^()]*\)", "", top)
            assert "|" not in top, path


@each_kind
def test_nothing_of_ours_is_in_the_public_schema(kind: Kind) -> None:
    assert msgspec.json.encode(schema(kind))
    for path, node in nodes(schema(kind)):
        assert not {"rules", "key_rules", "must"} & node.keys(), path


@each_kind
def test_defaults_are_right_themselves_and_those_of_the_type(kind: Kind) -> None:
    for path, node in nodes(tree(kind)):
        if "default" in node and node.get("type") == "string":
            assert node["default"] in node.get("enum", [node["default"]]), path


@each_kind
def test_map_keys_of_lists_are_always_there(kind: Kind) -> None:
    for path, node in nodes(schema(kind)):
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item["required"] or "default" in item["properties"][key], path


@each_kind
def test_selectable_fields_and_columns_are_in_the_schema(kind: Kind) -> None:
    known = {path for path, _ in nodes(schema(kind))} | {f".metadata.{name}" for name in metadata_tree()["properties"]}
    for field in kind.selectable:
        assert f".{field}" in known
    for column in kind.columns:
        for path in re.findall(r"\{(.*?)\}", column.path) or [column.path]:
            plain = re.sub(r"\[.*?\]", "[]", path)
            assert plain.removesuffix("[]") in known or plain in known or ".metadata.ownerReferences" in plain, path


def test_a_schema_is_made_once() -> None:
    assert schema(NETWORK) is schema(NETWORK)


def test_rules_say_their_field_and_reason() -> None:
    written = schema(NETWORK)["properties"]["spec"]["x-kubernetes-validations"]
    assert written[2] == {
        "rule": "!has(self.provider) || self.fabric == 'ovn'",
        "message": "may be set only when fabric is ovn",
        "fieldPath": ".provider",
        "reason": "FieldValueForbidden",
    }


def test_crds_are_of_our_kinds_only_and_complete() -> None:
    made = {crd["spec"]["names"]["kind"]: crd for crd in crds()}
    assert set(made) == {kind.name for kind in OURS}
    subnet = made["Subnet"]
    assert subnet["metadata"]["name"] == "subnets.netloom.dev"
    assert subnet["spec"]["names"] == {
        "kind": "Subnet",
        "listKind": "SubnetList",
        "plural": "subnets",
        "singular": "subnet",
        "shortNames": ["sn"],
        "categories": ["netloom"],
    }
    (version,) = subnet["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == schema(SUBNET)
    assert version["subresources"] == {"status": {}}
    assert version["selectableFields"] == [{"jsonPath": ".spec.network"}]
    assert version["additionalPrinterColumns"][0] == {"name": "Network", "type": "string", "jsonPath": ".spec.network"}
    assert [c["name"] for c in version["additionalPrinterColumns"] if c.get("priority")] == ["Gateway", "Errors"]
    assert made["Node"]["spec"]["scope"] == "Cluster"
    assert "selectableFields" not in made["Node"]["spec"]["versions"][0]


def test_a_type_nobody_thought_of_has_no_schema() -> None:
    from netloom.model.schemas.schema import _node

    with pytest.raises(TypeError, match="unsupported type"):
        _node(msgspec.inspect.type_info(bytes))


def test_admitting_a_typed_value_changes_only_defaults() -> None:
    from netloom.model.document import ObjectMeta
    from netloom.model.kinds.networks import Subnet, SubnetSpec

    value = Subnet(
        api_version=SUBNET.api_version,
        kind="Subnet",
        metadata=ObjectMeta(name="s", namespace="default"),
        spec=SubnetSpec(network="blue", cidr="10.0.0.0/24", exclude=("10.0.0.2",)),
    )
    document = SUBNET.document(value)
    admit(SUBNET, document)
    assert SUBNET.decode(msgspec.json.encode(document)) == value
