"""One TLS connection: uvicorn's httptools protocol with the limits that it lacks.

uvicorn parses, pipelines and runs the application. Added here, for the application (`Connection` in exchange.py): the
client's certificate and a callback when the client disconnects. Also added: limits on URL and header bytes; deadlines
for reading a request, for idling and for a client that stops reading, kept as plain numbers that the server checks once
a second, so that a request needs no timer; and one write for a small answer, where uvicorn makes two.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any, cast

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from netloom.front.api.auth.identity import Certificate
from netloom.front.api.http.exchange import CONNECTION, ClientGone
from netloom.front.api.http.limits import Limits

log = logging.getLogger(__name__)


_LINGER_SECONDS = 5.0
_LINGER_BODIES = 4
"""How much a client may continue to send after an error: this many times the largest body."""


class RequestRefused(Exception):
    """A request that is refused before it is read."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Protocol(HttpToolsProtocol):
    """One connection.  `Connection` in exchange.py is the application's view of it."""

    def __init__(self, config: Config, state: ServerState, *, limits: Limits, on_end: Callable[[], None]) -> None:
        super().__init__(config, state, {})
        self.cycle: Cycle
        self.access_log = False
        self.certificate: Certificate | None = None
        self.on_lost: Callable[[], None] | None = None
        self.deadline = inf
        """When the client must have sent the rest of its request, or its next one."""
        self.write_deadline = inf
        """When the client must have read what we sent."""
        self._limits = limits
        self._on_end: Callable[[], None] | None = on_end
        self._extensions = {CONNECTION: self}
        self._in_head = False
        self._head_bytes = 0
        self._refusal: RequestRefused | None = None
        self._lingering = False
        self._discarded = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a connection whose TLS handshake is complete."""
        super().connection_made(cast("asyncio.Transport", transport))
        self.transport.set_write_buffer_limits(self._limits.write_buffer)
        tls = transport.get_extra_info("ssl_object")
        encoded = tls.getpeercert(binary_form=True) if tls is not None else None
        self.certificate = certificate(transport.get_extra_info("peercert"), encoded or b"")
        self.deadline = self.loop.time() + self._limits.idle_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up when the client disconnected, or we closed."""
        super().connection_lost(exc)
        self.deadline = self.write_deadline = inf
        if self._on_end is not None:
            self._on_end()
            self._on_end = None
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        """Stop: end the watches, let other requests finish."""
        super().shutdown()
        if self.on_lost is not None:
            self.on_lost()

    def overdue(self, now: float) -> bool:
        """Whether the client missed a deadline."""
        return now > self.deadline or now > self.write_deadline

    def abort(self) -> None:
        """Close the connection at once, without sending the rest."""
        # Python 3.11.2, Debian 12's, raises here if it has already closed a TLS connection.
        with suppress(AttributeError):
            self.transport.abort()

    def push(self, chunk: bytes) -> bool:
        """Send a part of an answer whose head is sent, without waiting; the fast path for events to many watchers."""
        cycle = self.cycle
        if self.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding or cycle.head:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return True

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        if self._lingering:
            self._discarded += len(data)
            if self._discarded > _LINGER_BODIES * self._limits.body:
                self.abort()
                return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(RequestRefused(HTTPStatus.BAD_REQUEST, "protocol upgrades are not supported"))
        except httptools.HttpParserError:
            self._refuse(self._refusal or RequestRefused(HTTPStatus.BAD_REQUEST, "not an HTTP request"))
        else:
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > self._limits.headers:
                    limit = f"request line and headers are limited to {self._limits.headers} bytes"
                    self._refuse(RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, limit))

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]
        self._in_head = True
        self._head_bytes = 0
        self.deadline = self.loop.time() + self._limits.headers_seconds

    def on_url(self, url: bytes) -> None:
        """Handle a part of the URL."""
        self.url += url
        if len(self.url) > self._limits.url:
            self._refusal = RequestRefused(
                HTTPStatus.REQUEST_URI_TOO_LONG, f"the URL is longer than {self._limits.url} bytes"
            )
            raise self._refusal

    def on_headers_complete(self) -> None:
        """Start the application, or queue a request that arrived before the previous one was answered."""
        self._in_head = False
        self.deadline = self.loop.time() + self._limits.body_seconds
        if self.parser.should_upgrade():
            return
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        version = self.parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        scope["raw_path"], scope["query_string"] = target(self.url)
        scope["path"] = scope["raw_path"].decode("latin-1")
        waiting = self._busy()
        self.cycle = cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=log,
            access_logger=log,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.close = self._close
        if waiting:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
            return
        self._start_asgi_task(cycle, self.app)

    def on_message_complete(self) -> None:
        """Handle the end of the request."""
        self.deadline = inf
        super().on_message_complete()
        if self._lingering:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Handle the end of the answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.deadline == inf:
            self.deadline = self.loop.time() + self._limits.idle_seconds

    def pause_writing(self) -> None:
        """Pause: the client leaves too much unread."""
        super().pause_writing()
        self.write_deadline = self.loop.time() + self._limits.write_seconds

    def resume_writing(self) -> None:
        """Resume: the client reads again."""
        super().resume_writing()
        self.write_deadline = inf

    def _refuse(self, why: RequestRefused) -> None:
        """Answer a request that could not be parsed, unless an answer is in progress, and close."""
        busy = self._busy()
        if not busy or not self.cycle.response_started:
            self.transport.write(refusal(why))
        if busy:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _close(self) -> None:
        """Close the connection after an answer.

        Let a client that is still sending finish, within limits; otherwise it sees a reset before it reads the answer.
        """
        if self.cycle.more_body and not self.transport.is_closing():
            self._lingering = True
            self.deadline = self.loop.time() + _LINGER_SECONDS
            self.flow.resume_reading()
            return
        self.transport.close()

    def _busy(self) -> bool:
        """Whether a request is in progress; uvicorn has no cycle before the first."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete


class Cycle(RequestResponseCycle):
    """One request and its answer, written in as few pieces as possible."""

    head = b""
    close: Callable[[], None]
    """Closes the connection after the answer."""

    async def run_asgi(self, app: Any) -> None:  # noqa: ANN401 - uvicorn's own type is private.
        """Run the application; if it does not answer, close the connection."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("unhandled exception in the API application")
        finally:
            if not self.response_complete and not self.disconnected:
                self.transport.close()
            self.on_response = _nothing

    async def send(self, message: Any) -> None:  # noqa: ANN401 - uvicorn's own type is private.
        """Write a part of the answer; wait while too much of it is unread."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            raise ClientGone
        if message["type"] == "http.response.start":
            self.head = self._begin(message["status"], message["headers"])
            return
        body, more = message["body"], message["more_body"]
        parts = [self.head] if self.head else []
        self.head = b""
        if self.scope["method"] == "HEAD":
            pass
        elif not self.chunked_encoding:
            parts.append(body)
        else:
            if body:
                parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                parts.append(b"0\r\n\r\n")
        if parts:
            self.transport.write(b"".join(parts))
        if not more:
            self._end()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        self.response_started = True
        self.waiting_for_100_continue = False
        self.chunked_encoding = status != 304
        parts = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                self.chunked_encoding = False
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
            parts += (name, b": ", value, b"\r\n")
        if self.chunked_encoding:
            parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def _end(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.close()
        self.on_response()


def certificate(peer: dict[str, Any] | None, encoded: bytes = b"") -> Certificate | None:
    """Return the relevant parts of a peer's certificate, as the ssl module shows it."""
    if not peer:
        return None
    names: dict[str, list[str]] = {}
    for part in peer.get("subject", ()):
        for key, value in part:
            names.setdefault(key, []).append(value)
    expires = ssl.cert_time_to_seconds(peer["notAfter"]) if "notAfter" in peer else inf
    name = (names.get("commonName") or [""])[0]
    return Certificate(name, tuple(names.get("organizationName", ())), encoded, float(expires))


def target(url: bytes) -> tuple[bytes, bytes]:
    """Return path and query of a request target: a path or, from proxies, a whole URL."""
    if url[:1] != b"/":
        parsed = httptools.parse_url(url)
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"?")
    return path, query.partition(b"#")[0]


def refusal(why: RequestRefused) -> bytes:
    """Return the complete answer, as bytes."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why.message}
    body = msgspec.json.encode({**status, "reason": "BadRequest", "code": why.code.value})
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[why.code.value] + head.encode() + body


def _nothing() -> None:
    pass
