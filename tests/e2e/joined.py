"""Netloom as a part of a real Kubernetes, by either of the two ways, told by our own commands and kubectl.

    with aggregated(cluster, kubectl, folder, store="etcd:…") as joined:
        joined.admin("get", "networks")

Both have a controller that runs with a service account of the cluster. Agents have a token that is bound to a Node, as
a pod's on it is (`joined.agent`), or are users of their own (`joined.node_user`).
"""

import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from netloom.run.cluster.manifests import NAMESPACE
from tests.e2e.kubectl_flows import User
from tests.run.serving import NETLOOM, environment, netloom
from tests.support.kube import Kube
from tests.support.kubectl import Answer, Kubectl
from tests.support.process import Program, free_port, wait_until

NODES = ("n1", "n2", "n3")
_numbers = count()


@dataclass
class Joined:
    """A cluster that has Netloom."""

    cluster: Kube
    kubectl: Kubectl
    folder: Path
    apiserver: "Apiserver | None" = None
    """Ours, where there is one."""
    _credentials: dict[str, Path] = field(default_factory=dict)

    def admin(self, *words: str | Path, **options: Any) -> Answer:
        """Run kubectl as the cluster's administrator."""
        return self.kubectl.run(*words, kubeconfig=self.cluster.kubeconfig, **options)

    def tell(self, documents: str) -> None:
        """Apply documents."""
        self.admin("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=documents)

    def namespace(self) -> str:
        """Return a namespace that is made for the one who asks."""
        name = f"joined-{next(_numbers)}"
        self.admin("create", "namespace", name)
        return name

    def user(self, folder: Path) -> User:
        """Return the administrator in a namespace of their own."""
        return User(self.kubectl, self.cluster.kubeconfig, self.namespace(), folder)

    def until_collecting(self) -> None:
        """Return when the cluster's collector, which looks for new kinds twice a minute, knows ours."""
        namespace = self.namespace()
        owner = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "name": "gone", "uid": "gone"}
        orphan = {
            "apiVersion": "netloom.dev/v1alpha1",
            "kind": "Subnet",
            "metadata": {"name": "orphan", "ownerReferences": [owner]},
            "spec": {"network": "gone", "cidr": "10.0.0.0/24"},
        }
        self.admin("-n", namespace, "create", "-f", "-", stdin=json.dumps(orphan))
        self.admin("-n", namespace, "wait", "--for=delete", "subnet/orphan", "--timeout=120s", timeout=120)

    def agent(self, node: str) -> Path:
        """Return the kubeconfig of a node's agent: the account of all agents, bound to the node."""
        if node not in self._credentials:
            self.admin(
                "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            )
            self._credentials[node] = self.cluster.account(NAMESPACE, "netloom-agent", node=node)
        return self._credentials[node]

    def grant(self, user: str, role: str, namespace: str) -> None:
        """Give a user a role in a namespace: one of ours, or the cluster's view or edit."""
        if not self.cluster.adds_up_roles and role in ("view", "edit"):
            role = "netloom:view"  # Nobody makes ours a part of the cluster's: this much is in both.
        words = ("create", "rolebinding", f"{user}-{role.replace(':', '-')}", f"--clusterrole={role}", f"--user={user}")
        self.admin("-n", namespace, *words)

    def node_user(self, node: str) -> Path:
        """Return the kubeconfig of a node's agent that is a user of its own."""
        name = f"netloom:node:{node}"
        if name not in self._credentials:
            self._credentials[name] = self.cluster.credential(name, "netloom:nodes")
        return self._credentials[name]


class Apiserver:
    """Our API server behind the cluster's, which can be killed and started again."""

    def __init__(self, folder: Path, *, store: str, port: int) -> None:
        self.data = folder / "apiserver"
        self.port = port
        self.program: Program | None = None
        self._folder = folder
        self._store = store

    @property
    def settings(self) -> list[str]:
        """What it is told."""
        return ["--data", str(self.data), "--listen", f"127.0.0.1:{self.port}", "--store", self._store]

    def start(self, kubeconfig: Path) -> None:
        """Start it and wait until it is ready."""
        argv = [*NETLOOM, "apiserver", "--aggregated", "--kubeconfig", str(kubeconfig), *self.settings]
        self.program = Program(argv, log=self._folder / "apiserver.log", env=environment())
        self.program.wait_ready(lambda: self.ask("/readyz")[0] == 200)

    def kill(self) -> None:
        """Stop it as a crash would."""
        assert self.program is not None
        self.program.kill()

    def ask(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Ask it directly, not through the cluster; status 0 where nobody answers."""
        if not (self.data / "ca.crt").exists():
            return 0, ""
        context = ssl.create_default_context(cafile=str(self.data / "ca.crt"))
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=120, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@contextlib.contextmanager
def aggregated(
    cluster: Kube, kubectl: Kubectl, folder: Path, *, store: str, controlled: bool = True
) -> Iterator[Joined]:
    """Give a cluster that has our API server behind its own; with a controller, or not."""
    apiserver = Apiserver(folder, store=store, port=free_port())
    joined = Joined(cluster, kubectl, folder, apiserver)
    printing = ["--print-manifests", "--address", f"localhost:{apiserver.port}", "--nodes", ",".join(NODES)]
    joined.tell(netloom("apiserver", "--aggregated", *apiserver.settings, *printing).out)
    apiserver.start(cluster.account(NAMESPACE, "netloom-apiserver"))
    try:
        joined.admin("wait", "--for=condition=Available", "apiservice/v1alpha1.netloom.dev", "--timeout=120s")
        kubectl.until_known(kubeconfig=cluster.kubeconfig)
        # The schemas come by another way than the objects, and some seconds later.
        wait_until(lambda: joined.admin("explain", "subnets", check=False).rc == 0, what="the schemas", timeout=120)
        with _controller(joined) if controlled else contextlib.nullcontext():
            yield joined
    finally:
        apiserver.kill()


@contextlib.contextmanager
def with_crds(cluster: Kube, kubectl: Kubectl, folder: Path, *, controlled: bool = True) -> Iterator[Joined]:
    """Give a cluster that has our CustomResourceDefinitions, and no API server of ours; with a controller, or not."""
    joined = Joined(cluster, kubectl, folder)
    joined.tell(netloom("crds", "--with-roles", "--nodes", ",".join(NODES)).out)
    joined.admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    kubectl.until_known(kubeconfig=cluster.kubeconfig)
    with _controller(joined) if controlled else contextlib.nullcontext():
        yield joined


@contextlib.contextmanager
def _controller(joined: Joined) -> Iterator[None]:
    kubeconfig = joined.cluster.account(NAMESPACE, "netloom-controller")
    argv = [*NETLOOM, "controller", "--kubeconfig", str(kubeconfig)]
    with Program(argv, log=joined.folder / "controller.log", env=environment()) as controller:
        controller.wait_for('"ready"', timeout=120)
        yield
