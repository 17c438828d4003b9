"""The Kubernetes cluster behind whose API server ours is, as a client of its sees it.

    ConfigMap kube-system/extension-apiserver-authentication ── read, followed ──► Trust ──► whose certificates verify
    TokenReview, SubjectAccessReview, namespaces             ── asked when needed

`follow` runs beside the server. Until it has read the ConfigMap for the first time the server is not ready: it would
know nobody. A CA that the cluster has replaced is believed no more from the moment the new ConfigMap is read, on open
connections too, because each request's certificate is held against the CAs of now (front/api/auth/delegated.py).
"""

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import msgspec

from netloom.errors import Cause, Invalid, NetloomError, NotFound, Unreachable
from netloom.front.api.auth import delegated
from netloom.front.api.auth.delegated import Trust
from netloom.front.api.auth.identity import AnyOf, Authenticator
from netloom.model.document import Document
from netloom.run import certificates
from netloom.store import kubeconfig
from netloom.store.kube import failure

log = logging.getLogger(__name__)

CONFIG_MAP = "extension-apiserver-authentication"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
SELECTED = f"fieldSelector=metadata.name%3D{CONFIG_MAP}"
RETRY_SECONDS = 1.0
LOOK_SECONDS = 30.0
WATCH_SECONDS = 600
ASK_SECONDS = 10.0
MOST_BYTES = 4 << 20


def account(text: str) -> str:
    """Return the user that a service account is, which is given as NAMESPACE/NAME."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name or ":" in text:
        cause = Cause("agentAccount", f"{text!r} is not NAMESPACE/NAME of a service account")
        raise Invalid("the configuration is not right", causes=[cause])
    return f"system:serviceaccount:{namespace}:{name}"


class Delegation:
    """Whom the cluster knows and what it allows."""

    def __init__(
        self,
        cluster: kubeconfig.Cluster,
        *,
        proxy_ca: Path | None = None,
        proxy_names: tuple[str, ...] = (),
        client_ca: Path | None = None,
    ) -> None:
        """Ask `cluster`.  With `proxy_ca`, files say whom to believe, instead of the cluster's ConfigMap."""
        self.server = cluster.server
        self.trust = Trust()
        self.known = asyncio.Event()
        """Set once it is known whom to believe."""
        self._proxy_ca = proxy_ca
        self._proxy_names = proxy_names
        self._client_ca = client_ca
        self._contexts: list[ssl.SSLContext] = []
        self._client = cluster.client(timeout=ASK_SECONDS, max_body=MOST_BYTES)

    def authenticator(self, agent: str) -> Authenticator:
        """Return who knows whoever the cluster knows; `agent` is the user that the nodes' agents share."""
        people = delegated.People((agent,))
        return AnyOf(
            delegated.RequestHeaders(people, certificates.issued, lambda: self.trust),
            delegated.Certificates(people, certificates.issued, lambda: self.trust),
            delegated.TokenReviews(people, self.ask),
        )

    def verify(self, context: ssl.SSLContext) -> None:
        """Have a server's TLS ask for certificates and verify those of whom the cluster believes, now and later."""
        context.verify_mode = ssl.CERT_OPTIONAL
        # The cluster may name the CA in between that signs, and not the one at the root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        self._contexts.append(context)
        self._load()

    async def ask(self, path: str, review: Document) -> Document:
        """Post a review and return it answered."""
        return await self._request("POST", path, msgspec.json.encode(review))

    async def namespace(self, name: str) -> Document:
        """Return a namespace."""
        return await self._request("GET", f"/api/v1/namespaces/{quote(name, safe='')}")

    async def ready(self) -> None:
        """Raise until it is known whom to believe."""
        if not self.known.is_set():
            raise Unreachable(f"the cluster at {self.server} has not yet said whom to believe")

    async def follow(self) -> NoReturn:
        """Read whom to believe, and again whenever that changes."""
        while True:
            try:
                if self._proxy_ca is not None:
                    self._believe(self._from_files(self._proxy_ca))
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    revision = await self._read()
                    await self._until_changed(revision)
            except NetloomError as error:
                log.warning("cannot follow whom to believe: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()

    def _from_files(self, proxy_ca: Path) -> Trust:
        clients = _contents(self._client_ca) if self._client_ca is not None else b""
        return Trust(proxy_ca=_contents(proxy_ca), proxy_names=self._proxy_names, client_ca=clients)

    async def _read(self) -> str:
        """Read the ConfigMap, and return the revision of the list it is the only one in.

        Its own revision may be of years ago, from where nobody can watch any more.
        """
        found = await self._request("GET", f"{CONFIG_MAPS}?{SELECTED}")
        items = found.get("items") or []
        if not items:
            raise NotFound(f"the cluster has no ConfigMap kube-system/{CONFIG_MAP}")
        self._believe(delegated.trust(items[0].get("data") or {}))
        return str((found.get("metadata") or {}).get("resourceVersion", ""))

    def _believe(self, believed: Trust) -> None:
        if not believed.proxy_ca:
            log.warning(
                "the cluster names no request-header CA: nothing that comes by kube-apiserver is believed until it "
                "is started with --requestheader-client-ca-file"
            )
        if believed != self.trust:
            self.trust = believed
            self._load()
            log.info("whom to believe is read", extra={"names": believed.proxy_names})
        self.known.set()

    async def _until_changed(self, revision: str) -> None:
        """Return when the ConfigMap has changed, or after a while."""
        query = f"{SELECTED}&watch=true&resourceVersion={revision}&timeoutSeconds={WATCH_SECONDS}"
        stream = await self._client.stream("GET", f"{CONFIG_MAPS}?{query}")
        async with stream:
            if stream.status != 200:
                raise Unreachable(f"the watch was answered with {stream.status}")
            await stream.read()

    def _load(self) -> None:
        for context in self._contexts:
            for ca in (self.trust.proxy_ca, self.trust.client_ca):
                if not ca:
                    continue
                try:
                    context.load_verify_locations(cadata=ca.decode("ascii"))
                except (ssl.SSLError, UnicodeDecodeError) as error:
                    log.error("a CA of the cluster's cannot be used: %s", error)

    async def _request(self, method: str, path: str, body: bytes = b"") -> Document:
        response = await self._client.request(method, path, body=body)
        if response.status >= 300:
            raise failure(response)
        try:
            found: Document = json.loads(response.body)
        except ValueError as error:
            raise Unreachable(f"{self.server} answers with what is not JSON: {error}") from None
        return found


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from None
