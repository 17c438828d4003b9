"""An attachment's status as IPAM writes it.  Pure but for the time, which is an argument.

What was found for an attachment, put together and written into its status.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from netloom.control import attachment_statuses
from netloom.control.attachment_statuses import put
from netloom.control.ipam.macs import Macs
from netloom.control.ipam.views import ADDRESSED, Attachment, Lock, Seen
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, TRUE, UNKNOWN, summary, with_condition
from netloom.errors import Conflict, NotFound
from netloom.model.document import Condition, Document
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import Decision, Refusal
from netloom.plan.addresses.blocks import Address, Pool

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


class Scribe:
    """Says what attachments have."""

    def __init__(self, client: Client, taken: Macs, *, clock: Clock) -> None:
        self._client = client
        self._macs = taken
        self._clock = clock

    def result(
        self,
        view: Attachment,
        vni: int | None,
        places: Mapping[str, Pool],
        decision: Decision,
        *,
        locks: Sequence[Lock],
        refusals: Sequence[Refusal],
    ) -> Result:
        """Return what an attachment has by a decision, with the locks that were got and what could not be had."""
        named = {uid for _, uid in view.locks}
        have = [(held.address, held.uid) for held in decision.keep if held.uid in named]
        have += [(lock.address, lock.metadata.uid) for lock in locks]
        before = {ip.partition("/")[0]: ip for ip in view.has_ips}
        ips = tuple(_with_prefix(one, places, before) for one, _ in have)
        errors = [*decision.refusals, *refusals]
        mac = self._mac(view, vni, have[0][0] if have else None, errors)
        return Result(
            ips,
            mac,
            vni or view.vni,
            tuple((str(one), uid) for one, uid in have),
            tuple(sorted(set(errors), key=lambda refusal: refusal.text)),
            decision.pending,
        )

    def _mac(self, view: Attachment, vni: int | None, first: Address | None, refusals: list[Refusal]) -> str:
        if view.mac:
            rival = self._macs.rival(view, view.mac)
            if rival is None:
                return view.mac
            refusals.append(Refusal("MACInUse", f"MAC {view.mac} is in use by {rival}"))
            return ""
        if vni is None or first is None:
            return ""
        if view.has_mac and view.has_mac in macs.candidates(vni, first) and not self._macs.rival(view, view.has_mac):
            return view.has_mac
        for mac in macs.candidates(vni, first):
            if self._macs.rival(view, mac) is None:
                return mac
        refusals.append(Refusal("MACInUse", f"all MACs tried for {first} are in use"))
        return ""

    async def write(self, view: Attachment, result: Result) -> int:
        """Write the status, if the attachment is as it was looked at; return its revision."""
        now = self._clock()
        if view.fresh:
            sent = attachment_statuses.sent(view.metadata, status({}, view, result, now))
        else:
            try:
                sent = await self._client.document(NETWORK_ATTACHMENT, view.metadata.namespace, view.metadata.name)
            except NotFound:
                raise Conflict("the attachment is gone") from None
            if sent["metadata"]["resourceVersion"] != view.metadata.resource_version:
                raise Conflict("the attachment has changed")
            sent["status"] = status(sent.get("status") or {}, view, result, now)
        try:
            return (await self._client.replace_status(NETWORK_ATTACHMENT, sent)).revision
        except NotFound:
            raise Conflict("the attachment is gone") from None


def _with_prefix(one: Address, places: Mapping[str, Pool], before: Mapping[str, str]) -> str:
    for where in places.values():
        if where.holds(one):
            return f"{one}/{where.prefix}"
    return before.get(str(one), f"{one}/{32 if one.version == 4 else 128}")
