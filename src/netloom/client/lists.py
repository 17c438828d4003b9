"""Lists and watches as the commands use them: all pages as one, a watch that goes on where it was cut off."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import click
from msgspec import Struct

from netloom.cli.options import Session
from netloom.client.http import JSON, TABLE, Client, from_status
from netloom.client.resources import Resource, Target
from netloom.errors import Unreachable
from netloom.model.document import Document

PAGE = "500"
AWAY_SECONDS = 60.0
"""How long a server may be away before a watch gives up: long enough for it to be started again."""
PAUSE_SECONDS = 0.2


class Scope(Struct, frozen=True):
    """Which objects of a kind: of one namespace or all, by labels and fields."""

    namespace: str
    """"" for all."""
    query: dict[str, str] = {}


def scope(session: Session, *, everywhere: bool = False, labels: str = "", fields: str = "") -> Scope:
    """Return the scope `-n`, `-A`, `-l` and `--field-selector` mean."""
    query = {"labelSelector": labels} if labels else {}
    query |= {"fieldSelector": fields} if fields else {}
    return Scope("" if everywhere else session.namespace, query)


def one(client: Client, target: Target, where: Scope, *, table: bool = False) -> Document:
    """Return one object, or the Table with its row."""
    if target.resource.namespaced and not where.namespace:
        raise click.UsageError("An object by name is in one namespace: leave -A out.")
    path = target.resource.path(where.namespace, quote(target.name, safe=""))
    return client.get(path, accept=TABLE if table else JSON)


def pages(client: Client, resource: Resource, where: Scope, *, table: bool = False) -> Iterator[Document]:
    """Yield a collection page by page; the server shows one revision throughout."""
    query = {**where.query, "limit": PAGE}
    while True:
        page = client.get(resource.path(where.namespace), query, accept=TABLE if table else JSON)
        yield page
        token = str(page.get("metadata", {}).get("continue") or "")
        if not token:
            return
        query = {**where.query, "limit": PAGE, "continue": token}


def objects(client: Client, target: Target, where: Scope) -> tuple[list[Document], str]:
    """Return the objects a target means and the revision of the list; items carry apiVersion and kind."""
    resource = target.resource
    if target.name:
        found = one(client, target, where)
        return [found], str(found["metadata"].get("resourceVersion", ""))
    items: list[Document] = []
    revision = ""
    for page in pages(client, resource, where):
        revision = str(page["metadata"].get("resourceVersion", ""))
        api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        items += [{"apiVersion": api_version, "kind": resource.kind, **item} for item in page.get("items") or ()]
    return items, revision


def changes(
    client: Client, target: Target, where: Scope, revision: str, *, table: bool = False, seconds: float | None = None
) -> Iterator[Document]:
    """Yield watch events after `revision`, going on where the server or the network ended a watch.

    Ends after `seconds`, if given. Raises `Expired` when the server no longer knows the revision: list again.
    """
    deadline = time.monotonic() + seconds if seconds is not None else float("inf")
    query = {**_watched(target, where), "watch": "true", "allowWatchBookmarks": "true"}
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
            # A quiet watch may have been answered long ago: what counts is how long nobody could be reached.
            away_since = away_since or now
            if time.monotonic() - away_since > AWAY_SECONDS:
                raise
        else:
            away_since = 0.0
        time.sleep(PAUSE_SECONDS)


def _watched(target: Target, where: Scope) -> Mapping[str, str]:
    if not target.name:
        return where.query
    return {**where.query, "fieldSelector": f"metadata.name={target.name}"}


def _revision(event: Document) -> str:
    """Return the revision an event brings: of the object, or in a Table of its row."""
    found = event.get("object") or {}
    for row in found.get("rows") or ():
        inside = (row.get("object") or {}).get("metadata") or {}
        if inside.get("resourceVersion"):
            return str(inside["resourceVersion"])
    return str((found.get("metadata") or {}).get("resourceVersion") or "")
