"""An OpenAPI v2 document in protobuf, which kubectl up to 1.26 requires.

The message types are those of gnostic's OpenAPIv2.proto. The tables here cover what our documents use: for each
message, the JSON key, its field number and how its value is encoded. A key that no table has is an error, so that
nothing is lost silently. Values of any type are JSON, which is YAML, in `Any.yaml`. The wire format is
in `netloom/protobuf.py`.
"""

from collections.abc import Callable

import msgspec

from netloom.front.api.merge.patch import Json
from netloom.model.document import Document
from netloom.protobuf import bytes_field, double_field, whole_field

MEDIA = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of the answer.  Clients request `v2@v1.0`, which is not valid: Go refuses a type with an "@"."""

Writer = Callable[[int, Json], bytes]
"""Encodes a field: its number and its JSON value."""
Table = dict[str, tuple[int, Writer]]
EXTENSION = "x-"
"""In a table, stands for all keys with this prefix."""


def encode(document: Document) -> bytes:
    """Return an OpenAPI v2 document as gnostic's `Document` message."""
    return _message(DOCUMENT, document)


def _message(table: Table, node: Document) -> bytes:
    out = []
    for key, value in node.items():
        entry = table.get(key) or (table.get(EXTENSION) if key.startswith(EXTENSION) else None)
        if entry is None:
            raise ValueError(f"OpenAPI v2 in Protobuf has no field for {key!r} here")
        number, write = entry
        out.append(write(number, {key: value} if key not in table else value))
    return b"".join(out)


def _text(number: int, value: Json) -> bytes:
    return bytes_field(number, value.encode())


def _any(number: int, value: Json) -> bytes:
    return bytes_field(number, _text(2, msgspec.json.encode(value).decode() + "\n"))


def _one(table: Table) -> Writer:
    return lambda number, value: bytes_field(number, _message(table, value))


def _many(write: Writer) -> Writer:
    return lambda number, value: b"".join(write(number, item) for item in value)


def _named(write: Writer) -> Writer:
    """Return the writer of a map: repeated pairs of a name and a value."""
    return lambda number, value: b"".join(
        bytes_field(number, _text(1, name) + write(2, inner)) for name, inner in value.items()
    )


def _within(inner: int, write: Writer) -> Writer:
    """Return the writer of a message with this field only."""
    return lambda number, value: bytes_field(number, write(inner, value))


_texts, _anys, _named_anys = _many(_text), _many(_any), _named(_any)


def _schema(number: int, value: Json) -> bytes:
    return bytes_field(number, _message(SCHEMA, value))


def _type(number: int, value: Json) -> bytes:
    return bytes_field(number, _texts(1, [value] if isinstance(value, str) else value))


def _others(number: int, value: Json) -> bytes:
    """additionalProperties: a schema, or a boolean."""
    return bytes_field(number, whole_field(2, value) if isinstance(value, bool) else _schema(1, value))


def _parameter(number: int, value: Json) -> bytes:
    if "$ref" in value:
        return bytes_field(number, bytes_field(2, _message(REFERENCE, value)))
    if value["in"] == "body":
        return bytes_field(number, bytes_field(1, bytes_field(1, _message(BODY, value))))
    choice, table = {"query": (3, QUERY), "path": (4, PATH)}[value["in"]]
    return bytes_field(number, bytes_field(1, bytes_field(2, bytes_field(choice, _message(table, value)))))


def _response(number: int, value: Json) -> bytes:
    table, choice = (REFERENCE, 2) if "$ref" in value else (RESPONSE, 1)
    return bytes_field(number, bytes_field(choice, _message(table, value)))


REFERENCE: Table = {"$ref": (1, _text), "description": (2, _text)}
SCHEMA: Table = {
    "$ref": (1, _text),
    "format": (2, _text),
    "description": (4, _text),
    "default": (5, _any),
    "maximum": (7, double_field),
    "minimum": (9, double_field),
    "maxLength": (11, whole_field),
    "minLength": (12, whole_field),
    "pattern": (13, _text),
    "maxItems": (14, whole_field),
    "minItems": (15, whole_field),
    "maxProperties": (17, whole_field),
    "minProperties": (18, whole_field),
    "required": (19, _texts),
    "enum": (20, _anys),
    "additionalProperties": (21, _others),
    "type": (22, _type),
    "items": (23, _within(1, _schema)),
    "allOf": (24, _many(_schema)),
    "properties": (25, _within(1, _named(_schema))),
    EXTENSION: (31, _named_anys),
}
BODY: Table = {
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, whole_field),
    "schema": (5, _schema),
}
PATH: Table = {
    "required": (1, whole_field),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "format": (6, _text),
    "default": (9, _any),
    "maximum": (10, double_field),
    "minimum": (12, double_field),
    "maxLength": (14, whole_field),
    "minLength": (15, whole_field),
    "pattern": (16, _text),
    "enum": (20, _anys),
}
_MOVED = ("required", "in", "description", "name")
QUERY: Table = {
    # The same with one additional field, allowEmptyValue, in the fifth place.
    key: (number if key in _MOVED else number + 1, write)
    for key, (number, write) in PATH.items()
} | {"allowEmptyValue": (5, whole_field)}
RESPONSE: Table = {"description": (1, _text), "schema": (2, _within(1, _schema)), EXTENSION: (5, _named_anys)}
OPERATION: Table = {
    "tags": (1, _texts),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _many(_parameter)),
    "responses": (9, _within(1, _named(_response))),
    "schemes": (10, _texts),
    EXTENSION: (13, _named_anys),
}
ITEM: Table = {
    "get": (2, _one(OPERATION)),
    "put": (3, _one(OPERATION)),
    "post": (4, _one(OPERATION)),
    "delete": (5, _one(OPERATION)),
    "patch": (8, _one(OPERATION)),
    "parameters": (9, _many(_parameter)),
}
API_KEY: Table = {
    "type": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "description": (4, _text),
    EXTENSION: (5, _named_anys),
}
INFO: Table = {"title": (1, _text), "version": (2, _text), "description": (3, _text), EXTENSION: (7, _named_anys)}
DOCUMENT: Table = {
    "swagger": (1, _text),
    "info": (2, _one(INFO)),
    "paths": (8, _within(2, _named(_one(ITEM)))),
    "definitions": (9, _within(1, _named(_schema))),
    "responses": (11, _within(1, _named(_one(RESPONSE)))),
    "security": (12, _many(_within(1, _named(_within(1, _texts))))),
    "securityDefinitions": (13, _within(1, _named(_within(2, _one(API_KEY))))),
}
