"""The types that every Kubernetes API has besides its kinds: ObjectMeta, ListMeta, Status, DeleteOptions, patches.

They are OpenAPI schemas. The names are those of Kubernetes, because clients look for them. A reference between them is
`REF` and a name; `openapi` replaces it by the place of the definition in the document at hand.
"""

from netloom.front.api.merge.patch import MAX_OPERATIONS
from netloom.model.document import Document

REF = "$ref"
_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META, LIST_META = f"{_PREFIX}ObjectMeta", f"{_PREFIX}ListMeta"
STATUS, DELETE_OPTIONS, PATCH = f"{_PREFIX}Status", f"{_PREFIX}DeleteOptions", f"{_PREFIX}Patch"
_DETAILS, _CAUSE, _PRECONDITIONS = f"{_PREFIX}StatusDetails", f"{_PREFIX}StatusCause", f"{_PREFIX}Preconditions"


def record(description: str, properties: Document, **more: object) -> Document:
    """Return the schema of an object with these properties."""
    return {"type": "object", "description": description, "properties": properties, **more}


def array(description: str, items: Document, list_type: str = "") -> Document:
    """Return the schema of a list; `list_type` is the way it merges."""
    merging = {"x-kubernetes-list-type": list_type} if list_type else {}
    return {"type": "array", "description": description, "items": items, **merging}


def text(description: str, **more: object) -> Document:
    """Return the schema of a string."""
    return {"type": "string", "description": description, **more}


def _whole(description: str, width: str = "int64") -> Document:
    return {"type": "integer", "format": width, "description": description}


def _flag(description: str) -> Document:
    return {"type": "boolean", "description": description}


def _texts(description: str) -> Document:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def _own_kind(name: str) -> Document:
    return {"x-kubernetes-group-version-kind": [{"group": "", "kind": name, "version": "v1"}]}


_TYPE: Document = {
    "apiVersion": text("The group and version of this object."),
    "kind": text("The kind of this object."),
}
_OWNER = record(
    "An object that owns this one.",
    {
        "apiVersion": text("The owner's group and version."),
        "kind": text("The owner's kind."),
        "name": text("The owner's name."),
        "uid": text("The owner's uid."),
        "controller": _flag("Whether the owner manages this object; at most one does."),
        "blockOwnerDeletion": _flag("Whether deleting the owner in the foreground waits for this object."),
    },
    required=["apiVersion", "kind", "name", "uid"],
) | {"x-kubernetes-map-type": "atomic"}
_MANAGED = record(
    "The fields that one manager owns.",
    {
        "manager": text("The manager that owns them."),
        "operation": text("How they were written: Apply or Update."),
        "apiVersion": text("The version that the fields belong to."),
        "time": text("When the manager last wrote.", format="date-time"),
        "fieldsType": text("Always FieldsV1."),
        "fieldsV1": {"type": "object", "description": "The fields.", "x-kubernetes-preserve-unknown-fields": True},
        "subresource": text("The sub-resource through which they were written; empty: the object itself."),
    },
)
METADATA = record(
    "Standard object metadata.",
    {
        "name": text("The name, unique in its namespace. Cannot be changed."),
        "generateName": text("A prefix of the name; the server appends a random suffix."),
        "namespace": text("The namespace of the object. Cannot be changed."),
        "labels": _texts("Keys and values that selectors match."),
        "annotations": _texts("Keys and values that selectors do not match."),
        "finalizers": array(
            "Must be empty before a deleted object is removed; each entry is removed by its owner.",
            {"type": "string"},
            "set",
        )
        | {"x-kubernetes-patch-strategy": "merge"},
        "ownerReferences": array("The objects that own this one; when all are deleted, so is this one.", _OWNER, "map")
        | {
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "uid": text("Unique in time and space; set by the server."),
        "resourceVersion": text("Changes with every write; send it back to write only if nothing has changed since."),
        "generation": _whole("Incremented with every change of the spec; set by the server."),
        "creationTimestamp": text("When the object was created; set by the server.", format="date-time"),
        "deletionTimestamp": text("When deletion was requested; set by the server.", format="date-time"),
        "deletionGracePeriodSeconds": _whole("How long the deletion may take; set by the server."),
        "selfLink": text("Deprecated; always empty."),
        "managedFields": array("Which manager owns which fields, for server-side apply.", _MANAGED, "atomic"),
    },
)
"""ObjectMeta."""

DEFINITIONS: dict[str, Document] = {
    OBJECT_META: METADATA,
    LIST_META: record(
        "Standard list metadata.",
        {
            "resourceVersion": text("The revision of the list; a watch from here misses nothing."),
            "continue": text("Token for the next page; empty on the last page."),
            "remainingItemCount": _whole("How many objects follow, if known."),
            "selfLink": text("Deprecated; always empty."),
        },
    ),
    STATUS: record(
        "The result of a request that returns no object.",
        {
            **_TYPE,
            "metadata": {REF: LIST_META, "description": "Empty."},
            "status": text("Success or Failure."),
            "message": text("A description for people."),
            "reason": text("A reason for programs, in one word."),
            "details": {REF: _DETAILS, "description": "The object concerned, and the causes."},
            "code": _whole("The HTTP status.", "int32"),
        },
        **_own_kind("Status"),
    ),
    _DETAILS: record(
        "The object that a Status is about, and the causes.",
        {
            "name": text("The object's name."),
            "group": text("The object's group."),
            "kind": text("The object's kind, or resource."),
            "uid": text("The object's uid."),
            "causes": array("All causes of the failure, by field.", {REF: _CAUSE}, "atomic"),
            "retryAfterSeconds": _whole("Seconds to wait before trying again.", "int32"),
        },
    ),
    _CAUSE: record(
        "One cause of a failure.",
        {
            "reason": text("A reason for programs."),
            "message": text("A description for people."),
            "field": text("The path of the field."),
        },
    ),
    _PRECONDITIONS: record(
        "Conditions that the object must meet to be deleted.",
        {"uid": text("Its uid."), "resourceVersion": text("Its resourceVersion.")},
    ),
    DELETE_OPTIONS: record(
        "Options of a deletion.",
        {
            **_TYPE,
            "dryRun": array("All: do not store anything.", {"type": "string", "enum": ["All"]}, "atomic"),
            "gracePeriodSeconds": _whole("Accepted and ignored."),
            "orphanDependents": _flag("Deprecated: use propagationPolicy."),
            "preconditions": {REF: _PRECONDITIONS, "description": "Conditions that the object must meet."},
            "propagationPolicy": text(
                "What to do with the object's dependents.", enum=["Background", "Foreground", "Orphan"]
            ),
        },
        **_own_kind("DeleteOptions"),
    ),
    PATCH: {"type": "object", "description": "A JSON patch, a merge patch, or a configuration to apply."},
}

JSON_PATCH: Document = {
    "type": "array",
    "description": "A JSON patch (RFC 6902).",
    "maxItems": MAX_OPERATIONS,
    "items": {
        "type": "object",
        "required": ["op", "path"],
        "properties": {
            "op": text("The operation.", enum=["add", "remove", "replace", "move", "copy", "test"]),
            "path": text("The target, as a JSON pointer.", pattern="^(/.*)?$"),
            "from": text("The source, for move and copy.", pattern="^(/.*)?$"),
            "value": {
                "description": "The value, for add, replace and test.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
}
MERGE_PATCH: Document = {"type": "object", "description": "A JSON merge patch (RFC 7386)."}
