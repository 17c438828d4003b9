"""What is planned, why it cannot be, and the exception that carries the reason."""

from typing import NamedTuple

from netloom.errors import NetloomError


class Unit(NamedTuple):
    """The resource that something is planned for."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Unit | None":
        """Return the resource that a text of `str(unit)` names; None if it names none."""
        kind, _, rest = text.partition("/")
        namespace, _, name = rest.rpartition("/")
        return cls(kind, namespace, name) if kind and name else None

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


class Problem(NamedTuple):
    """Why a resource, or a part of it, is not planned, not allocated or not made."""

    reason: str
    """One word in CamelCase, for the condition."""
    message: str
    """For people: which field is wrong, why, and what to do."""


class Waiting(NamedTuple):
    """What a resource waits for, without anything being wrong."""

    reason: str
    """As that of a `Problem`."""
    message: str


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
