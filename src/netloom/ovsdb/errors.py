"""What can go wrong with a database, one class for each reaction.

RemoteError   the server speaks nonsense: drop the connection, start anew
Unreachable   it is not known whether the transaction acted: look, then decide (`netloom.errors`)
Refused       the server will not do this transaction, now or later: a bug of ours or a wish that cannot be had
Conflict      a `wait` did not hold, or a lock is not ours: read again, decide again
"""

from netloom import errors
from netloom.errors import Unreachable

__all__ = ["Conflict", "Refused", "RemoteError", "Unreachable"]


class RemoteError(errors.Unreachable):
    """The peer sent what is not OVSDB."""


class Refused(errors.Invalid):
    """The server refused a transaction; nothing of it was done."""

    def __init__(self, error: str, details: str = "", *, operation: int | None = None) -> None:
        super().__init__(f"{error}: {details}" if details else error)
        self.error = error
        """The error's tag, as "constraint violation" or "referential integrity violation"."""
        self.details = details
        self.operation = operation
        """Which operation failed; None where it was the transaction as a whole, at its commit."""


class Conflict(errors.Conflict):
    """What the transaction waited for does not hold, or its lock is not ours; nothing of it was done."""

    def __init__(self, error: str, details: str = "", *, operation: int | None = None) -> None:
        super().__init__(f"{error}: {details}" if details else error)
        self.error = error
        self.details = details
        self.operation = operation


CONFLICTS = frozenset({"timed out", "not owner"})


def failure(error: str, details: str, operation: int | None) -> Refused | Conflict:
    """Return the error to raise for what the server said."""
    return (Conflict if error in CONFLICTS else Refused)(error, details, operation=operation)
