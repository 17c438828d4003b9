"""What the status of every kind has."""

from typing import Annotated

from netloom.model.document import Condition, Value
from netloom.model.scalars import Count, says

Conditions = Annotated[
    tuple[Condition, ...],
    says("What was observed; `Ready` is the summary.", maxItems=32, list_map_keys=("type",)),
]


class Status(Value, frozen=True, kw_only=True):
    """The status of a kind that has nothing else to say."""

    conditions: Conditions = ()
    observed_generation: Annotated[Count, says("The generation of the spec this status is about.")] = 0

    def condition(self, name: str) -> Condition | None:
        """Return the condition of this type, if there is one."""
        return next((c for c in self.conditions if c.type == name), None)
