"""Reads and writes of single objects of a Kubernetes cluster, of kinds that are not Netloom's."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from netloom.errors import Conflict, Forbidden, Invalid, NetloomError, NotFound, Unreachable
from netloom.store.http.client import Client

LONGEST_LINE = 4 << 20
_REFUSALS: dict[int, type[NetloomError]] = {403: Forbidden, 404: NotFound, 409: Conflict, 422: Invalid}


class Api:
    """A cluster's API."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, path: str) -> dict[str, Any]:
        """Return an object or a list; raise `NotFound` if there is none."""
        return await self._done("GET", path)

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object; raise `Conflict` if there is one."""
        return await self._done("POST", path, document)

    async def replace(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object; raise `Conflict` if it has changed."""
        return await self._done("PUT", path, document)

    async def changes(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects that are added or changed, until the server ends the watch."""
        stream = await self._client.stream("GET", path)
        try:
            if stream.status != 200:
                raise _refusal(stream.status, await stream.read_all(65536), path)
            rest = b""
            while part := await stream.read():
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > LONGEST_LINE:
                    raise Unreachable(f"an event of {path} has more than {LONGEST_LINE} bytes")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]
        finally:
            stream.close()

    async def _done(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        body = b"" if document is None else json.dumps(document).encode()
        answer = await self._client.request(method, path, body=body)
        if answer.status >= 300:
            raise _refusal(answer.status, answer.body, path)
        found: dict[str, Any] = json.loads(answer.body)
        return found


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Return the data of a Secret."""
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def decoded(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Return what is in a Secret."""
    return {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}


def _refusal(status: int, body: bytes, path: str) -> NetloomError:
    try:
        text = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        text = f"{path} answered {status}"
    return _REFUSALS.get(status, Unreachable)(text)
