"""A real kube-apiserver on a real etcd, with RBAC, on free loopback ports.

    with kube("1.36.3") as cluster:
        kubectl.run("get", "ns", kubeconfig=cluster.kubeconfig)

The programs come from `make kube`, which builds them once into a cache: $NETLOOM_KUBE_BIN/vVERSION, or
netloom/kube/vVERSION in the user's cache folder. There is no kubelet and no scheduler. With `controller_manager=True`
there is a kube-controller-manager for garbage collection, deleted namespaces and aggregated roles, and nothing else.

It has an aggregation layer, which forwards API groups to other servers, and it accepts certificates of its client CA:
`credential` makes one for any user and groups, `account` makes a token for a service account.
"""

import base64
import contextlib
import http.client
import json
import os
import secrets
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from netloom.run.access import certificates
from tests.support.etcd import etcd
from tests.support.process import Program, fail_missing, free_port, scratch

CURRENT = "1.36.3"
OLDER = "1.32.2"
PROXY = "front-proxy-client"
"""The name of kube-apiserver's proxy certificate."""


def kube_cache() -> Path:
    """Return the folder of the Kubernetes programs that `make kube` builds, a folder for each version."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("NETLOOM_KUBE_BIN") or Path(caches, "netloom", "kube"))


def kube_program(name: str, version: str = CURRENT) -> Path:
    """Return the path of a Kubernetes program that `make kube` built, or fail the test with how to build it."""
    path = kube_cache() / f"v{version}" / name
    if not os.access(path, os.X_OK):
        fail_missing(f"{name} {version} ({path})", f"make kube (or tools/kube/build {version} {name})")
    return path


class Kube:
    """A running cluster API: its address, and the administrator's access."""

    def __init__(self, folder: Path, *, version: str, etcd_url: str) -> None:
        """Prepare a kube-apiserver of `version` whose files are in `folder`; `start` starts it."""
        self.version = version
        self.token = secrets.token_hex(16)
        self.ca_file = folder / "certs" / "apiserver.crt"  # The serving certificate and the CA that signed it.
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._etcd_url = etcd_url
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._programs: list[Program] = []
        self._client_ca: certificates.Pair
        self.adds_up_roles = False
        """Whether roles are aggregated."""

    @property
    def pid(self) -> int:
        """The process id of the kube-apiserver while it runs."""
        return self._programs[0].pid

    def start(self) -> None:
        """Start the apiserver, wait until it is ready and write the kubeconfig."""
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f"{self.token},admin,admin,system:masters\n")
        key = self._folder / "service-accounts.key"
        key.write_bytes(_private_key())
        self._client_ca = _authority("clients", self._folder / "client-ca.crt")
        proxy_ca = _authority("proxies", self._folder / "proxy-ca.crt")
        proxy = certificates.new_key()
        (self._folder / "proxy.key").write_bytes(proxy)
        (self._folder / "proxy.crt").write_bytes(
            certificates.make_client(proxy_ca, proxy, name=PROXY, groups=[], now=datetime.now(UTC))
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.ca_file.parent}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://netloom.test",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.250.0.0/16",
            "--allow-privileged",
            f"--client-ca-file={self._folder / 'client-ca.crt'}",
            f"--requestheader-client-ca-file={self._folder / 'proxy-ca.crt'}",
            f"--requestheader-allowed-names={PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._folder / 'proxy.crt'}",
            f"--proxy-client-key-file={self._folder / 'proxy.key'}",
        ).wait_ready(self._ready, timeout=120)
        self.kubeconfig.write_text(json.dumps(self._kubeconfig({"token": self.token})))

    def start_controller_manager(self) -> None:
        """Start garbage collection, the deletion of namespaces and the aggregation of roles; wait for them."""
        port = free_port()
        certs = self._folder / "controller-manager"
        program = self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller",
            "--leader-elect=false",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={certs}",
        )
        program.wait_ready(lambda: _answers(port, "/healthz", ca_file=certs / "kube-controller-manager.crt"))
        self.adds_up_roles = True

    def stop(self) -> None:
        """Stop everything that was started, last first."""
        while self._programs:
            self._programs.pop().kill()  # Its data is not read again, so a graceful end would only take time.

    def request(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send one request as the administrator and return the status and the answer, decoded when it is JSON."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=120, context=ssl.create_default_context(cafile=str(self.ca_file))
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            # A path whose group is not served yet has a plain-text answer.
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text or b"null") if is_json else text.decode()
        finally:
            connection.close()

    def credential(self, user: str, *groups: str) -> Path:
        """Return the kubeconfig of a user with a certificate."""
        key = certificates.new_key()
        made = certificates.make_client(self._client_ca, key, name=user, groups=groups, now=datetime.now(UTC))
        encoded = {"client-certificate-data": made, "client-key-data": key}
        return self._as({name: base64.b64encode(data).decode() for name, data in encoded.items()})

    def account(self, namespace: str, name: str, *, node: str = "") -> Path:
        """Return the kubeconfig of a service account; its token may be bound to a Node, like that of a pod on it."""
        bound: dict[str, object] = {}
        if node:
            _, found = self.request("GET", f"/api/v1/nodes/{node}")
            assert isinstance(found, dict)
            reference = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": found["metadata"]["uid"]}
            bound["boundObjectRef"] = reference
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
        status, answer = self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        assert status == 201, answer
        assert isinstance(answer, dict)
        return self._as({"token": answer["status"]["token"]})

    def _as(self, user: dict[str, str]) -> Path:
        path = self._folder / f"{secrets.token_hex(4)}.kubeconfig"
        path.write_text(json.dumps(self._kubeconfig(user)))
        return path

    def _run(self, name: str, *flags: str) -> Program:
        program = Program([kube_program(name, self.version), *flags], log=self._folder / f"{name}.log")
        self._programs.append(program)
        return program

    def _ready(self) -> bool:
        return _answers(self._port, "/readyz", ca_file=self.ca_file, headers={"Authorization": f"Bearer {self.token}"})

    def _kubeconfig(self, user: dict[str, str]) -> dict[str, object]:
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": "default"}}],
            "current-context": "test",
        }


@contextlib.contextmanager
def kube(version: str = CURRENT, *, controller_manager: bool = False) -> Iterator[Kube]:
    """Yield a running kube-apiserver of `version` on its own etcd, and stop both afterwards."""
    with etcd() as database, scratch("kube") as folder:
        cluster = Kube(folder, version=version, etcd_url=database.url)
        try:
            cluster.start()
            if controller_manager:
                cluster.start_controller_manager()
            yield cluster
        finally:
            cluster.stop()


def _answers(port: int, path: str, *, ca_file: Path, headers: Mapping[str, str] | None = None) -> bool:
    if not ca_file.exists():
        return False
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def _authority(name: str, path: Path) -> certificates.Pair:
    """Return a CA, whose certificate is in a file."""
    key = certificates.new_key()
    made = certificates.Pair(certificates.make_ca(key, name=name, now=datetime.now(UTC)), key)
    path.write_bytes(made.certificate)
    return made


def _private_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
