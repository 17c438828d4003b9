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

    def __init_subclass__(cls, *, status: int = 0, reason: str = "", retry: bool = False) -> None:
        """Set the class attributes; a subclass without a status inherits all of them.  `reason` is the class's name."""
        if status:
            cls.http_status, cls.reason, cls.retry = status, reason or cls.__name__, retry

    def __init__(self, message: str, *, causes: Iterable[Cause] = (), retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.causes = tuple(causes)
        self.retry_after = retry_after


class BadRequest(NetloomError, status=400):
    """The request cannot be parsed: invalid JSON, an unknown field, an invalid selector."""


class Unauthorized(NetloomError, status=401):
    """The client is not authenticated."""


class Forbidden(NetloomError, status=403):
    """The client is authenticated and has no permission."""


class NotFound(NetloomError, status=404):
    """The object does not exist."""


class MethodNotAllowed(NetloomError, status=405):
    """The resource does not support this operation."""


class NotAcceptable(NetloomError, status=406):
    """None of the requested formats is supported."""


class AlreadyExists(NetloomError, status=409):
    """The name is in use."""


class Conflict(NetloomError, status=409, retry=True):
    """Another write came first: read again and decide again."""


class Expired(NetloomError, status=410, retry=True):
    """The requested revision is no longer available: list again and watch from there."""


class TooLarge(NetloomError, status=413, reason="RequestEntityTooLarge"):
    """The request is larger than allowed."""


class UnsupportedMediaType(NetloomError, status=415):
    """The format of the body is not supported."""


class Invalid(NetloomError, status=422):
    """The request is well-formed and its content is invalid; `causes` names every invalid field."""


class TooManyRequests(NetloomError, status=429, retry=True):
    """The client must wait `retry_after` seconds."""


class Internal(NetloomError):
    """A bug in Netloom."""


class Unreachable(NetloomError, status=503, reason="ServiceUnavailable", retry=True):
    """The peer does not answer; whether it acted is unknown."""


class TimedOut(NetloomError, status=504, reason="Timeout", retry=True):
    """The peer took too long; whether it acted is unknown."""


BY_REASON: dict[str, type[NetloomError]] = {cls.reason: cls for cls in NetloomError.__subclasses__()}
