"""The data directory of a server: its identity, and the clients that it admits.

   DIR/ca.key, ca.crt              signs everything below
   DIR/server.key, server.crt      the server's own; renewed when it is about to expire or lacks a name
   DIR/vtep.key, vtep.crt          the same of `netloom vtep`
   DIR/tokens                      SHA-256 of each bearer token, its name, its roles (front/api/auth/tokens.py reads it)
   DIR/certificates                the same of each client certificate that was issued: the ones that can be revoked
   DIR/revoked                     the same of revoked ones (front/api/auth/tokens.py reads it)
   DIR/admin.token                 the first token, the only one that is kept readable
   DIR/admin.kubeconfig            the administrator's access to the server

Every step looks at what exists and creates only what is missing or wrong, from the results of the steps before it: a
first start killed at any instant is completed by the next one. Files are private to their owner, written atomically.
"""

import base64
import re
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from netloom.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from netloom.front.api.auth import tokens
from netloom.front.api.auth.identity import Identity
from netloom.model import codec
from netloom.model.document import Document
from netloom.run import files
from netloom.run.access import certificates

ADMIN = "admin"
ADMIN_ROLES = ("netloom:admin",)
ROLES = ("admin", "editor", "viewer", "node:NAME")
LEAF_MARGIN = timedelta(days=30)
CA_MARGIN = timedelta(days=400)
"""Longer than a leaf certificate lives, so that no leaf outlives its CA."""
SHOWN = 12
"""How many digits of a fingerprint to show."""
SHORTEST = 8
"""The fewest digits that identify a fingerprint."""
UNRECORDED = "unrecorded"
"""The name shown for a certificate that this directory has no record of."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,62}")
_HEX = re.compile(r"[0-9a-f]{1,64}")
DIGEST_DIGITS = 64
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Credential(Struct, frozen=True):
    """A token or a client certificate."""

    name: str
    roles: tuple[str, ...]
    digest: str
    """The SHA-256 of the token or the certificate, in hexadecimal."""
    certificate: bool = False
    revoked: bool = False

    @property
    def fingerprint(self) -> str:
        """The beginning of the SHA-256: enough to distinguish credentials."""
        return self.digest[:SHOWN]


class Revoked(Struct, frozen=True):
    """How many credentials of a name were revoked."""

    name: str
    tokens: int = 0
    certificates: int = 0


class Directory:
    """One data directory.  Constructing it reads and writes nothing."""

    def __init__(self, path: Path, *, server: str = "server") -> None:
        """Use `path`, which need not exist.  `server` names the certificate: each server that uses `path` has one."""
        self.path = path
        self.ca_certificate = path / "ca.crt"
        self.server_certificate = path / f"{server}.crt"
        self.server_key = path / f"{server}.key"
        self.tokens = path / "tokens"
        self.certificates = path / "certificates"
        self.revoked = path / "revoked"
        self.kubeconfig = path / "admin.kubeconfig"
        self.database = path / "netloom.db"
        self.lock = path / "lock"
        self._ca_key = path / "ca.key"
        self._admin_token = path / "admin.token"

    def make(self) -> None:
        """Create the directory itself, private to its owner.

        Leave a directory alone that holds something else: making it private would close it to its users.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = {entry.name for entry in self.path.iterdir()} - {"lost+found"}
        if found and not found & {self.lock.name, self._ca_key.name} and not list(self.path.glob(".*.tmp")):
            raise Conflict(f"{self.path} is not empty and not a data directory: choose another one with --data")
        self.path.chmod(0o700)

    def prepare(self, *, hosts: Iterable[str], now: datetime, admin: bool = True) -> bool:
        """Create the certificates and the tokens file where they are missing or about to expire.

        Without `admin`, create no token: clients are authenticated elsewhere. Return whether the server certificate is
        new.
        """
        with files.locked(self.path):
            files.sweep_temporaries(self.path)
            ca = self._authority(now)
            renewed = self._server(ca, names(hosts), now)
            if admin:
                self._admin()
        return renewed

    def write_kubeconfig(self, server: str) -> None:
        """Write DIR/admin.kubeconfig for the server at `server`."""
        with files.locked(self.path):
            token = self._admin()
            user: Document = {"token": token}
            text = kubeconfig(server, self.ca_certificate.read_bytes(), ADMIN, user)
            if _contents(self.kubeconfig) != text.encode():
                files.write_whole(self.kubeconfig, text.encode())

    def server_url(self) -> str:
        """Return the URL of the server at its last start."""
        raw = _contents(self.kubeconfig)
        if raw is None:
            raise NotFound(f"{self.path} has no admin.kubeconfig: run `netloom serve --data {self.path}` first")
        cluster = codec.decode(raw, "application/yaml")["clusters"][0]["cluster"]
        return str(cluster["server"])

    def issue_token(self, name: str, roles: Sequence[str], *, server: str) -> str:
        """Create a token for `name` and return its kubeconfig; `AlreadyExists` if `name` has one."""
        self._require_ca()
        with files.locked(self.path):
            if any(known.name == name and not known.certificate for known in self._known()):
                raise AlreadyExists(f"{name!r} already has a token: revoke it first with --revoke")
            token = tokens.new_token()
            self._write_tokens(self._lines() + tokens.line(token, name, roles))
        return kubeconfig(server, self.ca_certificate.read_bytes(), name, {"token": token})

    def issue_certificate(self, name: str, roles: Sequence[str], *, server: str, now: datetime) -> str:
        """Issue a client certificate for `name` and return its kubeconfig."""
        self._require_ca()
        ca = certificates.Pair(self.ca_certificate.read_bytes(), self._ca_key.read_bytes())
        key = certificates.new_key()
        certificate = certificates.make_client(ca, key, name=name, groups=roles, now=now)
        with files.locked(self.path):
            _append(self.certificates, [_line(certificates.fingerprint(certificate).hex(), name, roles)])
        user = {"client-certificate-data": base64_text(certificate), "client-key-data": base64_text(key)}
        return kubeconfig(server, ca.certificate, name, user)

    def known(self) -> list[Credential]:
        """Return the valid tokens and all issued certificates."""
        self._require_ca()
        return self._known()

    def revoke(self, name: str) -> Revoked:
        """Revoke all tokens and certificates of `name`.

        Without a token the administrator would be locked out, so the next start creates a new one.
        """
        self._require_ca()
        with files.locked(self.path):
            return self._revoke(name, [known for known in self._known() if known.name == name and not known.revoked])

    def revoke_one(self, fingerprint: str) -> Revoked:
        """Revoke the token or certificate whose SHA-256 begins with `fingerprint`."""
        self._require_ca()
        wanted = fingerprint.lower().removeprefix("sha256:").replace(":", "")
        if not _HEX.fullmatch(wanted) or len(wanted) < SHORTEST:
            raise BadRequest(f"{fingerprint!r} is not a fingerprint: use at least {SHORTEST} hexadecimal digits")
        with files.locked(self.path):
            found = [known for known in self._known() if known.digest.startswith(wanted)]
            if not found and len(wanted) == DIGEST_DIGITS:
                # Issued by another tool, or before there was a record.
                found = [Credential(UNRECORDED, (), wanted, certificate=True)]
            if len(found) > 1:
                raise Conflict(f"{fingerprint!r} matches several fingerprints: use more digits")
            name = found[0].name if found else fingerprint
            return self._revoke(name, [known for known in found if not known.revoked])

    def _revoke(self, name: str, found: Sequence[Credential]) -> Revoked:
        if not found:
            raise NotFound(f"{name!r} has no valid credential in {self.path}")
        tokens_gone = {known.digest for known in found if not known.certificate}
        gone = [known for known in found if known.certificate]
        if gone:
            _append(self.revoked, [_line(known.digest, known.name, known.roles) for known in gone])
        if tokens_gone:
            if any(known.name == ADMIN and not known.certificate for known in found):
                self._admin_token.unlink(missing_ok=True)
                self.kubeconfig.unlink(missing_ok=True)
            lines = self._lines().splitlines(keepends=True)
            self._write_tokens("".join(line for line in lines if _digest(line) not in tokens_gone))
        return Revoked(name, len(tokens_gone), len(gone))

    def _authority(self, now: datetime) -> certificates.Pair:
        key = self._key(self._ca_key)
        certificate = _contents(self.ca_certificate) or b""
        if not certificates.is_valid(certificate, key=key, ca=certificate, now=now, margin=CA_MARGIN):
            # The same key and the same name: certificates that it signed before stay valid.
            name = certificates.common_name(certificate) or f"netloom-ca@{socket.gethostname()}"[:64]
            certificate = certificates.make_ca(key, name=name, now=now)
            files.write_whole(self.ca_certificate, certificate)
        return certificates.Pair(certificate, key)

    def _server(self, ca: certificates.Pair, hosts: Sequence[str], now: datetime) -> bool:
        key = self._key(self.server_key)
        certificate = _contents(self.server_certificate) or b""
        if certificates.is_valid(certificate, key=key, ca=ca.certificate, hosts=hosts, now=now, margin=LEAF_MARGIN):
            return False
        files.write_whole(self.server_certificate, certificates.make_server(ca, key, hosts=hosts, now=now))
        return True

    def _admin(self) -> str:
        """Return the administrator's token, and add it to the tokens file if it is not there."""
        token = (_contents(self._admin_token) or b"").decode().strip()
        if not token:
            token = tokens.new_token()
            files.write_whole(self._admin_token, f"{token}\n".encode())
        line = tokens.line(token, ADMIN, ADMIN_ROLES)
        lines = self._lines()
        if line not in lines:
            kept = "".join(one for one in lines.splitlines(keepends=True) if _holder(one) != ADMIN)
            self._write_tokens(line + kept)
        return token

    def _key(self, path: Path) -> bytes:
        key = _contents(path) or b""
        if not key:
            key = certificates.new_key()
            files.write_whole(path, key)
        if not certificates.is_key(key):
            raise Invalid(f"{path} is not a private key: restore it, or remove it to create a new one")
        return key

    def _lines(self) -> str:
        return (_contents(self.tokens) or b"").decode()

    def _write_tokens(self, text: str) -> None:
        tokens.parse(text)
        files.write_whole(self.tokens, text.encode())

    def _known(self) -> list[Credential]:
        revoked = _parsed(self.revoked)
        admitted = [
            Credential(who.name, who.roles, digest.hex()) for digest, who in tokens.parse(self._lines()).items()
        ]
        made = [
            Credential(who.name, who.roles, digest.hex(), certificate=True, revoked=digest in revoked)
            for digest, who in (_parsed(self.certificates) | revoked).items()
        ]
        return admitted + made

    def _require_ca(self) -> None:
        if not self.ca_certificate.exists():
            raise NotFound(f"{self.path} is not a data directory: run `netloom serve --data {self.path}` first")


def role(text: str, *, namespace: str = "") -> str:
    """Return the role `admin`, `editor`, `viewer` or `node:NAME` as the server stores it."""
    word, colon, node = text.partition(":")
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise BadRequest(f"{namespace!r} is not a valid namespace name")
    if word == "node" and _NODE.fullmatch(node):
        if namespace:
            raise BadRequest("a node's role applies to all namespaces: omit --namespace")
        return f"netloom:node:{node}"
    if word in ROLES and not colon:
        return f"netloom:{word}:{namespace}" if namespace else f"netloom:{word}"
    raise BadRequest(f"{text!r} is not a role: use {', '.join(ROLES)}")


def checked_name(name: str) -> str:
    """Return `name` if it is valid as the name of a credential."""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name!r} is not a valid credential name: use at most 63 letters, digits, . _ : @ and -")
    return name


def names(hosts: Iterable[str]) -> list[str]:
    """Return all names of a server certificate: `hosts` and the names that this machine always has."""
    wildcards = ("", "0.0.0.0", "::")  # noqa: S104  # not bound here: left out of the certificate
    found = {"localhost", "127.0.0.1", "::1", socket.gethostname(), *(h for h in hosts if h not in wildcards)}
    return sorted(name for name in found if name)


def kubeconfig(server: str, ca: bytes, name: str, user: Document) -> str:
    """Return a kubeconfig with one cluster, one user and one context."""
    document: Document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "netloom", "cluster": {"server": server, "certificate-authority-data": base64_text(ca)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "netloom", "context": {"cluster": "netloom", "user": name, "namespace": "default"}}],
        "current-context": "netloom",
    }
    return codec.encode_yaml(document)


def _holder(line: str) -> str:
    parts = line.split()
    return parts[1] if len(parts) > 1 and not line.lstrip().startswith("#") else ""


def _digest(line: str) -> str:
    return line.split()[0].removeprefix("sha256:").lower() if _holder(line) else ""


def _line(digest: str, name: str, roles: Iterable[str]) -> str:
    return f"sha256:{digest} {name} {','.join(roles)}".rstrip() + "\n"


def _append(path: Path, lines: Iterable[str]) -> None:
    before = (_contents(path) or b"").decode()
    files.write_whole(path, "".join((before, *lines)).encode())


def _parsed(path: Path) -> dict[bytes, Identity]:
    return tokens.parse((_contents(path) or b"").decode(), str(path))


def base64_text(data: bytes) -> str:
    """Return bytes as base64, as a kubeconfig has them."""
    return base64.b64encode(data).decode()


def _contents(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
