"""Events about attachments, and counters of IPAM for metrics.

How long an attachment waited for its addresses is counted from its creation where its uid says when that was, to the
millisecond (`runtime/creation.py`), else from when this process first saw it. What delayed it is a label, because an
attachment that waits until a full Subnet is enlarged says nothing about the speed of IPAM.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from netloom.control.ipam.views import Attachment
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.counters import Histogram, Histograms
from netloom.control.runtime.creation import by_since, created_at, observe_since
from netloom.control.runtime.events import Recorder
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.addresses.allocation import FULL
from netloom.plan.problem import Problem

_since_creation = partial(by_since, "delayed_by")


@dataclass(slots=True)
class IpamCounters:
    """Counters of IPAM."""

    to_lock: Histogram = field(default_factory=Histogram)
    """From first seeing an attachment to its first lock."""
    to_address: Histogram = field(default_factory=Histogram)
    """From first seeing an attachment to addresses in its status."""
    creation_to_lock: Histograms = field(default_factory=_since_creation)
    """From the creation of an attachment to its first lock."""
    creation_to_address: Histograms = field(default_factory=_since_creation)
    """From the creation of an attachment to addresses in its status."""
    assigned: int = 0
    released: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    """By the class of the error, or `Taken`: another attachment had the address."""


class Telemetry:
    """Records Events and counts."""

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self.counters = IpamCounters()
        self._recorder = recorder
        self._clock = clock
        self._since: dict[Key, float] = {}
        """When attachments without addresses were first seen."""

    def seen(self, key: Key) -> None:
        """Start the time of an attachment that has no address yet."""
        self._since[key] = asyncio.get_running_loop().time()

    def forget(self, key: Key) -> None:
        """Drop the time of an attachment that is gone."""
        self._since.pop(key, None)

    def retried(self, reason: str) -> None:
        """Count a retry."""
        self.counters.retries[reason] = self.counters.retries.get(reason, 0) + 1

    def locked(self, view: Attachment) -> None:
        """Count the time to the first lock."""
        if not view.locks and (since := self._since.get(view.key)) is not None:
            elapsed = asyncio.get_running_loop().time() - since
            self.counters.to_lock.observe(elapsed)
            self._observe(self.counters.creation_to_lock, view, elapsed)

    def assigned(self, view: Attachment, ips: Sequence[str], mac: str) -> None:
        """Record that an attachment got addresses."""
        self.counters.assigned += len(ips)
        with_mac = f" with MAC {mac}" if mac else ""
        self._recorder.normal(reference_to(view), "AddressAssigned", f"Assigned {', '.join(ips)}{with_mac}")
        if (since := self._since.pop(view.key, None)) is not None:
            elapsed = asyncio.get_running_loop().time() - since
            self.counters.to_address.observe(elapsed)
            self._observe(self.counters.creation_to_address, view, elapsed)

    def removed(self, view: Attachment, ips: Sequence[str]) -> None:
        """Record that an attachment does not have addresses any more."""
        self._recorder.normal(reference_to(view), "AddressReleased", f"Released {', '.join(ips)}")

    def refused(self, view: Attachment, refusal: Problem) -> None:
        """Record a refusal that the status did not have before."""
        reason = "AddressWaiting" if refusal.reason == FULL else "AddressRefused"
        self._recorder.warning(reference_to(view), reason, refusal.message)

    def _observe(self, histograms: Histograms, view: Attachment, elapsed: float) -> None:
        """Count the time since an attachment's creation; `elapsed` is the time since it was first seen."""
        created, now = created_at(view.metadata.uid, view.metadata.creation_timestamp), self._clock().timestamp()
        # What delayed it, according to its status.
        delayed = "nothing" if view.addressed is None else "full" if view.addressed.reason == FULL else "other"
        observe_since(histograms, now, delayed, created=created, seen=now - elapsed)


def reference_to(view: Attachment) -> ObjectReference:
    """Return the reference to an attachment for its Events."""
    meta = view.metadata
    return ObjectReference(
        kind=NETWORK_ATTACHMENT.name,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=NETWORK_ATTACHMENT.api_version,
    )
