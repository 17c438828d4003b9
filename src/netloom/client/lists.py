"""Lists and watches: all pages of a list as one, and a watch that resumes after its connection breaks."""

import contextlib
import time
from collections.abc import Iterator
from urllib.parse import quote

from msgspec import Struct

from netloom.client.http import JSON, TABLE, Client, from_status
from netloom.client.resources import Resource, Target
from netloom.errors import Unreachable
from netloom.model.document import Document

PAGE = "500"
AWAY_SECONDS = 60.0
"""How long a server may be unreachable before a watch fails: long enough for a restart."""
PAUSE_SECONDS = 0.2


class Scope(Struct, frozen=True):
    """The objects of a kind that a request is for: a namespace, and label and field selectors."""

    namespace: str
    """"": all namespaces."""
    query: dict[str, str] = {}


def one(client: Client, target: Target, where: Scope, *, accept: str = JSON) -> Document:
    """Return one object, or the Table with its row."""
    return client.get(target.resource.path(where.namespace, quote(target.name, safe="")), accept=accept)


def tables(client: Client, target: Target, where: Scope) -> Iterator[Document]:
    """Yield the Tables of a target, page by page."""
    if target.name:
        yield one(client, target, where, accept=TABLE)
    else:
        yield from _pages(client, target.resource, where, TABLE)


def _pages(client: Client, resource: Resource, where: Scope, accept: str) -> Iterator[Document]:
    """Yield a collection page by page; all pages show the same revision."""
    query = {**where.query, "limit": PAGE}
    while True:
        page = client.get(resource.path(where.namespace), query, accept=accept)
        yield page
        token = str(page.get("metadata", {}).get("continue") or "")
        if not token:
            return
        query = {**where.query, "limit": PAGE, "continue": token}


def objects(client: Client, target: Target, where: Scope) -> tuple[list[Document], str]:
    """Return the objects of a target, each with its apiVersion and kind, and the revision of the list."""
    resource = target.resource
    if target.name:
        found = one(client, target, where)
        return [found], str(found["metadata"].get("resourceVersion", ""))
    items: list[Document] = []
    revision = ""
    for page in _pages(client, resource, where, JSON):
        revision = str(page["metadata"].get("resourceVersion", ""))
        api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        items += [{"apiVersion": api_version, "kind": resource.kind, **item} for item in page.get("items") or ()]
    return items, revision


def changes(
    client: Client, target: Target, where: Scope, revision: str, *, table: bool = False, seconds: float | None = None
) -> Iterator[Document]:
    """Yield watch events after `revision`, and resume when the server or the network ends a watch.

    Ends after `seconds`, if given. Raises `Expired` if the server no longer has the revision: list again.
    """
    deadline = time.monotonic() + seconds if seconds is not None else float("inf")
    query = {**where.query, "watch": "true", "allowWatchBookmarks": "true"}
    query |= {"fieldSelector": f"metadata.name={target.name}"} if target.name else {}
    path = target.resource.path(where.namespace)
    away_since = 0.0
    while (now := time.monotonic()) < deadline:
        asked = {"timeoutSeconds": str(max(1, round(deadline - now)))} if seconds is not None else {}
        query |= {**asked, "resourceVersion": revision}
        try:
            with contextlib.closing(client.stream(path, query, accept=TABLE if table else JSON)) as stream:
                for event in stream:
                    if event.get("type") == "ERROR":
                        raise from_status(event.get("object") or {}, 500)
                    revision = _revision(event) or revision
                    if event.get("type") != "BOOKMARK":
                        yield event
                    if time.monotonic() >= deadline:
                        return
        except Unreachable:
            # A quiet watch may have been answered long ago: what counts is how long the server is unreachable.
            away_since = away_since or now
            if time.monotonic() - away_since > AWAY_SECONDS:
                raise
        else:
            away_since = 0.0
        time.sleep(PAUSE_SECONDS)


def _revision(event: Document) -> str:
    """Return the revision of an event's object, or of its row in a Table."""
    found = event.get("object") or {}
    for row in found.get("rows") or ():
        inside = (row.get("object") or {}).get("metadata") or {}
        if inside.get("resourceVersion"):
            return str(inside["resourceVersion"])
    return str((found.get("metadata") or {}).get("resourceVersion") or "")
