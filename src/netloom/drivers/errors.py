"""The one exception of the node's drivers: something about the machine that a person, or time, must correct."""

from netloom.errors import NetloomError
from netloom.plan.problem import Problem


class ProblemError(NetloomError):
    """A port cannot be made, or removed, in the present state of the node.

    It is retried after a while, or when something on the node changes. The reason of its `Problem` is the reason of the
    condition: NamespaceMissing, DeviceMissing, NameTaken and so on.
    """

    http_status = 409
    reason = "Trouble"
    retry = True

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(reason, message)

    @classmethod
    def of(cls, problem: Problem) -> "ProblemError":
        """Return the exception that carries a problem."""
        return cls(*problem)
