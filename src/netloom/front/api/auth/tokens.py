"""Bearer tokens from a file, and client certificates.

The file holds no usable secret: each line is the SHA-256 of a token, the name of its holder, and their roles.

    sha256:9f86d081884c7d65...0f00a08  alice  netloom:admin
    sha256:60303ae22b998861...2ce0ae6  ci     netloom:editor:lab,netloom:viewer

Tokens are random and long (`new_token`), so one round of SHA-256 is enough and no salt is needed.

A client certificate that our CA signed has the same information: the common name is the name, the organizations are the
roles. Certificates are revoked by a file of the same form, with the SHA-256 of each certificate.

Both files are read again when they change. While one cannot be read, its last valid contents stay in force, the error
is logged once, and the file is tried again every second.
"""

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from netloom.errors import Invalid
from netloom.front.api.auth.identity import Certificate, Credentials, Identity

log = logging.getLogger(__name__)

AUTHENTICATED = "system:authenticated"
ROLE_PREFIX = "netloom:"
TOKENS = "tokens file"
REVOKED = "file of revoked certificates"
_CHECK_SECONDS = 1.0
_FILE_LIMIT = 16 * 1024 * 1024


def new_token() -> str:
    """Return a new token: 256 random bits."""
    return secrets.token_urlsafe(32)


def line(token: str, name: str, roles: Iterable[str]) -> str:
    """Return the line of the tokens file that admits `token`."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {name} {','.join(roles)}\n"


def parse(text: str, what: str = TOKENS) -> dict[bytes, Identity]:
    """Return a file's contents, by digest; raise `Invalid` naming the invalid line, never its contents."""
    found: dict[bytes, Identity] = {}
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        try:
            digest, name, *rest = written.split()
            key = bytes.fromhex(digest.removeprefix("sha256:"))
        except ValueError:
            raise Invalid(f"{what}, line {number}: expected `sha256:DIGEST NAME ROLE,ROLE`") from None
        if not digest.startswith("sha256:") or len(key) != hashlib.sha256().digest_size or len(rest) > 1:
            raise Invalid(f"{what}, line {number}: expected `sha256:DIGEST NAME ROLE,ROLE`")
        roles = tuple(role for role in (rest[0].split(",") if rest else ()) if role)
        found[key] = Identity(name, (AUTHENTICATED,), roles)
    return found


class DigestFile:
    """A file of `sha256:DIGEST NAME ROLES`, read again when it changes."""

    def __init__(
        self, path: Path, what: str, *, optional: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read `path` when it is first needed; `what` names it in messages.  An `optional` one need not exist yet."""
        self.known: dict[bytes, Identity] | None = None
        """The last valid contents; None before the first successful read."""
        self._path = path
        self._what = what
        self._optional = optional
        self._clock = clock
        self._looked = self._failed = float("-inf")
        self._read: tuple[int, ...] = ()
        """Inode, time and size of the file that `known` was read from."""
        self._problem = ""

    def refresh(self, *, every: float = _CHECK_SECONDS) -> None:
        """Read the file if it changed, checking at most once in so many seconds."""
        now = self._clock()
        if now - self._looked < every:
            return
        self._looked = now
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen != self._read:
                # Parsing costs more than stat(), and any client can cause a check by sending an unknown token.
                if now - self._failed < _CHECK_SECONDS:
                    return
                if stat.st_size > _FILE_LIMIT:
                    raise Invalid(f"{self._what}: larger than {_FILE_LIMIT} bytes")
                self.known = parse(self._path.read_text(), self._what)
                self._read = seen
        except (OSError, UnicodeDecodeError, Invalid) as error:
            if self._optional and not self._read and isinstance(error, FileNotFoundError):
                self.known = {}
                return
            self._failed = now
            self._report(str(error))
            return
        self._report("")

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("cannot read the %s; its last valid contents stay in force: %s", self._what, problem)
        elif self._problem and not problem:
            log.info("the %s is readable again", self._what)
        self._problem = problem


class TokenFile:
    """Authenticates bearer tokens against a file."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = DigestFile(path, TOKENS, clock=clock)

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the identity that a token belongs to."""
        if (token := offered.bearer_token()) is None:
            return None
        self._file.refresh()
        # The time of this look-up can reveal digests only, and a client cannot choose a digest.
        digest = hashlib.sha256(token).digest()
        if (found := (self._file.known or {}).get(digest)) is not None:
            return found
        self._file.refresh(every=0)  # A token that was created a moment ago is valid at once.
        return (self._file.known or {}).get(digest)


class ClientCertificates:
    """Authenticates by the certificate of the TLS connection, which the handshake has verified."""

    def __init__(
        self,
        revoked: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        """Refuse the certificates in the file `revoked`, which need not exist."""
        self._revoked = DigestFile(revoked, REVOKED, optional=True, clock=clock) if revoked is not None else None
        self._time_of_day = time_of_day

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the identity in the certificate, unless it was revoked or expired since the handshake."""
        certificate = offered.certificate
        if certificate is None or not certificate.name:
            return None
        if certificate.expires <= self._time_of_day() or self._is_revoked(certificate):
            return None
        roles = tuple(role for role in certificate.organizations if role.startswith(ROLE_PREFIX))
        groups = tuple(group for group in certificate.organizations if not group.startswith(ROLE_PREFIX))
        return Identity(certificate.name, (*groups, AUTHENTICATED), roles)

    def _is_revoked(self, certificate: Certificate) -> bool:
        if self._revoked is None:
            return False
        self._revoked.refresh()
        known = self._revoked.known
        # A file that could never be read may name any certificate.
        return known is None or bool(known and hashlib.sha256(certificate.encoded).digest() in known)
