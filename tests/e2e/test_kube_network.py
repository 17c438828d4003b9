"""The network of a cluster on a real kube-apiserver with our CRDs: pods, nodes, Services and policies come and go.

There is no kubelet and no scheduler: the tests bind pods, and write their phases.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from netloom.model.document import Document
from netloom.plan.kube import names
from netloom.run.cluster.manifests import NAMESPACE
from tests.e2e.joined import Joined, with_crds
from tests.plan.kube_objects import node_document, pod_document, policy_document, slice_document
from tests.run.serving import NETLOOM, environment, netloom
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl
from tests.support.process import Program, wait_until

pytestmark = pytest.mark.kube

OURS = "/apis/netloom.dev/v1alpha1"
MADE = ("networks", "subnets", "routers", "networkattachments", "securityprofiles", "loadbalancers")
BLOCKS = ("--kube-pod-cidrs", "10.128.0.0/14", "--kube-service-cidrs", "10.250.0.0/16")
_numbers = count()


@dataclass
class Network:
    """A cluster with Netloom's controller as its network."""

    joined: Joined
    folder: Path

    def ask(self, method: str, path: str, body: object = None, *, fine: bool = True) -> Any:
        """Send a request as the administrator, and return the answer."""
        status, answer = self.joined.cluster.request(method, path, body)
        assert not fine or status < 300, answer
        return answer

    def namespace(self, name: str = "", **labels: str) -> str:
        """Return a namespace of one test, in which pods can be created."""
        name = name or f"kube-{next(_numbers)}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
        self.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
        return name

    def node(self, name: str, *blocks: str) -> None:
        self.ask("POST", "/api/v1/nodes", node_document(name, *blocks))

    def pod(self, namespace: str, name: str, node: str = "n1", **rest: Any) -> Document:
        document = pod_document(name, node, namespace=namespace, **rest)
        made: Document = self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", document)
        return made

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Do what the scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.ask("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)

    def finish(self, namespace: str, name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.ask("PUT", f"{path}/status", self.ask("GET", path) | {"status": {"phase": "Succeeded"}})

    def remove(self, namespace: str, name: str) -> None:
        self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    def made(self, plural: str = "networkattachments") -> dict[str, Document]:
        """Return the objects of a kind that are made for the cluster, by name."""
        items = self.ask("GET", f"{OURS}/namespaces/{names.NAMESPACE}/{plural}")["items"]
        return {one["metadata"]["name"]: one for one in items}

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what=what, timeout=60, interval=0.1)

    def until_made(self, name: str, plural: str = "networkattachments") -> Document:
        self.until(lambda: name in self.made(plural), f"{plural} {name}")
        return self.made(plural)[name]

    def until_gone(self, name: str, plural: str = "networkattachments") -> None:
        self.until(lambda: name not in self.made(plural), f"the end of {plural} {name}")

    def revisions(self) -> dict[str, str]:
        """Return the revision of each object that is made."""
        return {
            f"{plural}/{name}": one["metadata"]["resourceVersion"]
            for plural in MADE
            for name, one in self.made(plural).items()
        }

    def reasons(self, namespace: str) -> set[tuple[str, str]]:
        events = self.ask("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return {(one["involvedObject"]["name"], one["reason"]) for one in events}

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        """Run the controller with its own credential."""
        kubeconfig = self.joined.cluster.account(NAMESPACE, "netloom-controller")
        argv = [*NETLOOM, "controller", "--kubeconfig", str(kubeconfig), "--kube", *BLOCKS]
        log = self.folder / f"controller-{next(_numbers)}.log"
        with Program(argv, log=log, env=environment()) as running:
            running.wait_for('"ready"', timeout=120)
            yield


@pytest.fixture(scope="module")
def network(kube: Kube, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A cluster with a node, and no controller that runs."""
    folder = tmp_path_factory.mktemp("kube-network")
    with with_crds(kube, kubectl, folder, controlled=False) as joined:
        joined.tell(netloom("crds", "--with-roles", "--with-kube", "--nodes", "n1,n2,n3").out)
        found = Network(joined, folder)
        found.ask("DELETE", "/api/v1/nodes/n1", fine=False)
        found.node("n1", "10.128.0.0/24")
        yield found
        found.ask("DELETE", f"/api/v1/namespaces/{names.NAMESPACE}")
        found.ask("DELETE", "/api/v1/nodes/n1")


@pytest.fixture
def controlled(network: Network) -> Iterator[Network]:
    with network.controller():
        yield network


def test_a_pod_is_attached_when_it_is_bound_and_until_it_has_finished(controlled: Network) -> None:
    space = controlled.namespace()
    controlled.pod(space, "web", "", labels={"app": "web", names.HOST: "true", names.OF_NAMESPACE: "other"})
    controlled.pod(space, "beside")
    controlled.until_made(f"pod.{space}.beside")
    assert f"pod.{space}.web" not in controlled.made()
    controlled.bind(space, "web", "n1")
    one = controlled.until_made(f"pod.{space}.web")
    assert one["metadata"]["labels"] == {
        "app": "web",
        names.MANAGED: "true",
        names.OF_NAMESPACE: space,
        names.POD_UID: controlled.ask("GET", f"/api/v1/namespaces/{space}/pods/web")["metadata"]["uid"],
    }
    assert (one["spec"]["node"], one["spec"]["port"]) == ("n1", {"type": "pod"})
    controlled.finish(space, "web")
    controlled.until_gone(f"pod.{space}.web")
    controlled.remove(space, "beside")
    controlled.until_gone(f"pod.{space}.beside")


def test_the_node_has_its_second_address_and_pods_have_others(controlled: Network) -> None:
    space = controlled.namespace()
    for number in range(5):
        controlled.pod(space, f"p{number}")
    wanted = {"node.n1", *(f"pod.{space}.p{number}" for number in range(5))}

    def addressed() -> bool:
        made = controlled.made()
        return all(made.get(name, {}).get("status", {}).get("ips") for name in wanted)

    controlled.until(addressed, "addresses")
    made = controlled.made()
    assert made["node.n1"]["status"]["ips"] == ["10.128.0.2/24"]
    assert len({made[name]["status"]["ips"][0] for name in wanted}) == len(wanted)


def test_a_pod_that_is_created_again_gets_another_attachment(controlled: Network) -> None:
    space = controlled.namespace()
    controlled.pod(space, "web-0")
    first = controlled.until_made(f"pod.{space}.web-0")["metadata"]["uid"]
    controlled.remove(space, "web-0")
    second = controlled.pod(space, "web-0")["metadata"]["uid"]

    def again() -> bool:
        found = controlled.made().get(f"pod.{space}.web-0", {"metadata": {}})["metadata"]
        return bool(found.get("uid", first) != first and found["labels"][names.POD_UID] == second)

    controlled.until(again, "another attachment")


def test_the_longest_names_are_attached(controlled: Network) -> None:
    space = controlled.namespace("n" + "s" * 62)
    name = "p" * 63 + ("." + "q" * 62) * 3 + "r"
    assert len(name) == 253
    controlled.pod(space, name)
    made = controlled.until_made(names.pod(space, name))
    assert made["metadata"]["annotations"][names.POD_NAME] == name
    assert made["metadata"]["labels"][names.OF_NAMESPACE] == space
    controlled.remove(space, name)
    controlled.until_gone(names.pod(space, name))


def test_a_node_joins_and_leaves(controlled: Network) -> None:
    space = controlled.namespace()
    controlled.node("n9", "10.128.9.0/24")
    controlled.until_made("node.n9")
    controlled.until_made("slice-v4.n9", "subnets")
    controlled.pod(space, "far", "n9")
    assert controlled.until_made(f"pod.{space}.far")["spec"]["subnets"] == ["slice-v4.n9"]
    vias = [one["via"] for one in controlled.made("routers")["pods"]["spec"]["policies"] if "via" in one]
    assert ["10.128.9.2"] in vias
    controlled.ask("DELETE", "/api/v1/nodes/n9")
    controlled.remove(space, "far")
    controlled.until_gone("node.n9")
    controlled.until_gone("slice-v4.n9", "subnets")


def test_services_and_policies_are_followed(controlled: Network) -> None:
    space = controlled.namespace()
    other = controlled.namespace(team="b")
    port = {"name": "http", "port": 80, "targetPort": "http"}
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [port]}}
    controlled.ask("POST", f"/api/v1/namespaces/{space}/services", service)
    made = controlled.until_made(f"service-v4.{space}.web", "loadbalancers")
    assert made["spec"]["vips"][0]["port"] == 80
    document = slice_document("web-1", "web", "10.128.0.9")
    document["metadata"]["namespace"] = space
    controlled.ask("POST", f"/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices", document)

    def balanced() -> bool:
        spec = controlled.made("loadbalancers")[f"service-v4.{space}.web"]["spec"]
        return {one["ip"] for one in spec["endpoints"]} == {"10.128.0.9"}

    controlled.until(balanced, "the endpoint")
    peer = {"namespaceSelector": {"matchLabels": {"team": "b"}}}
    spec = {"podSelector": {}, "ingress": [{"from": [peer]}], "policyTypes": ["Ingress"]}
    policy = policy_document("allow", spec)
    policy["metadata"]["namespace"] = space
    controlled.ask("POST", f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies", policy)
    made = controlled.until_made(f"policy.{space}.allow", "securityprofiles")
    assert other in json.dumps(made["spec"])
    controlled.ask("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies/allow")
    controlled.until_gone(f"policy.{space}.allow", "securityprofiles")
    controlled.ask("DELETE", f"/api/v1/namespaces/{space}/services/web")
    controlled.until_gone(f"service-v4.{space}.web", "loadbalancers")


POLICIES = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_cluster_policies_are_followed_while_the_cluster_has_their_kind(controlled: Network) -> None:
    space = controlled.namespace(team="tests")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    name = "clusternetworkpolicies.policy.networking.k8s.io"
    spec: Document = {
        "group": "policy.networking.k8s.io",
        "names": {"kind": "ClusterNetworkPolicy", "plural": "clusternetworkpolicies"},
        "scope": "Cluster",
        "versions": [version],
    }
    # Kubernetes protects its own groups: a CRD in them names the pull request that approved it, or says why not.
    annotations = {"api-approved.kubernetes.io": "unapproved, for a test"}
    controlled.ask("POST", DEFINITIONS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
    try:
        rule = {"action": "Deny", "from": [{"namespaces": {"matchLabels": {"team": "tests"}}}]}
        policy: Document = {"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy"}
        policy |= {"metadata": {"name": "company"}}
        policy |= {"spec": {"tier": "Admin", "priority": 9, "subject": {"namespaces": {}}, "ingress": [rule]}}
        controlled.until(lambda: controlled.joined.cluster.request("POST", POLICIES, policy)[0] < 300, "the kind")
        made = controlled.until_made("cluster-policy.company", "securityprofiles")
        assert (made["spec"]["tier"], made["spec"]["priority"]) == ("admin", 900)
        assert space in json.dumps(made["spec"]["ingress"])
    finally:
        controlled.ask("DELETE", f"{DEFINITIONS}/{name}")
    controlled.until_gone("cluster-policy.company", "securityprofiles")


def test_a_pod_that_names_a_profile_it_is_not_granted_is_closed_and_an_event_says_so(controlled: Network) -> None:
    space = controlled.namespace()
    controlled.pod(space, "web", annotations={names.PROFILES: "web"})
    made = controlled.until_made(f"pod.{space}.web")
    assert made["spec"]["securityProfiles"] == [names.NOT_GRANTED]
    controlled.until(lambda: ("web", "ProfileNotGranted") in controlled.reasons(space), "an Event")
    profile: Document = {"apiVersion": "netloom.dev/v1alpha1", "kind": "SecurityProfile", "spec": {"ingress": []}}
    profile |= {"metadata": {"name": "web", "annotations": {names.GRANTED_TO: space}}}
    controlled.ask("POST", f"{OURS}/namespaces/{names.NAMESPACE}/securityprofiles", profile)

    def has_it() -> bool:
        return bool(controlled.made()[f"pod.{space}.web"]["spec"]["securityProfiles"] == ["web"])

    controlled.until(has_it, "the profile")


def test_an_object_of_others_stays_and_an_event_says_so(controlled: Network) -> None:
    space = controlled.namespace()
    other = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "NetworkAttachment",
        "metadata": {"name": f"pod.{space}.web"},
        "spec": {"node": "n9", "network": "mine", "port": {"type": "internal"}},
    }
    path = f"{OURS}/namespaces/{names.NAMESPACE}/networkattachments"
    controlled.ask("POST", path, other)
    controlled.pod(space, "web")
    controlled.until(lambda: ("web", "NameTaken") in controlled.reasons(space), "the Event")
    controlled.remove(space, "web")
    controlled.pod(space, "next")
    controlled.until_made(f"pod.{space}.next")
    assert controlled.made()[f"pod.{space}.web"]["spec"]["network"] == "mine"
    controlled.ask("DELETE", f"{path}/pod.{space}.web")


def test_a_restart_with_nothing_changed_writes_nothing(network: Network) -> None:
    space = network.namespace()
    with network.controller():
        for number in range(10):
            network.pod(space, f"p{number}", labels={"app": str(number)})
        for number in range(10):
            network.until_made(f"pod.{space}.p{number}")
        network.until(lambda: all(one.get("status", {}).get("ips") for one in network.made().values()), "addresses")
    network.remove(space, "p9")
    before = network.revisions()
    with network.controller():
        # It compares everything; one deletion says that it did.
        network.until_gone(f"pod.{space}.p9")
        network.pod(space, "last")
        network.until_made(f"pod.{space}.last")
        after = network.revisions()
    del before[f"networkattachments/pod.{space}.p9"]
    del after[f"networkattachments/pod.{space}.last"]
    for name in {one for one in before if one.startswith("subnets/")}:  # IPAM counts addresses there.
        del before[name], after[name]
    assert after == before
