"""When each step of one attachment was completed, from the objects that the API has.  Pure.

    creation ─► lock(s) ─► address ─► plugged ─► Ready ─► hook     with its Events, and what it waited for

Each time was written by the process that completed the step, with its own clock. The uids of Netloom's API contain the
time of creation, and conditions the time of their last transition, both to the microsecond. A Kubernetes API server
records creations and Events to the second: such a moment is not exact, and may be up to a second later. Of a step that
was undone and completed again, only the last time is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from netloom.control.runtime.clock import micro, parse
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.creation import created_at
from netloom.model.conditions import ADDRESSED, PLUGGED
from netloom.model.document import Document
from netloom.plan.node.hooks import CROWDED, INTERRUPTED, NOT_STARTED, OVERDUE, REFUSED

READY = "Ready"
EVENT = "event"


class Moment(Struct, frozen=True, kw_only=True):
    """One completed step, or an Event."""

    step: str
    text: str
    time: str
    offset: float
    """Seconds since the creation."""
    exact: bool = True
    """Whether the time is finer than a second."""


class Waiting(Struct, frozen=True, kw_only=True):
    """One thing that the attachment waits for."""

    what: str
    since: str
    seconds: float
    reason: str = ""
    message: str = ""


class Timeline(Struct, frozen=True, kw_only=True):
    """The steps of an attachment."""

    namespace: str
    name: str
    node: str
    network: str
    created: str
    exact: bool
    """Whether the time of creation is finer than a second."""
    ready: bool
    took: float | None
    """Seconds from the creation to Ready."""
    moments: tuple[Moment, ...]
    waiting: tuple[Waiting, ...]


class Sources(Struct, frozen=True, kw_only=True):
    """The objects that a timeline is made from."""

    attachment: Document
    locks: tuple[Document, ...] = ()
    events: tuple[Document, ...] = ()
    network: Document | None = None
    subnets: tuple[Document, ...] = ()
    node: Document | None = None
    unseen: tuple[str, ...] = ()
    """What could not be read, and why."""


class _Time(Struct, frozen=True):
    at: float
    exact: bool


def timeline(found: Sources, now: datetime) -> Timeline:
    """Return the steps of an attachment until `now`."""
    meta, spec = found.attachment["metadata"], found.attachment.get("spec") or {}
    created = _created(found.attachment) or _Time(now.timestamp(), exact=False)
    moments = [
        Moment(step=step, text=text, time=_stamp(at.at), offset=at.at - created.at, exact=at.exact)
        for step, text, at in _steps(found, created)
        if at is not None
    ]
    moments.sort(key=lambda one: (one.offset, _ORDER.get(one.step, 9)))
    ready = _holds(found.attachment, READY)
    return Timeline(
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        node=str(spec.get("node") or ""),
        network=str(spec.get("network") or ""),
        created=_stamp(created.at),
        exact=created.exact,
        ready=ready is not None,
        took=None if ready is None else ready.at - created.at,
        moments=tuple(moments),
        waiting=tuple(_waiting(found, created, now)),
    )


_ENDS = {
    REFUSED: "is not allowed by the agent",
    NOT_STARTED: "could not be started",
    OVERDUE: "exceeded its time limit and was killed",
    INTERRUPTED: "was interrupted",
    CROWDED: "exceeded its process limit and was killed",
}
_ORDER = {"created": 0, "network": 1, "subnet": 2, "lock": 3, "address": 4, "plugged": 5, "ready": 6, "hook": 7}


def _steps(found: Sources, created: _Time) -> Iterator[tuple[str, str, _Time | None]]:
    """Yield the steps and Events, what each is about, and its time; None if it is not completed."""
    one = found.attachment
    status = one.get("status") or {}
    yield "created", _created_by(one), created
    for kind, condition, others in (
        ("network", READY, [found.network] if found.network is not None else []),
        ("subnet", "Validated", found.subnets),
    ):
        for other in others:
            at = _holds(other, condition)
            if at is not None and at.at > created.at:  # The attachment existed first, and waited for this one.
                yield kind, f"{_name(other)} {'is valid' if kind == 'subnet' else 'has a VNI'}", at
    for lock in found.locks:
        yield "lock", f"{(lock.get('spec') or {}).get('ip', '')} ({_name(lock)})", _created(lock)
    yield "address", ", ".join([*status.get("ips", ()), str(status.get("mac", ""))]), _holds(one, ADDRESSED)
    where = f" at {status['hostIP']}" if status.get("hostIP") else ""
    port = f"{status.get('ifcName', '')} on {(one.get('spec') or {}).get('node')}{where}"
    yield "plugged", port, _holds(one, PLUGGED)
    yield "ready", "", _holds(one, READY)
    report = status.get("postCreateExecReport") or {}
    program, code = next(iter(report.get("command") or ()), ""), int(report.get("exitStatus") or 0)
    yield "hook", f"{program} started", _time(report.get("startTime"))
    yield "hook", f"{program} {_ENDS.get(code, f'exited with status {code}')}", _time(report.get("stopTime"))
    yield "deletion", "requested", _time(one["metadata"].get("deletionTimestamp"))
    for event in found.events:
        yield EVENT, *_event(event, created)


def _event(event: Document, created: _Time) -> tuple[str, _Time | None]:
    """Return the text and the time of an Event."""
    first = _time(event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp"))
    count = int(event.get("count") or 1)
    times = f" ({count} times)" if count > 1 else ""
    by = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    text = f"{event.get('reason', '')}: {event.get('message', '')}{times}{f' — {by}' if by else ''}"
    # A time in seconds is rounded down, and no Event is older than its attachment.
    return text, first if first is None or first.exact else _Time(max(first.at, created.at), exact=False)


def _waiting(found: Sources, created: _Time, now: datetime) -> Iterator[Waiting]:
    """Yield what the attachment waits for: the first step that is missing, and why."""
    one = found.attachment
    spec, status = one.get("spec") or {}, one.get("status") or {}
    addressed, plugged = _condition(one, ADDRESSED), _condition(one, PLUGGED)
    if (going := _time(one["metadata"].get("deletionTimestamp"))) is not None:
        finalizers = ", ".join(one["metadata"].get("finalizers") or ()) or "none"
        yield _waits(f"its finalizers: {finalizers}", going, now)
    elif addressed is None:
        yield _waits("an address: no controller has processed it yet", created, now)
    elif addressed.get("status") != TRUE:
        yield _waits("an address", _changed(addressed) or created, now, addressed)
    elif plugged is None:
        words = f"the agent of node {spec.get('node')}, which has not processed it yet"
        yield _waits(words, _changed(addressed) or created, now)
        yield from _node(found, created, now)
    elif plugged.get("status") != TRUE:
        yield _waits("a working port", _changed(plugged) or created, now, plugged)
        yield from _node(found, created, now)
    elif spec.get("postCreateExec") and not status.get("postCreateExecReport"):
        yield _waits(f"{spec['postCreateExec'][0]} to exit", _changed(plugged) or created, now)


def _node(found: Sources, created: _Time, now: datetime) -> Iterator[Waiting]:
    """Yield what is missing of the node."""
    if found.node is None:
        yield _waits(f"Node {(found.attachment.get('spec') or {}).get('node')}, which does not exist", created, now)
        return
    ready = _condition(found.node, READY)
    if ready is None or ready.get("status") != TRUE:
        yield _waits(f"Node {_name(found.node)} to be ready", (ready and _changed(ready)) or created, now, ready)


def _waits(what: str, since: _Time, now: datetime, why: Mapping[str, Any] | None = None) -> Waiting:
    why = why or {}
    return Waiting(
        what=what,
        since=_stamp(since.at),
        seconds=now.timestamp() - since.at,
        reason=str(why.get("reason") or ""),
        message=str(why.get("message") or ""),
    )


def _created_by(document: Document) -> str:
    """Return the first field manager that wrote the object, if the server recorded it."""
    writers: Iterable[Mapping[str, Any]] = document["metadata"].get("managedFields") or ()
    names = [str(one.get("manager")) for one in writers if not one.get("subresource") and one.get("manager")]
    return f"by {names[0]}" if names else ""


def _created(document: Document) -> _Time | None:
    meta = document["metadata"]
    at = created_at(str(meta.get("uid") or ""), meta.get("creationTimestamp"))
    return _Time(at, exact=True) if at is not None else _time(meta.get("creationTimestamp"))


def _condition(document: Document, name: str) -> Mapping[str, Any] | None:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == name), None)


def _holds(document: Document, name: str) -> _Time | None:
    """Return the time since which a condition is true; None if it is not."""
    found = _condition(document, name)
    return _changed(found) if found is not None and found.get("status") == TRUE else None


def _changed(condition: Mapping[str, Any]) -> _Time | None:
    return _time(condition.get("lastTransitionTime"))


def _name(document: Document) -> str:
    return str(document["metadata"].get("name") or "")


def _time(text: object) -> _Time | None:
    time = parse(str(text)) if text else None
    return None if time is None else _Time(time.timestamp(), exact="." in str(text))


def _stamp(at: float) -> str:
    return micro(datetime.fromtimestamp(at, UTC))
