"""The query and path parameters of the API, as the OpenAPI documents tell of them."""

from typing import Any

from msgspec import Struct


class Parameter(Struct, frozen=True):
    """One parameter; `schema` holds what v2 and v3 both have words for."""

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
PRETTY = Parameter("pretty", "Accepted and without effect.", _TEXT)
_DRY_RUN = Parameter("dryRun", "All: do everything but store.", _one_of("All"))
_MANAGER = Parameter(
    "fieldManager",
    "Who is writing, for managedFields; absent: the program named by the User-Agent.",
    {"type": "string", "maxLength": 128},
)
_VALIDATION = Parameter(
    "fieldValidation",
    "What happens to fields that no schema knows, and to fields given twice: refused (Strict, the default), left out"
    " with a warning (Warn), or left out (Ignore).",
    _one_of("Ignore", "Warn", "Strict"),
)
GET = (Parameter("resourceVersion", "Not older than this; any answer is current.", _REVISION),)
CREATE = (_DRY_RUN, _MANAGER, _VALIDATION)
PATCH = (*CREATE, Parameter("force", "Applying: take over the fields that others own.", _FLAG))
LIST = (
    Parameter("allowWatchBookmarks", "Watching: send an event now and then that says how far it has come.", _FLAG),
    Parameter("continue", "Where the last page of a list said that it goes on.", _TEXT),
    Parameter("fieldSelector", "Only objects with these fields: FIELD=VALUE, FIELD!=VALUE, joined by commas.", _TEXT),
    Parameter(
        "labelSelector", "Only objects with these labels: KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY, !KEY.", _TEXT
    ),
    Parameter("limit", "At most so many objects; the rest comes by `continue`.", _NUMBER),
    Parameter("resourceVersion", "The revision to list at, or to watch from.", _REVISION),
    Parameter("resourceVersionMatch", "How resourceVersion is meant.", _one_of("Exact", "NotOlderThan")),
    Parameter("sendInitialEvents", "Watching: begin with what is there, then a bookmark.", _FLAG),
    Parameter("timeoutSeconds", "How long a watch lasts.", _NUMBER),
    Parameter("watch", "Answer with a stream of changes instead of a list.", _FLAG),
)
DELETE = (
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "Accepted and without effect.", _NUMBER),
    Parameter("orphanDependents", "The old word for propagationPolicy=Orphan.", _FLAG),
    Parameter(
        "propagationPolicy",
        "What happens to the object's dependents: deleted after it, deleted before it, or left.",
        _one_of("Background", "Foreground", "Orphan"),
    ),
)
