"""The OpenAPI documents: what they promise, and that clients can read them."""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis

from netloom import protobuf
from netloom.front.api.schemas import meta, openapi, openapi_proto
from netloom.front.api.verbs.batches import PATH as BATCH
from netloom.model.document import Document
from netloom.model.registry import KINDS

V3 = openapi.v3(KINDS)
V2 = openapi.v2(KINDS)
NETLOOM = "apis/netloom.dev/v1alpha1"
ONE = "/apis/netloom.dev/v1alpha1/namespaces/{namespace}/networks/{name}"


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(document: Document, reference: str) -> Any:
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def test_there_is_one_document_for_each_group_and_version() -> None:
    assert set(V3) == {NETLOOM, "api/v1", "apis/coordination.k8s.io/v1", "apis/apiextensions.k8s.io/v1"}
    assert "io.k8s.api.core.v1.Event" in V3["api/v1"]["components"]["schemas"]
    assert "io.k8s.api.coordination.v1.Lease" in V3["apis/coordination.k8s.io/v1"]["components"]["schemas"]
    assert "dev.netloom.v1alpha1.NetworkList" in V3[NETLOOM]["components"]["schemas"]


@pytest.mark.parametrize("document", [V2, *V3.values()], ids=["v2", *V3])
def test_every_reference_leads_somewhere_and_every_operation_has_its_own_name(document: Document) -> None:
    for reference in set(references(document)):
        assert resolve(document, reference)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))


def test_names_are_those_kubernetes_would_give() -> None:
    named = {(path, method): op["operationId"] for path, method, op in operations(V2)}
    assert named[ONE, "patch"] == "patchNetloomDevV1alpha1NamespacedNetwork"
    assert named[ONE + "/status", "put"] == "replaceNetloomDevV1alpha1NamespacedNetworkStatus"
    assert named[ONE.removesuffix("/{name}"), "delete"] == "deleteNetloomDevV1alpha1CollectionNamespacedNetwork"
    assert named["/apis/netloom.dev/v1alpha1/networks", "get"] == "listNetloomDevV1alpha1NetworkForAllNamespaces"
    assert named["/apis/netloom.dev/v1alpha1/nodes/{name}", "get"] == "readNetloomDevV1alpha1Node"
    assert named["/api/v1/events", "get"] == "listCoreV1EventForAllNamespaces"


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.name)
def test_every_kind_has_all_its_paths_and_verbs(kind: Any) -> None:
    here = kind.path("{namespace}")
    documents = (V2, V3[here.rpartition("/")[0][1:] if not kind.namespaced else _root(here)])
    for document in documents:
        verbs = {path: set(item) - {"parameters"} for path, item in document["paths"].items()}
        methods = {"list": "get", "create": "post", "deletecollection": "delete"}
        assert verbs[here] == {methods[verb] for verb in kind.verbs if verb in methods}
        methods = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
        assert verbs[f"{here}/{{name}}"] == {methods[verb] for verb in kind.verbs if verb in methods}
        assert verbs.get(f"{here}/{{name}}/status") == ({"get", "put", "patch"} if kind.has_status else None)
        if kind.namespaced:
            assert verbs[kind.path()] == {"get"}


def test_batches_are_told_of_and_are_no_resource() -> None:
    assert set(V3[NETLOOM]["paths"][BATCH]) == {"post"}
    assert BATCH not in V2["paths"]
    assert all(BATCH not in document["paths"] for place, document in V3.items() if place != NETLOOM)


def _root(path: str) -> str:
    return path.split("/namespaces/")[0][1:]


def test_old_kubectl_finds_that_a_patch_can_be_dry_run() -> None:
    operation = V2["paths"][ONE]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {
        "group": "netloom.dev",
        "kind": "Network",
        "version": "v1alpha1",
    }
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= {p["name"] for p in operation["parameters"]}
    assert operation["consumes"] == list(openapi.PATCHES)


def test_new_kubectl_finds_the_same_in_v3() -> None:
    operation = V3[NETLOOM]["paths"][ONE]["patch"]
    assert operation["x-kubernetes-action"] == "patch"
    assert {"dryRun", "fieldValidation"} <= {p["name"] for p in operation["parameters"]}
    assert set(operation["requestBody"]["content"]) == set(openapi.PATCHES)


def test_definitions_carry_their_kind_and_point_at_shared_metadata() -> None:
    network = V3[NETLOOM]["components"]["schemas"]["dev.netloom.v1alpha1.Network"]
    assert network["x-kubernetes-group-version-kind"] == [
        {"group": "netloom.dev", "kind": "Network", "version": "v1alpha1"}
    ]
    assert network["properties"]["metadata"]["allOf"] == [{"$ref": f"#/components/schemas/{meta.OBJECT_META}"}]
    old = V2["definitions"]["dev.netloom.v1alpha1.Network"]
    assert old["properties"]["metadata"]["$ref"] == f"#/definitions/{meta.OBJECT_META}"
    assert network["properties"]["spec"]["properties"]["fabric"]["enum"] == ["ovn", "vxlan", "linux"]


def test_what_takes_anything_has_no_type_for_old_clients() -> None:
    entry = V2["definitions"][meta.OBJECT_META]["properties"]["managedFields"]["items"]
    assert entry["properties"]["fieldsV1"]["x-kubernetes-preserve-unknown-fields"] is True
    assert "type" not in entry["properties"]["fieldsV1"]


def test_every_refusal_is_a_status() -> None:
    for _, _, operation in operations(V3[NETLOOM]):
        assert {str(code) for code in openapi.ERRORS} <= set(operation["responses"])
    for response in V3[NETLOOM]["components"]["responses"].values():
        assert response["content"]["application/json"]["schema"]["$ref"].endswith(meta.STATUS)


@pytest.mark.parametrize("document", [V2, *V3.values()], ids=["v2", *V3])
def test_schemathesis_reads_the_documents(document: Document) -> None:
    loaded = schemathesis.openapi.from_dict(document)
    assert sum(1 for _ in loaded.get_all_operations()) == sum(1 for _ in operations(document))


# A decoder of the protobuf form, written from the .proto alone: message -> number -> (key, how it reads).
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "Document": {
        1: ("swagger", "text"),
        2: ("info", "Info"),
        8: ("paths", "Paths"),
        9: ("definitions", "Definitions"),
        11: ("responses", "ResponseDefinitions"),
        12: ("security", "*SecurityRequirement"),
        13: ("securityDefinitions", "SecurityDefinitions"),
        16: ("", "extension"),
    },
    "Info": {1: ("title", "text"), 2: ("version", "text")},
    "Paths": {2: ("", "named PathItem")},
    "Definitions": {1: ("", "named Schema")},
    "ResponseDefinitions": {1: ("", "named Response")},
    "SecurityRequirement": {1: ("", "named StringArray")},
    "StringArray": {1: ("=", "*text")},
    "SecurityDefinitions": {1: ("", "named SecurityDefinitionsItem")},
    "SecurityDefinitionsItem": {2: ("=", "ApiKeySecurity")},
    "ApiKeySecurity": {1: ("type", "text"), 2: ("name", "text"), 3: ("in", "text"), 4: ("description", "text")},
    "PathItem": {
        2: ("get", "Operation"),
        3: ("put", "Operation"),
        4: ("post", "Operation"),
        5: ("delete", "Operation"),
        8: ("patch", "Operation"),
        9: ("parameters", "*ParametersItem"),
    },
    "Operation": {
        1: ("tags", "*text"),
        3: ("description", "text"),
        5: ("operationId", "text"),
        6: ("produces", "*text"),
        7: ("consumes", "*text"),
        8: ("parameters", "*ParametersItem"),
        9: ("responses", "Responses"),
        10: ("schemes", "*text"),
        13: ("", "extension"),
    },
    "ParametersItem": {1: ("=", "Parameter"), 2: ("=", "JsonReference")},
    "JsonReference": {1: ("$ref", "text"), 2: ("description", "text")},
    "Parameter": {1: ("=", "BodyParameter"), 2: ("=", "NonBodyParameter")},
    "BodyParameter": {
        1: ("description", "text"),
        2: ("name", "text"),
        3: ("in", "text"),
        4: ("required", "flag"),
        5: ("schema", "Schema"),
    },
    "NonBodyParameter": {3: ("=", "QueryParameterSubSchema"), 4: ("=", "PathParameterSubSchema")},
    "QueryParameterSubSchema": {
        1: ("required", "flag"),
        2: ("in", "text"),
        3: ("description", "text"),
        4: ("name", "text"),
        6: ("type", "text"),
        7: ("format", "text"),
        13: ("minimum", "double"),
        15: ("maxLength", "whole"),
        17: ("pattern", "text"),
        21: ("enum", "*Any"),
    },
    "PathParameterSubSchema": {
        1: ("required", "flag"),
        2: ("in", "text"),
        3: ("description", "text"),
        4: ("name", "text"),
        5: ("type", "text"),
        14: ("maxLength", "whole"),
        15: ("minLength", "whole"),
    },
    "Responses": {1: ("", "named ResponseValue")},
    "ResponseValue": {1: ("=", "Response"), 2: ("=", "JsonReference")},
    "Response": {1: ("description", "text"), 2: ("schema", "SchemaItem")},
    "SchemaItem": {1: ("=", "Schema")},
    "Any": {2: ("=", "yaml")},
    "Schema": {
        1: ("$ref", "text"),
        2: ("format", "text"),
        4: ("description", "text"),
        5: ("default", "Any"),
        7: ("maximum", "double"),
        9: ("minimum", "double"),
        11: ("maxLength", "whole"),
        12: ("minLength", "whole"),
        13: ("pattern", "text"),
        14: ("maxItems", "whole"),
        15: ("minItems", "whole"),
        17: ("maxProperties", "whole"),
        18: ("minProperties", "whole"),
        19: ("required", "*text"),
        20: ("enum", "*Any"),
        21: ("additionalProperties", "AdditionalPropertiesItem"),
        22: ("type", "TypeItem"),
        23: ("items", "ItemsItem"),
        25: ("properties", "Properties"),
        31: ("", "extension"),
    },
    "AdditionalPropertiesItem": {1: ("=", "Schema"), 2: ("=", "flag")},
    "TypeItem": {1: ("=", "text")},
    "ItemsItem": {1: ("=", "Schema")},
    "Properties": {1: ("", "named Schema")},
}


def decode(message: str, data: bytes) -> Any:
    out: Document = {}
    for number, raw in protobuf.fields(data):
        key, reads = MESSAGES[message][number]
        if reads.startswith("named ") or reads == "extension":
            pair = dict(protobuf.fields(raw if isinstance(raw, bytes) else b""))
            inner = pair[2]
            assert isinstance(pair[1], bytes)
            assert isinstance(inner, bytes)
            out[pair[1].decode()] = decode("Any" if reads == "extension" else reads.removeprefix("named "), inner)
            continue
        value = scalar(reads.removeprefix("*"), raw)
        if key == "=":
            return [item.decode() for _, item in protobuf.fields(data)] if reads[0] == "*" else value  # type: ignore[union-attr]
        out[key] = [*out.get(key, []), value] if reads[0] == "*" else value
    return [] if message == "StringArray" else out


def scalar(reads: str, raw: int | bytes) -> Any:
    if isinstance(raw, int):
        return bool(raw) if reads == "flag" else raw
    match reads:
        case "text":
            return raw.decode()
        case "double":
            return struct.unpack("<d", raw)[0]
        case "yaml":
            return msgspec.json.decode(raw)
        case _:
            return decode(reads, raw)


def test_the_protobuf_form_says_the_same() -> None:
    assert decode("Document", openapi_proto.encode(V2)) == V2


def test_what_protobuf_has_no_place_for_is_refused() -> None:
    with pytest.raises(ValueError, match="no field for 'nullable'"):
        openapi_proto.encode({"definitions": {"x": {"nullable": True}}})
    with pytest.raises(ValueError, match="no field for 'x-y'"):
        openapi_proto.encode({"paths": {"/": {"parameters": [{"$ref": "#/parameters/x", "x-y": 1}]}}})


def test_corners_of_the_wire_format() -> None:
    assert decode("Schema", openapi_proto._message(openapi_proto.SCHEMA, {"maxLength": 300})) == {"maxLength": 300}
    assert protobuf.varint(-1) == b"\xff" * 9 + b"\x01"
    body = {"additionalProperties": True, "type": ["string"], "allOf": [{"$ref": "x"}]}
    assert openapi_proto._message(openapi_proto.SCHEMA, body).hex() == "aa01021001b201080a06737472696e67c201030a0178"
