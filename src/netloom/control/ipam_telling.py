"""Telling people and meters what IPAM does: Events about attachments, and plain numbers."""

import asyncio
from dataclasses import dataclass, field

from netloom.control.cache import Key
from netloom.control.counters import Histogram
from netloom.control.events import Recorder
from netloom.control.ipam_status import FULL, Result
from netloom.control.ipam_views import Attachment
from netloom.model.events import ObjectReference
from netloom.model.registry import NETWORK_ATTACHMENT


@dataclass(slots=True)
class IpamCounters:
    """What happened, for whoever exports metrics."""

    to_lock: Histogram = field(default_factory=Histogram)
    """From seeing an attachment to its first lock."""
    to_address: Histogram = field(default_factory=Histogram)
    """From seeing an attachment to its addresses in its status."""
    assigned: int = 0
    released: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    """By the class of the error, or Taken: somebody else had the address."""


class Teller:
    """Tells what became of attachments."""

    def __init__(self, recorder: Recorder) -> None:
        self.counters = IpamCounters()
        self._recorder = recorder
        self._since: dict[Key, float] = {}
        """Since when attachments without addresses are known."""

    def seen(self, key: Key) -> None:
        """Know of an attachment that has no address yet."""
        self._since[key] = asyncio.get_running_loop().time()

    def forget(self, key: Key) -> None:
        """Know that an attachment is gone."""
        self._since.pop(key, None)

    def retried(self, reason: str) -> None:
        """Count that something has to be done again."""
        self.counters.retries[reason] = self.counters.retries.get(reason, 0) + 1

    def locked(self, view: Attachment) -> None:
        """Count the time to the first lock."""
        if not view.locks and (since := self._since.get(view.key)) is not None:
            self.counters.to_lock.observe(asyncio.get_running_loop().time() - since)

    def tell(self, view: Attachment, result: Result) -> None:
        """Tell what has been written of an attachment, as far as it is news."""
        about = reference_to(view)
        new = [ip for ip in result.ips if ip not in view.has_ips]
        if new:
            self.counters.assigned += len(new)
            mac = f" with MAC {result.mac}" if result.mac else ""
            self._recorder.normal(about, "AddressAssigned", f"Assigned {', '.join(new)}{mac}")
            if (since := self._since.pop(view.key, None)) is not None:
                self.counters.to_address.observe(asyncio.get_running_loop().time() - since)
        if gone := [ip for ip in view.has_ips if ip not in result.ips]:
            self._recorder.normal(about, "AddressReleased", f"Released {', '.join(gone)}")
        for refusal in result.refusals:
            if refusal.text not in view.errors:
                reason = "AddressWaiting" if refusal.reason == FULL else "AddressRefused"
                self._recorder.warning(about, reason, refusal.text)


def reference_to(view: Attachment) -> ObjectReference:
    """Return what an Event about an attachment is about."""
    meta = view.metadata
    return ObjectReference(
        kind=NETWORK_ATTACHMENT.name,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=NETWORK_ATTACHMENT.api_version,
    )
