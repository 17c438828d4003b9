"""Documents as controllers write them: to a store, past the API that would complete and check them."""

from netloom.model.document import Document, Resource
from netloom.model.registry import KINDS
from netloom.model.schemas.validation import admit


def document_of(value: Resource) -> Document:
    """Return a planned object as a valid document, with defaults, and without a status."""
    kind = KINDS.of(value)
    document = kind.document(value)
    document.pop("status", None)
    admit(kind, document)
    return document
