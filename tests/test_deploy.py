"""What is shipped to run Netloom by: units, manifests and an image, each checked by the program that takes it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from netloom.model import codec
from netloom.run.cluster.manifests import ServerPlacement, aggregated
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl
from tests.support.process import find_program

TREE = Path(__file__).parent.parent
UNITS = sorted((TREE / "deploy/systemd").glob("*.service"))
STRICT = "deploy-strict"
ENFORCE = "pod-security.kubernetes.io/enforce"
EXPOSED = {"netloom-agent": 3.0, "netloom-speaker": 2.0}
"""How exposed a unit may be, of 10, as systemd counts: an agent changes the node's network."""


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_right_and_gives_away_little(unit: Path, tmp_path: Path) -> None:
    analyze = find_program("systemd-analyze", install="apt-get install systemd")
    program = tmp_path / "netloom"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    installed = tmp_path / unit.name
    installed.write_text(unit.read_text().replace("/usr/local/bin/netloom", str(program)))
    verified = subprocess.run([analyze, "verify", installed], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    argv: list[str | Path] = [analyze, "security", "--offline=true", "--no-pager", installed]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = re.search(r"exposure level for \S+: ([\d.]+)", told)
    assert found is not None
    assert float(found[1]) <= EXPOSED.get(unit.stem, 1.5), told


def test_there_is_a_unit_for_each_process() -> None:
    assert {path.stem for path in UNITS} == {
        f"netloom-{name}" for name in ("serve", "apiserver", "controller", "agent", "speaker", "vtep")
    }


def manifests() -> list[dict[str, Any]]:
    """Return all workloads that are shipped or printed."""
    place = ServerPlacement(ca=b"ca", image="netloom", certificate=b"c", key=b"k", args=("--aggregated",))
    shipped = [one for path in (TREE / "deploy/kubernetes").glob("*.yaml") for one in codec.documents(path.read_text())]
    return [*(one for one in aggregated(place) if one["kind"] == "Deployment"), *shipped]


@pytest.mark.kube
def test_workloads_keep_the_restricted_profile_but_for_the_agent(kube: Kube, kubectl: Kubectl) -> None:
    def tried(*args: str, **document: Any) -> str:
        metadata = {**document.pop("metadata", {}), "namespace": STRICT}
        text = json.dumps({**document, "metadata": metadata})
        answer = kubectl.run(*args, "-f", "-", stdin=text, kubeconfig=kube.kubeconfig, check=False)
        return answer.err if answer.rc else ""

    kubectl.run("create", "namespace", STRICT, kubeconfig=kube.kubeconfig)
    kubectl.run("label", "namespace", STRICT, f"{ENFORCE}=restricted", kubeconfig=kube.kubeconfig)
    refused = {}
    for workload in manifests():
        name, spec = workload["metadata"]["name"], workload["spec"]["template"]["spec"]
        metadata = {"name": spec["serviceAccountName"]}
        assert tried("create", apiVersion="v1", kind="ServiceAccount", metadata=metadata) == ""
        assert tried("create", "--validate=strict", "--dry-run=server", **workload) == ""
        refused[name] = tried("create", "--dry-run=server", apiVersion="v1", kind="Pod", metadata=metadata, spec=spec)
    kubectl.run("delete", "namespace", STRICT, "--wait=false", kubeconfig=kube.kubeconfig)
    assert refused["netloom-apiserver"] == refused["netloom-controller"] == ""
    # What an agent needs, and no more than that.
    lacking = refused["netloom-agent"]
    assert "host namespaces (hostNetwork=true)" in lacking
    assert "restricted volume types (volumes" in lacking
    assert "runAsNonRoot" in lacking
    assert "allowPrivilegeEscalation" not in lacking
    assert "seccompProfile" not in lacking
    assert '"NET_ADMIN", "SYS_ADMIN"' in lacking


@pytest.mark.slow
@pytest.mark.root
def test_the_image_is_built_without_a_registry_and_runs_as_nobody(tmp_path: Path) -> None:
    find_program("debootstrap", install="apt-get install debootstrap")
    subprocess.run([TREE / "tools/image-files", TREE / "build/image"], check=True)
    root = tmp_path / "root"
    built = subprocess.run([TREE / "tools/image-root", root], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    config = json.loads(built.stdout.splitlines()[-1])
    chroot = ["chroot", f"--userspec={config['User']}", root, *config["Entrypoint"]]
    printed = subprocess.run([*chroot, "crds"], capture_output=True, text=True, check=True).stdout
    assert "networkattachments.netloom.dev" in printed
    assert config["User"].split(":")[0] != "0"
    # A folder that it cannot write to is all that is wrong here.
    told = subprocess.run([*chroot, "serve", "--data", "/netloom"], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "/netloom" in told.stderr
    assert "Traceback" not in told.stderr
