"""/openapi/v2 and /openapi/v3: the schemas of all kinds, made at the first request and kept encoded.

kubectl 1.20 reads v2 as protobuf; today's `kubectl explain` and validation read v3, one document for each group and
version. The v3 index names each document with the hash of its contents, so that a client can cache it for ever: an
answer to the current hash is immutable, a request with an old hash is redirected to the current one.
"""

from functools import cached_property
from urllib.parse import parse_qs

import msgspec

from netloom.errors import NotFound
from netloom.front.api.http.exchange import JSON, Exchange, Headers, Tagged
from netloom.front.api.http.negotiation import clauses
from netloom.front.api.schemas import openapi, openapi_proto
from netloom.model.kind import Registry

V2 = "/openapi/v2"
V3 = "/openapi/v3"
_VARY = (b"vary", b"Accept-Encoding, Accept")


class Schemas:
    """The OpenAPI endpoints."""

    def __init__(self, kinds: Registry) -> None:
        self._kinds = kinds

    def serves(self, path: str) -> bool:
        """Whether a path is that of an OpenAPI document."""
        return path == V2 or path.startswith(V3)

    async def reply(self, exchange: Exchange, path: str) -> None:
        """Answer with a document."""
        headers: Headers = [_VARY]
        media, root = JSON, path.removeprefix(V3 + "/")
        if path == V2:
            proto = any("proto-openapi.spec.v2" in clause.media for clause in clauses(exchange.header(b"accept"))[:1])
            tagged, media = (self._v2_proto, openapi_proto.MEDIA) if proto else (self._v2, JSON)
        elif path == V3:
            tagged = self._index
        elif root in self._v3:
            tagged = self._v3[root]
            asked = parse_qs(exchange.query).get("hash", [""])[0]
            if asked and asked != tagged.hash:
                return await exchange.reply(301, b"", JSON, [(b"location", _url(root, tagged).encode())])
            if asked:
                headers.append((b"cache-control", b"public, immutable, max-age=31536000"))
        else:
            raise NotFound("the server could not find the requested resource")
        await exchange.reply_tagged(tagged, media, headers)

    @cached_property
    def _v2(self) -> Tagged:
        return Tagged.of(msgspec.json.encode(openapi.v2(self._kinds)))

    @cached_property
    def _v2_proto(self) -> Tagged:
        return Tagged.of(openapi_proto.encode(openapi.v2(self._kinds)))

    @cached_property
    def _v3(self) -> dict[str, Tagged]:
        documents = openapi.v3(self._kinds)
        return {root: Tagged.of(msgspec.json.encode(document)) for root, document in documents.items()}

    @cached_property
    def _index(self) -> Tagged:
        paths = {root: {"serverRelativeURL": _url(root, tagged)} for root, tagged in self._v3.items()}
        return Tagged.of(msgspec.json.encode({"paths": paths}))


def _url(root: str, tagged: Tagged) -> str:
    return f"{V3}/{root}?hash={tagged.hash}"
