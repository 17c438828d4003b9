"""`netloom explain networkattachment/NAME --timeline`: reads what there is, and draws it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import msgspec

from netloom.cli.options import Session
from netloom.cli.tables import clean
from netloom.cli.terminal import paint
from netloom.client import lists as reading
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, named
from netloom.diagnose.explain.timeline import EVENT, Moment, Sources, Timeline, Waiting, timeline
from netloom.errors import NetloomError, NotFound
from netloom.model.ages import age
from netloom.model.document import Document
from netloom.plan.addresses.blocks import address, lock_name

WIDTH = 32
"""Columns of the drawing."""
COARSE = ", or up to a second later: the server knows no finer, so each step came at most as late as it says"


def show(session: Session, document: Document, output: str) -> None:
    """Print the timeline of an attachment."""
    found = timeline(read(session.client, document), datetime.now(UTC))
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=4, ensure_ascii=False))
    else:
        click.echo("\n".join(lines(found)))


def read(client: Client, document: Document) -> Sources:
    """Read what an attachment's timeline is made from."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    namespace = str(metadata.get("namespace") or "")
    network = str(spec.get("network") or "")
    about = f"involvedObject.uid={metadata.get('uid', '')},involvedObject.name={metadata['name']}"
    subnets = _many(client, "subnets", namespace, f"spec.network={network}")
    return Sources(
        attachment=document,
        locks=tuple(_locks(client, document, namespace)),
        events=tuple(_many(client, "events", namespace, about)),
        network=_one(client, "networks", namespace, network),
        subnets=tuple(one for one in subnets if not spec.get("subnets") or one["metadata"]["name"] in spec["subnets"]),
        node=_one(client, "nodes.netloom.dev", "", str(spec.get("node") or "")),
    )


def _locks(client: Client, document: Document, namespace: str) -> Iterator[Document]:
    """Give the locks an attachment's status names; where it names none, those that it owns all the same."""
    status, uid = document.get("status") or {}, document["metadata"].get("uid")
    named_there = [one for lock in status.get("locks") or () if (one := address(str(lock.get("ip")))) is not None]
    if not named_there and not status.get("vni"):
        return
    found = (_one(client, "iplocks", namespace, lock_name(int(status.get("vni") or 0), one)) for one in named_there)
    every = found if named_there else _many(client, "iplocks", namespace, f"spec.vni={status['vni']}")
    for lock in every:
        if lock is not None and any(owner.get("uid") == uid for owner in lock["metadata"].get("ownerReferences") or ()):
            yield lock


def _one(client: Client, resource: str, namespace: str, name: str) -> Document | None:
    if not name:
        return None
    try:
        return reading.one(client, Target(named(client, resource), name), Scope(namespace))
    except NotFound:
        return None


def _many(client: Client, resource: str, namespace: str, fields: str) -> list[Document]:
    where = Scope(namespace, {"fieldSelector": fields})
    try:
        return reading.objects(client, Target(named(client, resource)), where)[0]
    except NetloomError as error:
        click.echo(f"{resource} cannot be read: {error.message}", err=True)
        return []


def lines(found: Timeline) -> Iterator[str]:
    """Give a timeline as text."""
    title = f"NetworkAttachment {found.namespace}/{found.name}"
    yield paint(clean(title), "cyan", bold=True) + clean(f" on node {found.node}, in Network {found.network}")
    yield f"Wished for at {_clock(found.wish, exact=found.exact)}" + (
        ""
        if found.exact
        else ", or up to a second later: the server knows no finer, so all took at most as long as told"
    )
    total = max((one.offset for one in found.moments), default=0.0)
    if found.waiting:
        total = max([total, *(max(0.0, one.seconds) for one in found.waiting)])
    yield from _drawn(found, total or 1.0)
    if found.took is not None:
        yield paint(f"Ready {'' if found.exact else 'at most '}{_offset(found.took)} after the wish", "green")
    elif not found.waiting:
        yield "Not Ready"
    for one in found.waiting:
        yield from _waited(one)


def _drawn(found: Timeline, total: float) -> Iterator[str]:
    before = 0.0
    for one in found.moments:
        yield clean(f"  {_when(one):>11}  │{_bar(one, before, total)}│ {one.step:<9}{one.text}").rstrip()
        if one.step != EVENT:
            before = max(before, one.offset)


def _bar(one: Moment, before: float, total: float) -> str:
    """Draw from the step before to this one; an Event is a point."""
    end = min(WIDTH, max(0, round(one.offset / total * WIDTH)))
    if one.step == EVENT:
        return (" " * max(0, end - 1) + "·").ljust(WIDTH)
    begin = min(WIDTH, max(0, round(before / total * WIDTH)))
    drawn = " " * begin + "█" * (end - begin) if end > begin else " " * min(begin, WIDTH - 1) + "▏"
    return drawn.ljust(WIDTH)


def _when(one: Moment) -> str:
    return f"{'' if one.exact else '~'}{_offset(one.offset)}"


def _offset(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if abs(seconds) < 60 else age(seconds)


def _waited(one: Waiting) -> Iterator[str]:
    yield paint(clean(f"Waits for {one.what}, for {_offset(one.seconds)} (since {_clock(one.since)})"), "yellow")
    if one.reason or one.message:
        yield clean(f"  {one.reason}{': ' if one.message else ''}{one.message}")


def _clock(stamp: str, *, exact: bool = True) -> str:
    """Return a time as people read it, to the millisecond."""
    day, _, rest = stamp.partition("T")
    return f"{day} {rest[:12] if exact else rest[:8]} UTC"
