"""Operators and scripts in Python, as people write them, against `netloom serve` and against kube-apiserver.

What is asserted is in the scripts, which know nothing of where they run. The operator runs as a user would run it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from netloom.model.schemas.crds import crds
from tests.run.serving import serving
from tests.support.kube import Kube
from tests.support.process import Program, wait_until

CLIENTS = Path(__file__).parent / "clients"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = ("netloom.dev", "v1alpha1")

_numbers = count()
library: Any = kubernetes


@dataclass(frozen=True)
class Place:
    """Where the scripts run."""

    kubeconfig: Path

    def environment(self, home: Path) -> dict[str, str]:
        """Return a child's environment."""
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        return kept | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(home), "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module", params=["netloom", pytest.param("kube", marks=pytest.mark.kube)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "netloom":
        with serving(tmp_path_factory.mktemp("clients")) as server:
            yield Place(server.kubeconfig)
        return
    kube = request.getfixturevalue("kube")
    assert isinstance(kube, Kube)
    for definition in crds():
        status, _ = kube.request("POST", CRDS, definition)
        assert status in (201, 409)
    wait_until(lambda: kube.request("GET", "/apis/netloom.dev/v1alpha1/portpools")[0] == 200, what="the kinds")
    yield Place(kube.kubeconfig)


@pytest.mark.parametrize("script", ["script_kr8s.py", "script_lightkube.py", "script_asyncio.py"])
def test_a_script_of_a_client_library_does_what_people_do(script: str, place: Place, tmp_path: Path) -> None:
    namespace = f"script-{next(_numbers)}-{os.getpid()}"
    ended = subprocess.run(
        [sys.executable, CLIENTS / script, namespace],
        capture_output=True,
        text=True,
        timeout=240,
        env=place.environment(tmp_path),
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_an_operator_of_kopf_looks_after_objects(place: Place, tmp_path: Path) -> None:
    prefix = f"pools-{next(_numbers)}-{os.getpid()}"
    # It is told of namespaces by a pattern, so it has to find them, and those that come later.
    command: list[str | Path] = [sys.executable, "-m", "kopf", "run", "--standalone", f"--namespace={prefix}-*"]
    log = tmp_path / "kopf.log"
    with Program([*command, CLIENTS / "operator_kopf.py"], log=log, env=place.environment(tmp_path)) as operator:
        client = library.config.new_client_from_config(str(place.kubeconfig))
        custom, core = library.client.CustomObjectsApi(client), library.client.CoreV1Api(client)
        where = (*POOLS, f"{prefix}-a", "portpools")
        try:
            core.create_namespace({"metadata": {"name": where[2]}})
            spec = {"node": "n1", "network": "blue", "size": 3}
            body = {
                "apiVersion": "netloom.dev/v1alpha1",
                "kind": "PortPool",
                "metadata": {"name": "shop"},
                "spec": spec,
            }
            custom.create_namespaced_custom_object(*where, body)

            def status() -> Any:
                return custom.get_namespaced_custom_object(*where, "shop").get("status", {})

            wait_until(lambda: (status().get("free"), status().get("used")) == (3, 0), what="the status", timeout=120)
            operator.wait_for("filled shop with 3")
            custom.patch_namespaced_custom_object(*where, "shop", {"spec": {"size": 5}})
            wait_until(lambda: status().get("free") == 5, what="the new size", timeout=120)
            operator.wait_for("resized shop from 3 to 5")
            # It holds the object by a finalizer until it has done its part.
            held = custom.get_namespaced_custom_object(*where, "shop")["metadata"]["finalizers"]
            assert held == ["kopf.zalando.org/KopfFinalizerMarker"]
            core.delete_namespace(where[2])
            operator.wait_for("emptied shop", timeout=120)

            def gone() -> bool:
                return where[2] not in [one.metadata.name for one in core.list_namespace().items]

            wait_until(gone, what="the end of the namespace", timeout=120)
        finally:
            client.close()
    assert "Traceback" not in log.read_text()
