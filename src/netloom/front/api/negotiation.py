"""What a client wants to be answered in: read from its Accept header, once per distinct header."""

from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from netloom.errors import NotAcceptable


class Media(StrEnum):
    """How an answer is written."""

    JSON = "application/json"
    YAML = "application/yaml"


class Form(StrEnum):
    """What an object is turned into before it is written."""

    AS_IS = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class Output(Struct, frozen=True):
    """One acceptable answer; `version` is meta.k8s.io's, for the forms that are kinds of their own."""

    media: Media = Media.JSON
    form: Form = Form.AS_IS
    version: str = "v1"


class Clause(Struct, frozen=True):
    """One part of an Accept header."""

    media: str
    parameters: tuple[tuple[str, str], ...] = ()
    quality: float = 1.0

    def get(self, name: str) -> str:
        """Return a parameter, or ""."""
        return next((value for key, value in self.parameters if key == name), "")


META_VERSIONS = ("v1", "v1beta1")
_MEDIA = {
    "application/json": Media.JSON,
    "application/yaml": Media.YAML,
    "*/*": Media.JSON,
    "application/*": Media.JSON,
    "text/plain": Media.JSON,
}
_CLAUSE_LIMIT = 64


@lru_cache(maxsize=256)
def clauses(accept: str) -> tuple[Clause, ...]:
    """Return the parts of an Accept header, the most wanted first."""
    found = []
    for text in accept.split(",")[:_CLAUSE_LIMIT]:
        media, *rest = (part.strip() for part in text.split(";"))
        if not media:
            continue
        pairs = tuple((key.strip(), value.strip()) for key, _, value in (part.partition("=") for part in rest))
        parsed = Clause(media.lower(), pairs)
        try:
            quality = float(parsed.get("q") or 1)
        except ValueError:
            quality = 1.0
        if quality > 0:
            found.append(Clause(media.lower(), pairs, quality))
    return tuple(sorted(found, key=lambda clause: -clause.quality))


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Output:
    """Return the first answer asked for that we can give."""
    wanted = clauses(accept)
    if not wanted:
        return Output()
    for clause in wanted:
        media = _MEDIA.get(clause.media)
        form, version = clause.get("as"), clause.get("v") or "v1"
        if media is None:
            continue
        if not form:
            return Output(media)
        if form in Form._value2member_map_ and clause.get("g") == "meta.k8s.io" and version in META_VERSIONS:
            return Output(media, Form(form), version)
    raise NotAcceptable("only the following media types are accepted: application/json, application/yaml")
