"""Three nodes whose parts are restarted, whose hosts reboot, leave and join: the packets of pods and Services go on."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netloom.drivers.vswitch.pods import POD
from netloom.lab import Lab
from netloom.lab.kube import images
from netloom.lab.kube.places import pod_cidrs
from netloom.plan.kube import names
from tests.lab import labs
from tests.lab.churning import Api
from tests.lab.pinging import Pings, pinging
from tests.lab.resting import eventually, healthy
from tests.support.kubectl import Kubectl
from tests.support.process import Program, wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.kube,
    pytest.mark.churn,
    pytest.mark.timeout(1200),
]

NAMESPACE = "rolling"
WORLD = "198.51.100.1"
ASKS = """
import socket, sys, time
while True:
    try:
        with socket.create_connection((sys.argv[1], 80), 5) as to:
            to.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            answer = b""
            while part := to.recv(4096):
                answer += part
        print("answered" if b" 200 " in answer.partition(b"\\n")[0] else "nonsense", flush=True)
    except OSError as error:
        print("failed", error, flush=True)
    time.sleep(0.1)
"""


class Web:
    """A web server on each node, and the Services that lead to them."""

    def __init__(self, lab: Lab, kubectl: Kubectl) -> None:
        self.lab, self._kubectl = lab, kubectl
        self.api = Api(lab, names.NAMESPACE)

    def ctl(self, *words: str, stdin: str = "") -> str:
        return self._kubectl.run("-n", NAMESPACE, *words, kubeconfig=self.lab.kubeconfig, stdin=stdin).out

    def get(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ctl("get", *words, "-o", "json"))
        return found

    def pods(self, *nodes: str) -> dict[str, dict[str, Any]]:
        """Return the server of each node that runs, by node."""
        items = [pod for pod in self.get("pods")["items"] if "deletionTimestamp" not in pod["metadata"]]
        return {
            pod["spec"]["nodeName"]: pod for pod in items if pod["spec"].get("nodeName") in (nodes or self.lab.nodes)
        }

    def address(self, node: str, family: int = 4) -> str:
        found = [ip["ip"] for ip in self.pods(node)[node]["status"]["podIPs"]]
        return str(next(ip for ip in found if (":" in ip) == (family == 6)))

    def netns(self, node: str) -> str:
        """Return the path of the network namespace of a node's server."""
        name = names.pod(NAMESPACE, self.pods(node)[node]["metadata"]["name"])
        [found] = [one["netns"] for one in self.records(node) if one["name"] == name]
        return str(found)

    def records(self, node: str) -> list[dict[str, Any]]:
        """Return what the agent of a node remembers of our pods."""
        argv = ["ovs-vsctl", "--format=json", "--columns=external_ids", "list", "Bridge"]
        rows = json.loads(self.lab.exec(node, argv).stdout)["data"]
        found = [json.loads(value) for row in rows for key, value in row[0][1] if key.startswith(f"{POD}/")]
        return [one for one in found if one["name"].startswith(names.pod(NAMESPACE, ""))]

    def fetched(self, place: str, url: str) -> str:
        """Return who answers to a place of the lab, "" if nobody does."""
        return self.lab.exec(place, ["curl", "-sg", "-m", "5", url], check=False).stdout.strip()

    def ready(self) -> None:
        """Return when every node's server is Ready, and answers to every node."""
        self.ctl("rollout", "status", "daemonset/web", "--timeout=120s")
        eventually(self._silent, "the servers to answer")

    def _silent(self) -> list[str]:
        pods = self.pods()
        addresses = {node: pod["status"].get("podIP", "") for node, pod in pods.items()}
        return [
            f"{node} from {place}"
            for node, address in addresses.items()
            for place in self.lab.nodes
            if self.fetched(place, f"http://{address}/") != pods[node]["metadata"]["name"]
        ]


@pytest.fixture(scope="module")
def web(cluster: Lab, kubectl: Kubectl) -> Iterator[Web]:
    made = Web(cluster, kubectl)
    labels = {"app": "web"}
    command = ["sh", "-c", "hostname > /www/index.html; exec httpd -f -p 80 -h /www"]
    pod = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        # It stays on a node that is away for a while.
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "web", "image": images.TOOLS, "command": command}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    ports = {"selector": labels, "ports": [{"port": 80}], "type": "NodePort"}
    items = [
        _object("v1", "Namespace", NAMESPACE),
        _object("apps/v1", "DaemonSet", "web", {"selector": {"matchLabels": labels}, "template": template}),
        _object("v1", "Service", "web", ports),
        _object("v1", "Service", "sticky", {**ports, "sessionAffinity": "ClientIP"}),
    ]
    try:
        made.ctl(
            "apply",
            "--validate=false",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        )
        made.ready()
        yield made
    finally:
        made.ctl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
        made.api.close()


def _object(version: str, kind: str, name: str, spec: object = None) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec else {})}


@contextmanager
def _asking(web: Web, node: str, address: str, folder: Path) -> Iterator[Program]:
    """Connect to a Service from a node's pod, ten times a second."""
    argv = ["nsenter", f"--net={web.netns(node)}", sys.executable, "-c", ASKS, address]
    with Program(argv, log=folder / "asks") as asks:
        asks.wait_for("answered")
        yield asks


def test_no_packet_is_lost_while_every_part_is_restarted(web: Web, tmp_path: Path) -> None:
    lab = web.lab
    ways = {
        "between": (web.netns("n1"), web.address("n2")),
        "between-v6": (web.netns("n2"), web.address("n3", 6)),
        "from-a-node": (lab.netns("n1"), web.address("n1")),
        "from-another-node": (lab.netns("n3"), web.address("n2")),
        "outward": (web.netns("n2"), WORLD),
    }
    service = web.get("service", "web")["spec"]["clusterIP"]
    with pinging(ways, tmp_path) as pings, _asking(web, "n1", service, tmp_path) as asks:
        since = pings.settle()
        for name in ("controller", *(f"agent-{node}" for node in lab.nodes)):
            _restarted(lab, name, signal.SIGTERM)
            _go_on(pings, asks)
        # As packages do it, without leaving the cluster: it ends at once.
        for name in ("ovn-northd", *(f"ovn-controller-{node}" for node in lab.nodes)):
            _restarted(lab, name, signal.SIGKILL)
            _go_on(pings, asks)
        assert pings.lost(since) == {}
        assert set(asks.output().split("\n")) == {"answered", ""}


def _restarted(lab: Lab, name: str, number: signal.Signals) -> None:
    before = lab.kill(name, number)
    wait_until(
        lambda: lab.pid(name) not in (0, before) and labs.is_ready(lab, name), what=f"{name} to be back", timeout=300
    )


def _go_on(pings: Pings, asks: Program) -> None:
    pings.go_on()
    before = len(asks.output())
    wait_until(lambda: len(asks.output()) > before + 20, what="the Service to be asked again")


def test_a_client_stays_with_its_endpoint_if_the_service_says_so(web: Web) -> None:
    spec = web.get("service", "sticky")["spec"]
    everybody = {pod["metadata"]["name"] for pod in web.pods().values()}
    urls = {"n1": f"http://{spec['clusterIP']}/", "outside": f"http://192.0.2.101:{spec['ports'][0]['nodePort']}/"}
    for place, url in urls.items():
        wait_until(lambda: web.fetched(place, url) in everybody, what=f"{url} from {place}")  # noqa: B023
        assert len({web.fetched(place, url) for _ in range(12)}) == 1
    spec = web.get("service", "web")["spec"]
    for place, url in {
        "n1": f"http://{spec['clusterIP']}/",
        "outside": f"http://192.0.2.101:{spec['ports'][0]['nodePort']}/",
    }.items():
        seen: set[str] = set()

        def all_seen(place: str = place, url: str = url, seen: set[str] = seen) -> bool:
            seen |= {web.fetched(place, url)} & everybody
            return seen == everybody

        wait_until(all_seen, what=f"every endpoint from {place}")


def test_a_node_that_reboots_has_its_pods_again_and_nothing_of_earlier_ones(web: Web, tmp_path: Path) -> None:
    lab = web.lab
    with pinging({"others": (web.netns("n1"), web.address("n3"))}, tmp_path) as pings:
        since = pings.settle()
        lab.off("n2")
        pings.go_on()
        lab.on("n2")
        wait_until(lambda: _running(web, "n2"), what="the pod to run again", timeout=180, interval=0.5)
        web.ready()
        assert pings.lost(since) == {}, "of nodes that did not reboot"
    assert [one["name"] for one in web.records("n2")] == [
        names.pod(NAMESPACE, web.pods("n2")["n2"]["metadata"]["name"])
    ]
    healthy(lab)


def test_a_node_leaves_and_joins(web: Web) -> None:
    lab, gone = web.lab, {"node.n3", "slice-v4.n3", "slice-v6.n3"}
    lab.off("n3")
    web.ctl("delete", "node", "n3")
    wait_until(lambda: not gone & _made(web), what="what was made for the node to go", interval=0.5)
    assert {"node.n1", "slice-v4.n1", "node.n2", "slice-v4.n2"} <= _made(web)
    # Its pods are gone from the Service.
    spec = web.get("service", "web")["spec"]
    others = {pod["metadata"]["name"] for pod in web.pods("n1", "n2").values()}
    wait_until(
        lambda: {web.fetched("n1", f"http://{spec['clusterIP']}/") for _ in range(8)} <= others, what="two endpoints"
    )
    cidrs = list(pod_cidrs("n3"))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"},
            "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}}  # fmt: skip
    web.ctl("create", "-f", "-", stdin=json.dumps(node))
    lab.on("n3")
    wait_until(lambda: gone <= _made(web), what="what is made for a node")
    wait_until(lambda: _running(web, "n3"), what="a pod on it", timeout=180, interval=0.5)
    web.ready()
    healthy(lab)


def test_an_agents_credential_changes_nothing_of_another_node(web: Web, kubectl: Kubectl) -> None:
    lab, others = web.lab, names.pod(NAMESPACE, web.pods("n2")["n2"]["metadata"]["name"])
    status = json.dumps({"status": {"ifcName": "stolen"}})
    labels = json.dumps({"metadata": {"labels": {"stolen": "yes"}}})
    made = {"node": "n1", "network": names.NETWORK, "port": {"type": "internal"}}
    document = _object("netloom.dev/v1alpha1", "NetworkAttachment", "stolen", made)
    attempts: list[tuple[str, ...]] = [
        ("patch", f"networkattachment/{others}", "--subresource=status", "--type=merge", "-p", status),
        ("patch", f"networkattachment/{others}", "--type=merge", "-p", labels),
        ("patch", "networkattachment/node.n2", "--subresource=status", "--type=merge", "-p", status),
        ("patch", "nodes.netloom.dev/n2", "--type=merge", "-p", labels),
        (
            "patch",
            "nodes.netloom.dev/n2",
            "--subresource=status",
            "--type=merge",
            "-p",
            '{"status": {"agentVersion": "x"}}',
        ),
        ("patch", "router/pods", "--type=merge", "-p", labels),
        ("patch", "subnet/slice-v4.n2", "--type=merge", "-p", labels),
        ("patch", "securityprofile/hosts", "--type=merge", "-p", labels),
        ("patch", "node/n2", "--type=merge", "-p", labels),
        ("delete", f"networkattachment/{others}"),
        ("delete", f"networkattachment/{names.node('n2')}"),
        ("delete", "nodes.netloom.dev/n2"),
        ("delete", "pod", "--all", "-n", NAMESPACE),
        ("create", "-f", "-"),
    ]
    before = web.ctl("get", "networkattachments", "-n", names.NAMESPACE, "-o", "name")
    for words in attempts:
        stdin = json.dumps(document) if words[0] == "create" else ""
        said = kubectl.run("-n", names.NAMESPACE, *words, kubeconfig=lab.layout.agent_kubeconfig("n1"),
                           stdin=stdin, check=False)  # fmt: skip
        assert said.rc != 0, words
        assert "forbidden" in said.err or "denied" in said.err, (words, said)
    assert web.ctl("get", "networkattachments", "-n", names.NAMESPACE, "-o", "name") == before


def _running(web: Web, node: str) -> bool:
    pod = web.pods(node).get(node, {"status": {}})
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def _made(web: Web) -> set[str]:
    return {one["metadata"]["name"] for kind in ("NetworkAttachment", "Subnet") for one in web.api.items(kind)}
