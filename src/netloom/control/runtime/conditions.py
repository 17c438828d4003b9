"""Conditions: what was observed about an object, for people and for `wait --for=condition`.  Pure.

`lastTransitionTime` changes when the status changes and at no other time, so that a condition that is computed again
equals the one before, and nothing is written. It has microseconds, more than those of Kubernetes, so that the object
shows how long each step took; RFC 3339 allows them, and readers of metav1.Time accept them.

`Ready` is the summary: the first of the other conditions that does not hold, or True.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from netloom.control.runtime.clock import micro
from netloom.model.document import Condition

READY = "Ready"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


def with_condition(conditions: Sequence[Condition], condition: Condition, now: datetime) -> tuple[Condition, ...]:
    """Return `conditions` with the one of the same type replaced by `condition`, or `condition` appended."""
    old = next((c for c in conditions if c.type == condition.type), None)
    since = old.last_transition_time if old and old.status == condition.status else micro(now)
    new = replace(condition, last_transition_time=since or micro(now))
    if old is None:
        return (*conditions, new)
    return tuple(new if c is old else c for c in conditions)


def summary(conditions: Sequence[Condition], needed: Sequence[str], generation: int) -> Condition:
    """Return the condition `Ready` that summarizes the `needed` conditions; a missing one counts as Unknown."""
    have = {c.type: c for c in conditions}
    for status in (FALSE, UNKNOWN):
        for need in needed:
            condition = have.get(need) or Condition(type=need, status=UNKNOWN, reason="Pending")
            if condition.status == status:
                reason = condition.reason or need
                return replace(condition, type=READY, observed_generation=generation, reason=reason)
    return Condition(type=READY, status=TRUE, observed_generation=generation, reason=READY)


def observed(
    conditions: Sequence[Condition], new: Sequence[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return `conditions` with each of `new`, observed at `generation`, and the `Ready` that summarizes them."""
    result = tuple(conditions)
    for condition in new:
        result = with_condition(result, replace(condition, observed_generation=generation), now)
    return with_condition(result, summary(result, [c.type for c in new], generation), now)
