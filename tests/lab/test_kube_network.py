"""A lab's Kubernetes cluster whose network is Netloom: pods, nodes, Services and policies, by real packets."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.lab import Lab
from netloom.lab.kube import binaries, images
from tests.lab import labs
from tests.support import kube as kube_support
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.kube, pytest.mark.timeout(300)]

NODES = ("n1", "n2")
NODE_PORT = 30080
SECONDS = "3"
"""How long a request may take; one that is blocked takes as long."""


@pytest.fixture(scope="module")
def kube() -> Iterator[Lab]:
    for program in binaries.BUILT:
        kube_support.kube_program(program)
    with labs.running(nodes=2, kube=kube_support.CURRENT, cni="netloom") as running:
        yield running
        running.down()
        assert labs.left_of(running.layout.folder) == []


@pytest.fixture(scope="module")
def web(kube: Lab, kubectl: Kubectl) -> dict[str, dict[str, Any]]:
    """A Service with a server on each node, and a client on n1; the pods by name."""
    serve = ["sh", "-c", "mkdir -p /www; hostname > /www/index.html; exec httpd -f -p 80 -h /www"]
    servers = [pod(f"web-{node}", node, serve, app="web") for node in NODES]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "NodePort",
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "web"},
            "ports": [{"port": 80, "nodePort": NODE_PORT}],
        },
    }
    items = [*servers, pod("client", "n1", ["sleep", "100000"], app="client"), service]
    account = ("get", "serviceaccount", "default")  # The controller manager makes it soon after the start.
    wait_until(
        lambda: not kubectl.run(*account, kubeconfig=kube.kubeconfig, check=False).rc, what="an account for pods"
    )
    kubectl.run(
        "apply",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        kubeconfig=kube.kubeconfig,
    )
    kubectl.run("wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s", kubeconfig=kube.kubeconfig)
    found = json.loads(kubectl.run("get", "pods", "-o", "json", kubeconfig=kube.kubeconfig).out)["items"]
    return {one["metadata"]["name"]: one for one in found}


def pod(name: str, node: str, command: list[str], **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": images.TOOLS, "command": command}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def from_pod(kube: Lab, kubectl: Kubectl, address: str) -> str:
    """Return what the client gets from an address, or nothing."""
    fetch = ("timeout", SECONDS, "wget", "-qO-", f"http://{address}/")
    return kubectl.run("exec", "client", "--", *fetch, kubeconfig=kube.kubeconfig, check=False).out.strip()


def from_node(kube: Lab, node: str, address: str) -> str:
    """Return what a node gets from an address, or nothing."""
    argv = ["curl", "-s", "-g", "-m", SECONDS, f"http://{address}/"]
    return str(kube.exec(node, argv, check=False).stdout).strip()


def addresses(one: dict[str, Any]) -> list[str]:
    found = [each["ip"] for each in one["status"].get("podIPs", ())] or one["spec"]["clusterIPs"]
    return [f"[{ip}]" if ":" in ip else ip for ip in found]


def service(kube: Lab, kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        kubectl.run("get", "service", "web", "-o", "json", kubeconfig=kube.kubeconfig).out
    )
    return found


def test_pods_have_addresses_of_both_families_from_the_slice_of_their_node(web: dict[str, dict[str, Any]]) -> None:
    for name, node in (("web-n1", 1), ("web-n2", 2)):
        four, six = (one["ip"] for one in web[name]["status"]["podIPs"])
        assert four.startswith(f"10.244.{node}.")
        assert six.startswith(f"fd00:10:244:{node}::")


def test_pods_and_nodes_reach_pods_on_every_node(kube: Lab, kubectl: Kubectl, web: dict[str, dict[str, Any]]) -> None:
    for name in ("web-n1", "web-n2"):
        for address in addresses(web[name]):
            assert from_pod(kube, kubectl, address) == name
            assert [from_node(kube, node, address) for node in NODES] == [name, name]


def test_a_service_leads_to_its_pods_from_pods_nodes_and_outside(
    kube: Lab, kubectl: Kubectl, web: dict[str, dict[str, Any]]
) -> None:
    for address in addresses(service(kube, kubectl)):
        wait_until(lambda: from_pod(kube, kubectl, address) in web, what=f"Service at {address}")  # noqa: B023
        assert all(from_node(kube, node, address) in web for node in NODES)
    for node in NODES:
        port = f"{kube.underlay_ip(node)}:{NODE_PORT}"
        assert all(from_node(kube, here, port) in web for here in NODES), "another node is outside for this one"


def test_a_pod_reaches_the_underlay_of_another_node_with_the_address_of_its_own(
    kube: Lab, kubectl: Kubectl, web: dict[str, dict[str, Any]]
) -> None:
    argv = ("ping", "-c", "2", "-w", "10", kube.underlay_ip("n2"))
    assert "bytes from" in kubectl.run("exec", "client", "--", *argv, kubeconfig=kube.kubeconfig).out


def test_a_policy_blocks_pods_that_it_does_not_allow_and_lets_probes_of_nodes_in(
    kube: Lab, kubectl: Kubectl, web: dict[str, dict[str, Any]]
) -> None:
    (address, *_) = addresses(web["web-n2"])
    allowed = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "web"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [allowed]},
    }
    kubectl.run("apply", "-f", "-", stdin=json.dumps(policy), kubeconfig=kube.kubeconfig)
    try:
        wait_until(lambda: not from_pod(kube, kubectl, address), what="the policy to block")
        assert from_node(kube, "n2", address) == "web-n2"
        kubectl.run("label", "pod", "client", "role=friend", kubeconfig=kube.kubeconfig)
        wait_until(lambda: from_pod(kube, kubectl, address) == "web-n2", what="the policy to allow a friend")
    finally:
        kubectl.run("delete", "networkpolicy", "web", kubeconfig=kube.kubeconfig)


def test_nothing_is_left_of_pods_that_are_deleted_while_agent_and_controller_are_killed(
    kube: Lab, kubectl: Kubectl, web: dict[str, dict[str, Any]]
) -> None:
    names = [f"doomed-{number}" for number in range(4)]
    items = [pod(name, "n2", ["sleep", "100000"]) for name in names]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl.run("apply", "-f", "-", stdin=text, kubeconfig=kube.kubeconfig)
    for name in ("agent-n2", "controller"):
        labs.killed_comes_back(kube, name)
    wait = ("wait", "--for=condition=Ready", "pod", *names, "--timeout=90s")
    kubectl.run(*wait, kubeconfig=kube.kubeconfig)
    kubectl.run("delete", "pod", *names, "--wait=false", kubeconfig=kube.kubeconfig)
    for name in ("agent-n2", "controller"):
        labs.killed_comes_back(kube, name)

    def left() -> list[str]:
        found = kubectl.run("get", "networkattachments", "-n", "netloom-pods", "-o", "name", kubeconfig=kube.kubeconfig)
        return [line for line in found.out.splitlines() if "doomed" in line]

    wait_until(lambda: not left(), what="no attachment of a deleted pod")
    wait_until(lambda: not _ports(kube), what="no port of a deleted pod")
    (address, *_) = addresses(web["web-n2"])
    assert from_pod(kube, kubectl, address) == "web-n2"


def _ports(kube: Lab) -> list[str]:
    """Return the interfaces on n2 that belong to deleted pods."""
    shown = kube.exec("n2", ["ovs-vsctl", "--bare", "--columns=external_ids", "list", "Interface"]).stdout
    return [line for line in str(shown).splitlines() if "doomed" in line]
