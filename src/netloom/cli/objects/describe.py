"""`netloom describe`: all fields of an object, its conditions as a table, and its Events.

Nothing here depends on a kind: fields are shown by their names, so new kinds need no change.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from netloom.cli.objects.get import Failures
from netloom.cli.objects.selection import select
from netloom.cli.options import ALL_NAMESPACES, SELECTOR, connected
from netloom.cli.shell_completion import complete_targets
from netloom.cli.tables import align, safe
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target, named
from netloom.client.session import Session
from netloom.errors import NetloomError
from netloom.model.document import Document
from netloom.model.values.ages import age

_HIDDEN = ("name", "namespace", "labels", "annotations", "managedFields", "resourceVersion", "uid", "generation")
_ACRONYMS = frozenset(("asn", "cidr", "dhcp", "dns", "ip", "mac", "mtu", "nat", "rd", "uid", "vlan", "vni"))
_SHORT = {"apiVersion": "API Version", "ipam": "IPAM", "ips": "IPs", "ownerReferences": "Owners"}


@click.command()
@click.argument("words", nargs=-1, metavar="KIND [NAME...] | KIND/NAME...", shell_complete=complete_targets)
@SELECTOR
@ALL_NAMESPACES
@click.option(
    "--show-events/--no-show-events", default=True, help="Show the Events of each object.  [default: show-events]"
)
@connected
def describe(session: Session, words: tuple[str, ...], labels: str, everywhere: bool, show_events: bool) -> int:
    """Show all fields of objects, their conditions and their Events."""
    wanted, where = select(session, words, everywhere=everywhere, labels=labels)
    failures = Failures()
    count = 0
    for target in wanted:
        with failures:
            for document in lists.objects(session.client, target, where)[0]:
                lines = list(_object(document))
                if show_events:
                    lines += _events(session, document)
                click.echo(("\n\n" if count else "") + safe("\n".join(lines)))
                count += 1
    if not count and not failures.status:
        click.echo("No resources found.", err=True)
    return failures.status


def _object(document: Document) -> Iterator[str]:
    metadata = document.get("metadata") or {}
    head: list[tuple[str, object]] = [("Name:", metadata.get("name", ""))]
    if metadata.get("namespace"):
        head.append(("Namespace:", metadata["namespace"]))
    for title, key in (("Labels:", "labels"), ("Annotations:", "annotations")):
        pairs = [f"{k}={v}" for k, v in sorted((metadata.get(key) or {}).items())] or ["<none>"]
        head += [(title if not number else "", pair) for number, pair in enumerate(pairs)]
    head += [("API Version:", document.get("apiVersion", "")), ("Kind:", document.get("kind", ""))]
    yield align(head)
    rest = {key: value for key, value in metadata.items() if key not in _HIDDEN}
    yield from _section("Metadata", rest)
    for key, value in document.items():
        if key in ("apiVersion", "kind", "metadata", "status"):
            continue
        yield from _section(_title(key), value)
    status = dict(document.get("status") or {})
    conditions = status.pop("conditions", None) or []
    yield from _section("Status", status)
    if conditions:
        yield "Conditions:"
        header = ["Type", "Status", "Since", "Reason", "Message"]
        rows = [
            [c.get("type"), c.get("status"), _ago(c.get("lastTransitionTime")), c.get("reason"), c.get("message")]
            for c in conditions
        ]
        yield align([header, ["-" * len(word) for word in header], *rows], indent="  ")


def _section(title: str, value: object) -> Iterator[str]:
    if value in (None, {}, []):
        return
    if not isinstance(value, dict | list):
        yield f"{title}:  {value}"
        return
    yield f"{title}:"
    yield from _lines(value, "  ")


def _lines(value: object, indent: str) -> Iterator[str]:
    """Yield a nested value with one line for each leaf; a list of scalars takes one line."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                inner = list(_lines(item, indent + "  "))
                yield from [f"{indent}- {inner[0].strip()}", *inner[1:]] if inner else [f"{indent}-"]
            else:
                yield f"{indent}- {item}"
        return
    if not isinstance(value, dict):
        return
    flat = {key: text for key, item in value.items() if (text := _flat(item)) is not None}
    width = max((len(_title(key)) for key in flat), default=0)
    for key, item in value.items():
        if key in flat:
            yield f"{indent}{_title(key) + ':':{width + 1}}  {flat[key]}"
        elif item:
            yield f"{indent}{_title(key)}:"
            yield from _lines(item, indent + "  ")


def _flat(value: object) -> str | None:
    """Return a scalar, or a list of words, as one line; None for anything else."""
    if isinstance(value, dict):
        return None
    if not isinstance(value, list):
        return _scalar(value)
    if any(isinstance(item, dict | list) or " " in str(item) for item in value):
        return None
    return ", ".join(map(_scalar, value)) or "<none>"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _title(key: str) -> str:
    """Return a field's name as a title: lastHeartbeat is `Last Heartbeat`, underlayIP `Underlay IP`.

    A key that does not look like a field's name, such as a label, stays as it is.
    """
    if key in _SHORT:
        return _SHORT[key]
    if not re.fullmatch(r"[a-z][A-Za-z0-9]*", key):
        return key
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", key)
    return " ".join(word.upper() if word in _ACRONYMS or word.isupper() else word.capitalize() for word in words)


def _events(session: Session, document: Document) -> list[str]:
    metadata = document["metadata"]
    query = f"involvedObject.uid={metadata.get('uid', '')},involvedObject.name={metadata['name']}"
    where = Scope(str(metadata.get("namespace") or ""), {"fieldSelector": query})
    try:
        found = lists.objects(session.client, Target(named(session.client, "events")), where)[0]
    except NetloomError as error:
        return [f"Events:  <not available: {error.message}>"]
    if not found:
        return ["Events:  <none>"]
    found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    header = ["Type", "Reason", "Age", "From", "Message"]
    rows = [
        [event.get("type"), event.get("reason"), _seen(event), _source(event), event.get("message")] for event in found
    ]
    return ["Events:", align([header, ["-" * len(word) for word in header], *rows], indent="  ")]


def _seen(event: Document) -> str:
    last = _ago(event.get("lastTimestamp") or event.get("eventTime"))
    count = int(event.get("count") or 1)
    return f"{last} (x{count} over {_ago(event.get('firstTimestamp'))})" if count > 1 else last


def _source(event: Document) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


def _ago(stamp: object) -> str:
    try:
        then = datetime.fromisoformat(str(stamp))
    except ValueError:
        return "<unknown>"
    return age((datetime.now(UTC) - then).total_seconds())
