"""The fields that the status of every kind has."""

from typing import Annotated

from netloom.model.document import Condition, Value
from netloom.model.values.scalars import Count, meta

Conditions = Annotated[
    tuple[Condition, ...],
    meta("The conditions of the object. `Ready` is the summary.", maxItems=32, list_map_keys=("type",)),
]


class Status(Value, frozen=True, kw_only=True):
    """The status of a kind that has no further fields."""

    conditions: Conditions = ()
    observed_generation: Annotated[Count, meta("The generation of the spec that this status describes.")] = 0

    def condition(self, name: str) -> Condition | None:
        """Return the condition of this type, if there is one."""
        return next((c for c in self.conditions if c.type == name), None)
