"""Continue tokens: the position and the revision of a list.  Opaque to clients; validated when they return."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, Expired


class Position(Struct, frozen=True, forbid_unknown_fields=True):
    """The list at `rv`, after the object at `start`."""

    rv: int
    start: str


def token(revision: int, last: str) -> str:
    """Return the token for the page after the object at key `last`."""
    return urlsafe_b64encode(msgspec.json.encode(Position(revision, last))).decode().rstrip("=")


def check_alone(revision: int | None) -> None:
    """Refuse a revision given together with a token, which has its own."""
    if revision is not None:
        raise BadRequest("specifying resource version is not allowed when using continue")


def position(text: str, *, revision: int | None) -> Position:
    """Decode a token, or raise `BadRequest`."""
    check_alone(revision)
    try:
        found = msgspec.json.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)), type=Position)
    except (ValueError, msgspec.DecodeError):
        raise BadRequest("continue key is not valid") from None
    if found.rv <= 0 or "\0" in found.start:
        raise BadRequest("continue key is not valid")
    return found


def too_old() -> Expired:
    """Return the error for a token whose revision is compacted."""
    return Expired(
        "The provided continue parameter is too old to display a consistent list result. "
        "You must start a new list without the continue parameter."
    )
