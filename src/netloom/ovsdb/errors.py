"""Errors of a database, one class for each reaction.

RemoteError         the server sent invalid data: close the connection and reconnect
Unreachable         the transaction may or may not have been applied: read, then decide (`netloom.errors`)
TransactionRefused  the server refuses this transaction, now and later: a bug of ours, or an impossible request
Conflict            a `wait` did not hold, or a lock is not ours: read again, decide again
"""

from netloom import errors
from netloom.errors import Unreachable

__all__ = ["Conflict", "RemoteError", "TransactionRefused", "Unreachable"]


class RemoteError(errors.Unreachable):
    """The peer sent data that is not OVSDB."""


class _Failure(errors.NetloomError):
    """The server's error; nothing of the transaction was applied."""

    def __init__(self, error: str, details: str = "", *, operation: int | None = None) -> None:
        super().__init__(f"{error}: {details}" if details else error)
        self.error = error
        """The error's tag, as "constraint violation" or "referential integrity violation"."""
        self.details = details
        self.operation = operation
        """The index of the failed operation; None if the whole transaction failed, at its commit."""


class TransactionRefused(_Failure, errors.Invalid):
    """The server refused a transaction."""


class Conflict(_Failure, errors.Conflict):
    """A wait of the transaction does not hold, or its lock is not ours."""


CONFLICTS = frozenset({"timed out", "not owner"})


def failure(error: str, details: str, operation: int | None) -> TransactionRefused | Conflict:
    """Return the exception for an error of the server."""
    return (Conflict if error in CONFLICTS else TransactionRefused)(error, details, operation=operation)
