"""Damaged objects: a store sets aside bytes that cannot be read, reports them, and continues without them.

A disk may change a byte, and other programs may write to an etcd. One such value must not affect the others:

    list, watch     it is left out
    get, update     `Unreadable`: the object exists, so it must not count as deleted, with what it owns removed
    create          `AlreadyExists`: the name is taken until an operator deletes the damaged object
    delete          by name, without preconditions: it is removed

Each is logged once. `Store.damaged` lists them for `netloom doctor`.
"""

import logging

import msgspec
from msgspec import Raw, Struct

from netloom.errors import Internal
from netloom.model.kind import Kind
from netloom.store.base import Damaged, Stored
from netloom.store.semantics import is_encoded, key_of

log = logging.getLogger(__name__)


class Unreadable(Internal):
    """The stored bytes are not an object."""

    def __init__(self, damaged: Damaged) -> None:
        super().__init__(
            f"{describe(damaged)} cannot be read from the store: {damaged.reason}; "
            "delete it by its name, then create it again"
        )
        self.damaged = damaged


class _Metadata(Struct, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, object]] | None = None
    managed_fields: list[dict[str, object]] | None = None


class _Object(Struct):
    metadata: _Metadata
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")


_object = msgspec.json.Decoder(_Object).decode


def flaw(kind: Kind, key: str, raw: bytes, *, revision: int | None = None) -> str:
    """Return why `raw` is not the object at `key` as a store of ours writes it; "" where it is.

    At `revision`, where the bytes have one in them. What the kind's own fields say is not looked at.
    """
    try:
        raw.decode()  # Of fields that it skips the decoder looks at the syntax only.
        seen = _object(raw)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        return str(error)
    metadata = seen.metadata
    if not is_encoded(kind, raw):
        return f"it does not begin as a {kind.name} does"
    if key_of(metadata.namespace, metadata.name) != key:
        return f"its name is {key_of(metadata.namespace, metadata.name).lstrip('/')!r}"
    if revision is not None and metadata.resource_version != str(revision):
        return f"its resourceVersion is {metadata.resource_version!r}"
    for field, value in (("spec", seen.spec), ("status", seen.status)):
        if not bytes(value).startswith(b"{"):
            return f"its {field} is not an object"
    return ""


def describe(damaged: Damaged) -> str:
    """Return the damaged object's name for messages."""
    where = f"{damaged.namespace}/{damaged.name}" if damaged.namespace else damaged.name
    return f'{damaged.kind.qualified} "{where}" (revision {damaged.revision})'


def report(damaged: Damaged) -> None:
    """Log that an object is set aside."""
    log.error("%s is set aside: it cannot be read from the store: %s", describe(damaged), damaged.reason)


def placeholder(damaged: Damaged) -> Stored:
    """Return what is known of an object that is set aside: its name.  A deletion returns it."""
    metadata = {"name": damaged.name, "uid": "", "resourceVersion": str(damaged.revision)}
    if damaged.namespace:
        metadata["namespace"] = damaged.namespace
    document = {"apiVersion": damaged.kind.api_version, "kind": damaged.kind.name, "metadata": metadata}
    return Stored(damaged.kind, damaged.namespace, damaged.name, damaged.revision, msgspec.json.encode(document))
