"""Content negotiation: the Accept header, parsed once per distinct header.

As kube-apiserver: the first clause that can be served is chosen, in the order of their qualities. Protobuf is served
for kinds with a message, and for the metadata of all kinds; Tables are JSON or YAML.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from netloom.errors import NotAcceptable
from netloom.front.api.schemas.served import Served


class Media(StrEnum):
    """The encoding of an answer."""

    JSON = "application/json"
    YAML = "application/yaml"
    PROTOBUF = "application/vnd.kubernetes.protobuf"


class Form(StrEnum):
    """The form of an object in an answer."""

    AS_IS = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class Output(Struct, frozen=True):
    """One acceptable answer; `version` is that of meta.k8s.io, for forms that are kinds of their own."""

    media: Media = Media.JSON
    form: Form = Form.AS_IS
    version: str = "v1"
    served: Served | None = None
    """The version of the kind, if it is not the stored one."""


class Clause(Struct, frozen=True):
    """One part of an Accept header."""

    media: str
    parameters: tuple[tuple[str, str], ...] = ()
    quality: float = 1.0

    def get(self, name: str) -> str:
        """Return a parameter, or ""."""
        return next((value for key, value in self.parameters if key == name), "")


META_VERSIONS = ("v1", "v1beta1")
JSON_ONLY: frozenset[Form] = frozenset()
"""The forms that can be Protobuf: none."""
OF_METADATA = frozenset((Form.METADATA, Form.METADATA_LIST))
"""The forms that can be Protobuf, for a kind without a message."""
OF_MESSAGES = OF_METADATA | {Form.AS_IS}
"""The forms that can be Protobuf, for a kind with a message."""
_MEDIA = {
    "application/json": Media.JSON,
    "application/yaml": Media.YAML,
    "application/vnd.kubernetes.protobuf": Media.PROTOBUF,
    "*/*": Media.JSON,
    "application/*": Media.JSON,
    "text/plain": Media.JSON,
}
_CLAUSE_LIMIT = 64
_CACHED_LENGTH = 512
"""Clients send one of a few short headers; longer ones are parsed each time."""


def clauses(accept: str) -> tuple[Clause, ...]:
    """Return the parts of an Accept header, by descending quality."""
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


def negotiate(accept: str, protobuf: AbstractSet[Form] = JSON_ONLY) -> Output:
    """Return the first requested answer that is supported; `protobuf` are the forms that can be Protobuf."""
    return _cached(accept, protobuf) if len(accept) <= _CACHED_LENGTH else _negotiated(accept, protobuf)


def _negotiated(accept: str, protobuf: AbstractSet[Form]) -> Output:
    wanted = clauses(accept)
    if not wanted:
        return Output()
    for clause in wanted:
        media = _MEDIA.get(clause.media)
        form, version = clause.get("as"), clause.get("v") or "v1"
        if media is None:
            continue
        if form and (clause.get("g") != "meta.k8s.io" or version not in META_VERSIONS):
            continue
        if form not in Form._value2member_map_ or (media is Media.PROTOBUF and Form(form) not in protobuf):
            continue
        return Output(media, Form(form), version) if form else Output(media)
    media_types = [Media.JSON, Media.YAML, *([Media.PROTOBUF] if Form.AS_IS in protobuf else [])]
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(media_types)}")


def negotiate_status(accept: str) -> Media:
    """Return the encoding of an error: a `Status` is never transformed, and never refused."""
    found = (_MEDIA.get(clause.media) for clause in clauses(accept) if not clause.get("as"))
    return Media.PROTOBUF if next((media for media in found if media), None) is Media.PROTOBUF else Media.JSON


_cached = lru_cache(maxsize=256)(_negotiated)
