"""/healthz, /livez, /readyz: whether the process is alive, and whether it is ready for requests.

Readiness consists of the caller's named checks, each an async callable that returns, or raises the reason. The
endpoints are public (a load balancer has no credentials), so an answer names the failing check, and only the log has
the reason.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from netloom.errors import NotFound
from netloom.front.api.http.exchange import TEXT, Exchange

log = logging.getLogger(__name__)

Check = Callable[[], Awaitable[None]]
_CHECK_SECONDS = 5.0
_ROOTS = ("/healthz", "/livez", "/readyz")


class Health:
    """The health endpoints."""

    def __init__(self, ready: Mapping[str, Check]) -> None:
        alive: dict[str, Check] = {"ping": _ping}
        self._checks = {"/livez": alive, "/healthz": alive, "/readyz": {**alive, **ready}}

    def serves(self, path: str) -> bool:
        """Whether a path is that of a health endpoint."""
        return path.startswith(_ROOTS) and _split(path)[0] in self._checks

    async def reply(self, exchange: Exchange, path: str) -> None:
        """Answer 200 and `ok`, or 500 and the failing checks."""
        root, name = _split(path)
        checks = self._checks[root]
        if name and name not in checks:
            raise NotFound(f"no such check: {name[:64]}")
        excluded = [part.partition("=")[2] for part in exchange.query.split("&") if part.startswith("exclude=")]
        chosen = [name] if name else [key for key in checks if key not in excluded]
        good = {key: await _passes(root, key, checks[key]) for key in chosen}
        healthy = all(good.values())
        verbose = any(part.partition("=")[0] == "verbose" for part in exchange.query.split("&"))
        body = "ok" if healthy and not verbose else _report(root, good)
        await exchange.reply(200 if healthy else 500, body.encode(), TEXT, [(b"x-content-type-options", b"nosniff")])


def _split(path: str) -> tuple[str, str]:
    root, slash, name = path[1:].partition("/")
    return f"/{root}{slash if not name else ''}", name


async def _passes(root: str, name: str, check: Check) -> bool:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - a check may fail in any way; the log has the details.
        log.warning("%s check %s failed: %r", root, name, error)
        return False
    return True


def _report(root: str, good: Mapping[str, bool]) -> str:
    lines = [f"[+]{name} ok" if passed else f"[-]{name} failed: reason withheld" for name, passed in good.items()]
    verdict = "passed" if all(good.values()) else "failed"
    return "\n".join([*lines, f"{root[1:]} check {verdict}", ""])


async def _ping() -> None:
    pass
