"""The interface for rules that need more than the object itself: the client that writes, other stored objects.

Rules for one object are in model/validation and are not repeated here. An admission object is called before every
create, update and delete, with the store, and refuses by raising: `Forbidden` if the client may not, `Conflict` if an
object is in use. It must not write. It is called again when a write is retried.
"""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from netloom.front.api.auth.identity import Identity
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.store.base import Precondition, Propagation, Store, Stored


class WriteOperation(StrEnum):
    """The operation of a write."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Write(Struct, frozen=True, kw_only=True):
    """One write, before it happens."""

    operation: WriteOperation
    kind: Kind
    namespace: str
    name: str
    """"" if the name is generated."""
    who: Identity
    subresource: str = ""
    old: Stored | None = None
    """The stored object; None for a create."""
    new: Document | None = None
    """The object to store, valid and with defaults; None for a delete."""
    propagation: Propagation = Propagation.BACKGROUND
    """For a delete: what to do with dependents."""
    dry_run: bool = False


class Admission(Protocol):
    """One rule."""

    async def review(self, write: Write, store: Store) -> Precondition | None:
        """Return, or raise the reason.  For a delete, the store checks the returned value against concurrent writes."""
