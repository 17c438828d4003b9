"""Label selectors of Kubernetes as selectors of attachments.  Pure.

An attachment has the labels of its pod but those under `kube.netloom.dev/`, which are ours. So a selector never sees
such a label of a pod: what requires one selects no pod.

A selector of Kubernetes has no limits, one of ours has. A list of values that is too long is split: one selector for
each part, of which at most one selects a given attachment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from netloom.errors import Invalid
from netloom.model.kinds import kubernetes
from netloom.model.schemas.rules import LABEL_VALUE_PATTERN
from netloom.model.selection import LabelRequirement, LabelSelector, SelectorOperator
from netloom.plan.kube import names

MOST_LABELS = 64
MOST_REQUIREMENTS = 64
MOST_VALUES = 64
"""The limits of a selector."""
MOST_ALTERNATIVES = 256
"""How many selectors one may become."""
_VALUE = re.compile(LABEL_VALUE_PATTERN)


class TooComplexError(Invalid):
    """A selector has more requirements than an object of ours can have."""


def alternatives(
    pods: kubernetes.LabelSelector, labels: Mapping[str, str], others: Iterable[LabelRequirement] = ()
) -> list[LabelSelector]:
    """Return the selectors of attachments that a selector of pods selects, and that have `labels` and meet `others`."""
    found = _requirements(pods)
    if found is None:
        return []
    wanted: dict[str, str] = dict(labels)
    choices: list[list[LabelRequirement]] = []
    for one in (*found, *others):
        if one.operator is SelectorOperator.IN and len(one.values) == 1 and len(wanted) < MOST_LABELS:
            if wanted.setdefault(one.key, one.values[0]) != one.values[0]:
                return []
        elif one.operator is SelectorOperator.IN:
            choices.append(list(_split(one)))
        else:
            choices += ([part] for part in _split(one))
    if len(choices) > MOST_REQUIREMENTS:
        raise TooComplexError(f"it has more than {MOST_REQUIREMENTS} requirements")
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MOST_ALTERNATIVES:
        raise TooComplexError("its lists of values are too long")
    return [LabelSelector(match_labels=wanted, match_expressions=chosen) for chosen in product(*choices)]


def _split(one: LabelRequirement) -> Iterator[LabelRequirement]:
    if not one.values:
        yield one
    for first in range(0, len(one.values), MOST_VALUES):
        some = one.values[first : first + MOST_VALUES]
        yield LabelRequirement(key=one.key, operator=one.operator, values=some)


def _requirements(pods: kubernetes.LabelSelector) -> list[LabelRequirement] | None:
    """Return the requirements of a selector; None if no pod can meet them."""
    found: list[LabelRequirement] = []
    given = [kubernetes.LabelRequirement(key=k, operator="In", values=(v,)) for k, v in pods.match_labels.items()]
    for one in (*given, *pods.match_expressions):
        values = tuple(sorted({value for value in one.values if _VALUE.fullmatch(value) and len(value) < 64}))
        match one.operator:
            case "In" if values and not one.key.startswith(names.PREFIX):
                found.append(LabelRequirement(key=one.key, operator=SelectorOperator.IN, values=values))
            case "Exists" if not one.key.startswith(names.PREFIX):
                found.append(LabelRequirement(key=one.key, operator=SelectorOperator.EXISTS))
            case "NotIn":
                if values and not one.key.startswith(names.PREFIX):
                    found.append(LabelRequirement(key=one.key, operator=SelectorOperator.NOT_IN, values=values))
            case "DoesNotExist":
                if not one.key.startswith(names.PREFIX):
                    found.append(LabelRequirement(key=one.key, operator=SelectorOperator.DOES_NOT_EXIST))
            case _:
                return None
    return found


def matches(selector: kubernetes.LabelSelector, have: Mapping[str, str]) -> bool:
    """Whether a selector of Kubernetes selects an object with these labels."""
    if any(have.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_meets(one, have.get(one.key)) for one in selector.match_expressions)


def _meets(one: kubernetes.LabelRequirement, value: str | None) -> bool:
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value is None or value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
