"""The REST API: which method and path is which operation, its answers and errors, and its OpenAPI document.

Errors are `{"error": TEXT, "status": CODE}` with the texts and codes of ryu's rest_vtep.
"""

import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import unquote

import msgspec

from netloom.errors import BadRequest, MethodNotAllowed, NetloomError, NotFound
from netloom.front.vtep.arguments import ARGUMENTS
from netloom.front.vtep.operations import Missing, Vtep
from netloom.model.document import Document

TEST = "/test"
OPENAPI = "/openapi.json"
HELLO = b"<p>Hello, World!</p>"

ROUTES: Mapping[str, Mapping[str, str]] = {
    "/vtep/speakers": {"POST": "add_speaker", "GET": "get_speaker", "DELETE": "del_speaker"},
    "/vtep/neighbors": {"POST": "add_neighbor", "GET": "get_neighbors"},
    "/vtep/neighbors/{address}": {"GET": "get_neighbors", "DELETE": "del_neighbor"},
    "/vtep/networks": {"POST": "add_network", "GET": "get_networks"},
    "/vtep/networks/{vni}": {"GET": "get_networks", "DELETE": "del_network"},
    "/vtep/networks/{vni}/clients": {"POST": "add_client"},
    "/vtep/networks/{vni}/clients/{mac}": {"DELETE": "del_client"},
}
"""The operations by path and method."""

_PATTERNS = [(re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), path) for path in ROUTES]


def match(method: str, path: str) -> tuple[str, Document]:
    """Return the operation of a request and the arguments in its path; raise `NotFound` or `MethodNotAllowed`."""
    for pattern, route in _PATTERNS:
        if found := pattern.fullmatch(path.rstrip("/")):
            allowed = ROUTES[route]
            if method not in allowed:
                raise MethodNotAllowed(f"{method} is not supported here: use {' or '.join(allowed)}")
            return allowed[method], {name: unquote(value) for name, value in found.groupdict().items()}
    raise NotFound(f"no such path: the API is described at {OPENAPI}")


async def answer(vtep: Vtep, method: str, path: str, body: bytes) -> Document:
    """Answer a request."""
    operation, in_path = match(method, path)
    given = decoded(body) if method == "POST" else {}
    for name in in_path:
        if isinstance(given, dict) and name in given:
            raise BadRequest(f"{name} is part of the path: leave it out of the body")
    return await vtep.run(operation, given | in_path if isinstance(given, dict) else given)


def failure(error: NetloomError, method: str, path: str) -> tuple[int, Document]:
    """Return the code and the answer of a failed request."""
    code = error.http_status
    if isinstance(error, Missing) and error.name == "BGPSpeakerNotFound" and (method, path.rstrip("/")) == _NEIGHBOR:
        code = 400
    return code, {"error": error.message, "status": code}


_NEIGHBOR = ("POST", "/vtep/neighbors")
"""The only request that is answered with 400, not 404, if there is no speaker."""


def decoded(body: bytes) -> object:
    """Return the JSON of a body, or raise `BadRequest`."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None


@cache
def openapi() -> bytes:
    """Return the OpenAPI document."""
    paths: Document = {
        path: {method.lower(): _described(method, path, operation) for method, operation in methods.items()}
        for path, methods in ROUTES.items()
    }
    plain = {"200": {"description": "A greeting.", "content": {"text/html": {"schema": {"type": "string"}}}}}
    paths[TEST] = {
        "get": {"operationId": "test", "summary": "Show that the server runs.", "responses": plain, "security": []}
    }
    error = {
        "type": "object",
        "required": ["error", "status"],
        "properties": {"error": {"type": "string"}, "status": {"type": "integer"}},
    }
    return msgspec.json.encode(
        {
            "openapi": "3.0.3",
            "info": {
                "title": "Netloom: the VTEP API of rest_vtep and evpn-for-ovn",
                "version": "1",
                "description": _ACCESS,
            },
            "paths": paths,
            "components": {
                "schemas": {"Error": error, **_ANSWERS},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"token": []}],
        }
    )


def _described(method: str, path: str, operation: str) -> Document:
    fields = ARGUMENTS[operation]
    in_path = [name for name in fields if f"{{{name}}}" in path]
    kind = _KINDS[operation.partition("_")[2].rstrip("s")]
    found: Document = {
        "operationId": operation if method != "GET" or not in_path else operation.rstrip("s"),
        "summary": f"{_VERBS[method]} {kind.removeprefix('Evpn').lower()}{'s' if method == 'GET' else ''}.",
        "responses": {
            "200": {"description": "OK", "content": _json({"$ref": f"#/components/schemas/{kind}s"})},
            "default": {"description": "An error.", "content": _json({"$ref": "#/components/schemas/Error"})},
        },
    }
    if in_path:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": fields[name].schema} for name in in_path
        ]
    if method == "POST":
        given = {name: field for name, field in fields.items() if name not in in_path}
        schema = {
            "type": "object",
            "required": [name for name, field in given.items() if field.required],
            "properties": {name: field.schema for name, field in given.items()},
            "additionalProperties": False,
        }
        found["requestBody"] = {"required": True, "content": _json(schema)}
    return found


def _json(schema: Document) -> Document:
    return {"application/json": {"schema": schema}}


def _envelope(kind: str, **fields: Document) -> Document:
    """Return the schema of a map of envelopes of a kind."""
    optional = ("dpid", "logical_switch")
    inner = {"type": "object", "required": [name for name in fields if name not in optional], "properties": fields}
    return {
        "type": "object",
        "additionalProperties": {"type": "object", "required": [kind], "properties": {kind: inner}},
    }


_ACCESS = "A client sends a bearer token or a client certificate. With --insecure, no client needs one."
_TEXT: Document = {"type": "string"}
_INTEGER: Document = {"type": "integer"}
_KINDS = {"speaker": "EvpnSpeaker", "neighbor": "EvpnNeighbor", "network": "EvpnNetwork", "client": "EvpnClient"}
_VERBS = {"POST": "Add a", "GET": "Show the", "DELETE": "Delete a"}
_ANSWERS = {
    "EvpnSpeakers": _envelope(
        "EvpnSpeaker",
        as_number=_INTEGER,
        dpid=_INTEGER,
        neighbors={"$ref": "#/components/schemas/EvpnNeighbors"},
        router_id=_TEXT,
    ),
    "EvpnNeighbors": _envelope(
        "EvpnNeighbor", address=_TEXT, remote_as=_INTEGER, state={"type": "string", "enum": ["up", "down"]}
    ),
    "EvpnNetworks": _envelope(
        "EvpnNetwork",
        clients={"$ref": "#/components/schemas/EvpnClients"},
        ethernet_tag_id=_INTEGER,
        logical_switch=_TEXT,
        route_dist=_TEXT,
        vni=_INTEGER,
    ),
    "EvpnClients": _envelope(
        "EvpnClient", ip=_TEXT, mac=_TEXT, next_hop=_TEXT, port={"oneOf": [{"type": "integer"}, {"type": "string"}]}
    ),
}
