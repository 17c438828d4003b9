"""What can stand in the way on a node: something about the machine that a person, or time, must mend."""

from netloom.errors import NetloomError
from netloom.plan.problem import Problem


class Trouble(NetloomError):
    """A port cannot be made, or unmade, as things are here.  Looked at again after a while, or when something changes.

    `word` is for the condition: NamespaceMissing, DeviceMissing, NameTaken, …; the message is for people.
    """

    http_status = 409
    reason = "Trouble"
    retry = True

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word

    @classmethod
    def of(cls, problem: Problem) -> "Trouble":
        """Return what a plan says is in the way."""
        return Trouble(problem.reason, problem.message)
