"""The time of day, in the notation of Kubernetes.

The time of day is for people: timestamps in statuses, Events and Leases. No decision compares it with the clock of
another machine; waiting and expiry use the clock of the event loop.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


def stamp(time: datetime) -> str:
    """Format `time` as a metav1.Time: whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(time: datetime) -> str:
    """Format `time` as a metav1.MicroTime: microseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str | None) -> datetime | None:
    """Parse a timestamp; return None if it is empty or malformed."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
