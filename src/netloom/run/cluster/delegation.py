"""A client of the Kubernetes cluster that this API server is part of.

   ConfigMap kube-system/extension-apiserver-authentication ── read, watched ──► Trust ──► accepted certificates
   TokenReview, SubjectAccessReview, namespaces             ── requested when needed

`follow` runs beside the server. The server is not ready before it has read the ConfigMap for the first time: it could
authenticate no client. When the cluster replaces a CA, the old one is no longer trusted as soon as the new ConfigMap is
read. That includes open connections, because each request's certificate is verified against the current CAs
(front/api/auth/delegated.py).
"""

import asyncio
import json
import logging
import ssl
from contextlib import closing
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import msgspec

from netloom.errors import NetloomError, NotFound, Unreachable
from netloom.front.api.auth import delegated
from netloom.front.api.auth.delegated import Trust
from netloom.front.api.auth.identity import AnyOf, Authenticator
from netloom.model.document import Document
from netloom.run import config, files
from netloom.run.access import certificates
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import failure

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
    """Return the user name of a service account, which is given as NAMESPACE/NAME."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name or ":" in text:
        raise config.invalid("agentAccount", f"{text!r} is not a service account as NAMESPACE/NAME")
    return f"system:serviceaccount:{namespace}:{name}"


class Delegation:
    """Authentication and authorization by the cluster."""

    def __init__(
        self,
        cluster: kubeconfig.Cluster,
        *,
        proxy_ca: Path | None = None,
        proxy_names: tuple[str, ...] = (),
        client_ca: Path | None = None,
    ) -> None:
        """Ask `cluster`.  With `proxy_ca`, files name the trusted CAs instead of the cluster's ConfigMap."""
        self.server = cluster.server
        self.trust = Trust()
        self.known = asyncio.Event()
        """Set once the trusted CAs are known."""
        self._proxy_ca = proxy_ca
        self._proxy_names = proxy_names
        self._client_ca = client_ca
        self._contexts: list[ssl.SSLContext] = []
        self._client = cluster.client(timeout=ASK_SECONDS, max_body=MOST_BYTES)

    def authenticator(self, agent: str) -> Authenticator:
        """Return an authenticator that asks the cluster; `agent` is the user that the nodes' agents share."""
        identities = delegated.ClusterIdentities((agent,))
        return AnyOf(
            delegated.RequestHeaders(identities, certificates.issued, lambda: self.trust),
            delegated.Certificates(identities, certificates.issued, lambda: self.trust),
            delegated.TokenReviews(identities, self.ask),
        )

    def verify(self, context: ssl.SSLContext) -> None:
        """Make a TLS context request client certificates and verify them with the cluster's CAs, now and later."""
        context.verify_mode = ssl.CERT_OPTIONAL
        # The cluster may name the intermediate CA that signs, and not the root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        self._contexts.append(context)
        self._load()

    async def ask(self, path: str, review: Document) -> Document:
        """Post a review and return the answer."""
        return await self._request("POST", path, msgspec.json.encode(review))

    async def namespace(self, name: str) -> Document:
        """Return a namespace."""
        return await self._request("GET", f"/api/v1/namespaces/{quote(name, safe='')}")

    async def ready(self) -> None:
        """Raise `Unreachable` until the trusted CAs are known."""
        if not self.known.is_set():
            raise Unreachable(f"the authentication configuration of the cluster at {self.server} is not read yet")

    async def follow(self) -> NoReturn:
        """Read the trusted CAs, and read them again whenever they change."""
        while True:
            try:
                if self._proxy_ca is not None:
                    clients = files.read(self._client_ca) if self._client_ca is not None else b""
                    proxies = files.read(self._proxy_ca)
                    self._use(Trust(proxy_ca=proxies, proxy_names=self._proxy_names, client_ca=clients))
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    revision = await self._read()
                    await self._until_changed(revision)
            except NetloomError as error:
                log.warning("cannot read the cluster's authentication configuration: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _read(self) -> str:
        """Read the ConfigMap, and return the revision of the list that holds nothing else.

        The revision of the ConfigMap itself may be years old: too old to watch from.
        """
        found = await self._request("GET", f"{CONFIG_MAPS}?{SELECTED}")
        items = found.get("items") or []
        if not items:
            raise NotFound(f"no ConfigMap kube-system/{CONFIG_MAP} in the cluster")
        self._use(delegated.trust(items[0].get("data") or {}))
        return str((found.get("metadata") or {}).get("resourceVersion", ""))

    def _use(self, trust: Trust) -> None:
        if not trust.proxy_ca:
            log.warning(
                "the cluster names no request-header CA: requests through kube-apiserver are not authenticated until "
                "kube-apiserver is started with --requestheader-client-ca-file"
            )
        if trust != self.trust:
            self.trust = trust
            self._load()
            log.info("read the cluster's authentication configuration", extra={"names": trust.proxy_names})
        self.known.set()

    async def _until_changed(self, revision: str) -> None:
        """Return when the ConfigMap has changed, or after a while."""
        query = f"{SELECTED}&watch=true&resourceVersion={revision}&timeoutSeconds={WATCH_SECONDS}"
        with closing(await self._client.stream("GET", f"{CONFIG_MAPS}?{query}")) as stream:
            if stream.status != 200:
                raise Unreachable(f"the watch of ConfigMap {CONFIG_MAP} returned status {stream.status}")
            await stream.read()

    def _load(self) -> None:
        for context in self._contexts:
            for ca in (self.trust.proxy_ca, self.trust.client_ca):
                if not ca:
                    continue
                try:
                    context.load_verify_locations(cadata=ca.decode("ascii"))
                except (ssl.SSLError, UnicodeDecodeError) as error:
                    log.error("cannot use a CA of the cluster: %s", error)

    async def _request(self, method: str, path: str, body: bytes = b"") -> Document:
        response = await self._client.request(method, path, body=body)
        if response.status >= 300:
            raise failure(response)
        try:
            found: Document = json.loads(response.body)
        except ValueError as error:
            raise Unreachable(f"{self.server} returned invalid JSON: {error}") from None
        return found
