"""/openapi/v2 and /openapi/v3: the schemas of all kinds, made at the first request and kept encoded.

kubectl 1.20 reads v2 as protobuf; today's `kubectl explain` and validation read v3, one document for each group and
version. The v3 index names each document with the hash of its contents, so that a client can cache it for ever: an
answer to the current hash is immutable, a request with an old hash is redirected to the current one.
"""

import hashlib
from functools import cached_property
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from netloom.errors import NotFound
from netloom.front.api.http.exchange import JSON, Exchange, Headers
from netloom.front.api.http.negotiation import clauses
from netloom.front.api.schemas import openapi, openapi_proto
from netloom.model.kind import Registry

V2 = "/openapi/v2"
V3 = "/openapi/v3"
PROTO_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Old clients ask for `v2@v1.0`, which is not a valid media type; the answer to them needs a valid one."""
_VARY = (b"vary", b"Accept-Encoding, Accept")


class Blob(Struct, frozen=True):
    """An encoded document with its hash."""

    body: bytes
    hash: str

    @classmethod
    def of(cls, body: bytes) -> "Blob":
        """Return bytes with their hash."""
        return cls(body, hashlib.sha512(body).hexdigest().upper()[:64])


class Schemas:
    """The OpenAPI endpoints."""

    def __init__(self, kinds: Registry) -> None:
        self._kinds = kinds

    def serves(self, path: str) -> bool:
        """Whether a path is that of an OpenAPI document."""
        return path == V2 or path.startswith(V3)

    async def reply(self, exchange: Exchange, path: str) -> None:
        """Answer with a document."""
        if path == V2:
            proto = any("proto-openapi.spec.v2" in clause.media for clause in clauses(exchange.header(b"accept"))[:1])
            blob, media = (self._v2_proto, PROTO_V2.encode()) if proto else (self._v2, JSON)
            await _reply(exchange, blob, media)
        elif path == V3:
            await _reply(exchange, self._index, JSON)
        elif (root := path.removeprefix(V3 + "/")) in self._v3:
            await self._reply_v3(exchange, root)
        else:
            raise NotFound("the server could not find the requested resource")

    async def _reply_v3(self, exchange: Exchange, root: str) -> None:
        blob = self._v3[root]
        asked = parse_qs(exchange.query).get("hash", [""])[0]
        if not asked:
            await _reply(exchange, blob, JSON)
        elif asked == blob.hash:
            await _reply(exchange, blob, JSON, [(b"cache-control", b"public, immutable, max-age=31536000")])
        else:
            await exchange.reply(301, b"", JSON, [(b"location", _url(root, blob).encode())])

    @cached_property
    def _v2(self) -> Blob:
        return Blob.of(msgspec.json.encode(openapi.v2(self._kinds)))

    @cached_property
    def _v2_proto(self) -> Blob:
        return Blob.of(openapi_proto.encode(openapi.v2(self._kinds)))

    @cached_property
    def _v3(self) -> dict[str, Blob]:
        documents = openapi.v3(self._kinds)
        return {root: Blob.of(msgspec.json.encode(document)) for root, document in documents.items()}

    @cached_property
    def _index(self) -> Blob:
        paths = {root: {"serverRelativeURL": _url(root, blob)} for root, blob in self._v3.items()}
        return Blob.of(msgspec.json.encode({"paths": paths}))


def _url(root: str, blob: Blob) -> str:
    return f"{V3}/{root}?hash={blob.hash}"


async def _reply(exchange: Exchange, blob: Blob, media: bytes, headers: Headers | None = None) -> None:
    etag = f'"{blob.hash}"'.encode()
    extra: Headers = [(b"etag", etag), _VARY, *(headers or [])]
    if exchange.header(b"if-none-match").encode() == etag:
        await exchange.reply(304, b"", media, extra)
        return
    await exchange.reply(200, blob.body, media, extra)
