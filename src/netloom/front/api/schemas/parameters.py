"""The query and path parameters of the API, for the OpenAPI documents."""

from typing import Any

from msgspec import Struct


class Parameter(Struct, frozen=True):
    """One parameter; `schema` holds what v2 and v3 have in common."""

    name: str
    description: str
    schema: dict[str, Any]
    place: str = "query"


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer", "format": "int64", "minimum": 0}
_REVISION = {"type": "string", "pattern": "^[0-9]{0,18}$"}
_NAME = {"type": "string", "maxLength": 253, "minLength": 1}


def _one_of(*values: str) -> dict[str, Any]:
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
