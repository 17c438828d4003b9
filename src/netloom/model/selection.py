"""Label selectors as resources write them."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Value
from netloom.model.rules import Rule
from netloom.model.scalars import LabelKey, LabelValue, says


class SelectorOperator(StrEnum):
    """How a requirement on a label compares."""

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
            "must be given, and not empty, with In and NotIn, and with no other operator",
            path=".values",
        ),
    )

    key: LabelKey
    operator: SelectorOperator
    values: Annotated[tuple[LabelValue, ...], says("What the label is compared with.", maxItems=64)] = ()


class LabelSelector(Value, frozen=True, kw_only=True):
    """Selects objects by their labels; all parts must hold, and an empty selector selects everything."""

    match_labels: Annotated[
        dict[LabelKey, LabelValue], says("Labels an object must have, with these values.", maxProperties=64)
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[LabelRequirement, ...], says("Further requirements on labels.", maxItems=64)
    ] = ()
