"""A whole server for a test: the application over a store, on a loopback port, with TLS, in a thread of its own.

    with serving(folder) as server:
        server.post("/apis/…", {...}).code

Requests go through http.client and real TLS, so what is tested is what a client meets.
"""

import asyncio
import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from netloom.front.api.app import Api
from netloom.front.api.auth.identity import AnyOf, Authorizer
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.auth.tokens import ClientCertificates, TokenFile, line
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.server import Server, bind, tls_context
from netloom.run.access import certificates
from netloom.store.base import Store
from netloom.store.memory import MemoryStore

T = TypeVar("T")

GROUP = "/apis/netloom.dev/v1alpha1"
TOKENS = {
    "admin": ["netloom:admin"],
    "editor": ["netloom:editor"],
    "editor-a": ["netloom:editor:a"],
    "viewer": ["netloom:viewer"],
    "viewer-a": ["netloom:viewer:a"],
    "n1": ["netloom:node:n1"],
    "n2": ["netloom:node:n2"],
    "nf1": ["netloom:node:nf1"],
    "nobody": [],
}
"""Every test server knows these people; the token of each is `NAME-token`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    code: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Serving:
    """A running server."""

    port: int
    folder: Path
    store: Store
    api: Api
    server: Server
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the server runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def tls(self, *, certificate: str = "") -> ssl.SSLContext:
        """Return a client's TLS, with one of the certificates of `folder`."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if certificate:
            context.load_cert_chain(self.folder / f"{certificate}.crt", self.folder / f"{certificate}.key")
        return context

    def connect(self, *, certificate: str = "", timeout: float = 120) -> http.client.HTTPSConnection:
        """Return a new connection, the caller's to close."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self.tls(certificate=certificate), timeout=timeout
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str = "admin",
        media: str = "application/json",
        certificate: str = "",
        **headers: str,
    ) -> Answer:
        """Send one request on a connection of its own."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            sent["Authorization"] = f"Bearer {who}-token"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = media
        with contextlib.closing(self.connect(certificate=certificate)) as connection:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, **rest: Any) -> Answer:
        return self.request("GET", path, **rest)

    def post(self, path: str, body: Any, **rest: Any) -> Answer:
        return self.request("POST", path, body, **rest)

    def put(self, path: str, body: Any, **rest: Any) -> Answer:
        return self.request("PUT", path, body, **rest)

    def patch(self, path: str, body: Any, media: str = "application/merge-patch+json", **rest: Any) -> Answer:
        return self.request("PATCH", path, body, media=media, **rest)

    def delete(self, path: str, body: Any = None, **rest: Any) -> Answer:
        return self.request("DELETE", path, body, **rest)

    @contextlib.contextmanager
    def watching(self, path: str, who: str = "admin", **headers: str) -> Iterator["Events"]:
        """Watch; `path` has the query."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {who}-token", **headers})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Events(response)


@dataclass(slots=True)
class Events:
    """The events of a watch, as they come."""

    response: http.client.HTTPResponse

    def next(self) -> Any:
        """Return the next event; None when the stream ended."""
        text = self.response.readline()
        return json.loads(text) if text else None

    def take(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next events."""
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    def rest(self) -> list[Any]:
        """Return all that come until the stream ends."""
        return list(iter(self.next, None))


def make_credentials(folder: Path) -> None:
    """Fill a folder with a CA, the server's certificate, clients' certificates and a tokens file."""
    now = datetime.now(UTC)
    ca = certificates.Pair(certificates.make_ca(key := certificates.new_key(), name="test", now=now), key)
    key = certificates.new_key()
    _write(folder, "server", certificates.make_server(ca, key, hosts=["127.0.0.1", "localhost"], now=now), key)
    for name, roles in {"cert-admin": ["netloom:admin"], "cert-n1": ["netloom:node:n1"], "plain": ["people"]}.items():
        key = certificates.new_key()
        _write(folder, name, certificates.make_client(ca, key, name=name, groups=roles, now=now), key)
    (folder / "ca.crt").write_bytes(ca.certificate)
    (folder / "tokens").write_text("".join(line(f"{name}-token", name, roles) for name, roles in TOKENS.items()))


def _write(folder: Path, name: str, certificate: bytes, key: bytes) -> None:
    (folder / f"{name}.crt").write_bytes(certificate)
    (folder / f"{name}.key").write_bytes(key)


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    limits: Limits | None = None,
    store: Store | None = None,
    authorizer: Callable[[Store], Authorizer] = RoleAuthorizer,
    running: bool = False,
    **options: Any,
) -> Iterator[Serving]:
    """Serve until the block ends; `folder` was filled by `make_credentials`.

    With `running`, what a server does besides answering is done as well.
    """
    started: threading.Event = threading.Event()
    found: list[Serving] = []
    failed: list[BaseException] = []

    async def main() -> None:
        used = store or MemoryStore()
        decides = authorizer(used)
        if running and isinstance(decides, RoleAuthorizer):
            options.setdefault("beside", decides.run)
        api = Api(
            used,
            authenticator=AnyOf(ClientCertificates(folder / "revoked"), TokenFile(folder / "tokens")),
            authorizer=decides,
            limits=limits,
            **options,
        )
        tls = tls_context(folder / "server.crt", folder / "server.key", folder / "ca.crt")
        server = Server(api, bind("127.0.0.1", 0), tls, limits=limits, turns=api.turns)
        found.append(Serving(server.port, folder, used, api, server, asyncio.get_running_loop()))
        task = asyncio.ensure_future(server.serve())
        beside = [asyncio.ensure_future(api.run())] if running else []
        stop.append(task.cancel)
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for other in beside:
            other.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await used.close()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - told to the test.
            failed.append(error)
        finally:
            started.set()

    stop: list[Any] = []
    thread = threading.Thread(target=run, name="server")
    thread.start()
    assert started.wait(120)
    try:
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        if found and not failed:
            found[0].loop.call_soon_threadsafe(stop[0])
        thread.join(30)
    if failed:
        raise failed[0]


def network(name: str = "blue", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return document("Network", name, namespace, spec)


def attachment(
    name: str, node: str = "n1", network: str = "blue", namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    return document("NetworkAttachment", name, namespace, {"node": node, "network": network, **spec})


def document(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def path(plural: str, namespace: str = "default", name: str = "", subresource: str = "") -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{GROUP}{scope}/" + "/".join(part for part in (plural, name, subresource) if part)


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
