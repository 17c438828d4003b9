"""What every API has beside its kinds: ObjectMeta, ListMeta, Status, DeleteOptions, patches, as OpenAPI schemas.

The names are Kubernetes' own, because clients look for them. References between them are `REF` and a name, for
`openapi` to point at where the document at hand keeps its definitions.
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
    "description": "An object this one exists for.",
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
        "manager": _text("Who owns them."),
        "operation": _text("How they were written: Apply or Update."),
        "apiVersion": _text("The version the fields belong to."),
        "time": _text("When the manager last wrote.", format="date-time"),
        "fieldsType": _text("Always FieldsV1."),
        "fieldsV1": {"type": "object", "description": "The fields.", "x-kubernetes-preserve-unknown-fields": True},
        "subresource": _text("The sub-resource they were written through; empty: the object itself."),
    },
}
METADATA: Document = {
    "type": "object",
    "description": "What every object has.",
    "properties": {
        "name": _text("The name, unique in its namespace. Cannot be changed."),
        "generateName": _text("A prefix; the server appends a random suffix and makes the name of it."),
        "namespace": _text("The namespace the object lives in. Cannot be changed."),
        "labels": _texts("Keys and values to select objects by."),
        "annotations": _texts("Keys and values that are not selected by."),
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Who must do something before a deleted object goes; each takes its own entry away.",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": {
            "type": "array",
            "items": _OWNER,
            "description": "The objects this one exists for; when all are gone, so is this one.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "uid": _text("Unique in time and space; the server's."),
        "resourceVersion": _text("Changes with every write; send it back to change only what you have seen."),
        "generation": _whole("Grows with every change of what is wanted; the server's."),
        "creationTimestamp": _text("When the object was made; the server's.", format="date-time"),
        "deletionTimestamp": _text("When its deletion was asked for; the server's.", format="date-time"),
        "deletionGracePeriodSeconds": _whole("How long a deletion may take; the server's."),
        "selfLink": _text("Not used any more."),
        "managedFields": {
            "type": "array",
            "items": _MANAGED,
            "description": "Who owns which field, for server-side apply.",
            "x-kubernetes-list-type": "atomic",
        },
    },
}
"""ObjectMeta."""

DEFINITIONS: dict[str, Document] = {
    OBJECT_META: METADATA,
    LIST_META: {
        "type": "object",
        "description": "What every list has.",
        "properties": {
            "resourceVersion": _text("The state the list shows; a watch from here misses nothing."),
            "continue": _text("Send it back for the next page; empty on the last."),
            "remainingItemCount": _whole("How many objects follow, where it is known."),
            "selfLink": _text("Not used any more."),
        },
    },
    STATUS: {
        "type": "object",
        "description": "What came of a request that returns no object.",
        "properties": {
            **_TYPE,
            "metadata": {REF: LIST_META, "description": "Empty."},
            "status": _text("Success or Failure."),
            "message": _text("What happened, for people."),
            "reason": _text("What happened, for programs: one word."),
            "details": {REF: _DETAILS, "description": "What it happened to."},
            "code": _whole("The HTTP status.", "int32"),
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    },
    _DETAILS: {
        "type": "object",
        "description": "What a Status is about.",
        "properties": {
            "name": _text("The object's name."),
            "group": _text("The object's group."),
            "kind": _text("The object's kind, or resource."),
            "uid": _text("The object's uid."),
            "causes": {
                "type": "array",
                "items": {REF: _CAUSE},
                "description": "Everything that is wrong, field by field.",
                "x-kubernetes-list-type": "atomic",
            },
            "retryAfterSeconds": _whole("When to try again.", "int32"),
        },
    },
    _CAUSE: {
        "type": "object",
        "description": "One thing that is wrong.",
        "properties": {
            "reason": _text("What is wrong, for programs."),
            "message": _text("What is wrong, for people."),
            "field": _text("The field, by its path."),
        },
    },
    _PRECONDITIONS: {
        "type": "object",
        "description": "What must hold of an object before it is deleted.",
        "properties": {"uid": _text("Its uid."), "resourceVersion": _text("Its resourceVersion.")},
    },
    DELETE_OPTIONS: {
        "type": "object",
        "description": "How to delete.",
        "properties": {
            **_TYPE,
            "dryRun": {
                "type": "array",
                "items": {"type": "string", "enum": ["All"]},
                "description": "All: do everything but delete.",
                "x-kubernetes-list-type": "atomic",
            },
            "gracePeriodSeconds": _whole("Accepted and without effect."),
            "orphanDependents": _flag("The old word for propagationPolicy Orphan."),
            "preconditions": {REF: _PRECONDITIONS, "description": "What must hold of the object."},
            "propagationPolicy": _text(
                "What happens to the object's dependents.", enum=["Background", "Foreground", "Orphan"]
            ),
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "DeleteOptions", "version": "v1"}],
    },
    PATCH: {"type": "object", "description": "A change: a JSON patch, a merge patch, or a configuration to apply."},
}

JSON_PATCH: Document = {
    "type": "array",
    "description": "A JSON patch (RFC 6902).",
    "maxItems": MAX_OPERATIONS,
    "items": {
        "type": "object",
        "required": ["op", "path"],
        "properties": {
            "op": _text("What to do.", enum=["add", "remove", "replace", "move", "copy", "test"]),
            "path": _text("Where: a JSON pointer.", pattern="^(/.*)?$"),
            "from": _text("Where from, for move and copy.", pattern="^(/.*)?$"),
            "value": {
                "description": "The value, for add, replace and test.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
}
MERGE_PATCH: Document = {"type": "object", "description": "A JSON merge patch (RFC 7386)."}
