"""The batch endpoint (batches.py) in OpenAPI v3.  v2 is for old kubectls, which do not use it."""

from collections.abc import Iterable

from netloom.front.api.schemas import meta
from netloom.model.document import Document

_REQUEST: Document = {
    "type": "object",
    "description": "A request for one object.",
    "required": ["method", "path"],
    "additionalProperties": False,
    "properties": {
        "method": {"type": "string", "description": "GET, POST, PUT, PATCH or DELETE."},
        "path": {"type": "string", "description": "The path of the request, with its query."},
        "body": {
            "description": "The body of the request.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "contentType": {"type": "string", "description": "The type of the body; default: application/json."},
    },
}
_BATCH: Document = {
    "type": "object",
    "description": "A batch of requests.",
    "required": ["requests"],
    "additionalProperties": False,
    "properties": {
        "requests": {"type": "array", "description": "At most as many as the header allows.", "items": _REQUEST}
    },
}
_ANSWER: Document = {
    "type": "object",
    "description": "The answer to one request.",
    "required": ["code", "body"],
    "properties": {
        "code": {"type": "integer", "description": "The HTTP status."},
        "body": {
            "type": "object",
            "description": "The object, or a Status.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "warnings": {"type": "array", "description": "Warnings for the user.", "items": {"type": "string"}},
    },
}
_ANSWERS: Document = {
    "type": "object",
    "required": ["answers"],
    "properties": {"answers": {"type": "array", "description": "In the order of the requests.", "items": _ANSWER}},
}


def path_item(errors: Iterable[tuple[int, str]]) -> Document:
    """Return the OpenAPI v3 description of the endpoint; `errors` are the codes and names of its failures."""
    refused: Document = {str(code): {meta.REF: f"#/components/responses/{word}"} for code, word in errors}
    answered: Document = {"description": "OK", "content": {"application/json": {"schema": _ANSWERS}}}
    return {
        "post": {
            "tags": ["netloomDev_v1alpha1"],
            "description": "process many requests, each as if it had been sent alone",
            "operationId": "createNetloomDevV1alpha1Batch",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _BATCH}}},
            "responses": {"200": answered, **refused},
        }
    }
