"""HTTP to one API server, blocking, on the standard library.

A command sends a handful of requests and ends: no pool, no event loop, one kept-alive connection. Failures are raised
as the error classes that the server's Status names, so a command reacts to `NotFound` and not to 404.
"""

import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from netloom import __version__
from netloom.errors import BY_REASON, Cause, Internal, NetloomError, Unreachable
from netloom.model.document import Document

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
QUIET_SECONDS = 180.0
"""A watch that is silent this long, without even a bookmark, has lost its connection unnoticed."""
RETRIES = 5
LONGEST_PAUSE = 10.0
JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
APPLY = "application/apply-patch+yaml"
MAX_LINE = 64 * 1024 * 1024
"""The longest watch event that is read: far above what any server stores."""


class Login(Protocol):
    """Credentials that an exec plugin provides (store/kube/execplugin.py)."""

    generation: int

    def refused(self, generation: int) -> bool:
        """Record that the server refused a credential; return whether another one may be available."""


class Client:
    """A client of one API server, with one set of credentials."""

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext,
        headers: Callable[[], Mapping[str, str]],
        *,
        server_name: str = "",
        login: Login | None = None,
        on_warning: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Prepare requests to `server` (https://host:port[/prefix]); nothing is sent yet.

        `headers` authenticate each request. `on_warning` receives the text of each Warning header.
        """
        url = urlsplit(server)
        self.server = server.rstrip("/")
        self._host, self._port = url.hostname or "localhost", url.port or (80 if url.scheme == "http" else 443)
        self._plain = url.scheme == "http"
        self._prefix = url.path.rstrip("/")
        self._context = context
        self._server_name = server_name or self._host
        self._headers = headers
        self._login = login
        self._on_warning = on_warning
        self._generation = 0
        """The generation of the credential that was sent last."""
        self._kept: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON) -> Document:
        """Return the document at `path`."""
        return self.call("GET", path, query, accept=accept)

    def text(self, path: str) -> str:
        """Return the body at `path` where it is not JSON, as for /readyz."""
        response = self._send("GET", path, accept="*/*")
        with self._reading():
            raw = response.read()
        if response.status >= 400:
            self._document(response, raw)
        return raw.decode(errors="replace")

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Document:
        """Send one request and return the answer; raise the error that the server names if it refuses."""
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(RETRIES):
            response = self._send(method, path, query, data=data, content_type=content_type, accept=accept)
            with self._reading():
                raw = response.read()
            if response.status != http.HTTPStatus.TOO_MANY_REQUESTS or attempt == RETRIES - 1:
                break
            time.sleep(_pause(response.headers.get("Retry-After", "")))
        self._warn(response)
        return self._document(response, raw)

    def stream(self, path: str, query: Mapping[str, str], *, accept: str = JSON) -> Generator[Document, None, None]:
        """Yield the events of a watch until the server ends it or the connection breaks."""
        response = self._send("GET", path, query, accept=accept)
        connection, self._kept = self._kept, None
        try:
            if response.status >= 400:
                self._document(response, response.read())
            assert connection is not None
            if connection.sock is not None:
                connection.sock.settimeout(QUIET_SECONDS)
            yield from _events(response)
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close the kept-alive connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        data: bytes | None = None,
        content_type: str = JSON,
        accept: str,
    ) -> http.client.HTTPResponse:
        target = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        more = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        response = self._sent(method, target, data, more)
        unknown = response.status == http.HTTPStatus.UNAUTHORIZED
        if unknown and self._login is not None and self._login.refused(self._generation):
            self.close()  # The client certificate may have changed.
            response = self._sent(method, target, data, more)
        return response

    def _sent(self, method: str, target: str, data: bytes | None, more: Mapping[str, str]) -> http.client.HTTPResponse:
        headers = {"User-Agent": f"netloom/{__version__}", **self._headers(), **more}
        if self._login is not None:
            self._generation = self._login.generation
        kept = self._kept is not None
        with self._reading():
            try:
                return self._once(method, target, data, headers)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server closed a kept-alive connection in the meantime and answered nothing: use a new one.
                self.close()
                if not kept or method == "POST":
                    raise
            return self._once(method, target, data, headers)

    def _once(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        if self._kept is None:
            self._kept = self._connect()
        self._kept.request(method, target, data, dict(headers))
        return self._kept.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._plain:
            # Not HTTPSConnection: that always verifies the host of the URL, and a kubeconfig may name another one.
            connection.sock = self._context.wrap_socket(connection.sock, server_hostname=self._server_name)
        connection.sock.settimeout(READ_SECONDS)
        return connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Unreachable(f"the certificate of {self.server} is not trusted: {error.verify_message}") from None
        except TimeoutError:
            self.close()
            raise Unreachable(f"{self.server} did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"cannot reach {self.server}: {_why(error)}") from None

    def _document(self, response: http.client.HTTPResponse, raw: bytes) -> Document:
        try:
            document = json.loads(raw) if raw.strip() else {}
        except ValueError:
            document = None
        if response.status >= 400:
            raise from_status(document if isinstance(document, dict) else {}, response.status, raw)
        if not isinstance(document, dict):
            raise Internal(f"{self.server} is not a Kubernetes API server: its answer is not a JSON object")
        return document

    def _warn(self, response: http.client.HTTPResponse) -> None:
        for value in response.headers.get_all("Warning") or ():
            if found := re.match(r'299 \S+ "((?:[^"\\]|\\.)*)"', value):
                self._on_warning(re.sub(r"\\(.)", r"\1", found[1]))


def from_status(status: Document, code: int, raw: bytes = b"") -> NetloomError:
    """Return the error that a Status names, or the one for its HTTP status code."""
    code = int(status.get("code") or code)
    by_code: dict[int, type[NetloomError]] = {}
    for cls in BY_REASON.values():
        by_code.setdefault(cls.http_status, cls)
    cls = BY_REASON.get(str(status.get("reason", "")), by_code.get(code, Internal))
    details = status.get("details") or {}
    causes = [
        Cause(str(c.get("field", "")), str(c.get("message", "")), str(c.get("reason", "")))
        for c in details.get("causes") or ()
    ]
    message = str(status.get("message") or "") or raw[:200].decode(errors="replace").strip() or f"HTTP {code}"
    if cls.reason == "Unauthorized":
        message += ": the server does not know this credential"
    return cls(message, causes=causes)


def _events(response: http.client.HTTPResponse) -> Iterator[Document]:
    buffer = bytearray()
    while True:
        try:
            data = response.read1(65536)
        except (OSError, http.client.HTTPException, ValueError):
            return
        if not data:
            return
        buffer += data
        if len(buffer) > MAX_LINE:
            raise Internal("the server sent an event that is too large")
        *lines, rest = bytes(buffer).split(b"\n")
        buffer = bytearray(rest)
        yield from (_event(line) for line in lines if line.strip())


def _event(line: bytes) -> Document:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise Internal("the server sent something that is not a watch event")
    return event


def _pause(asked: str) -> float:
    """Return how long to wait before the next attempt: what Retry-After asks for, up to `LONGEST_PAUSE`."""
    return min(int(asked), LONGEST_PAUSE) if asked.isascii() and asked.isdecimal() else 1.0


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
