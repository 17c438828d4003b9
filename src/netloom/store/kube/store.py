"""A Kubernetes cluster's own API as a store: kube-apiserver with our CRDs, or any server that speaks like it.

Every operation is one REST call; the server does what `store/semantics.py` does for the stores of our own. Calls about
one object that are made at the same time are one request to a Netloom server (`store/kube/batching.py`), and watches
share a connection (`store/kube/streams.py`). Objects are kept as the bytes the server sent. Elsewhere a watch is a
request of its own, on a connection that HTTP/2 shares: slow reading slows the server down, which then ends the watch,
so memory stays bounded here.
"""

import logging
from collections.abc import Sequence
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct

from netloom.errors import BY_REASON, BadRequest, Cause, Expired, Internal, NetloomError, TimedOut, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import LEASE
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Event, EventType, Page, Precondition, Propagation, Sink, Stored, Watch
from netloom.store.http.client import Client, Response, Stream
from netloom.store.kube.batching import Batcher
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.streams import Lines, Streams
from netloom.store.paging import check_alone
from netloom.store.semantics import check_creatable

log = logging.getLogger(__name__)

_MAX_EVENT = 32 << 20
AHEAD = Cause("", "Too large resource version", "ResourceVersionTooLarge")
_BY_STATUS: dict[int, type[NetloomError]] = {cls.http_status: cls for cls in BY_REASON.values()} | {502: Unreachable}
_REASONS: dict[str, type[NetloomError]] = BY_REASON | {"Gone": Expired, "ServerTimeout": TimedOut}


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(Struct):
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _ListMetadata(Struct, rename="camel"):
    resource_version: str = "0"
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _List(Struct):
    metadata: _ListMetadata
    items: list[Raw] | None = None


class _Details(Struct, rename="camel"):
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class _Status(Struct):
    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _Line(Struct):
    type: str
    object: Raw


_object = msgspec.json.Decoder(_Object).decode
_line = msgspec.json.Decoder(_Line).decode


class KubeStore:
    """A `Store` behind a Kubernetes-style API."""

    def __init__(self, client: Client, *, manager: str = "netloom") -> None:
        self._client = client
        self._batcher = Batcher(client)
        self._streams = Streams(client)
        self._manager = manager

    @classmethod
    async def open(cls, cluster: Cluster, *, manager: str = "netloom") -> "KubeStore":
        """Return the store of `cluster`; connect lazily.  `manager` is the field manager of writes."""
        return cls(cluster.client(), manager=manager)

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        metadata = document.get("metadata") or {}
        check_creatable(kind, metadata)  # A server would answer 500 or 405.
        namespace = metadata.get("namespace") or ""
        path = _path(kind, namespace, **self._writing(dry_run=dry_run))
        return _stored(kind, await self._send("POST", path, _named(kind, document)))

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now."""
        return _stored(kind, await self._send("GET", _path(kind, namespace, name)))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        """Return the objects of a kind."""
        query = _selection(selector)
        if revision is not None:
            query |= {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        if limit:
            query["limit"] = str(limit)
        if token:
            check_alone(revision)
            query["continue"] = token
        response = await self._batcher.alone("GET", _path(kind, namespace, **query))
        self._streams.heard(response.headers)
        body = _body(response)
        try:
            answer = msgspec.json.decode(body, type=_List)
            at = int(answer.metadata.resource_version or 0)
        except ValueError as error:
            raise Unreachable(f"the server sent a list of {kind.plural} that cannot be read: {error}") from error
        return Page(
            [stored for item in answer.items or () if (stored := _readable(kind, bytes(item))) is not None],
            at,
            answer.metadata.continue_,
            answer.metadata.remaining_item_count,
        )

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`."""
        if since <= 0:
            # To a Kubernetes server 0 means "from anywhere, and all that is there first", which is not what was asked.
            raise Expired(f"too old resource version: {since}: list again")
        watch = KubeWatch(self._streams, kind, namespace, selector, since)
        await watch.connect()
        return watch

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or its status."""
        metadata = document["metadata"]
        path = _path(
            kind, metadata.get("namespace") or "", metadata["name"], subresource, **self._writing(dry_run=dry_run)
        )
        return _stored(kind, await self._send("PUT", path, _named(kind, document)))

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete an object and return its last state."""
        # The answer to a deletion is often only a Status, so the last state is read before.
        before = await self.get(kind, namespace, name)
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation.value}
        preconditions = {"uid": uid} if uid else {}
        if revision is not None:
            preconditions["resourceVersion"] = str(revision)
        if preconditions:
            options["preconditions"] = preconditions
        if dry_run:
            options["dryRun"] = ["All"]
        body = await self._send("DELETE", _path(kind, namespace, name), options)
        return before if _object(body).kind == "Status" else _stored(kind, body)

    async def revision(self) -> int:
        """Return the revision of the newest write: that of a list now, of a kind that every such server has."""
        return (await self.list(LEASE, limit=1)).revision

    async def damaged(self) -> Sequence[Damaged]:
        """Return nothing: damaged objects are the server's concern."""
        return ()

    async def close(self) -> None:
        """Close all connections."""
        await self._streams.close()
        await self._batcher.close()
        await self._client.close()

    def _writing(self, *, dry_run: bool) -> dict[str, str]:
        query = {"fieldManager": self._manager, "fieldValidation": "Strict"}
        return query | {"dryRun": "All"} if dry_run else query

    async def _send(self, method: str, path: str, document: Document | None = None) -> bytes:
        """Send a request about one object, in a batch with concurrent ones if the server takes batches."""
        body = b"" if document is None else msgspec.json.encode(document)
        return _body(await self._batcher.request(method, path, body))


class KubeWatch:
    """One watch stream.  A `Watch`."""

    def __init__(self, streams: Streams, kind: Kind, namespace: str, selector: Selector, since: int) -> None:
        self._streams = streams
        self._kind = kind
        self._namespace = namespace
        self._query = _selection(selector) | {"watch": "true", "allowWatchBookmarks": "true"}
        self._revision = since
        self._stream: Stream | Lines | None = None
        self._partial = b""
        self._closed = False

    async def connect(self) -> None:
        """Start or resume after the last revision seen."""
        path = _path(self._kind, self._namespace, **self._query, resourceVersion=str(self._revision))
        stream = await self._streams.open(path)
        if stream.status != 200:
            try:
                raise _watch_error(failure(Response(stream.status, {}, await stream.read_all(1 << 20))))
            finally:
                stream.close()
        self._stream, self._partial = stream, b""

    async def next(self) -> Sequence[Event]:
        """Wait for the next events, at least one, and return all that are ready."""
        while not self._closed:
            if self._stream is None:
                await self.connect()
            assert self._stream is not None
            data = await self._stream.read()
            if not data:
                # Servers end watches after some minutes; this is normal.
                self._stream.close()
                self._stream = None
                continue
            *lines, self._partial = (self._partial + data).split(b"\n")
            if len(self._partial) > _MAX_EVENT:
                raise Unreachable(f"the server sent an event of more than {_MAX_EVENT} bytes")
            if events := [event for line in lines if line and (event := self._event(line)) is not None]:
                return events
        raise Unreachable("the watch is closed")

    @property
    def revision(self) -> int:
        """The revision up to which `next` has returned everything."""
        return self._revision

    def direct(self, sink: Sink | None) -> None:
        """Ignore the sink: events of another process are returned by `next`."""

    async def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _event(self, line: bytes) -> Event | None:
        try:
            event = _line(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"the server sent an event that cannot be read: {error}") from error
        if event.type == "ERROR":
            raise _watch_error(failure(Response(0, {}, bytes(event.object))))
        if event.type == "BOOKMARK":
            if (bookmark := _readable(self._kind, bytes(event.object), named=False)) is not None:
                self._revision = max(self._revision, bookmark.revision)
            return None
        stored = _readable(self._kind, bytes(event.object))
        if stored is None or event.type not in EventType.__members__:
            return None
        self._revision = stored.revision
        return Event(EventType(event.type), stored)


def _path(kind: Kind, namespace: str = "", name: str = "", subresource: str = "", **query: str) -> str:
    path = kind.path(quote(namespace, safe=""), quote(name, safe=""), subresource)
    return f"{path}?{urlencode(query)}" if query else path


def _selection(selector: Selector) -> dict[str, str]:
    query = {"labelSelector": selector.label_text, "fieldSelector": selector.field_text}
    return {name: text for name, text in query.items() if text}


def _named(kind: Kind, document: Document) -> Document:
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def _body(response: Response) -> bytes:
    if response.status >= 300:
        raise failure(response)
    return response.body


def _stored(kind: Kind, raw: bytes) -> Stored:
    try:
        seen = _object(raw)
        metadata, revision = seen.metadata, int(seen.metadata.resource_version or 0)
    except ValueError as error:  # msgspec.DecodeError is one.
        raise Unreachable(f"the server sent an object of {kind.plural} that cannot be decoded: {error}") from error
    if not seen.kind:
        # The items of lists of built-in kinds do not say what they are.
        raw = b'{"apiVersion":"%b","kind":"%b",%b' % (kind.api_version.encode(), kind.name.encode(), raw[1:])
    return Stored(kind, metadata.namespace, metadata.name, revision, raw)


def _readable(kind: Kind, raw: bytes, *, named: bool = True) -> Stored | None:
    """Return one object of many; None, and a line in the log, if it cannot be read."""
    try:
        stored = _stored(kind, raw)
        if stored.name or not named:
            return stored
        log.error("ignoring an object of %s that the server sent without a name", kind.plural)
    except Unreachable as error:
        log.error("%s: it is left out", error)
    return None


def failure(response: Response) -> NetloomError:
    """Return the error a `Status` means."""
    status = _status(response)
    code = status.code or response.status
    cls = _REASONS.get(status.reason) or _BY_STATUS.get(code) or (Internal if code >= 500 else BadRequest)
    if "required revision is a future revision" in status.message:
        # Older servers pass etcd's own error on, as a 500.
        return TimedOut(f"Too large resource version: {status.message}", causes=[AHEAD])
    details = status.details or _Details()
    after = response.headers.get("retry-after", "")
    return cls(
        status.message or f"the server answered {code}",
        causes=details.causes or (),
        retry_after=float(details.retry_after_seconds) or (float(after) if after.isdigit() else None),
    )


def _status(response: Response) -> _Status:
    try:
        return msgspec.json.decode(response.body, type=_Status)
    except msgspec.DecodeError:
        # Not from an API server: a proxy, perhaps. The text is truncated, as it may be a whole page.
        return _Status(message=response.body[:200].decode("utf-8", "replace").strip())


def _watch_error(error: NetloomError) -> NetloomError:
    """Return the error for a watcher: a revision ahead of the server means that the server lost history."""
    if isinstance(error, TimedOut) and any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
        return Expired(error.message)
    return error
