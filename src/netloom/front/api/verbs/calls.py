"""A request for one object and its result, independent of transport.

A single request (app.py) and one in a batch (batches.py) are the same `Call` to the rest of the API: the same code
(operations.py) authorizes, decodes, validates, admits and stores both.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from netloom.errors import UnsupportedMediaType
from netloom.front.api.auth.identity import Identity
from netloom.front.api.http.paths import Request, program_name
from netloom.front.api.output import protobuf_kinds
from netloom.model import codec
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
    """The Content-Type of the body."""
    agent: str = ""
    """The client's User-Agent."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the user, in addition to the answer or error."""

    def document(self) -> Document:
        """Return the object in the body: JSON, YAML, or Protobuf where the kind has a message."""
        kind, served = self.request.kind, self.request.served
        version = kind.api_version if served is None else served.api_version
        if not is_protobuf(self.media):
            document = codec.decode(self.body, self.media)
        elif protobuf_kinds.message_of(kind, version) is None:
            raise UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: "
                f"application/json, application/yaml: {kind.qualified} have no Protobuf"
            )
        else:
            document = protobuf_kinds.decode(self.body, version, kind.name)
        return document if served is None else served.stored(document)

    def manager(self) -> str:
        """Return the field manager of a write: as given, or the program's name from its User-Agent."""
        return self.request.options.manager or program_name(self.agent)


def is_protobuf(media: str) -> bool:
    """Whether a Content-Type is Protobuf."""
    return media.partition(";")[0].strip().lower() == protobuf_kinds.MEDIA


class CallResult(Struct, frozen=True):
    """The result of a call: the object, or a `Status` in its place."""

    code: int
    stored: Stored | None = None
    status: Document | None = None
