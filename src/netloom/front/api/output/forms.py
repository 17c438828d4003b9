"""Objects in the requested form: as they are, as Table rows, as metadata only; one, many, or as watch events.

Objects in their stored form are never decoded: their bytes are put into the answer. The other forms cost a decode each;
only people (Table), metadata-only controllers and client-go's typed clients (Protobuf) request them. A frame of a watch
is made once for all watchers that request the same form (frames.py).
"""

import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from netloom.errors import NetloomError, NotAcceptable
from netloom.front.api.http.negotiation import Form, Media, Output
from netloom.front.api.http.paths import Include
from netloom.front.api.output import protobuf_kinds, statuses, tables
from netloom.front.api.output.frames import frame
from netloom.front.api.output.protobuf import MessageType
from netloom.model import codec
from netloom.model.document import Document, Json
from netloom.model.kind import Kind
from netloom.protobuf import bytes_field
from netloom.store.base import Event, Page, Stored

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"
YAML_LIMIT = 128 * 1024
"""The largest object, in bytes of JSON, that is written as YAML."""


class _Metadata(Struct):
    metadata: Raw


class _Partial(Struct):
    metadata: Document


class View(Struct, frozen=True):
    """One kind in the form that one client requests."""

    kind: Kind
    output: Output = Output()
    include: Include = Include.METADATA

    @property
    def raw(self) -> bool:
        """Whether stored bytes are sent as they are."""
        plain = self.output.form is Form.AS_IS and self.output.media is Media.JSON
        return plain and self.output.served is None

    @property
    def api_version(self) -> str:
        """The apiVersion of objects in their own form."""
        return self.kind.api_version if self.output.served is None else self.output.served.api_version

    @property
    def binary(self) -> bool:
        """Whether the answer is Protobuf."""
        return self.output.media is Media.PROTOBUF

    @property
    def media(self) -> bytes:
        """The answer's Content-Type."""
        return str(self.output.media).encode()

    @property
    def stream_media(self) -> bytes:
        """The Content-Type of a watch."""
        return self.media + b";stream=watch" if self.binary else self.media

    def one(self, stored: Stored) -> bytes:
        """Return one object."""
        self.check((stored,))
        return self._enveloped(self._message_of(stored)) if self.binary else self._written(self._one(stored))

    def part(self, stored: Stored) -> bytes:
        """Return one object as an element of a list."""
        if self.binary:
            return bytes_field(2, self._message_of(stored))
        if self.output.form is Form.TABLE:
            row = tables.row(
                self.kind, stored, now=time.time(), include=str(self.include), as_version=self.output.version
            )
            part = msgspec.json.encode(row)
        else:
            part = self._one(stored)
        return part if self.output.media is Media.JSON else _yaml([msgspec.json.decode(part)])

    def around(self, page: Page, size: int) -> tuple[bytes, bytes, bytes]:
        """Return what comes before, between and after the elements of a list.

        `size` is the total of bytes of the elements: Protobuf needs it at the beginning.
        """
        kind, version, elements = f"{self.kind.name}List", self.api_version, "items"
        if self.output.form is not Form.AS_IS:
            kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{self.output.version}"
        metadata = _metadata(page)
        if self.binary:
            first = bytes_field(1, protobuf_kinds.LIST_META.encode(metadata))
            return protobuf_kinds.opening(version, kind, len(first) + size) + first, b"", protobuf_kinds.END
        head: Document = {"kind": kind, "apiVersion": version, "metadata": metadata}
        if self.output.form is Form.TABLE:
            head, elements = tables.head(self.kind, as_version=self.output.version, metadata=metadata), "rows"
        if self.output.media is Media.JSON:
            return msgspec.json.encode(head)[:-1] + f',"{elements}":['.encode(), b",", b"]}"
        # Elements of a sequence are indented like the mapping that contains it: each can be written by itself.
        return _yaml(head) + f"{elements}:{'' if page.items else ' []'}\n".encode(), b"", b""

    def check(self, items: Iterable[Stored]) -> None:
        """Refuse to write large objects as YAML: a megabyte takes a fifth of a second, and as JSON no time."""
        if self.output.media is Media.YAML and any(len(stored.raw) > YAML_LIMIT for stored in items):
            raise NotAcceptable(f"objects over {YAML_LIMIT} bytes are not available as YAML: use application/json")

    def event(self, event: Event) -> bytes:
        """Return one event of a watch."""
        if self.binary:
            return protobuf_kinds.event(event.type, self._enveloped(self._message_of(event.object)))
        return frame(event.type, event.object.raw if self.raw else self._one(event.object))

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return the event with the revision that the watch has reached."""
        metadata: Document = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        document: Document = {"kind": self.kind.name, "apiVersion": self.api_version, "metadata": metadata}
        if self.output.form is Form.TABLE:
            document = self._table((), metadata)
        elif self.output.form is not Form.AS_IS:
            document |= {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self.output.version}"}
        if self.binary:
            return protobuf_kinds.event(BOOKMARK, self._enveloped(self._message.encode(document)))
        return frame(BOOKMARK, msgspec.json.encode(document))

    def error(self, error: NetloomError) -> bytes:
        """Return the event with the error that ends a watch."""
        status = statuses.failure(error)
        if self.binary:
            return protobuf_kinds.event(ERROR, protobuf_kinds.encode(status))
        return frame(ERROR, msgspec.json.encode(status))

    def status(self, status: Document) -> bytes:
        """Return a `Status` in place of an object."""
        return protobuf_kinds.encode(status) if self.binary else self._written(msgspec.json.encode(status))

    @property
    def _message(self) -> MessageType:
        if self.output.form is not Form.AS_IS:
            return protobuf_kinds.PARTIAL
        message = protobuf_kinds.message_of(self.kind, self.api_version)
        assert message is not None, "negotiated only for kinds with a message"
        return message

    def _message_of(self, stored: Stored) -> bytes:
        if self.output.form is not Form.AS_IS:
            return self._message.encode({"metadata": msgspec.json.decode(stored.raw, type=_Partial).metadata})
        document = stored.document()
        served = self.output.served
        return self._message.encode(document if served is None else served.shown(document))

    def _enveloped(self, message: bytes) -> bytes:
        if self.output.form is Form.AS_IS:
            return protobuf_kinds.envelope(self.api_version, self.kind.name, message)
        return protobuf_kinds.envelope(f"meta.k8s.io/{self.output.version}", "PartialObjectMetadata", message)

    def _one(self, stored: Stored) -> bytes:
        match self.output.form:
            case Form.AS_IS:
                served = self.output.served
                return stored.raw if served is None else msgspec.json.encode(served.shown(stored.document()))
            case Form.TABLE:
                return msgspec.json.encode(self._table((stored,), {"resourceVersion": str(stored.revision)}))
            case Form.METADATA | Form.METADATA_LIST:
                metadata = msgspec.json.decode(stored.raw, type=_Metadata).metadata
                version = self.output.version.encode()
                return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
                    version,
                    bytes(metadata),
                )

    def _table(self, items: Sequence[Stored], metadata: Document) -> Document:
        version = self.output.version
        return tables.table(
            self.kind, items, now=time.time(), include=str(self.include), as_version=version, metadata=metadata
        )

    def _written(self, body: bytes) -> bytes:
        return body if self.output.media is not Media.YAML else _yaml(msgspec.json.decode(body))


def _yaml(value: Json) -> bytes:
    return codec.encode_yaml(value).encode()


def _metadata(page: Page) -> Document:
    metadata: Document = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None and page.token:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def batches(items: Iterable[bytes], size: int) -> Iterable[list[bytes]]:
    """Yield the items in groups of about `size` bytes."""
    group: list[bytes] = []
    have = 0
    for item in items:
        group.append(item)
        have += len(item) + 1
        if have >= size:
            yield group
            group, have = [], 0
    if group:
        yield group
