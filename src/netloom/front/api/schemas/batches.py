"""The batch endpoint (batches.py) as OpenAPI v3 tells of it.  v2 is for old kubectls, which have no use for it."""

from collections.abc import Iterable

from netloom.front.api.schemas import meta
from netloom.model.document import Document

_REQUEST: Document = {
    "type": "object",
    "description": "One request about one object.",
    "required": ["method", "path"],
    "additionalProperties": False,
    "properties": {
        "method": {"type": "string", "description": "GET, POST, PUT, PATCH or DELETE."},
        "path": {"type": "string", "description": "Where it would be sent, with the query."},
        "body": {
            "description": "What would be sent there.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "contentType": {"type": "string", "description": "What kind of patch the body is; otherwise application/json."},
    },
}
_BATCH: Document = {
    "type": "object",
    "description": "Requests that come together.",
    "required": ["requests"],
    "additionalProperties": False,
    "properties": {
        "requests": {"type": "array", "description": "At most as many as the header says.", "items": _REQUEST}
    },
}
_ANSWER: Document = {
    "type": "object",
    "description": "What came of one request.",
    "required": ["code", "body"],
    "properties": {
        "code": {"type": "integer", "description": "The HTTP status it would have had."},
        "body": {
            "type": "object",
            "description": "The object, or a Status.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "warnings": {"type": "array", "description": "For the person behind the client.", "items": {"type": "string"}},
    },
}
_ANSWERS: Document = {
    "type": "object",
    "required": ["answers"],
    "properties": {"answers": {"type": "array", "description": "In the order of the requests.", "items": _ANSWER}},
}


def path_item(errors: Iterable[tuple[int, str]]) -> Document:
    """Return what OpenAPI v3 says of the endpoint; `errors` are the codes and names of its failures."""
    refused: Document = {str(code): {meta.REF: f"#/components/responses/{word}"} for code, word in errors}
    answered: Document = {"description": "OK", "content": {"application/json": {"schema": _ANSWERS}}}
    return {
        "post": {
            "tags": ["netloomDev_v1alpha1"],
            "description": "carry out many requests, each as if it had come alone",
            "operationId": "createNetloomDevV1alpha1Batch",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _BATCH}}},
            "responses": {"200": answered, **refused},
        }
    }
