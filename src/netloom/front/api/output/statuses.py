"""Kubernetes' `Status`, made from an error's class and data."""

from netloom.errors import Invalid, NetloomError
from netloom.model.document import Document
from netloom.model.kind import Kind


def failure(error: NetloomError, kind: Kind | None = None, name: str = "") -> Document:
    """Return the Status of a failed request about `kind` (and the object `name`)."""
    status: Document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.http_status,
    }
    details: Document = {}
    if name:
        details["name"] = name
    if kind is not None:
        if kind.group:
            details["group"] = kind.group
        # Invalid names the object's kind, all other errors the resource: clients print one or the other.
        details["kind"] = kind.name if isinstance(error, Invalid) else kind.plural
    if error.causes:
        causes = ({"reason": one.reason, "message": one.message, "field": one.field} for one in error.causes)
        details["causes"] = [{key: value for key, value in cause.items() if value} for cause in causes]
    if error.retry_after is not None:
        details["retryAfterSeconds"] = max(1, round(error.retry_after))
    if details:
        status["details"] = details
    return status


def success(kind: Kind, name: str = "", uid: str = "") -> Document:
    """Return the Status of a completed deletion."""
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
