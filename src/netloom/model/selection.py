"""Label selectors as fields of resources."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Value
from netloom.model.schemas.rules import Rule
from netloom.model.values.scalars import LabelKey, LabelValue, meta


class SelectorOperator(StrEnum):
    """The operator of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(Value, frozen=True, kw_only=True):
    """One requirement on one label."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            lambda self: (self["operator"] in ("In", "NotIn")) == bool(self.get("values")),
            "must be non-empty with In and NotIn, and absent with other operators",
            path=".values",
        ),
    )

    key: Annotated[LabelKey, meta("The key of the label.")]
    operator: Annotated[SelectorOperator, meta("How the label is compared with the values.")]
    values: Annotated[tuple[LabelValue, ...], meta("The values to compare the label with.", maxItems=64)] = ()


class LabelSelector(Value, frozen=True, kw_only=True):
    """Selects objects by their labels.  All requirements must hold; an empty selector selects all objects."""

    match_labels: Annotated[
        dict[LabelKey, LabelValue], meta("Labels and values that an object must have.", maxProperties=64)
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[LabelRequirement, ...], meta("Further requirements on labels.", maxItems=64)
    ] = ()
