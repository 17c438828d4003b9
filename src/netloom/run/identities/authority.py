"""`netloom ovn authority`: keeps the CAs of OVN's connections in a Kubernetes cluster, and signs what they sign.

    central    signs the databases' servers and Netloom's controller. The northbound trusts this one only
    nodes      signs one certificate for each node, on its request (`requests`). The southbound trusts both

The CAs are in a Secret that only this process reads, so they are the same wherever it runs. The certificate of the
servers is written into a folder; that of the controller into a Secret; the CAs' certificates into a ConfigMap, for the
nodes. The Secrets and the ConfigMap exist before, without data: so this process needs no right to create any. All are
renewed a month before they expire. What OVN's servers and ovn-controller read, they read again when
the file changes.
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from netloom.errors import Conflict, Invalid, NetloomError, NotFound
from netloom.run.access import certificates, keeping
from netloom.run.access.certificates import Pair
from netloom.run.identities import requests
from netloom.run.identities.api import Api, decoded, encoded
from netloom.run.identities.names import AUTHORITIES, CLIENT, NAMESPACE, PUBLISHED, REQUESTS, SIGNER

log = logging.getLogger(__name__)

WATCH_SECONDS = 3600
"""After this time certificates are looked at again."""
RETRY_SECONDS = 2.0
CENTRAL, NODES = "central", "nodes"
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_OPEN = f"fieldSelector=spec.signerName%3D{SIGNER.replace('/', '%2F')}"


class Authority:
    """The CAs of a cluster's OVN."""

    def __init__(self, api: Api, *, folder: Path, address: str, clock: Callable[[], datetime]) -> None:
        """`folder` is for the servers' files, `address` is where nodes and the controller reach them."""
        self._api = api
        self._folder = folder
        self._address = address
        self._clock = clock

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self.work()
            except NetloomError as error:
                log.warning("%s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def work(self) -> None:
        """Keep the certificates, and sign requests until the server ends the watch."""
        cas = await self._authorities()
        self._write_servers(cas)
        await self._keep_client(cas[CENTRAL])
        await self._publish(cas)
        listed = await self._api.get(f"{REQUESTS}?{_OPEN}")
        for request in listed.get("items") or ():
            await self.answer(request, cas[NODES])
        since = listed["metadata"]["resourceVersion"]
        watch = f"{REQUESTS}?{_OPEN}&watch=true&resourceVersion={since}&timeoutSeconds={WATCH_SECONDS}"
        async for request in self._api.changes(watch):
            await self.answer(request, cas[NODES])

    async def answer(self, request: dict[str, Any], ca: Pair) -> None:
        """Approve and sign a request, or deny it."""
        if not requests.is_open(request):
            return
        name = request["metadata"]["name"]
        try:
            signed, condition = requests.sign(request, ca, now=self._clock()), _condition("Approved", "NodesOwn", "")
        except Invalid as error:
            signed, condition = b"", _condition("Denied", "NotOfThisNode", str(error))
            log.warning("denied: %s", error, extra={"request": name})
        conditions = (request.get("status") or {}).get("conditions") or []
        if conditions and not signed:
            return  # Somebody else has approved it, which changes nothing.
        try:
            if not conditions:
                request.setdefault("status", {})["conditions"] = [condition]
                request = await self._api.replace(f"{REQUESTS}/{name}/approval", request)
            if signed:
                request["status"]["certificate"] = base64.b64encode(signed).decode()
                await self._api.replace(f"{REQUESTS}/{name}/status", request)
                log.info("signed", extra={"request": name, "node": certificates.common_name(signed)})
        except (Conflict, NotFound) as error:
            log.debug("%s", error)  # It has changed, and comes again, or is gone.

    async def _authorities(self) -> dict[str, Pair]:
        secret = await self._api.get(f"{_SECRETS}/{AUTHORITIES}")
        data = decoded(secret)
        if not data:
            for name in (CENTRAL, NODES):
                key = certificates.new_key()
                made = certificates.make_ca(key, name=f"netloom OVN {name}", now=self._clock())
                data |= {f"{name}.key": key, f"{name}.crt": made}
            await self._api.replace(f"{_SECRETS}/{AUTHORITIES}", secret | {"data": encoded(data)})
            log.info("new CAs", extra={"secret": AUTHORITIES})
        try:
            return {name: Pair(data[f"{name}.crt"], data[f"{name}.key"]) for name in (CENTRAL, NODES)}
        except KeyError as error:
            raise Invalid(f"the Secret {AUTHORITIES} has no {error}: remove its data, and new CAs are made") from None

    def _write_servers(self, cas: dict[str, Pair]) -> None:
        now, central = self._clock(), cas[CENTRAL]
        keeping.write(self._folder / "central-ca.crt", central.certificate)
        keeping.write(self._folder / "both-ca.crt", central.certificate + cas[NODES].certificate)
        certificate, key = self._folder / "server.crt", self._folder / "server.key"
        make = keeping.peer(central, "netloom-ovn", {self._address}, now)
        keeping.keep(certificate, key, central, make, hosts={self._address}, now=now)

    async def _keep_client(self, central: Pair) -> None:
        now = self._clock()
        secret = await self._api.get(f"{_SECRETS}/{CLIENT}")
        data = decoded(secret)
        certificate, key = data.get("tls.crt", b""), data.get("tls.key", b"")
        if certificates.is_valid(certificate, key=key, ca=central.certificate, now=now, margin=keeping.MARGIN):
            return
        key = certificates.new_key()
        made = certificates.make_client(central, key, name="netloom", groups=(), now=now)
        data = {"tls.crt": made, "tls.key": key, "ca.crt": central.certificate}
        await self._api.replace(f"{_SECRETS}/{CLIENT}", secret | {"data": encoded(data)})

    async def _publish(self, cas: dict[str, Pair]) -> None:
        found = await self._api.get(f"{_CONFIG_MAPS}/{PUBLISHED}")
        data = {f"{name}.crt": pair.certificate.decode() for name, pair in cas.items()}
        if found.get("data") != data:
            await self._api.replace(f"{_CONFIG_MAPS}/{PUBLISHED}", found | {"data": data})


def _condition(kind: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}
