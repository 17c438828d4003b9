"""The place for rules that need more than the object itself: who writes, what else is stored.

What one object must look like is model/validation's business and is not repeated here. An admission object is asked
before every create, update and delete, with the store at hand, and refuses by raising: `Forbidden` where somebody may
not, `Conflict` where something is in use. It must not write. It is asked again when a write is tried again.
"""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from netloom.front.api.auth.identity import Identity
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.store.base import Precondition, Propagation, Store, Stored


class Operation(StrEnum):
    """What a write does."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Write(Struct, frozen=True, kw_only=True):
    """One write that is about to happen."""

    operation: Operation
    kind: Kind
    namespace: str
    name: str
    """"" where the name is generated."""
    who: Identity
    subresource: str = ""
    old: Stored | None = None
    """What is stored now; None for a create."""
    new: Document | None = None
    """What would be stored, valid and with its defaults; None for a delete."""
    propagation: Propagation = Propagation.BACKGROUND
    """Of a delete: what becomes of what the object owns."""
    dry_run: bool = False


class Admission(Protocol):
    """One rule."""

    async def review(self, write: Write, store: Store) -> Precondition | None:
        """Return, or raise why not.  What is returned for a delete, the store holds against what came meanwhile."""
