"""What was found for an attachment, put together and written into its status."""

from collections.abc import Mapping, Sequence

from netloom.control import attachment_statuses
from netloom.control.ipam.macs import Macs
from netloom.control.ipam.status import Result, status
from netloom.control.ipam.views import Attachment, Lock
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.errors import Conflict, NotFound
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.addresses import macs
from netloom.plan.addresses.allocation import Decision, Refusal
from netloom.plan.addresses.blocks import Address, Place


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
        places: Mapping[str, Place],
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


def _with_prefix(one: Address, places: Mapping[str, Place], before: Mapping[str, str]) -> str:
    for where in places.values():
        if where.holds(one):
            return f"{one}/{where.prefix}"
    return before.get(str(one), f"{one}/{32 if one.version == 4 else 128}")
