"""A lab with a Kubernetes cluster: pods run, killed programs come back, and nothing is left on the machine."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab, down
from netloom.lab.kube import binaries, cgroups, ending, images
from netloom.lab.kube.places import SHIM_SOCKETS, Places
from netloom.lab.kube.settings import KERNEL
from tests.lab import labs
from tests.support import kube as kube_support
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.kube, pytest.mark.timeout(300)]

OF_THE_MACHINE = ("/var/lib/kubelet", "/var/lib/containerd", "/var/log/containers", "/var/log/pods", "/etc/cni")
NODES = ("n1", "n2")


@pytest.fixture(scope="module")
def machine() -> dict[str, object]:
    """What a kubelet or containerd would change on the machine."""
    return _machine()


@pytest.fixture(scope="module")
def kube(machine: dict[str, object]) -> Iterator[Lab]:
    """Two nodes, whose network is the reference plugin: what is tried here does not depend on it."""
    for program in binaries.BUILT:
        kube_support.kube_program(program)
    with labs.running(nodes=2, kube=kube_support.CURRENT, cni="bridge") as running:
        yield running
        running.down()
        assert labs.left_of(running.layout.folder) == []
        assert _machine() == machine


@pytest.fixture(scope="module")
def web(kube: Lab, kubectl: Kubectl) -> str:
    """A Deployment with two pods on each node, which runs; its name."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    labels = {"app": "web"}
    command = ["sh", "-c", "hostname > /www/index.html; echo serving; exec httpd -f -p 80 -h /www"]
    pod = {
        "terminationGracePeriodSeconds": 0,
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}],
        "containers": [{"name": "web", "image": images.TOOLS, "command": command}],
    }
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    kubectl.run("apply", "-f", "-", stdin=json.dumps(made), kubeconfig=kube.kubeconfig)
    _until_available(kube, kubectl)
    return "deployment/web"


def test_every_node_is_ready_and_the_status_shows_the_parts(kube: Lab, kubectl: Kubectl) -> None:
    nodes = _get(kube, kubectl, "nodes")
    assert {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == dict.fromkeys(
        NODES, f"v{kube_support.CURRENT}"
    )
    assert [node["spec"]["podCIDRs"][0] for node in nodes] == ["10.244.1.0/24", "10.244.2.0/24"]
    shown = labs.command("status", "--data", kube.layout.folder)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    parts = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "controller")
    for part in (*parts, *(f"{name}-{node}" for name in ("containerd", "kubelet", "agent") for node in NODES)):
        assert f"─ {part} " in shown.stdout
    assert f"kube  172.31.1.1, Kubernetes {kube_support.CURRENT}" in shown.stdout


def test_pods_run_on_every_node_and_can_be_reached_by_exec_and_logs(kube: Lab, kubectl: Kubectl, web: str) -> None:
    pods = _pods(kube, kubectl)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n1", "n2", "n2"]
    assert {len(pod["status"]["podIPs"]) for pod in pods} == {2}, "an address of each family"
    for pod in pods:
        name = pod["metadata"]["name"]
        run = kubectl.run("exec", name, "--", "hostname", kubeconfig=kube.kubeconfig)
        assert run.out.strip() == name
        assert kubectl.run("logs", name, kubeconfig=kube.kubeconfig).out == "serving\n"
    one, other = (pod for pod in pods if pod["spec"]["nodeName"] == "n1")
    fetch = ("wget", "-qO-", f"http://{other['status']['podIP']}/")
    answer = kubectl.run("exec", one["metadata"]["name"], "--", *fetch, kubeconfig=kube.kubeconfig)
    assert answer.out.strip() == other["metadata"]["name"]


def test_the_administrators_credential_is_private_and_a_kubelet_is_held_to_its_node(
    kube: Lab, kubectl: Kubectl
) -> None:
    assert kube.kubeconfig == kube.layout.folder / "kube.kubeconfig"
    assert kube.kubeconfig.stat().st_mode & 0o777 == 0o600
    # That of a kubelet has the address for nodes, which this machine does not reach: the same certificate, elsewhere.
    text = Places(kube.layout).kubelet_kubeconfig("n1").read_text().replace(Places(kube.layout).url, kube.layout.url)
    kubelet = kube.layout.folder / "as-n1.kubeconfig"
    kubelet.write_text(text)
    try:
        kubectl.run("label", "node", "n1", "tried=yes", kubeconfig=kubelet)
        refused = kubectl.run("label", "node", "n2", "tried=yes", kubeconfig=kubelet, check=False)
        assert "only its own Node object" in refused.err
        agent = kube.layout.agent_kubeconfig("n1")
        refused = kubectl.run("get", "secrets", "-A", kubeconfig=agent, check=False)
        assert 'User "netloom:node:n1" cannot list' in refused.err
    finally:
        kubelet.unlink()


def test_pods_survive_a_kill_of_their_containerd_and_kubelet(kube: Lab, kubectl: Kubectl, web: str) -> None:
    before = {process.pid for process in cgroups.processes(kube.layout.id, "n1")}
    assert before
    for name in ("containerd-n1", "kubelet-n1"):
        labs.killed_comes_back(kube, name)
    assert {process.pid for process in cgroups.processes(kube.layout.id, "n1")} == before
    doomed = next(pod for pod in _pods(kube, kubectl) if pod["spec"]["nodeName"] == "n1")["metadata"]["name"]
    kubectl.run("delete", "pod", doomed, kubeconfig=kube.kubeconfig)
    _until_available(kube, kubectl)
    assert doomed not in {pod["metadata"]["name"] for pod in _pods(kube, kubectl)}


def test_a_node_that_is_powered_off_has_no_containers_and_restarts_them(kube: Lab, kubectl: Kubectl, web: str) -> None:
    before = _restarts(kube, kubectl, "n2")
    kube.off("n2")
    assert cgroups.processes(kube.layout.id, "n2") == []
    assert ending.mounts(kube.layout.id, kube.layout.node("n2"), "n2") == []
    assert cgroups.processes(kube.layout.id, "n1"), "the other node's go on"
    kube.on("n2")
    _until_restarted(kube, kubectl, before, "n2")


def test_a_lab_that_was_killed_leaves_nothing_and_comes_up_with_its_pods(
    kube: Lab, kubectl: Kubectl, web: str, machine: dict[str, object]
) -> None:
    folder = kube.layout.folder
    before = _restarts(kube, kubectl, *NODES)
    for name in ("keeper", "supervisor", "containerd-n1", "kubelet-n2"):
        kube.kill(name)
    down(folder)
    assert labs.left_of(folder) == []
    assert _machine() == machine
    Lab.up(folder, nodes=2, kube=kube_support.CURRENT, cni="bridge")
    _until_restarted(kube, kubectl, before, *NODES)


def _machine() -> dict[str, object]:
    kernel = {name: Path("/proc/sys", *name.split(".")).read_text() for name in KERNEL}
    return {**kernel, **{path: os.path.exists(path) for path in OF_THE_MACHINE}, "abandoned": _abandoned_sockets()}


def _abandoned_sockets() -> list[str]:
    """Return the sockets of shims that have ended; those of other labs, which may run beside, have a listener."""
    found = []
    for name in sorted(os.listdir(SHIM_SOCKETS)) if os.path.isdir(SHIM_SOCKETS) else []:
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.connect(os.path.join(SHIM_SOCKETS, name))
            except ConnectionRefusedError:
                found.append(name)
            except FileNotFoundError:
                pass  # Its lab has just removed it.
    return found


def _get(lab: Lab, kubectl: Kubectl, *words: str) -> list[dict[str, Any]]:
    shown = kubectl.run("get", *words, "-o", "json", kubeconfig=lab.kubeconfig)
    items: list[dict[str, Any]] = json.loads(shown.out)["items"]
    return items


def _pods(lab: Lab, kubectl: Kubectl) -> list[dict[str, Any]]:
    return [pod for pod in _get(lab, kubectl, "pods") if "deletionTimestamp" not in pod["metadata"]]


def _restarts(lab: Lab, kubectl: Kubectl, *nodes: str) -> dict[str, int]:
    """Return how often the container of each pod on some nodes was restarted; without those that are not ready."""
    states = {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]
        for pod in _pods(lab, kubectl)
        if pod["spec"]["nodeName"] in nodes and pod["status"].get("podIPs")
    }
    return {name: one["restartCount"] for name, one in states.items() if one["ready"]}


def _until_restarted(lab: Lab, kubectl: Kubectl, before: dict[str, int], *nodes: str) -> None:
    """Wait for pods to be ready once more: until their kubelet has looked, the API has what was true before."""

    def restarted() -> bool:
        now = _restarts(lab, kubectl, *nodes)
        return now.keys() == before.keys() and all(now[name] > count for name, count in before.items())

    wait_until(restarted, what=f"the containers of {' and '.join(nodes)} to be started again", timeout=90)


def _until_available(lab: Lab, kubectl: Kubectl) -> None:
    kubectl.run("rollout", "status", "deployment/web", "--timeout=60s", kubeconfig=lab.kubeconfig)
