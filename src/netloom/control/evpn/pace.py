"""How often each RemoteVTEP is written: a route that flaps costs some writes at once, and then a few each second.

An object with hundreds of machines goes to the store, to the controllers and to each node of fabric vxlan whenever one
of its machines changes, and a peer can announce a change thousands of times in a second. What changes while an object
waits is written with it. Pure: time is an argument.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from netloom.control.runtime.events import Bucket

K = TypeVar("K", bound=Hashable)

BURST = 50.0
SECONDS = 0.1
"""After a burst, how long an object waits for its next write."""
MOST = 16384
"""How many objects are remembered: as many as a node may have."""


class WritePace(Generic[K]):
    """Limits writes of objects, each for itself."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[K, Bucket] = OrderedDict()

    def wait(self, key: K, now: float) -> float:
        """Return for how many seconds an object has to wait; 0: it may be written."""
        bucket = self._buckets.get(key)
        return 0.0 if bucket is None else max(0.0, (1 - bucket.tokens) * bucket.refill - (now - bucket.at))

    def note(self, key: K, now: float) -> None:
        """Count a write."""
        bucket = self._buckets.setdefault(key, Bucket(BURST, now, burst=BURST, refill=SECONDS))
        bucket.take(now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
