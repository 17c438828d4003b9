"""What can go wrong, one class for each reaction.

Not one per call site: a class exists because somebody reacts differently to it. An edge reads the class attributes
(`http_status`, `reason`, `retry`) and never looks at the text. Errors carry data; the text is for people.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct


class Cause(Struct, frozen=True):
    """One thing that is wrong with one field.

    `reason` is one of Kubernetes' cause types: FieldValueInvalid, FieldValueRequired, FieldValueDuplicate,
    FieldValueNotSupported, FieldValueForbidden, FieldValueTypeInvalid, FieldValueTooLong, FieldValueTooMany.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


MOST_CAUSES = 100
"""How many causes an error lists: people do not read more, and the client chooses how many there are."""


def first(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the causes that an error lists: the first ones, and how many more there are."""
    if len(causes) <= MOST_CAUSES:
        return causes
    return [*causes[:MOST_CAUSES], Cause("", f"and {len(causes) - MOST_CAUSES} more")]


def shortened(texts: Sequence[str]) -> Sequence[str]:
    """Return the first of many texts, and how many more there are."""
    return texts if len(texts) <= MOST_CAUSES else [*texts[:MOST_CAUSES], f"and {len(texts) - MOST_CAUSES} more"]


class NetloomError(Exception):
    """Anything Netloom says no with.  Raise a subclass: the subclass is the reaction."""

    http_status: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"
    retry: ClassVar[bool] = False
    """Whether doing exactly the same again, later, may work."""

    def __init__(self, message: str, *, causes: Iterable[Cause] = (), retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.causes = tuple(causes)
        self.retry_after = retry_after


class BadRequest(NetloomError):
    """The request cannot be understood: not JSON, an unknown field, a selector that does not parse."""

    http_status = 400
    reason = "BadRequest"


class Unauthorized(NetloomError):
    """Nobody knows who is asking."""

    http_status = 401
    reason = "Unauthorized"


class Forbidden(NetloomError):
    """It is known who is asking, and they may not."""

    http_status = 403
    reason = "Forbidden"


class NotFound(NetloomError):
    """There is no such thing."""

    http_status = 404
    reason = "NotFound"


class MethodNotAllowed(NetloomError):
    """The thing is there; it does not do that."""

    http_status = 405
    reason = "MethodNotAllowed"


class NotAcceptable(NetloomError):
    """None of the formats asked for can be given."""

    http_status = 406
    reason = "NotAcceptable"


class AlreadyExists(NetloomError):
    """The name is taken."""

    http_status = 409
    reason = "AlreadyExists"


class Conflict(NetloomError):
    """Somebody else was faster: read again, decide again."""

    http_status = 409
    reason = "Conflict"
    retry = True


class Expired(NetloomError):
    """The revision asked for is gone: list again and go on from there."""

    http_status = 410
    reason = "Expired"
    retry = True


class TooLarge(NetloomError):
    """More than we take."""

    http_status = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(NetloomError):
    """A body in a format we do not read."""

    http_status = 415
    reason = "UnsupportedMediaType"


class Invalid(NetloomError):
    """Understood, and wrong; `causes` names every field at fault."""

    http_status = 422
    reason = "Invalid"


class TooManyRequests(NetloomError):
    """Come back later, after `retry_after` seconds."""

    http_status = 429
    reason = "TooManyRequests"
    retry = True


class Internal(NetloomError):
    """A bug of ours."""


class Unreachable(NetloomError):
    """The other side does not answer; whether it acted is unknown."""

    http_status = 503
    reason = "ServiceUnavailable"
    retry = True


class TimedOut(NetloomError):
    """The other side took too long; whether it acted is unknown."""

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
