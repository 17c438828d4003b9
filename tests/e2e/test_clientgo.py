"""client-go, as users write against it: the same program passes against `netloom serve` and against Kubernetes.

The program (tests/e2e/clientgo) is Go with client-go's own choice of content types, which is Protobuf for built-in
kinds. Each of its checks runs in a namespace of its own, as an administrator; some also use a user without rights.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from netloom.model.schemas.crds import crds
from tests.run.serving import serving
from tests.support.kube import Kube
from tests.support.process import wait_until

TOOL = Path(__file__).parents[2] / "tools" / "clientgo"
VECTORS = Path(__file__).parents[1] / "front" / "protobuf.jsonl"

pytestmark = [pytest.mark.kube, pytest.mark.slow]

CHECKS = (
    "election",
    "typed-informers",
    "custom-informers",
    "pager",
    "metadata",
    "apply",
    "errors",
    "deletes",
    "recorder",
    "events",
    "reviews",
)


@dataclass(frozen=True)
class Server:
    """A server, and how its users reach it."""

    admin: Path
    limited: Path
    flags: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, which `make test` builds before the tests run."""
    made = subprocess.run([TOOL], capture_output=True, text=True, timeout=900, check=False)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("serve")
    with serving(folder) as server:
        words = ("--data", server.data, "--name", "limited", "--role", "viewer", "--namespace", "elsewhere")
        made = server.cli("credential", *words)
        limited = folder / "limited.kubeconfig"
        limited.write_text(made.out)
        yield Server(server.kubeconfig, limited)


@pytest.fixture(scope="module")
def theirs(kube: Kube) -> Server:
    networks = next(crd for crd in crds() if crd["spec"]["names"]["plural"] == "networks")
    kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", networks)
    path = "/apis/netloom.dev/v1alpha1/networks"
    wait_until(lambda: kube.request("GET", path)[0] == 200, what="Networks to be served")
    for check in CHECKS:
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"clientgo-{check}"}}
        status, answer = kube.request("POST", "/api/v1/namespaces", about)
        assert status == 201, answer
    # Kubernetes does not trust the progress notifications of Debian's etcd 3.4: it refuses WatchList of what it caches.
    return Server(kube.kubeconfig, kube.credential("limited"), ("-lists",))


def check(program: Path, server: Server, name: str) -> None:
    users: list[str | Path] = ["-kubeconfig", server.admin, "-limited", server.limited]
    ended = subprocess.run(
        [program, *server.flags, *users, "-namespace", f"clientgo-{name}", name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, f"{name}: {ended.stdout}\n{ended.stderr}"


def test_the_codec_is_tested_with_what_this_client_go_writes(program: Path) -> None:
    made = subprocess.run([program, "vectors"], capture_output=True, timeout=120, check=True)
    assert made.stdout == VECTORS.read_bytes()


@pytest.mark.parametrize("name", CHECKS)
def test_client_go_works_with_netloom(program: Path, ours: Server, name: str) -> None:
    check(program, ours, name)


@pytest.mark.parametrize("name", CHECKS)
def test_client_go_works_with_kubernetes_as_it_does_with_netloom(program: Path, theirs: Server, name: str) -> None:
    check(program, theirs, name)
