"""`netloom ovn identity`: the certificate of a node for OVN's southbound, asked for with the credential of its agent.

The key is made on the node and never leaves it. The certificate is asked for when there is none that is valid, and a
month before it expires.
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from netloom.errors import Conflict, NetloomError, TimedOut
from netloom.run import files
from netloom.run.access import certificates, keeping
from netloom.run.identities import requests
from netloom.run.identities.api import Api
from netloom.run.identities.names import REQUESTS

log = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
RETRY_SECONDS = 5.0
ASK_SECONDS = 1.0
"""Between two looks at a request that was made: RBAC cannot name it before, so it cannot be watched alone."""
PATIENCE = 120
"""How often it is looked at."""


class Identity:
    """A node's certificate."""

    def __init__(self, api: Api, *, node: str, folder: Path, ca: Path, clock: Callable[[], datetime]) -> None:
        """`ca` is the file with the certificate of the CA of nodes."""
        self._api = api
        self._node = node
        self._certificate, self._key = folder / "node.crt", folder / "node.key"
        self._ca = ca
        self._clock = clock

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            try:
                await self.keep()
                await asyncio.sleep(LOOK_SECONDS)
            except NetloomError as error:
                log.warning("%s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Ask for a certificate, unless there is a valid one."""
        if self._certificate.exists() and self._key.exists():
            there, key, now = self._certificate.read_bytes(), self._key.read_bytes(), self._clock()
            if certificates.is_valid(there, key=key, ca=files.read(self._ca), now=now, margin=keeping.MARGIN):
                return
        key = certificates.new_key()
        made = await self._ask(key)
        keeping.write(self._key, key)
        keeping.write(self._certificate, made)
        log.info("certificate written", extra={"node": self._node})

    async def _ask(self, key: bytes) -> bytes:
        request = await self._api.create(REQUESTS, requests.document(key, self._node))
        name = request["metadata"]["name"]
        for _ in range(PATIENCE):
            status = (await self._api.get(f"{REQUESTS}/{name}")).get("status") or {}
            for condition in status.get("conditions") or ():
                if condition["type"] in ("Denied", "Failed"):
                    raise Conflict(f"the request {name} is refused: {condition.get('message')}")
            if status.get("certificate"):
                return base64.b64decode(status["certificate"])
            await asyncio.sleep(ASK_SECONDS)
        raise TimedOut(f"nobody signed the request {name}: does netloom ovn authority run?")
