"""Confirmation of findings by a second check.

What is read at different moments from a running system is briefly inconsistent without being wrong. So a finding counts
only if a second check, some seconds later, makes it again.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

F = TypeVar("F")

SETTLE_SECONDS = 3.0
Settle = Callable[[float], object]


def confirmed(check: Callable[[], Sequence[F]], settle: Settle = time.sleep) -> list[F]:
    """Return the findings that two checks have in common; without findings, do not wait for the second."""
    before = check()
    if not before:
        return []
    settle(SETTLE_SECONDS)
    known = set(before)
    return [finding for finding in check() if finding in known]
