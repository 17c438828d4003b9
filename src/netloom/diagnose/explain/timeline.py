"""What became of one attachment, and when: from what the API has of it and of what it needs.  Pure.

    wish ─► lock(s) ─► address ─► plugged ─► Ready ─► hook     and the Events about it, and what it had to wait for

The times are those that whoever did a step wrote down, by his own clock. Our API's uids say when an object was made and
conditions since when they hold, both finer than a millisecond. A Kubernetes knows creations, and its Events, to the
second only: such a moment is not exact, and was up to a second later. A condition says when it last changed: of a step
that was undone and done again only the last time is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from netloom.control.node.lifetimes import ADDRESSED, PLUGGED, wished
from netloom.control.runtime.clock import micro, parse
from netloom.control.runtime.conditions import TRUE
from netloom.model.document import Document
from netloom.plan.node.hooks import CROWDED, INTERRUPTED, NOT_STARTED, OVERDUE, REFUSED

READY = "Ready"
EVENT = "event"


class Moment(Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    step: str
    text: str
    time: str
    offset: float
    """Seconds since the wish."""
    exact: bool = True
    """Whether the time is finer than a second."""


class Waiting(Struct, frozen=True, kw_only=True):
    """One thing that is waited for."""

    what: str
    since: str
    seconds: float
    reason: str = ""
    message: str = ""


class Timeline(Struct, frozen=True, kw_only=True):
    """What became of an attachment."""

    namespace: str
    name: str
    node: str
    network: str
    wish: str
    exact: bool
    ready: bool
    took: float | None
    """Seconds from the wish to Ready."""
    moments: tuple[Moment, ...]
    waiting: tuple[Waiting, ...]


class Sources(Struct, frozen=True, kw_only=True):
    """What the API has."""

    attachment: Document
    locks: tuple[Document, ...] = ()
    events: tuple[Document, ...] = ()
    network: Document | None = None
    subnets: tuple[Document, ...] = ()
    node: Document | None = None


class _Time(Struct, frozen=True):
    at: float
    exact: bool


def timeline(found: Sources, now: datetime) -> Timeline:
    """Return what became of an attachment until `now`."""
    meta, spec = found.attachment["metadata"], found.attachment.get("spec") or {}
    wish = _made(found.attachment) or _Time(now.timestamp(), exact=False)
    moments = sorted(_moments(found, wish), key=lambda one: (one.offset, _ORDER.get(one.step, 9)))
    ready = _holds(found.attachment, READY)
    return Timeline(
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        node=str(spec.get("node") or ""),
        network=str(spec.get("network") or ""),
        wish=_written(wish.at),
        exact=wish.exact,
        ready=ready is not None,
        took=None if ready is None else ready.at - wish.at,
        moments=tuple(moments),
        waiting=tuple(_waiting(found, wish, now)),
    )


_ENDS = {
    REFUSED: "is not allowed by the agent",
    NOT_STARTED: "could not be run",
    OVERDUE: "was overdue, and killed",
    INTERRUPTED: "was interrupted",
    CROWDED: "became too many processes, and was killed",
}
_ORDER = {"wish": 0, "network": 1, "subnet": 2, "lock": 3, "address": 4, "plugged": 5, "ready": 6, "hook": 7}


def _moments(found: Sources, wish: _Time) -> Iterator[Moment]:
    one = found.attachment
    status = one.get("status") or {}
    yield _moment("wish", _wished_by(one), wish, wish)
    for kind, condition, others in (
        ("network", READY, [found.network] if found.network is not None else []),
        ("subnet", "Validated", found.subnets),
    ):
        for other in others:
            at = _holds(other, condition)
            if at is not None and at.at > wish.at:  # It was there first, and the other was waited for.
                yield _moment(kind, f"{_name(other)} is {'valid' if kind == 'subnet' else 'numbered'}", at, wish)
    for lock in found.locks:
        if (made := _made(lock)) is not None:
            yield _moment("lock", f"{(lock.get('spec') or {}).get('ip', '')} ({_name(lock)})", made, wish)
    if (at := _holds(one, ADDRESSED)) is not None:
        yield _moment("address", ", ".join([*status.get("ips", ()), str(status.get("mac", ""))]), at, wish)
    if (at := _holds(one, PLUGGED)) is not None:
        where = f" at {status['hostIP']}" if status.get("hostIP") else ""
        yield _moment(
            "plugged", f"{status.get('ifcName', '')} on {(one.get('spec') or {}).get('node')}{where}", at, wish
        )
    if (at := _holds(one, READY)) is not None:
        yield _moment("ready", "", at, wish)
    yield from _hook(status.get("postCreateExecReport") or {}, wish)
    if (at := _time(one["metadata"].get("deletionTimestamp"))) is not None:
        yield _moment("deletion", "asked for", at, wish)
    for event in found.events:
        yield from _event(event, wish)


def _hook(report: Mapping[str, Any], wish: _Time) -> Iterator[Moment]:
    program = str(next(iter(report.get("command") or ()), ""))
    if (at := _time(report.get("startTime"))) is not None:
        yield _moment("hook", f"{program} started", at, wish)
    if (at := _time(report.get("stopTime"))) is not None:
        status = int(report.get("exitStatus") or 0)
        yield _moment("hook", f"{program} {_ENDS.get(status, f'ended with {status}')}", at, wish)


def _event(event: Document, wish: _Time) -> Iterator[Moment]:
    first = _time(event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp"))
    if first is None:
        return
    count = int(event.get("count") or 1)
    times = f" ({count} times)" if count > 1 else ""
    by = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    text = f"{event.get('reason', '')}: {event.get('message', '')}{times}{f' — {by}' if by else ''}"
    # A second is as early as it can be; nothing is told of an attachment before there is one.
    at = first if first.exact else _Time(max(first.at, wish.at), exact=False)
    yield _moment(EVENT, text, at, wish)


def _waiting(found: Sources, wish: _Time, now: datetime) -> Iterator[Waiting]:
    """Give what is waited for: the first step that is missing, and why."""
    one = found.attachment
    spec, status = one.get("spec") or {}, one.get("status") or {}
    addressed, plugged = _condition(one, ADDRESSED), _condition(one, PLUGGED)
    if (going := _time(one["metadata"].get("deletionTimestamp"))) is not None:
        finalizers = ", ".join(one["metadata"].get("finalizers") or ()) or "none"
        yield _waits(f"its finalizers: {finalizers}", going, now)
    elif addressed is None:
        yield _waits("an address: no controller has looked at it yet", wish, now)
    elif addressed.get("status") != TRUE:
        yield _waits("an address", _changed(addressed) or wish, now, addressed)
    elif plugged is None:
        words = f"the agent of node {spec.get('node')}, which has not looked at it yet"
        yield _waits(words, _changed(addressed) or wish, now)
        yield from _node(found, wish, now)
    elif plugged.get("status") != TRUE:
        yield _waits("a port that works", _changed(plugged) or wish, now, plugged)
        yield from _node(found, wish, now)
    elif spec.get("postCreateExec") and not status.get("postCreateExecReport"):
        yield _waits(f"the end of {spec['postCreateExec'][0]}", _changed(plugged) or wish, now)


def _node(found: Sources, wish: _Time, now: datetime) -> Iterator[Waiting]:
    """Give what is amiss with the node."""
    if found.node is None:
        yield _waits(f"a Node {(found.attachment.get('spec') or {}).get('node')}: there is none", wish, now)
        return
    ready = _condition(found.node, READY)
    if ready is None or ready.get("status") != TRUE:
        yield _waits(f"Node {_name(found.node)} to be ready", (ready and _changed(ready)) or wish, now, ready)


def _waits(what: str, since: _Time, now: datetime, why: Mapping[str, Any] | None = None) -> Waiting:
    why = why or {}
    return Waiting(
        what=what,
        since=_written(since.at),
        seconds=now.timestamp() - since.at,
        reason=str(why.get("reason") or ""),
        message=str(why.get("message") or ""),
    )


def _moment(step: str, text: str, at: _Time, wish: _Time) -> Moment:
    return Moment(step=step, text=text, time=_written(at.at), offset=at.at - wish.at, exact=at.exact)


def _wished_by(document: Document) -> str:
    """Say who wished, as far as the server noted who wrote first."""
    writers: Iterable[Mapping[str, Any]] = document["metadata"].get("managedFields") or ()
    names = [str(one.get("manager")) for one in writers if not one.get("subresource") and one.get("manager")]
    return f"by {names[0]}" if names else ""


def _made(document: Document) -> _Time | None:
    meta = document["metadata"]
    at = wished(str(meta.get("uid") or ""), meta.get("creationTimestamp"))
    return _Time(at, exact=True) if at is not None else _time(meta.get("creationTimestamp"))


def _condition(document: Document, name: str) -> Mapping[str, Any] | None:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == name), None)


def _holds(document: Document, name: str) -> _Time | None:
    """Return since when a condition holds; None: it does not."""
    found = _condition(document, name)
    return _changed(found) if found is not None and found.get("status") == TRUE else None


def _changed(condition: Mapping[str, Any]) -> _Time | None:
    return _time(condition.get("lastTransitionTime"))


def _name(document: Document) -> str:
    return str(document["metadata"].get("name") or "")


def _time(text: object) -> _Time | None:
    time = parse(str(text)) if text else None
    return None if time is None else _Time(time.timestamp(), exact="." in str(text))


def _written(at: float) -> str:
    return micro(datetime.fromtimestamp(at, UTC))
