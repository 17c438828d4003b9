"""Which resource is planned, and what is wrong with it."""

from typing import NamedTuple


class Unit(NamedTuple):
    """Which resource something was planned for."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


class Problem(NamedTuple):
    """Why a resource, or a part of it, is not in the plan."""

    reason: str
    """In one word, for the condition."""
    message: str
    """For people: what is wrong, with the field's name, and what to do."""
