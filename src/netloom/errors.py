"""Errors, one class for each reaction.

Not one per call site: a class exists because some caller reacts differently to it. A frontend reads the class
attributes (`http_status`, `reason`, `retry`) and never the text. Errors carry data; the text is for people.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct


class Cause(Struct):
    """One thing that is wrong with one field: Kubernetes' StatusCause.

    `reason` is one of Kubernetes' cause types: FieldValueInvalid, FieldValueRequired, FieldValueDuplicate,
    FieldValueNotSupported, FieldValueForbidden, FieldValueTypeInvalid, FieldValueTooLong, FieldValueTooMany.
    """

    field: str = ""
    message: str = ""
    reason: str = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


MOST_CAUSES = 100
"""How many causes an error lists: people do not read more, and the client chooses how many there are."""


def first(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the causes that an error lists: the first ones, and the number of the others."""
    if len(causes) <= MOST_CAUSES:
        return causes
    return [*causes[:MOST_CAUSES], Cause("", f"and {len(causes) - MOST_CAUSES} more")]


def shortened(texts: Sequence[str]) -> Sequence[str]:
    """Return the first of many texts, and the number of the others."""
    return texts if len(texts) <= MOST_CAUSES else [*texts[:MOST_CAUSES], f"and {len(texts) - MOST_CAUSES} more"]


class NetloomError(Exception):
    """The base of all errors that Netloom raises.  Raise a subclass: the subclass is the reaction."""

    http_status: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"
    retry: ClassVar[bool] = False
    """Whether repeating the same request later may succeed."""

    def __init__(self, message: str, *, causes: Iterable[Cause] = (), retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.causes = tuple(causes)
        self.retry_after = retry_after


class BadRequest(NetloomError):
    """The request cannot be parsed: invalid JSON, an unknown field, an invalid selector."""

    http_status = 400
    reason = "BadRequest"


class Unauthorized(NetloomError):
    """The client is not authenticated."""

    http_status = 401
    reason = "Unauthorized"


class Forbidden(NetloomError):
    """The client is authenticated and has no permission."""

    http_status = 403
    reason = "Forbidden"


class NotFound(NetloomError):
    """The object does not exist."""

    http_status = 404
    reason = "NotFound"


class MethodNotAllowed(NetloomError):
    """The resource does not support this operation."""

    http_status = 405
    reason = "MethodNotAllowed"


class NotAcceptable(NetloomError):
    """None of the requested formats is supported."""

    http_status = 406
    reason = "NotAcceptable"


class AlreadyExists(NetloomError):
    """The name is in use."""

    http_status = 409
    reason = "AlreadyExists"


class Conflict(NetloomError):
    """Another write came first: read again and decide again."""

    http_status = 409
    reason = "Conflict"
    retry = True


class Expired(NetloomError):
    """The requested revision is no longer available: list again and watch from there."""

    http_status = 410
    reason = "Expired"
    retry = True


class TooLarge(NetloomError):
    """The request is larger than allowed."""

    http_status = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(NetloomError):
    """The format of the body is not supported."""

    http_status = 415
    reason = "UnsupportedMediaType"


class Invalid(NetloomError):
    """The request is well-formed and its content is invalid; `causes` names every invalid field."""

    http_status = 422
    reason = "Invalid"


class TooManyRequests(NetloomError):
    """The client must wait `retry_after` seconds."""

    http_status = 429
    reason = "TooManyRequests"
    retry = True


class Internal(NetloomError):
    """A bug in Netloom."""


class Unreachable(NetloomError):
    """The peer does not answer; whether it acted is unknown."""

    http_status = 503
    reason = "ServiceUnavailable"
    retry = True


class TimedOut(NetloomError):
    """The peer took too long; whether it acted is unknown."""

    http_status = 504
    reason = "Timeout"
    retry = True


BY_REASON: dict[str, type[NetloomError]] = {
    cls.reason: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        NotAcceptable,
        AlreadyExists,
        Conflict,
        Expired,
        TooLarge,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        Internal,
        Unreachable,
        TimedOut,
    )
}
