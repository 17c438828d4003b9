"""The time of an object's creation, to the millisecond, for metrics of how long it took to implement the object.

The uid of an object of our own stores contains it (`model/values/uids.py`). The uids of Kubernetes do not, and its
`creationTimestamp` has whole seconds; there a duration starts when the process first saw the object. The label `since`
of a histogram has the value `CREATED` or `SEEN` accordingly.
"""

from functools import lru_cache
from math import inf

from netloom.control.runtime.clock import parse
from netloom.control.runtime.counters import LIFETIMES, Histograms
from netloom.model.values import uids

CREATED, SEEN = "created", "seen"
"""The values of the label `since`."""
SLACK = 2.0
"""By how many seconds a uid may differ from the creationTimestamp, which the same clock wrote."""


def created_at(uid: str, creation_timestamp: str | None) -> float | None:
    """Return when an object was created, to the millisecond; None if its uid does not contain the time."""
    at = uids.made(uid)
    if at is None or not creation_timestamp or abs(at - _seconds(creation_timestamp)) > SLACK:
        return None  # A uid that contradicts the timestamp is not from a store of ours.
    return at


def by_since(*labels: str) -> Histograms:
    """Return histograms of the time since creation, by further labels."""
    return Histograms(("since", *labels), LIFETIMES)


def observe_since(histograms: Histograms, at: float, *labels: str, created: float | None, seen: float | None) -> None:
    """Count the time until `at` since an object was created, or if that is not known, since it was first seen."""
    since = seen if created is None else created
    if since is not None:
        histograms.observe((SEEN if created is None else CREATED, *labels), at - since)


@lru_cache(maxsize=64)
def _seconds(creation_timestamp: str) -> float:
    """Parse a creationTimestamp; cached because many objects have the same one."""
    time = parse(creation_timestamp)
    return -inf if time is None else time.timestamp()
