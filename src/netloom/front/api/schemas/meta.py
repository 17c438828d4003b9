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


def _text(description: str, **more: object) -> Document:
    return {"type": "string", "description": description, **more}


def _whole(description: str, width: str = "int64") -> Document:
    return {"type": "integer", "format": width, "description": description}


def _flag(description: str) -> Document:
    return {"type": "boolean", "description": description}


def _texts(description: str) -> Document:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


_TYPE: Document = {
    "apiVersion": _text("The group and version of this object."),
    "kind": _text("The kind of this object."),
}
_OWNER: Document = {
    "type": "object",
    "description": "An object that owns this one.",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _text("The owner's group and version."),
        "kind": _text("The owner's kind."),
        "name": _text("The owner's name."),
        "uid": _text("The owner's uid."),
        "controller": _flag("Whether the owner manages this object; at most one does."),
        "blockOwnerDeletion": _flag("Whether deleting the owner in the foreground waits for this object."),
    },
}
_MANAGED: Document = {
    "type": "object",
    "description": "The fields that one manager owns.",
    "properties": {
        "manager": _text("The manager that owns them."),
        "operation": _text("How they were written: Apply or Update."),
        "apiVersion": _text("The version that the fields belong to."),
        "time": _text("When the manager last wrote.", format="date-time"),
        "fieldsType": _text("Always FieldsV1."),
        "fieldsV1": {"type": "object", "description": "The fields.", "x-kubernetes-preserve-unknown-fields": True},
        "subresource": _text("The sub-resource through which they were written; empty: the object itself."),
    },
}
METADATA: Document = {
    "type": "object",
    "description": "Standard object metadata.",
    "properties": {
        "name": _text("The name, unique in its namespace. Cannot be changed."),
        "generateName": _text("A prefix of the name; the server appends a random suffix."),
        "namespace": _text("The namespace of the object. Cannot be changed."),
        "labels": _texts("Keys and values that selectors match."),
        "annotations": _texts("Keys and values that selectors do not match."),
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Must be empty before a deleted object is removed; each entry is removed by its owner.",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": {
            "type": "array",
            "items": _OWNER,
            "description": "The objects that own this one; when all are deleted, so is this one.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "uid": _text("Unique in time and space; set by the server."),
        "resourceVersion": _text("Changes with every write; send it back to write only if nothing has changed since."),
        "generation": _whole("Incremented with every change of the spec; set by the server."),
        "creationTimestamp": _text("When the object was created; set by the server.", format="date-time"),
        "deletionTimestamp": _text("When deletion was requested; set by the server.", format="date-time"),
        "deletionGracePeriodSeconds": _whole("How long the deletion may take; set by the server."),
        "selfLink": _text("Deprecated; always empty."),
        "managedFields": {
            "type": "array",
            "items": _MANAGED,
            "description": "Which manager owns which fields, for server-side apply.",
            "x-kubernetes-list-type": "atomic",
        },
    },
}
"""ObjectMeta."""

DEFINITIONS: dict[str, Document] = {
    OBJECT_META: METADATA,
    LIST_META: {
        "type": "object",
        "description": "Standard list metadata.",
        "properties": {
            "resourceVersion": _text("The revision of the list; a watch from here misses nothing."),
            "continue": _text("Token for the next page; empty on the last page."),
            "remainingItemCount": _whole("How many objects follow, if known."),
            "selfLink": _text("Deprecated; always empty."),
        },
    },
    STATUS: {
        "type": "object",
        "description": "The result of a request that returns no object.",
        "properties": {
            **_TYPE,
            "metadata": {REF: LIST_META, "description": "Empty."},
            "status": _text("Success or Failure."),
            "message": _text("A description for people."),
            "reason": _text("A reason for programs, in one word."),
            "details": {REF: _DETAILS, "description": "The object concerned, and the causes."},
            "code": _whole("The HTTP status.", "int32"),
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    },
    _DETAILS: {
        "type": "object",
        "description": "The object that a Status is about, and the causes.",
        "properties": {
            "name": _text("The object's name."),
            "group": _text("The object's group."),
            "kind": _text("The object's kind, or resource."),
            "uid": _text("The object's uid."),
            "causes": {
                "type": "array",
                "items": {REF: _CAUSE},
                "description": "All causes of the failure, by field.",
                "x-kubernetes-list-type": "atomic",
            },
            "retryAfterSeconds": _whole("Seconds to wait before trying again.", "int32"),
        },
    },
    _CAUSE: {
        "type": "object",
        "description": "One cause of a failure.",
        "properties": {
            "reason": _text("A reason for programs."),
            "message": _text("A description for people."),
            "field": _text("The path of the field."),
        },
    },
    _PRECONDITIONS: {
        "type": "object",
        "description": "Conditions that the object must meet to be deleted.",
        "properties": {"uid": _text("Its uid."), "resourceVersion": _text("Its resourceVersion.")},
    },
    DELETE_OPTIONS: {
        "type": "object",
        "description": "Options of a deletion.",
        "properties": {
            **_TYPE,
            "dryRun": {
                "type": "array",
                "items": {"type": "string", "enum": ["All"]},
                "description": "All: do not store anything.",
                "x-kubernetes-list-type": "atomic",
            },
            "gracePeriodSeconds": _whole("Accepted and ignored."),
            "orphanDependents": _flag("Deprecated: use propagationPolicy."),
            "preconditions": {REF: _PRECONDITIONS, "description": "Conditions that the object must meet."},
            "propagationPolicy": _text(
                "What to do with the object's dependents.", enum=["Background", "Foreground", "Orphan"]
            ),
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "DeleteOptions", "version": "v1"}],
    },
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
            "op": _text("The operation.", enum=["add", "remove", "replace", "move", "copy", "test"]),
            "path": _text("The target, as a JSON pointer.", pattern="^(/.*)?$"),
            "from": _text("The source, for move and copy.", pattern="^(/.*)?$"),
            "value": {
                "description": "The value, for add, replace and test.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
}
MERGE_PATCH: Document = {"type": "object", "description": "A JSON merge patch (RFC 7386)."}
