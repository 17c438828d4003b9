"""An attachment's status as IPAM writes it: addresses, MAC, VNI, locks, errors, and the condition `Addressed`.

`StatusWriter` is the only part of IPAM that writes it. It writes nothing if the status is up to date.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from netloom.control.attachment_statuses import put, sent
from netloom.control.ipam.macs import MacTable
from netloom.control.ipam.telemetry import Telemetry
from netloom.control.ipam.views import Attachment, ConditionState, Lock
from netloom.control.runtime.cache import Cache, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, TRUE, UNKNOWN, summary, with_condition
from netloom.errors import Conflict, NotFound
from netloom.model.conditions import ADDRESSED, PLUGGED
from netloom.model.document import Condition, Document
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import FULL, Decision, Held
from netloom.plan.addresses.blocks import Address, Pool
from netloom.plan.problem import Problem

MOST_ERRORS = 64
LONGEST = 1024


class Assignment(Struct, frozen=True):
    """What an attachment has: the content of its status."""

    ips: tuple[str, ...]
    mac: str
    vni: int
    locks: tuple[tuple[str, str], ...]
    refusals: tuple[Problem, ...]
    """Sorted by their texts."""
    pending: bool = False
    message: str = ""
    """A message for the condition `Addressed`, before any other."""

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors, as the status has them."""
        return tuple(refusal.message[:LONGEST] for refusal in self.refusals[:MOST_ERRORS])

    def addressed(self, generation: int) -> ConditionState:
        """Return the condition `Addressed`."""
        if self.refusals:
            # Prefer a reason that the user can remove by editing the spec; a full Subnet may change without that.
            first = next((one for one in self.refusals if one.reason != FULL), self.refusals[0])
            return ConditionState(FALSE, first.reason, self._text(*self.errors), generation)
        if self.pending or not self.ips:
            return ConditionState(UNKNOWN, "Pending", self._text("a Subnet is not validated yet"), generation)
        return ConditionState(TRUE, ADDRESSED, self._text(), generation)

    def _text(self, *texts: str) -> str:
        """Join the texts; the message comes first, so that it is never cut off."""
        return "; ".join([self.message, *texts] if self.message else texts)[:LONGEST]


class StatusWriter:
    """Computes and writes what attachments have."""

    def __init__(
        self,
        client: Client,
        attachments: Cache[Attachment],
        mac_table: MacTable,
        telemetry: Telemetry,
        *,
        enqueue: Callable[[Iterable[Key]], None],
        clock: Clock,
    ) -> None:
        self.written: dict[Key, int] = {}
        """The revisions that this process wrote and the informer has not seen."""
        self._client = client
        self._attachments = attachments
        self._macs = mac_table
        self._telemetry = telemetry
        self._enqueue = enqueue
        self._clock = clock

    def assignment(
        self,
        view: Attachment,
        vni: int | None,
        pools: Mapping[str, Pool],
        decision: Decision,
        *,
        locks: Sequence[Lock],
        refusals: Sequence[Problem],
    ) -> Assignment:
        """Return what an attachment has after a decision, with the new locks and the refusals met on the way."""
        named = {uid for _, uid in view.locks}
        have = [(held.address, held.uid) for held in decision.keep if held.uid in named]
        have += [(lock.address, lock.metadata.uid) for lock in locks]
        before = {ip.partition("/")[0]: ip for ip in view.has_ips}
        ips = tuple(_with_prefix(one, pools, before) for one, _ in have)
        errors = [*decision.refusals, *refusals]
        mac = self._mac(view, vni, have[0][0] if have else None, errors)
        return Assignment(
            ips=ips,
            mac=mac,
            vni=vni or view.vni,
            locks=tuple((str(one), uid) for one, uid in have),
            refusals=tuple(sorted(set(errors), key=lambda refusal: refusal.message)),
            pending=decision.pending,
        )

    def _mac(self, view: Attachment, vni: int | None, first: Address | None, refusals: list[Problem]) -> str:
        if view.mac:
            rival = self._macs.rival(view, view.mac)
            if rival is None:
                return view.mac
            refusals.append(Problem("MACInUse", f"MAC {view.mac} is in use by {rival}"))
            return ""
        if vni is None or first is None:
            return ""
        if view.has_mac and view.has_mac in macs.candidates(vni, first) and not self._macs.rival(view, view.has_mac):
            return view.has_mac
        for mac in macs.candidates(vni, first):
            if self._macs.rival(view, mac) is None:
                return mac
        refusals.append(Problem("MACInUse", f"all MACs tried for {first} are in use"))
        return ""

    async def publish(self, view: Attachment, result: Assignment, spare: Iterable[Held]) -> int:
        """Write the status if it differs; return the newest known revision of the attachment."""
        revision = view.metadata.revision
        if _is_written(view, result):
            fresh = [held for held in spare if held.decided >= revision]
            if not fresh:
                return revision
            # Another process may be about to name these locks at this revision. A write makes that fail; the next
            # reconcile removes the message again.
            releasing = f"releasing {', '.join(str(held.address) for held in fresh)}"
            result = msgspec.structs.replace(result, message=releasing)
        if result.mac and result.mac != view.has_mac:
            self._macs.claim(view, result.mac)
        try:
            document = await self._document(view, result)
            revision = (await self._client.replace_status(NETWORK_ATTACHMENT, document)).revision
        except BaseException as error:
            self._enqueue(self._macs.unclaim(view.key))
            if isinstance(error, NotFound):
                raise Conflict("the attachment is gone") from None
            raise
        cached = self._attachments.get(*view.key)
        if cached is not None and cached.metadata.revision < revision:
            self.written[view.key] = revision
        else:
            self._enqueue(self._macs.unclaim(view.key))
        self._report(view, result)
        return revision

    async def _document(self, view: Attachment, result: Assignment) -> Document:
        """Return the document to write, if the attachment has not changed since `view`."""
        now = self._clock()
        if view.fresh:
            return sent(view.metadata, _status({}, view, result, now))
        document = await self._client.document(NETWORK_ATTACHMENT, *view.key)
        if document["metadata"]["resourceVersion"] != view.metadata.resource_version:
            raise Conflict("the attachment has changed")
        document["status"] = _status(document.get("status") or {}, view, result, now)
        return document

    def _report(self, view: Attachment, result: Assignment) -> None:
        """Record Events and metrics for what a write changed."""
        if new := [ip for ip in result.ips if ip not in view.has_ips]:
            self._telemetry.assigned(view, new, result.mac)
        if gone := [ip for ip in view.has_ips if ip not in result.ips]:
            self._telemetry.removed(view, gone)
        for refusal in result.refusals:
            if refusal.message not in view.errors:
                self._telemetry.refused(view, refusal)


def _is_written(view: Attachment, result: Assignment) -> bool:
    """Whether the status has all of this already."""
    return (
        view.has_ips == result.ips
        and view.has_mac == result.mac
        and view.vni == result.vni
        and view.locks == result.locks
        and view.errors == result.errors
        and view.observed == view.metadata.generation
        and view.addressed == result.addressed(view.metadata.generation)
    )


def _status(before: Document, view: Attachment, result: Assignment, now: datetime) -> Document:
    """Return a status with the fields of IPAM replaced, and those of other writers as they were."""
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
    after["conditions"] = msgspec.to_builtins(_conditions(have, view, result, now))
    return after


def _conditions(
    have: Sequence[Condition], view: Attachment, result: Assignment, now: datetime
) -> tuple[Condition, ...]:
    generation = view.metadata.generation
    state = result.addressed(generation)
    addressed = Condition(
        type=ADDRESSED,
        status=state.status,
        observed_generation=generation,
        reason=state.reason,
        message=state.message,
    )
    conditions = with_condition(have, addressed, now)
    if any(one.type == PLUGGED for one in have):
        return with_condition(conditions, summary(conditions, (ADDRESSED, PLUGGED), generation), now)
    ready = summary(conditions, (ADDRESSED,), generation)
    if ready.status == TRUE:
        message = "no agent has created the interface yet"
        ready = msgspec.structs.replace(ready, status=UNKNOWN, reason="NotPlugged", message=message)
    return with_condition(conditions, ready, now)


def _with_prefix(one: Address, pools: Mapping[str, Pool], before: Mapping[str, str]) -> str:
    for pool in pools.values():
        if pool.holds(one):
            return f"{one}/{pool.prefix}"
    return before.get(str(one), f"{one}/{32 if one.version == 4 else 128}")
