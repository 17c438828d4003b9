"""The OpenAPI documents, made from the registry of kinds and their schemas.

   v3(kinds)   one document for each group and version, for `kubectl explain` and today's clients
   v2(kinds)   one for everything, for kubectl 1.20 (as protobuf: `openapi_proto`)

The documents must be correct, since programs test the server against them: they list every status code and the schema
of every answer. Both are rendered from the same operations; v2 has less where it cannot express something. Neither can
describe a watch: with `watch=true` a list answers with a stream of events.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from netloom import __version__
from netloom.front.api.merge.patch import Json
from netloom.front.api.schemas import meta
from netloom.front.api.schemas.batches import path_item
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


class Parameter(Struct, frozen=True):
    """One parameter; `schema` holds what v2 and v3 have in common."""

    name: str
    description: str
    schema: Document
    place: str = "query"


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer", "format": "int64", "minimum": 0}
_REVISION = {"type": "string", "pattern": "^[0-9]{0,18}$"}
_NAME = {"type": "string", "maxLength": 253, "minLength": 1}


def _one_of(*values: str) -> Document:
    return {"type": "string", "enum": list(values)}


PATHS = (
    Parameter("name", "The object's name.", _NAME, "path"),
    Parameter("namespace", "The object's namespace.", _NAME, "path"),
)
PRETTY = Parameter("pretty", "Accepted and ignored.", _TEXT)
_DRY_RUN = Parameter("dryRun", "All: do not store anything.", _one_of("All"))
_MANAGER = Parameter(
    "fieldManager",
    "The name of the writer in managedFields; default: the program in the User-Agent.",
    {"type": "string", "maxLength": 128},
)
_VALIDATION = Parameter(
    "fieldValidation",
    "What to do with unknown and duplicate fields: refuse them (Strict, the default), drop them with a warning (Warn)"
    ", or drop them (Ignore).",
    _one_of("Ignore", "Warn", "Strict"),
)
GET = (Parameter("resourceVersion", "The answer must not be older than this; it is always current.", _REVISION),)
CREATE = (_DRY_RUN, _MANAGER, _VALIDATION)
PATCH = (*CREATE, Parameter("force", "Apply: take over fields that others own.", _FLAG))
LIST = (
    Parameter("allowWatchBookmarks", "Watch: send bookmarks, which carry the current resourceVersion.", _FLAG),
    Parameter("continue", "The token of the last page, to list the next one.", _TEXT),
    Parameter("fieldSelector", "Only objects with these fields: FIELD=VALUE, FIELD!=VALUE, comma-separated.", _TEXT),
    Parameter(
        "labelSelector", "Only objects with these labels: KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY, !KEY.", _TEXT
    ),
    Parameter("limit", "The most objects to return; use `continue` for the rest.", _NUMBER),
    Parameter("resourceVersion", "The revision to list at, or to watch from.", _REVISION),
    Parameter("resourceVersionMatch", "How to interpret resourceVersion.", _one_of("Exact", "NotOlderThan")),
    Parameter("sendInitialEvents", "Watch: send the current objects first, then a bookmark.", _FLAG),
    Parameter("timeoutSeconds", "How long the watch lasts.", _NUMBER),
    Parameter("watch", "Return a stream of changes instead of a list.", _FLAG),
)
DELETE = (
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "Accepted and ignored.", _NUMBER),
    Parameter("orphanDependents", "Deprecated: use propagationPolicy.", _FLAG),
    Parameter(
        "propagationPolicy",
        "What to do with the object's dependents: delete them after it, delete them before it, or keep them.",
        _one_of("Background", "Foreground", "Orphan"),
    ),
)


class PathOperation(Struct, frozen=True):
    """One method on one path."""

    action: str
    """The x-kubernetes-action, a key of `_ACTIONS`."""
    description: str
    parameters: tuple[Parameter, ...]
    answers: tuple[int, ...] = (200,)
    suffix: str = ""
    """The last word of its operationId."""


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
    paths = {path: item for kind in kinds for path, item in _paths(kind, v2=False)}
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
        "paths": {path: item for kind in kinds for path, item in _paths(kind, v2=True)},
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


def _paths(kind: Kind, *, v2: bool) -> Iterator[tuple[str, Document]]:
    """Yield the paths of a kind with their operations."""
    collection = kind.path("{namespace}")
    scope = "Namespaced" if kind.namespaced else ""
    places = [(collection, scope, _COLLECTION), (f"{collection}/{{name}}", scope, _OBJECT)]
    places += [(f"{collection}/{{name}}/{one}", scope, _beneath(one)) for one in kind.subresources]
    if kind.namespaced:
        places.append((kind.path(), "", _EVERYWHERE))
    for path, scope, operations in places:
        allowed = kind.subresources.get(path.rpartition("/")[2], kind.verbs)
        item: Document = {}
        for operation in operations:
            method, verb, _ = _ACTIONS[operation.action]
            if verb in allowed:
                item[method] = _operation(kind, operation, scope, v2=v2)
        inside = [parameter for parameter in PATHS if f"{{{parameter.name}}}" in path]
        item["parameters"] = [_parameter(parameter, v2=v2) for parameter in (*inside, PRETTY)]
        yield path, item


_ACTIONS = {
    "get": ("get", "get", "read"),
    "list": ("get", "list", "list"),
    "post": ("post", "create", "create"),
    "put": ("put", "update", "replace"),
    "patch": ("patch", "patch", "patch"),
    "delete": ("delete", "delete", "delete"),
    "deletecollection": ("delete", "deletecollection", "delete"),
}
"""For each action its HTTP method, its verb in authorization, and the first word of its operationId."""
_READ = PathOperation("get", "read one {kind}", GET)
_REPLACE = PathOperation("put", "replace one {kind}", CREATE)
_CHANGE = PathOperation(
    "patch", "patch one {kind}, or apply it; apply creates it if it does not exist", PATCH, answers=(200, 201)
)
_DELETE = PathOperation(
    "delete",
    "delete one {kind}; returns a Status, or the object while finalizers block its deletion",
    DELETE,
    answers=(200, 202),
)
_OBJECT = (_READ, _REPLACE, _CHANGE, _DELETE)
_COLLECTION = (
    PathOperation("list", "list or watch {plural}", LIST),
    PathOperation("post", "create one {kind}", CREATE, answers=(201,)),
    PathOperation("deletecollection", "delete all {plural} that a list would return", (*LIST, *DELETE)),
)
_EVERYWHERE = (PathOperation("list", "list or watch {plural} of all namespaces", LIST, suffix="ForAllNamespaces"),)


def _beneath(subresource: str) -> tuple[PathOperation, ...]:
    """Return the operations of a sub-resource."""
    part = "the status of" if subresource == "status" else "the finalizers of"
    return tuple(
        PathOperation(
            one.action,
            f"{_ACTIONS[one.action][2]} {part} one {{kind}}",
            one.parameters,
            suffix=subresource.capitalize(),
        )
        for one in (_READ, _REPLACE, _CHANGE)
    )


_SAID = {200: "OK", 201: "Created", 202: "Accepted"}


def _operation(kind: Kind, operation: PathOperation, scope: str, *, v2: bool) -> Document:
    action = operation.action
    method, _, word = _ACTIONS[action]
    group = (kind.group.removesuffix(".k8s.io") or "core").split(".")
    camel = "".join(part.capitalize() for part in group)
    place = f"{kind.version.capitalize()}{'Collection' if action == 'deletecollection' else ''}{scope}"
    out: Document = {
        "tags": [f"{camel[0].lower()}{camel[1:]}_{kind.version}"],
        "description": operation.description.format(kind=kind.name, plural=kind.plural),
        "operationId": f"{word}{camel}{place}{kind.name}{operation.suffix}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.name, "version": kind.version},
        "parameters": [_parameter(parameter, v2=v2) for parameter in operation.parameters],
    }
    answer = f"{name(kind)}List" if action in ("list", "deletecollection") else name(kind)
    if v2:
        # v2 has no alternatives: a deletion mostly returns a Status.
        answered: Document = {"schema": {meta.REF: f"#/definitions/{meta.STATUS if action == 'delete' else answer}"}}
        out |= {
            "consumes": list(PATCHES if method == "patch" else MEDIA),
            "produces": list(MEDIA),
            "schemes": ["https"],
        }
        taken = {"post": name(kind), "put": name(kind), "patch": meta.PATCH, "delete": meta.DELETE_OPTIONS}
        if method in taken:
            body: Document = {"name": "body", "in": "body", "schema": {meta.REF: f"#/definitions/{taken[method]}"}}
            out["parameters"].insert(0, body | ({"required": True} if method != "delete" else {}))
    else:
        ref = {meta.REF: f"#/components/schemas/{answer}"}
        either = {"anyOf": [{meta.REF: f"#/components/schemas/{meta.STATUS}"}, ref]}
        answered = {"content": _content(either if action == "delete" else ref)}
        if content := _body(kind, method):
            out["requestBody"] = {"content": content, "required": method != "delete"}
    refusals = "#/responses/" if v2 else "#/components/responses/"
    out["responses"] = {str(code): {"description": _SAID[code], **answered} for code in operation.answers}
    out["responses"] |= {str(code): {meta.REF: refusals + word} for code, (word, _) in ERRORS.items()}
    return out


def _parameter(parameter: Parameter, *, v2: bool) -> Document:
    out: Document = {"name": parameter.name, "in": parameter.place, "description": parameter.description}
    out |= {"required": True} if parameter.place == "path" else {}
    return out | (parameter.schema if v2 else {"schema": parameter.schema})


def _content(node: Document) -> Document:
    return {media: {"schema": node} for media in MEDIA}


def _body(kind: Kind, method: str) -> Document | None:
    ref = {meta.REF: f"#/components/schemas/{name(kind)}"}
    if method == "patch":
        nodes = (meta.JSON_PATCH, meta.MERGE_PATCH, ref)
        return {media: {"schema": node} for media, node in zip(PATCHES, nodes, strict=True)}
    if method == "delete":
        return _content({meta.REF: f"#/components/schemas/{meta.DELETE_OPTIONS}"})
    return _content(ref) if method in ("post", "put") else None
