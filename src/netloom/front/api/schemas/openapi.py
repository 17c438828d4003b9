"""The OpenAPI documents, made from the registry of kinds and their schemas.

   v3(kinds)   one document for each group and version, for `kubectl explain` and today's clients
   v2(kinds)   one for everything, for kubectl 1.20 (as protobuf: `openapi_proto`)

The documents must be correct, since programs test the server against them: they list every status code and the schema
of every answer. Both are rendered from the same operations; v2 has less where it cannot express something. Neither can
describe a watch: with `watch=true` a list answers with a stream of events.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from netloom import __version__
from netloom.front.api.merge.patch import Json
from netloom.front.api.schemas import meta
from netloom.front.api.schemas.batches import path_item
from netloom.front.api.schemas.parameters import CREATE, DELETE, GET, LIST, PATCH, PATHS, PRETTY, Parameter
from netloom.front.api.verbs.batches import PATH as BATCH
from netloom.model.document import Document
from netloom.model.kind import Kind, Registry
from netloom.model.registry import GROUP
from netloom.model.schemas.schema import schema

MEDIA = ("application/json", "application/yaml")
APPLY = "application/apply-patch+yaml"
PATCHES = ("application/json-patch+json", "application/merge-patch+json", APPLY)
ERRORS = {
    400: ("BadRequest", "The request cannot be parsed."),
    401: ("Unauthorized", "The client is not authenticated."),
    403: ("Forbidden", "The client has no permission."),
    404: ("NotFound", "The object does not exist."),
    405: ("MethodNotAllowed", "The resource does not support this method."),
    406: ("NotAcceptable", "None of the requested formats is supported."),
    409: ("Conflict", "The name is in use, the object has changed, or other managers own the fields."),
    410: ("Expired", "The requested revision is no longer available: list again."),
    413: ("RequestEntityTooLarge", "The request is too large."),
    415: ("UnsupportedMediaType", "The format of the body is not supported."),
    422: ("Invalid", "The object is invalid; the causes name every invalid field."),
    429: ("TooManyRequests", "Try again later."),
    500: ("InternalError", "The server failed."),
    503: ("ServiceUnavailable", "The store does not answer."),
    504: ("Timeout", "The store took too long."),
}
_SECURITY: list[Document] = [{"BearerToken": []}]


class PathOperation(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    action: str
    """The x-kubernetes-action: get, list, post, put, patch, delete, deletecollection."""
    verb: str
    """The first word of its operationId."""
    description: str
    suffix: str = ""
    parameters: tuple[Parameter, ...] = ()
    answers: tuple[int, ...] = (200,)


def name(kind: Kind) -> str:
    """Return the name of a kind's definition: `dev.netloom.v1alpha1.Network`."""
    return f"{_package(kind)}.{kind.name}"


def _package(kind: Kind) -> str:
    if not kind.group or kind.group.endswith(".k8s.io"):
        return f"io.k8s.api.{kind.group.removesuffix('.k8s.io') or 'core'}.{kind.version}"
    return ".".join([*reversed(kind.group.split(".")), kind.version])


def v3(kinds: Registry) -> dict[str, Document]:
    """Return the OpenAPI v3 documents by their path below /openapi/v3/: `apis/netloom.dev/v1alpha1`, `api/v1`."""
    groups: dict[str, list[Kind]] = {}
    for kind in kinds:
        groups.setdefault(_root(kind)[1:], []).append(kind)
    return {root: _document3(members) for root, members in groups.items()}


def _root(kind: Kind) -> str:
    return kind.path().rpartition("/")[0]


def _document3(kinds: list[Kind]) -> Document:
    content = _content(_at("#/components/schemas/", {meta.REF: meta.STATUS}, v2=False))
    paths = {path: item for kind in kinds for path, item in _paths(kind, _V3())}
    if kinds[0].group == GROUP:
        paths[BATCH] = path_item((code, word) for code, (word, _) in ERRORS.items())
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "security": _SECURITY,
        "paths": paths,
        "components": {
            "schemas": _definitions(kinds, "#/components/schemas/", v2=False),
            "responses": {word: {"description": text, "content": content} for word, text in ERRORS.values()},
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
    }


def v2(kinds: Registry) -> Document:
    """Return the OpenAPI v2 document of all kinds."""
    status = {meta.REF: f"#/definitions/{meta.STATUS}"}
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {path: item for kind in kinds for path, item in _paths(kind, _V2())},
        "definitions": _definitions(kinds, "#/definitions/", v2=True),
        "responses": {word: {"description": text, "schema": status} for word, text in ERRORS.values()},
        "securityDefinitions": {
            "BearerToken": {
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
                "description": "Bearer Token authentication",
            }
        },
        "security": _SECURITY,
    }


def _info() -> Document:
    return {"title": "Netloom", "version": f"v{__version__}"}


def _definitions(kinds: Iterable[Kind], prefix: str, *, v2: bool) -> Document:
    out: Document = {}
    for kind in kinds:
        out[name(kind)] = _object(kind)
        out[f"{name(kind)}List"] = _list(kind)
    return {key: _at(prefix, node, v2=v2) for key, node in sorted((out | meta.DEFINITIONS).items())}


def _object(kind: Kind) -> Document:
    node = schema(kind)
    metadata = {meta.REF: meta.OBJECT_META, "description": "Standard object metadata."}
    gvk = {"group": kind.group, "kind": kind.name, "version": kind.version}
    words = {"apiVersion": {"enum": [kind.api_version]}, "kind": {"enum": [kind.name]}}
    fixed = {key: node["properties"][key] | one for key, one in words.items()}
    properties = {**node["properties"], **fixed, "metadata": metadata}
    required = ["apiVersion", "kind", *node.get("required", ())]
    return {**node, "properties": properties, "required": required, "x-kubernetes-group-version-kind": [gvk]}


def _list(kind: Kind) -> Document:
    return {
        "type": "object",
        "description": f"A list of {kind.plural}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {kind.api_version}."},
            "kind": {"type": "string", "description": f"Always {kind.name}List."},
            "metadata": {meta.REF: meta.LIST_META, "description": "The list's revision and continue token."},
            "items": {"type": "array", "items": {meta.REF: name(kind)}, "description": "The objects."},
        },
        "x-kubernetes-group-version-kind": [{"group": kind.group, "kind": f"{kind.name}List", "version": kind.version}],
    }


def _at(prefix: str, node: Json, *, v2: bool) -> Json:
    """Return a schema with its references pointing below `prefix`, as a version of OpenAPI expresses it."""
    if isinstance(node, list):
        return [_at(prefix, item, v2=v2) for item in node]
    if not isinstance(node, dict):
        return node
    if meta.REF in node:
        ref = {meta.REF: prefix + node[meta.REF]}
        rest = {key: value for key, value in node.items() if key != meta.REF}
        # v3 ignores everything beside a reference, so the description wraps the reference.
        return rest | ref if v2 else rest | {"allOf": [ref]} if rest else ref
    out = {key: _at(prefix, value, v2=v2) for key, value in node.items() if key != "properties"}
    if "properties" in node:
        out["properties"] = {key: _at(prefix, value, v2=v2) for key, value in node["properties"].items()}
    if v2 and node.get("x-kubernetes-preserve-unknown-fields"):
        # An old kubectl treats an object without properties as one that may have none.
        out = {key: value for key, value in out.items() if key not in ("type", "properties")}
    return out


def _paths(kind: Kind, words: "_V2 | _V3") -> Iterator[tuple[str, Document]]:
    """Yield the paths of a kind with their operations."""
    collection = kind.path("{namespace}")
    scope = "Namespaced" if kind.namespaced else ""
    places = [
        (collection, scope, _COLLECTION),
        (f"{collection}/{{name}}", scope, _OBJECT),
    ]
    places += [(f"{collection}/{{name}}/{one}", scope, _beneath(one)) for one in kind.subresources]
    if kind.namespaced:
        places.append((kind.path(), "", _EVERYWHERE))
    for path, scope, operations in places:
        allowed = kind.subresources.get(path.rpartition("/")[2], kind.verbs)
        item: Document = {
            op.method: words.operation(kind, op, scope)
            for op in operations
            if _VERBS.get(op.action, op.action) in allowed
        }
        inside = [parameter for parameter in PATHS if f"{{{parameter.name}}}" in path]
        item["parameters"] = [words.parameter(parameter) for parameter in (*inside, PRETTY)]
        yield path, item


_READ = PathOperation(method="get", action="get", verb="read", description="read one {kind}", parameters=GET)
_REPLACE = PathOperation(
    method="put", action="put", verb="replace", description="replace one {kind}", parameters=CREATE
)
_CHANGE = PathOperation(
    method="patch",
    action="patch",
    verb="patch",
    description="patch one {kind}, or apply it; apply creates it if it does not exist",
    parameters=PATCH,
    answers=(200, 201),
)
_COLLECTION = (
    PathOperation(method="get", action="list", verb="list", description="list or watch {plural}", parameters=LIST),
    PathOperation(
        method="post",
        action="post",
        verb="create",
        description="create one {kind}",
        parameters=CREATE,
        answers=(201,),
    ),
    PathOperation(
        method="delete",
        action="deletecollection",
        verb="delete",
        description="delete all {plural} that a list would return",
        parameters=(*LIST, *DELETE),
    ),
)
_OBJECT = (
    _READ,
    _REPLACE,
    _CHANGE,
    PathOperation(
        method="delete",
        action="delete",
        verb="delete",
        description="delete one {kind}; returns a Status, or the object while finalizers block its deletion",
        parameters=DELETE,
        answers=(200, 202),
    ),
)
_VERBS = {"post": "create", "put": "update"}
"""The authorization verb of an action, where it differs."""


def _beneath(subresource: str) -> tuple[PathOperation, ...]:
    """Return the operations of a sub-resource."""
    words = "the status of" if subresource == "status" else "the finalizers of"
    return tuple(
        PathOperation(
            method=op.method,
            action=op.action,
            verb=op.verb,
            description=f"{op.verb} {words} one {{kind}}",
            suffix=subresource.capitalize(),
            parameters=op.parameters,
        )
        for op in (_READ, _REPLACE, _CHANGE)
    )


_EVERYWHERE = (
    PathOperation(
        method="get",
        action="list",
        verb="list",
        description="list or watch {plural} of all namespaces",
        suffix="ForAllNamespaces",
        parameters=LIST,
    ),
)


def _common(kind: Kind, operation: PathOperation, scope: str) -> Document:
    """Return the parts of an operation that both versions have."""
    group = (kind.group.removesuffix(".k8s.io") or "core").split(".")
    camel = "".join(part.capitalize() for part in group)
    place = f"{kind.version.capitalize()}{'Collection' if operation.action == 'deletecollection' else ''}{scope}"
    return {
        "tags": [f"{camel[0].lower()}{camel[1:]}_{kind.version}"],
        "description": operation.description.format(kind=kind.name, plural=kind.plural),
        "operationId": f"{operation.verb}{camel}{place}{kind.name}{operation.suffix}",
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.name, "version": kind.version},
    }


def _answer(kind: Kind, operation: PathOperation) -> list[str]:
    """Return the names of the definitions that an operation may return."""
    if operation.action == "delete":
        return [meta.STATUS, name(kind)]
    return [f"{name(kind)}List"] if operation.action in ("list", "deletecollection") else [name(kind)]


_SAID = {200: "OK", 201: "Created", 202: "Accepted"}


class _V3:
    """Renders for OpenAPI v3."""

    def operation(self, kind: Kind, operation: PathOperation, scope: str) -> Document:
        """Return an operation."""
        refs = [{meta.REF: f"#/components/schemas/{answer}"} for answer in _answer(kind, operation)]
        content = _content(refs[0] if len(refs) == 1 else {"anyOf": refs})
        answers: dict[str, Any] = {
            str(code): {"description": _SAID[code], "content": content} for code in operation.answers
        }
        answers |= {str(code): {meta.REF: f"#/components/responses/{word}"} for code, (word, _) in ERRORS.items()}
        out = _common(kind, operation, scope)
        out["parameters"] = [self.parameter(parameter) for parameter in operation.parameters]
        out["responses"] = answers
        if body := _body(kind, operation):
            out["requestBody"] = {"content": body, "required": operation.method != "delete"}
        return out

    def parameter(self, parameter: Parameter) -> Document:
        """Return a parameter."""
        out = {"name": parameter.name, "in": parameter.place, "description": parameter.description}
        return out | ({"required": True} if parameter.place == "path" else {}) | {"schema": parameter.schema}


def _content(node: Document) -> Document:
    return {media: {"schema": node} for media in MEDIA}


def _body(kind: Kind, operation: PathOperation) -> Document | None:
    ref = {meta.REF: f"#/components/schemas/{name(kind)}"}
    if operation.method == "patch":
        nodes = (meta.JSON_PATCH, meta.MERGE_PATCH, ref)
        return {media: {"schema": node} for media, node in zip(PATCHES, nodes, strict=True)}
    if operation.method == "delete":
        return _content({meta.REF: f"#/components/schemas/{meta.DELETE_OPTIONS}"})
    return _content(ref) if operation.method in ("post", "put") else None


class _V2:
    """Renders for OpenAPI v2."""

    def operation(self, kind: Kind, operation: PathOperation, scope: str) -> Document:
        """Return an operation."""
        # v2 has no alternatives: a deletion mostly returns a Status.
        ref = {meta.REF: f"#/definitions/{_answer(kind, operation)[0]}"}
        answers: dict[str, Any] = {str(code): {"description": _SAID[code], "schema": ref} for code in operation.answers}
        answers |= {str(code): {meta.REF: f"#/responses/{word}"} for code, (word, _) in ERRORS.items()}
        out = _common(kind, operation, scope)
        out["consumes"] = list(PATCHES if operation.method == "patch" else MEDIA)
        out["produces"] = list(MEDIA)
        out["schemes"] = ["https"]
        out["parameters"] = [self.parameter(parameter) for parameter in operation.parameters]
        out["responses"] = answers
        taken = {"post": name(kind), "put": name(kind), "patch": meta.PATCH, "delete": meta.DELETE_OPTIONS}
        if operation.method in taken:
            node = {meta.REF: f"#/definitions/{taken[operation.method]}"}
            body: Document = {"name": "body", "in": "body", "schema": node}
            out["parameters"].insert(0, body | ({"required": True} if operation.method != "delete" else {}))
        return out

    def parameter(self, parameter: Parameter) -> Document:
        """Return a parameter."""
        out = {"name": parameter.name, "in": parameter.place, "description": parameter.description}
        return out | ({"required": True} if parameter.place == "path" else {}) | parameter.schema
