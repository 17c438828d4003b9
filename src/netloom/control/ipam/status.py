"""An attachment's status as IPAM writes it.  Pure but for the time, which is an argument."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from netloom.control.attachment_statuses import put
from netloom.control.ipam.views import ADDRESSED, Attachment, Seen
from netloom.control.runtime.conditions import FALSE, READY, TRUE, UNKNOWN, summary, with_condition
from netloom.model.document import Condition, Document
from netloom.plan.addresses.allocation import Refusal

PLUGGED = "Plugged"
FULL = "SubnetFull"
MOST_ERRORS = 64
LONGEST = 1024


class Result(Struct, frozen=True):
    """What an attachment is found to have."""

    ips: tuple[str, ...]
    mac: str
    vni: int
    locks: tuple[tuple[str, str], ...]
    refusals: tuple[Refusal, ...]
    """Sorted by their texts."""
    pending: bool = False
    message: str = ""
    """What the Addressed condition says in any case."""

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors as the status has them."""
        return tuple(refusal.text[:LONGEST] for refusal in self.refusals[:MOST_ERRORS])

    def seen(self, generation: int) -> Seen:
        """Return what the Addressed condition says."""
        if self.refusals:
            # What can be mended by the wish's author first; a full Subnet mends itself.
            first = next((one for one in self.refusals if one.reason != FULL), self.refusals[0])
            return Seen(FALSE, first.reason, self._words(*self.errors), generation)
        if self.pending or not self.ips:
            return Seen(UNKNOWN, "Pending", self._words("a Subnet is still to be validated"), generation)
        return Seen(TRUE, ADDRESSED, self._words(), generation)

    def _words(self, *words: str) -> str:
        """Return the message first, so that it is never what is cut off."""
        return "; ".join([self.message, *words] if self.message else words)[:LONGEST]


def settled(view: Attachment, result: Result) -> bool:
    """Whether the status says all this already."""
    return (
        view.has_ips == result.ips
        and view.has_mac == result.mac
        and view.vni == result.vni
        and view.locks == result.locks
        and view.errors == result.errors
        and view.observed == view.metadata.generation
        and view.addressed == result.seen(view.metadata.generation)
    )


def status(before: Document, view: Attachment, result: Result, now: datetime) -> Document:
    """Return a status with what IPAM found; what others wrote stays."""
    after = dict(before)
    put(after, "ips", list(result.ips))
    put(after, "mac", result.mac)
    put(after, "vni", result.vni)
    put(after, "locks", [{"ip": ip, "uid": uid} for ip, uid in result.locks])
    errors = dict(before.get("errors") or {})
    put(errors, "ipam", list(result.errors))
    put(after, "errors", errors)
    after["observedGeneration"] = view.metadata.generation
    have = msgspec.convert(before.get("conditions") or (), tuple[Condition, ...])
    after["conditions"] = [_written(one) for one in _conditions(have, view, result, now)]
    return after


def _conditions(have: Sequence[Condition], view: Attachment, result: Result, now: datetime) -> tuple[Condition, ...]:
    generation = view.metadata.generation
    seen = result.seen(generation)
    addressed = Condition(
        type=ADDRESSED,
        status=seen.status,
        observed_generation=generation,
        reason=seen.reason,
        message=seen.message,
    )
    conditions = with_condition(have, addressed, now)
    if any(one.type == PLUGGED for one in have):
        return with_condition(conditions, summary(conditions, (ADDRESSED, PLUGGED), generation), now)
    ready = summary(conditions, (ADDRESSED,), generation)
    if ready.status == TRUE:
        ready = Condition(
            type=READY,
            status=UNKNOWN,
            observed_generation=generation,
            reason="NotPlugged",
            message="no agent has made the interface yet",
        )
    return with_condition(conditions, ready, now)


def _written(one: Condition) -> Document:
    built: Document = msgspec.to_builtins(one)
    return built
