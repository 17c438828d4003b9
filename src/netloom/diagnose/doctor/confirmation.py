"""Looking twice: what is read at different moments from a system at work does not fit for a moment, rightly.

A finding counts when it is made twice, some seconds apart.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

F = TypeVar("F")

SETTLE_SECONDS = 3.0
Settle = Callable[[float], object]


def believed(look: Callable[[], Sequence[F]], settle: Settle = time.sleep) -> list[F]:
    """Return what is found now and was found a while ago; without the wait where nothing is."""
    before = look()
    if not before:
        return []
    settle(SETTLE_SECONDS)
    known = set(before)
    return [finding for finding in look() if finding in known]
