"""The time of day, and how Kubernetes writes it.

The time of day is for people: time stamps in status, Events and Leases. Nothing is decided by comparing it with another
machine's; whatever waits or expires goes by the event loop's own clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


def stamp(time: datetime) -> str:
    """Return `time` as metav1.Time is written: whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(time: datetime) -> str:
    """Return `time` as metav1.MicroTime is written: six digits of the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str | None) -> datetime | None:
    """Return the time a time stamp means, or None where there is none to be read."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
