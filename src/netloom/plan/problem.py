"""Which resource is planned, and why a part of it is not."""

from typing import NamedTuple


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
    """Why a resource, or a part of it, is not in the plan."""

    reason: str
    """One word in CamelCase, for the condition."""
    message: str
    """For people: which field is wrong, why, and what to do."""
