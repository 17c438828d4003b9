"""One request and its answer: the thin layer between ASGI's messages and the verbs.

It bounds what is read, knows whether an answer has begun (after which an error can only close the connection), and
sends small answers in one piece. `ClientGone` means that the client disconnected, which is not an error.
"""

import hashlib
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from netloom.errors import BadRequest, TooLarge
from netloom.front.api.auth.identity import Certificate, Credentials
from netloom.front.api.http.fair_queue import Callers, Turn, Turns
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.negotiation import OF_MESSAGES, OF_METADATA, Media, negotiate, negotiate_status
from netloom.front.api.http.paths import Request
from netloom.front.api.output import protobuf_kinds
from netloom.front.api.output.forms import View
from netloom.model.document import Document

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
BATCH = b"netloom-batch"
"""The header with the number of requests that a batch may have: see batches.py."""
WATCHES = b"netloom-watches"
"""The header with the number of watches that may share a connection: see streams.py."""
FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-uri", b"x-remote-user"})
"""Headers that identify proxies, kube-apiserver among them."""
CONNECTION = "netloom.connection"
"""The key of the `Connection` in the scope's extensions."""
_LARGE_BODY = 16 * 1024
_WARNING_LIMIT = 256
_WARNINGS_LIMIT = 4096


class ClientGone(Exception):
    """The client disconnected."""


class Tagged(Struct, frozen=True):
    """A document that is encoded once, with the hash of its contents: clients cache it by that."""

    body: bytes
    hash: str

    @classmethod
    def of(cls, body: bytes) -> "Tagged":
        """Return bytes with their hash."""
        return cls(body, hashlib.sha512(body).hexdigest().upper()[:64])


class Connection(Protocol):
    """The connection of a request, as the application sees it."""

    certificate: Certificate | None
    """The client's verified certificate, None if it presented none."""
    on_lost: Callable[[], None] | None
    """Called once when the connection ends; set by code that waits for something other than the client."""
    deadline: float
    """When the rest of the request must have arrived; change it for longer requests."""

    def push(self, chunk: bytes) -> bool:
        """Send a part of the current answer if that needs no waiting; False: nothing was sent."""

    def abort(self) -> None:
        """Close the connection at once, without sending the rest."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_receive",
        "_send",
        "_warnings",
        "code",
        "connection",
        "credentials",
        "headers",
        "limits",
        "method",
        "path",
        "query",
        "request",
        "turn",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limits: Limits, *, turns: Turns, callers: Callers
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("latin-1")
        """Still percent-encoded, as `query` is."""
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: Headers = scope["headers"]
        extensions = scope.get("extensions") or {}
        self.connection: Connection | None = extensions.get(CONNECTION)
        certificate = self.connection.certificate if self.connection is not None else None
        client = scope.get("client")
        self.credentials = Credentials(self.headers, certificate, client[0] if client else "")
        self.limits = limits
        self.code = 0
        """The status sent; 0 before the answer begins."""
        self.request: Request | None = None
        """The parsed request for a resource; None before it is parsed, and for other paths."""
        self.turn = Turn(turns, turns.flow(callers.key(self.credentials)))
        self._receive = receive
        self._send = send
        self._warnings: list[str] = []

    def header(self, name: bytes) -> str:
        """Return the first header of that (lower-case) name, or ""."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    def view(self, request: Request) -> View:
        """Return the form in which the client accepts the requested objects."""
        has_message = protobuf_kinds.message_of(request.kind) is not None
        output = negotiate(self.header(b"accept"), OF_MESSAGES if has_message else OF_METADATA)
        if request.served is not None:
            output = replace(output, served=request.served)
        return View(request.kind, output, request.options.include)

    async def body(self, limit: int = 0) -> bytes:
        """Return the whole body of at most `limit` bytes; 0: the server's limit."""
        limit = limit or self.limits.body
        length = self.header(b"content-length")
        if self.header(b"content-encoding") not in ("", "identity"):
            raise BadRequest("compressed bodies are not supported: send the body without Content-Encoding")
        if length.isdigit() and int(length) > limit:
            raise TooLarge(f"Request entity too large: limit is {limit}")
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"Request entity too large: limit is {limit}")
            self.turn.hold(len(chunk))
            chunks.append(chunk)
            more = message.get("more_body", False)
        if size > _LARGE_BODY:
            await self.turn.take()  # Reading takes time, and this request had its turn before that.
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def more(self) -> bytes:
        """Return the next part of a body that is read as it arrives; b"" at its end."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        return chunk if chunk or not message.get("more_body", False) else await self.more()

    def warn(self, texts: Iterable[str]) -> None:
        """Add warnings for the user to the answer."""
        self._warnings.extend(texts)

    async def reply(
        self, code: int, body: bytes, media: bytes = JSON, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Send the whole answer."""
        extra = list(headers)
        if len(body) > self.limits.gzip_over and self.accepts_gzip():
            body = zlib.compress(body, 1, wbits=31)
            extra += COMPRESSED
        if code != 304:
            extra.append((b"content-length", b"%d" % len(body)))
        await self.start(code, media, extra)
        await self.finish(body)

    async def reply_tagged(self, tagged: Tagged, media: bytes, headers: Headers) -> None:
        """Send a document, or 304 if the client has it already."""
        etag = f'"{tagged.hash}"'.encode()
        headers = [(b"etag", etag), *headers]
        if self.header(b"if-none-match").encode() == etag:
            await self.reply(304, b"", media, headers)
        else:
            await self.reply(200, tagged.body, media, headers)

    async def reply_status(self, code: int, status: Document, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send a `Status`, or the answer to a review, in JSON or Protobuf."""
        if negotiate_status(self.header(b"accept")) is Media.PROTOBUF:
            await self.reply(code, protobuf_kinds.encode(status), Media.PROTOBUF.encode(), headers)
        else:
            await self.reply(code, msgspec.json.encode(status), JSON, headers)

    async def start(self, code: int, media: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Begin the answer."""
        self.code = code
        extra: Headers = [(b"content-type", media), *headers]
        if all(name != b"cache-control" for name, _ in extra):
            extra.append((b"cache-control", b"no-cache, private"))
        extra.append((BATCH, b"%d" % self.limits.batch))
        if not any(name in FORWARDED for name, _ in self.headers):
            extra.append((WATCHES, b"%d" % self.limits.watches_per_stream))
        if self._warnings:
            extra += _warnings(self._warnings)
        await self._send({"type": "http.response.start", "status": code, "headers": extra})

    async def write(self, chunk: bytes) -> None:
        """Send a part of the answer; wait while the client does not read."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    def push(self, chunk: bytes) -> bool:
        """Write without waiting; False: that is not possible, and nothing was sent."""
        return self.connection is not None and self.connection.push(chunk)

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the rest of the answer."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    def accepts_gzip(self) -> bool:
        """Whether the client accepts compressed answers."""
        return "gzip" in self.header(b"accept-encoding")


def _warnings(texts: Iterable[str]) -> Headers:
    """Return warnings as headers (`Warning: 299 - "text"`, RFC 7234), truncated where they would grow too long."""
    found: Headers = []
    size = 0
    for text in dict.fromkeys(texts):
        plain = "".join(c if c.isprintable() else " " for c in text[:_WARNING_LIMIT])
        quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
        value = f'299 - "{quoted}"'.encode()
        size += len(value)
        if size > _WARNINGS_LIMIT:
            break
        found.append((b"warning", value))
    return found


COMPRESSED = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
"""The headers of a compressed answer."""
