"""What is asked of one object, and what came of it, apart from how it came in and how it is answered.

A request of its own (app.py) and one of many in a batch (batches.py) are the same `Call` to everything behind the door:
both are authorized, read, validated, managed, admitted and stored by the same code (operations.py).
"""

from dataclasses import dataclass, field

from msgspec import Struct

from netloom.front.api.identity import Identity
from netloom.front.api.paths import MANAGER_LIMIT, Request
from netloom.model.document import Document
from netloom.store.base import Stored

JSON = "application/json"


@dataclass(slots=True)
class Call:
    """One request about one object."""

    request: Request
    who: Identity
    body: bytes = b""
    media: str = JSON
    """What the body is written in."""
    agent: str = ""
    """The client's User-Agent."""
    warnings: list[str] = field(default_factory=list)
    """What the person behind the client is told beside the answer, whether it is good or bad."""

    def manager(self) -> str:
        """Return who the fields written will belong to: as said, or the program's name from its User-Agent."""
        if self.request.options.manager:
            return self.request.options.manager
        agent = self.agent.partition("/")[0][:MANAGER_LIMIT]
        return "".join(c for c in agent if c.isprintable()) or "unknown"


class Result(Struct, frozen=True):
    """What came of it: the object, or a `Status` in its place."""

    code: int
    stored: Stored | None = None
    status: Document | None = None
