"""The batch endpoint (batches.py) in OpenAPI v3.  v2 is for old kubectls, which do not use it."""

from collections.abc import Iterable

from netloom.front.api.schemas import meta
from netloom.front.api.schemas.meta import array, record, text
from netloom.model.document import Document

_ANYTHING: Document = {"x-kubernetes-preserve-unknown-fields": True}
_REQUEST = record(
    "A request for one object.",
    {
        "method": text("GET, POST, PUT, PATCH or DELETE."),
        "path": text("The path of the request, with its query."),
        "body": {"description": "The body of the request.", **_ANYTHING},
        "contentType": text("The type of the body; default: application/json."),
    },
    required=["method", "path"],
    additionalProperties=False,
)
_BATCH = record(
    "A batch of requests.",
    {"requests": array("At most as many as the header allows.", _REQUEST)},
    required=["requests"],
    additionalProperties=False,
)
_ANSWER = record(
    "The answer to one request.",
    {
        "code": {"type": "integer", "description": "The HTTP status."},
        "body": {"type": "object", "description": "The object, or a Status.", **_ANYTHING},
        "warnings": array("Warnings for the user.", {"type": "string"}),
    },
    required=["code", "body"],
)
_ANSWERS = record("The answers.", {"answers": array("In the order of the requests.", _ANSWER)}, required=["answers"])


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
