"""The load driver against a plain Kubernetes that holds our CRDs: no API server of ours at all."""

import json
from pathlib import Path

import pytest

from netloom.model.schemas.crds import crds
from tests.run.serving import NETLOOM, environment, netloom
from tests.support.kube import Kube
from tests.support.process import Program, free_port, wait_until

pytestmark = pytest.mark.kube
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ATTACHMENTS = "/apis/netloom.dev/v1alpha1/networkattachments?fieldSelector=status.hostIP%21%3D"


def test_a_run_with_simulated_agents_on_a_plain_cluster(kube: Kube, tmp_path: Path) -> None:
    for crd in crds():
        status, answer = kube.request("POST", CRDS, crd)
        assert status in (201, 409), answer
    wait_until(lambda: kube.request("GET", ATTACHMENTS)[0] == 200, what="the CRDs to be served")
    health = f"127.0.0.1:{free_port()}"
    words = ("controller", "--kubeconfig", str(kube.kubeconfig), "--no-leader-elect", "--health-listen", health)
    with Program([*NETLOOM, *words], log=tmp_path / "log", env=environment()):
        shape = ("--simulated-agents", "3", "--networks", "2", "--top-size", "4", "--rate", "5", "--cruise", "1s")
        where = ("--kubeconfig", kube.kubeconfig, "--fabric", "vxlan", "--output", tmp_path / "run.json")
        netloom("bench", "attachments", *shape, *where)
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["errors"] == {}
    assert written["summaries"]["ready"]["count"] == len(written["attachments"])
    assert written["summaries"]["informed"]["count"] > 0
    status, left = kube.request("GET", "/apis/netloom.dev/v1alpha1/networks?labelSelector=netloom.dev/bench-run")
    assert isinstance(left, dict)
    assert (status, left["items"]) == (200, [])
