"""The address and credentials of a Kubernetes-style API, as kubectl has them: kubeconfig files or a service account.

`load` reads what kubectl would read: the file named, or those in $KUBECONFIG merged (the first to say something wins),
or ~/.kube/config; and where there is none of them, in a pod, the service account. Credential plugins
(`exec`) are run when one is needed (execplugin.py); the `auth-provider` of old clients is refused.
"""

import base64
import binascii
import os
import ssl
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, NotFound, TooLarge, Unreachable
from netloom.model.codec import decode
from netloom.store.http.client import Client
from netloom.store.http.connect import tls_context
from netloom.store.kube import execplugin
from netloom.store.kube.execplugin import Plugin

CONFIG = f"{execplugin.GROUP}/exec"
"""The extension of a cluster that is passed to a credential plugin."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_FILE = 4 << 20


class Cluster(Struct, frozen=True, kw_only=True):
    """One API server as one user sees it.  Holds secrets: its text shows none of them."""

    server: str
    context: str = ""
    namespace: str = "default"
    """The default namespace."""
    ca: bytes = b""
    """PEM; b"": the system's authorities."""
    insecure: bool = False
    server_name: str = ""
    """The name the server's certificate must have, where it is not the address's."""
    token: str = ""
    token_file: str = ""
    """Read for each request: such tokens are replaced while the program runs."""
    certificate: bytes = b""
    key: bytes = b""
    login: Plugin | None = None
    """The credential plugin, which prints a token or a client certificate."""

    def __repr__(self) -> str:
        return f"Cluster(server={self.server!r}, context={self.context!r}, namespace={self.namespace!r})"

    __str__ = __repr__

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context for this server."""
        context = tls_context(ca=self.ca, certificate=self.certificate, key=self.key, insecure=self.insecure)
        if self.login is not None:
            self.login.secure(context)
        return context

    def headers(self) -> dict[str, str]:
        """Return the authentication headers; may run the credential plugin."""
        token = self.token
        if self.token_file:
            token = _file(Path(self.token_file)).decode().strip()
        elif not token and self.login is not None:
            token = self.login.get().token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def client(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 60.0,
        connections: int = 64,
        max_body: int = 512 << 20,
    ) -> Client:
        """Return a client of this server, with a TLS context of its own unless one is given."""
        if tls is None and self.server.startswith("https:"):
            tls = self.tls()
        return Client(
            self.server,
            tls=tls,
            server_name=self.server_name,
            headers=self.headers,
            login=self.login,
            timeout=timeout,
            connections=connections,
            max_body=max_body,
        )


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    extensions: list[dict[str, Any]] | None = None


class _User(Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    exec: execplugin.Spec | None = None
    auth_provider: Any = None


class _Context(Struct, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster
    folder: str = ""
    """The folder of the file: relative paths in it start there."""


class _NamedUser(Struct):
    name: str
    user: _User
    folder: str = ""


class _NamedContext(Struct):
    name: str
    context: _Context


class _Config(Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


def load(path: str | None = None, context: str | None = None) -> Cluster:
    """Return the cluster that `path` (or the environment) and `context` (or the file) choose."""
    paths = [Path(path)] if path else _usual_paths()
    configs = [_read(p) for p in paths if path or p.exists()]
    if not configs:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return in_cluster()
        raise NotFound(f"there is no kubeconfig at {', '.join(map(str, paths))}; specify one with --kubeconfig")
    chosen = context or next((c.current_context for c in configs if c.current_context), "")
    if not chosen:
        raise NotFound(f"{paths[0]} has no current-context; choose one with --context")
    return _cluster(configs, chosen, str(paths[0]))


def is_there() -> bool:
    """Whether there is a server that `load` finds without being told."""
    return any(path.exists() for path in _usual_paths()) or "KUBERNETES_SERVICE_HOST" in os.environ


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Cluster:
    """Return the cluster this pod runs in, as its service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NotFound("this is not a Kubernetes pod: KUBERNETES_SERVICE_HOST is not set")
    namespace = folder / "namespace"
    return Cluster(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        context="in-cluster",
        namespace=_file(namespace).decode().strip() if namespace.exists() else "default",
        ca=_file(folder / "ca.crt"),
        token_file=str(folder / "token"),
    )


def _usual_paths() -> list[Path]:
    if listed := os.environ.get("KUBECONFIG"):
        return [Path(part) for part in listed.split(os.pathsep) if part]
    return [Path.home() / ".kube" / "config"]


def _read(path: Path) -> _Config:
    try:
        config = msgspec.convert(decode(_file(path), "application/yaml"), _Config)
    except (BadRequest, TooLarge, msgspec.ValidationError) as error:
        raise BadRequest(f"{path} is not a kubeconfig: {error}") from error
    for entry in (*(config.clusters or ()), *(config.users or ())):
        entry.folder = str(path.parent)
    return config


def _cluster(configs: list[_Config], name: str, where: str) -> Cluster:
    contexts = [c for config in configs for c in config.contexts or ()]
    context = next((c.context for c in contexts if c.name == name), None)
    if context is None:
        known = ", ".join(dict.fromkeys(c.name for c in contexts)) or "none"
        raise NotFound(f'{where} has no context "{name}"; it has: {known}')
    at = next((c for config in configs for c in config.clusters or () if c.name == context.cluster), None)
    if at is None or not at.cluster.server:
        raise NotFound(f'context "{name}" of {where} names the cluster "{context.cluster}", which has no server there')
    who = next((u for config in configs for u in config.users or () if u.name == context.user), None)
    if who is None and context.user:
        raise NotFound(f'context "{name}" of {where} names the user "{context.user}", which is not there')
    who = who or _NamedUser("", _User())
    _check_user(who.name, who.user)
    ca = _pem(at.cluster.certificate_authority_data, at.cluster.certificate_authority, at.folder)
    return Cluster(
        server=at.cluster.server,
        context=name,
        namespace=context.namespace or "default",
        ca=ca,
        insecure=at.cluster.insecure_skip_tls_verify,
        server_name=at.cluster.tls_server_name,
        token=who.user.token,
        token_file="" if who.user.token or not who.user.token_file else os.path.join(who.folder, who.user.token_file),
        certificate=_pem(who.user.client_certificate_data, who.user.client_certificate, who.folder),
        key=_pem(who.user.client_key_data, who.user.client_key, who.folder),
        login=_plugin(who, at.cluster, ca),
    )


def _plugin(who: _NamedUser, cluster: _Cluster, ca: bytes) -> Plugin | None:
    """Return the user's credential plugin, with the description of the cluster for KUBERNETES_EXEC_INFO."""
    if who.user.exec is None:
        return None
    execplugin.check(who.name, who.user.exec)
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "config": next((one.get("extension") for one in cluster.extensions or () if one.get("name") == CONFIG), None),
    }
    known = {name: value for name, value in info.items() if value not in ("", False, None)}
    return Plugin(who.user.exec, folder=who.folder, cluster=known)


def _check_user(name: str, user: _User) -> None:
    for field, given in (("auth-provider", user.auth_provider), ("username", user.username)):
        if given:
            raise BadRequest(
                f'user "{name}" of the kubeconfig uses {field}, which is not supported here: '
                "give it a token, a tokenFile, a client certificate or an exec"
            )
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        raise BadRequest(f'user "{name}" of the kubeconfig has only one of client-certificate and client-key')


def _pem(data: str, path: str, folder: str) -> bytes:
    """Return inline data, which wins, or a file's contents."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise BadRequest(f"the kubeconfig has data that is not base64: {error}") from error
    return _file(Path(folder, path)) if path else b""


def _file(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_FILE:
            raise BadRequest(f"{path} is too large")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not there") from error
    except OSError as error:
        raise Unreachable(f"cannot read {path}: {error.strerror}") from error
