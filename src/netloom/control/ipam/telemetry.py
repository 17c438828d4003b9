"""Telling people and meters what IPAM does: Events about attachments, and plain numbers.

How long a wish took is counted from the time its uid says, where it does (`lifetimes`), else from when we first saw it.
What held it up is told apart, since a wish that waits for a person to make room says nothing of how quick we are.
"""

import asyncio
from dataclasses import dataclass, field

from netloom.control.ipam.status import FULL, Result
from netloom.control.ipam.views import Attachment
from netloom.control.node.lifetimes import SEEN, WISH, wished
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.counters import LIFETIMES, Histogram, Histograms
from netloom.control.runtime.events import Recorder
from netloom.model.events import ObjectReference
from netloom.model.registry import NETWORK_ATTACHMENT


def _by_wish() -> Histograms:
    return Histograms(("since", "delayed_by"), LIFETIMES)


@dataclass(slots=True)
class IpamCounters:
    """What happened, for whoever exports metrics."""

    to_lock: Histogram = field(default_factory=Histogram)
    """From seeing an attachment to its first lock."""
    to_address: Histogram = field(default_factory=Histogram)
    """From seeing an attachment to its addresses in its status."""
    wish_to_lock: Histograms = field(default_factory=_by_wish)
    """From a wish to its first lock."""
    wish_to_address: Histograms = field(default_factory=_by_wish)
    """From a wish to its addresses in its status."""
    assigned: int = 0
    released: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    """By the class of the error, or Taken: somebody else had the address."""


class Teller:
    """Tells what became of attachments."""

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self.counters = IpamCounters()
        self._recorder = recorder
        self._clock = clock
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
            elapsed = asyncio.get_running_loop().time() - since
            self.counters.to_lock.observe(elapsed)
            self._fulfilled(self.counters.wish_to_lock, view, elapsed)

    def tell(self, view: Attachment, result: Result) -> None:
        """Tell what has been written of an attachment, as far as it is news."""
        about = reference_to(view)
        new = [ip for ip in result.ips if ip not in view.has_ips]
        if new:
            self.counters.assigned += len(new)
            mac = f" with MAC {result.mac}" if result.mac else ""
            self._recorder.normal(about, "AddressAssigned", f"Assigned {', '.join(new)}{mac}")
            if (since := self._since.pop(view.key, None)) is not None:
                elapsed = asyncio.get_running_loop().time() - since
                self.counters.to_address.observe(elapsed)
                self._fulfilled(self.counters.wish_to_address, view, elapsed)
        if gone := [ip for ip in view.has_ips if ip not in result.ips]:
            self._recorder.normal(about, "AddressReleased", f"Released {', '.join(gone)}")
        for refusal in result.refusals:
            if refusal.text not in view.errors:
                reason = "AddressWaiting" if refusal.reason == FULL else "AddressRefused"
                self._recorder.warning(about, reason, refusal.text)

    def _fulfilled(self, histograms: Histograms, view: Attachment, elapsed: float) -> None:
        """Count how long a wish took; `elapsed` is since we first saw it."""
        wish = wished(view.metadata.uid, view.metadata.creation_timestamp)
        seconds = elapsed if wish is None else self._clock().timestamp() - wish
        histograms.observe((SEEN if wish is None else WISH, _delayed_by(view)), seconds)


def _delayed_by(view: Attachment) -> str:
    """Say what held an attachment up, as its status has it: a full Subnet, something else, or nothing."""
    if view.addressed is None:
        return "nothing"
    return "full" if view.addressed.reason == FULL else "other"


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
