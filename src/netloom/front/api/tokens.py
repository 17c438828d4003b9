"""Bearer tokens from a file, and client certificates.

The file holds no secret that could be used: each line is the SHA-256 of a token, who has it, and their roles.

    sha256:9f86d081884c7d65...0f00a08  alice  netloom:admin
    sha256:60303ae22b998861...2ce0ae6  ci     netloom:editor:lab,netloom:viewer

Tokens are random and long (`mint`), so one round of SHA-256 is enough and no salt is needed. The file is read again
when it changes; one that cannot be read leaves the tokens of before in force and says so in the log.

A client certificate our CA signed says the same: its common name is who, its organizations are the roles.
"""

import hashlib
import hmac
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from netloom.errors import Invalid
from netloom.front.api.identity import Credentials, Identity

log = logging.getLogger(__name__)

AUTHENTICATED = "system:authenticated"
ROLE_PREFIX = "netloom:"
_LOOK_SECONDS = 1.0
_SCHEME = b"bearer "
_FILE_LIMIT = 16 * 1024 * 1024


def mint() -> str:
    """Return a new token: 256 random bits."""
    return secrets.token_urlsafe(32)


def line(token: str, name: str, roles: Iterable[str]) -> str:
    """Return the line of the tokens file that admits `token`."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {name} {','.join(roles)}\n"


def parse(text: str) -> dict[bytes, Identity]:
    """Return a tokens file's contents, by digest; raise `Invalid` naming the line at fault, never its contents."""
    found: dict[bytes, Identity] = {}
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        try:
            digest, name, *rest = written.split()
            key = bytes.fromhex(digest.removeprefix("sha256:"))
        except ValueError:
            raise Invalid(f"tokens file, line {number}: not `sha256:DIGEST NAME ROLE,ROLE`") from None
        if not digest.startswith("sha256:") or len(key) != hashlib.sha256().digest_size or len(rest) > 1:
            raise Invalid(f"tokens file, line {number}: not `sha256:DIGEST NAME ROLE,ROLE`")
        roles = tuple(role for role in (rest[0].split(",") if rest else ()) if role)
        found[key] = Identity(name, (AUTHENTICATED,), roles)
    return found


class TokenFile:
    """Authenticates bearer tokens against a file."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked = float("-inf")
        self._seen: tuple[int, ...] = ()
        self._known: dict[bytes, tuple[bytes, Identity]] = {}

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return whose token this is."""
        header = offered.header(b"authorization")
        if header[: len(_SCHEME)].lower() != _SCHEME:
            return None
        self._look(every=_LOOK_SECONDS)
        digest = hashlib.sha256(header[len(_SCHEME) :].strip()).digest()
        # The time of this look-up could tell about digests only, and nobody can choose one.
        found = self._known.get(digest)
        if found is None:  # A token that was made a moment ago is good at once.
            self._look(every=0)
            found = self._known.get(digest)
        return found[1] if found is not None and hmac.compare_digest(found[0], digest) else None

    def _look(self, *, every: float) -> None:
        """Read the file again if it changed, looking at most once in so many seconds."""
        now = self._clock()
        if now - self._looked < every:
            return
        self._looked = now
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return
            self._seen = seen
            if stat.st_size > _FILE_LIMIT:
                raise Invalid("tokens file: too large")
            self._known = {key: (key, who) for key, who in parse(self._path.read_text()).items()}
        except (OSError, UnicodeDecodeError, Invalid) as error:
            log.error("cannot read the tokens file; the tokens of before stay in force: %s", error)


class ClientCertificates:
    """Authenticates by the certificate of the TLS connection, which the handshake has verified."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return who the certificate names."""
        certificate = offered.certificate
        if certificate is None or not certificate.name:
            return None
        roles = tuple(role for role in certificate.organizations if role.startswith(ROLE_PREFIX))
        groups = tuple(group for group in certificate.organizations if not group.startswith(ROLE_PREFIX))
        return Identity(certificate.name, (*groups, AUTHENTICATED), roles)
