"""Which resource is planned, and why a part of it is not."""

from typing import NamedTuple


class Unit(NamedTuple):
    """The resource that something is planned for."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


class Problem(NamedTuple):
    """Why a resource, or a part of it, is not in the plan."""

    reason: str
    """One word in CamelCase, for the condition."""
    message: str
    """For people: which field is wrong, why, and what to do."""
