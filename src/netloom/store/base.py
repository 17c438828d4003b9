"""The interface of a store: all that the API, the controllers and the agents share.

Four implementations: memory, sqlite (embedded), etcd (many API servers), kube (a Kubernetes cluster's own API, or any
server that speaks it, Netloom's included). All pass one test suite; callers cannot tell them apart.

Semantics, the same in all:

- `resourceVersion` is one ever-growing sequence over all kinds. What `list` returns is the state at `Page.revision`;
  a watch `since` that revision misses nothing and repeats nothing.
- `create` ignores the document's status where the kind has a status sub-resource, fills uid, creationTimestamp,
  generation 1, and a random suffix after generateName.
- `update` needs metadata.resourceVersion and raises `Conflict` when it is stale. It keeps status; with
  subresource="status" it keeps everything but status. If nothing changed, nothing is written and the revision stays.
  generation grows when anything but metadata and status changed.
- `delete` removes at once, or, where finalizers remain (of the object's own, or `foregroundDeletion`/`orphan` from the
  propagation), sets deletionTimestamp; the object is removed when an update removes the last finalizer. Dependents are
  the garbage collector's work (control/gc), as in Kubernetes.
- A write is durable when it returns. Documents given and returned are the caller's to keep.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from netloom.errors import Conflict
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector


class Propagation(StrEnum):
    """What happens to an object's dependents when it is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class EventType(StrEnum):
    """What happened to an object, as seen through a watch's selector."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Facets(NamedTuple):
    """What selectors look at."""

    labels: dict[str, str]
    fields: dict[str, str]


class Stored(Struct, frozen=True, eq=False):
    """An object at one revision, as bytes: encoded once, sent to many."""

    kind: Kind
    namespace: str
    """"" for cluster-scoped kinds."""
    name: str
    revision: int
    raw: bytes
    """The whole object as JSON, metadata.resourceVersion included (revision 0: a dry-run create, which has none)."""
    _facets: Facets | None = None

    def document(self) -> Document:
        """Return a new copy, which the caller may change."""
        decoded: Document = msgspec.json.decode(self.raw)
        return decoded

    def value(self) -> Resource:
        """Return the object as its kind's typed value."""
        return self.kind.decode(self.raw)

    def facets(self) -> Facets:
        """Return the labels and the selectable fields; computed once."""
        if self._facets is None:
            force_setattr(self, "_facets", _facets(self))
        assert self._facets is not None
        return self._facets

    def selected(self, selector: Selector) -> bool:
        """Return whether `selector` matches this object."""
        return not selector or selector.matches(*self.facets())


class Event(Struct, frozen=True, eq=False):
    """One change.  A DELETED object is its last state that was selected, at the revision at which it ceased to be.

    A hub gives the same `Event` to all watchers that see the same change, so it is encoded once.
    """

    type: EventType
    object: Stored


Sink = Callable[[Event], bool]
"""Takes an event, or returns False.  Must not wait and must not raise."""


class Page(Struct, frozen=True):
    """What a list returns."""

    items: Sequence[Stored]
    revision: int
    token: str = ""
    """Where to go on; "" on the last page."""
    remaining: int | None = None
    """How many follow, where it is known."""


class Damaged(Struct, frozen=True):
    """An object whose stored bytes cannot be read; see store/damage.py."""

    kind: Kind
    namespace: str
    name: str
    revision: int
    reason: str


class Precondition(Struct, frozen=True):
    """A condition of a write on other objects: nothing that `forbids` matches was written after revision `since`."""

    since: int
    forbids: Callable[[Stored], bool]


class PreconditionFailed(Conflict):
    """An object that the write depends on was written meanwhile: read the others again and decide again."""


class Watch(Protocol):
    """A stream of changes."""

    async def next(self) -> Sequence[Event]:
        """Wait for the next changes, at least one, and return all that are ready, in order of revision.

        Raises `Expired` when this watcher fell too far behind, or its revision is compacted: list again. Raises
        `Unreachable` when the store went away: watch again from the last revision seen.
        """

    @property
    def revision(self) -> int:
        """The revision up to which `next` has returned everything: the one for a bookmark."""

    def direct(self, sink: "Sink | None") -> None:
        """Offer each event to `sink` the moment it happens, while nothing waits for `next`.

        A shortcut for a process with thousands of watches: no task is woken. Events that `sink` does not take are
        returned by `next`, and so are all events of a store without this shortcut. None removes the sink.
        """

    async def close(self) -> None:
        """Stop.  Idempotent; a waiting `next` is cancelled by its own task, not by this."""


class Store(Protocol):
    """A place where resources are stored and watched."""

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object; `AlreadyExists` if its name is taken."""

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now; `NotFound` if there is none.

        A cached state at the revision `known` may be returned instead: for callers that then write with that
        revision, which is refused if there is a newer one.
        """

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
        """Return the objects of a kind, of one namespace or ("") of all, in the order of "NAMESPACE/NAME".

        At `revision` exactly, or now; `Expired` if that is compacted. With `limit`, further pages by `token` show the
        same revision as the first.
        """

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`; `Expired` if that is compacted."""

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or with subresource="status" its status."""

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
        """Delete an object and return its last state (with deletionTimestamp where finalizers keep it).

        `Conflict` unless it has this uid and is at this revision, where given. `PreconditionFailed` when an object that
        `unless` forbids was written. That is decided in one step with the deletion where this process decides writes
        (memory, sqlite); on etcd, by the changes that this process has received; the kube store leaves it to the
        server.
        """

    async def revision(self) -> int:
        """Return the revision of the newest write."""

    async def damaged(self) -> Sequence[Damaged]:
        """Return the objects that are set aside because they cannot be read: lists and watches leave them out."""

    async def close(self) -> None:
        """Release all resources.  Acknowledged writes are durable."""


def stored(kind: Kind, document: dict[str, Any]) -> Stored:
    """Return `document`, which has its resourceVersion, as it is stored."""
    metadata = document["metadata"]
    return Stored(
        kind,
        metadata.get("namespace", ""),
        metadata["name"],
        int(metadata["resourceVersion"]),
        msgspec.json.encode(document),
    )


def _facets(object_: Stored) -> Facets:
    document = msgspec.json.decode(object_.raw)
    fields = {"metadata.name": object_.name, "metadata.namespace": object_.namespace}
    for path in object_.kind.selectable:
        fields[path] = _text(document, path)
    return Facets(document["metadata"].get("labels") or {}, fields)


def _text(document: Document, path: str) -> str:
    """Return the field at `path` as a field selector writes it; "" where there is none, as Kubernetes has it."""
    at: Any = document
    for part in path.split("."):
        if not isinstance(at, dict):
            return ""
        at = at.get(part)
    if isinstance(at, bool):
        return "true" if at else "false"
    return str(at) if isinstance(at, str | int) else ""
