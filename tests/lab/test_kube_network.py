"""A lab with a Kubernetes cluster whose network is Netloom: real packets of pods, hosts and the outside."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.lab import Lab
from netloom.lab.kube import images
from tests.lab import labs
from tests.run.serving import netloom
from tests.support import kube as kube_support
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.kube, pytest.mark.timeout(300)]

NODES = ("n1", "n2")
WORLD = ("198.51.100.1", "2001:db8:ffff::1")
FETCH = ("timeout", "5", "wget", "-qO-")


@pytest.fixture(scope="module")
def kube() -> Iterator[Lab]:
    """Two nodes, and an outside."""
    with labs.running(nodes=2, kube=kube_support.CURRENT, outside=True) as running:
        yield running
        running.down()
        assert labs.left_of(running.layout.folder) == []


@pytest.fixture(scope="module")
def pods(kube: Lab, kubectl: Kubectl) -> dict[str, dict[str, Any]]:
    """Two web servers on each node, behind the Service `web` with a NodePort: name -> pod."""
    labels = {"app": "web"}
    serve = "hostname > /www/index.html; exec httpd -f -p 80 -h /www"
    container = {"name": "web", "image": images.TOOLS, "command": ["sh", "-c", serve]}
    pod: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    made = [
        _object("v1", "Service", spec={"type": "NodePort", "selector": labels, "ports": [{"port": 80}],
                                       "ipFamilyPolicy": "RequireDualStack"}),
        *(_object("apps/v1", "Deployment", name=f"web-{node}", spec={
            "replicas": 2, "selector": {"matchLabels": labels | {"node": node}},
            "template": {"metadata": {"labels": labels | {"node": node}},
                         "spec": pod | {"nodeSelector": {"kubernetes.io/hostname": node}}},
        }) for node in NODES),
    ]  # fmt: skip
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    kubectl.run("apply", "-f", "-", stdin=text, kubeconfig=kube.kubeconfig)
    for node in NODES:
        kubectl.run("rollout", "status", f"deployment/web-{node}", "--timeout=90s", kubeconfig=kube.kubeconfig)
    shown = kubectl.run("get", "pods", "-l", "app=web", "-o", "json", kubeconfig=kube.kubeconfig)
    return {pod["metadata"]["name"]: pod for pod in json.loads(shown.out)["items"]}


def test_every_pod_reaches_every_pod_at_both_addresses(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    assert sorted(pod["spec"]["nodeName"] for pod in pods.values()) == ["n1", "n1", "n2", "n2"]
    for one in pods:
        for other, pod in pods.items():
            for address in _addresses(pod):
                assert _fetched(kube, kubectl, one, f"http://{address}/") == other


def test_a_service_is_reached_from_pods_hosts_and_the_outside(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    shown = kubectl.run("get", "service", "web", "-o", "json", kubeconfig=kube.kubeconfig)
    spec = json.loads(shown.out)["spec"]
    assert len(spec["clusterIPs"]) == 2
    port = spec["ports"][0]["nodePort"]
    for address in spec["clusterIPs"]:
        url = f"http://{_bracketed(address)}/"
        _until_fetched(kube, kubectl, next(iter(pods)), url, set(pods))
        for node in NODES:
            _until_answered(kube, node, url, set(pods))
    for place, host in (("outside", "192.0.2.101"), ("outside", "[2001:db8::66]"), ("kube", "172.31.0.2")):
        _until_answered(kube, place, f"http://{host}:{port}/", set(pods))


def test_a_service_gets_an_address_outside_and_is_reached_there(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 8080, "targetPort": 80}],
            "ipFamilyPolicy": "RequireDualStack", "allocateLoadBalancerNodePorts": False}  # fmt: skip
    outward = _object("v1", "Service", spec=spec, name="outward")
    kubectl.run("apply", "-f", "-", stdin=json.dumps(outward), kubeconfig=kube.kubeconfig)
    ready = ("wait", "--for=jsonpath={.status.loadBalancer.ingress[1].ip}", "--timeout=30s", "service/outward")
    kubectl.run(*ready, kubeconfig=kube.kubeconfig)
    shown = json.loads(kubectl.run("get", "service", "outward", "-o", "json", kubeconfig=kube.kubeconfig).out)
    ips = [one["ip"] for one in shown["status"]["loadBalancer"]["ingress"]]
    assert ips == ["192.0.2.224", "2001:db8::e000"]
    assert "nodePort" not in shown["spec"]["ports"][0]
    for ip, node in zip(ips, ("192.0.2.101", "2001:db8::66"), strict=True):
        kube.exec("outside", ["ip", "route", "replace", ip, "via", node])
        url = f"http://{_bracketed(ip)}:8080/"
        _until_answered(kube, "outside", url, set(pods))
        _until_fetched(kube, kubectl, next(iter(pods)), url, set(pods))
        _until_answered(kube, "n1", url, set(pods))
    kubectl.run("delete", "service", "outward", kubeconfig=kube.kubeconfig)


def test_pods_reach_the_world_and_the_api(kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]) -> None:
    for pod in pods:
        for address in WORLD:
            _until_done(kube, kubectl, pod, "ping", "-c", "1", "-W", "2", address)
        _exec(kube, kubectl, pod, "sh", "-c", "timeout 5 nc 10.96.0.1 443 < /dev/null")


def test_pods_resolve_the_names_of_services_and_nothing_else(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    for pod in pods:
        _until_fetched(kube, kubectl, pod, "http://web/", set(pods))
        assert "10.96.0.1\n" in _exec(kube, kubectl, pod, "nslookup", "kubernetes.default.svc.cluster.local")
    lookup = ("exec", next(iter(pods)), "--", "nslookup", "netloom.dev")
    assert "SERVFAIL" in kubectl.run(*lookup, kubeconfig=kube.kubeconfig, check=False).out


def test_a_port_of_a_node_leads_to_a_pod(kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]) -> None:
    serve = "hostname > /www/index.html; exec httpd -f -p 8000 -h /www"
    ports = [{"containerPort": 8000, "hostPort": 8080}]
    container = {"name": "ported", "image": images.TOOLS, "command": ["sh", "-c", serve], "ports": ports}
    spec = {"terminationGracePeriodSeconds": 0, "nodeName": "n1", "containers": [container]}
    text = json.dumps(_object("v1", "Pod", name="ported", spec=spec))
    kubectl.run("apply", "-f", "-", stdin=text, kubeconfig=kube.kubeconfig)
    try:
        for place, host in (("outside", "192.0.2.101"), ("outside", "[2001:db8::65]"), ("n1", "172.31.0.1")):
            _until_answered(kube, place, f"http://{host}:8080/", {"ported"})
        for pod in pods:
            _until_fetched(kube, kubectl, pod, "http://172.31.0.1:8080/", {"ported"})
    finally:
        kubectl.run("delete", "pod", "ported", kubeconfig=kube.kubeconfig)
    fetch = ["curl", "-s", "-m", "2", "http://192.0.2.101:8080/"]
    wait_until(lambda: kube.exec("outside", fetch, check=False).returncode != 0, what="the port to lead nowhere")


def test_pods_are_reached_while_all_that_made_them_is_killed(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    one, other = (next(name for name, pod in pods.items() if pod["spec"]["nodeName"] == node) for node in NODES)
    for name in ("agent-n1", "controller", "containerd-n1", "kubelet-n1", "kube-scheduler"):
        labs.killed_comes_back(kube, name)
        _until_fetched(kube, kubectl, one, f"http://{_addresses(pods[other])[0]}/", {other})
    kubectl.run("delete", "pod", one, kubeconfig=kube.kubeconfig)
    kubectl.run("rollout", "status", "deployment/web-n1", "--timeout=90s", kubeconfig=kube.kubeconfig)
    pod = pods.pop(one)
    shown = kubectl.run("get", "pods", "-l", "app=web", "-o", "json", kubeconfig=kube.kubeconfig)
    pods |= {found["metadata"]["name"]: found for found in json.loads(shown.out)["items"]}
    assert pod["metadata"]["name"] not in pods
    wait_until(
        lambda: netloom("doctor", kubeconfig=kube.kubeconfig, check=False).rc == 0, what="doctor to find nothing"
    )


def _object(version: str, kind: str, *, spec: dict[str, Any], name: str = "web") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _addresses(pod: dict[str, Any]) -> list[str]:
    found = [_bracketed(one["ip"]) for one in pod["status"]["podIPs"]]
    assert len(found) == 2
    return found


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _exec(lab: Lab, kubectl: Kubectl, pod: str, *command: str) -> str:
    return kubectl.run("exec", pod, "--", *command, kubeconfig=lab.kubeconfig).out


def _until_done(lab: Lab, kubectl: Kubectl, pod: str, *command: str) -> None:
    words = ("exec", pod, "--", *command)
    wait_until(lambda: kubectl.run(*words, kubeconfig=lab.kubeconfig, check=False).rc == 0, what=" ".join(words))


def _fetched(lab: Lab, kubectl: Kubectl, pod: str, url: str) -> str:
    return _exec(lab, kubectl, pod, *FETCH, url).strip()


def _until_fetched(lab: Lab, kubectl: Kubectl, pod: str, url: str, wanted: set[str]) -> None:
    """Fetch from inside a pod until one of `wanted` answers: a kubelet that was killed knows its pods later."""

    def fetched() -> bool:
        answer = kubectl.run("exec", pod, "--", *FETCH, url, kubeconfig=lab.kubeconfig, check=False)
        return answer.out.strip() in wanted

    wait_until(fetched, what=f"{url} from {pod}")


def _until_answered(lab: Lab, place: str, url: str, wanted: set[str]) -> None:
    def answered() -> bool:
        return lab.exec(place, ["curl", "-sg", "-m", "5", url], check=False).stdout.strip() in wanted

    wait_until(answered, what=f"{url} from {place}")


def test_a_policy_lets_in_whom_it_names_and_nodes_and_nobody_else(
    kube: Lab, kubectl: Kubectl, pods: dict[str, dict[str, Any]]
) -> None:
    one, other = (next(name for name, pod in pods.items() if pod["spec"]["nodeName"] == node) for node in NODES)
    url = f"http://{_addresses(pods[other])[0]}/"
    allowed = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}
    spec = {"podSelector": {"matchLabels": {"node": "n2"}}, "policyTypes": ["Ingress"], "ingress": [allowed]}
    text = json.dumps(_object("networking.k8s.io/v1", "NetworkPolicy", spec=spec))
    fetch = ("exec", one, "--", *FETCH, url)
    kubectl.run("apply", "-f", "-", stdin=text, kubeconfig=kube.kubeconfig)
    try:
        wait_until(lambda: kubectl.run(*fetch, kubeconfig=kube.kubeconfig, check=False).rc != 0, what="a blocked pod")
        _until_answered(kube, "n2", url, {other})
        kubectl.run("label", "pod", one, "role=friend", kubeconfig=kube.kubeconfig)
        _until_fetched(kube, kubectl, one, url, {other})
    finally:
        kubectl.run("delete", "networkpolicy", "web", kubeconfig=kube.kubeconfig)
