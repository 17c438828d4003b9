"""Churn by seed: attachments, profiles, routers and balancers that come, change and go through the API, all the time.

Its networks c0 to c3 stay, and in each a machine that stays too, the watcher, so that in the end everybody can be
pinged. Beside it each network has, on every node, a machine in a namespace and a device on the switch itself, which
come and go. Profiles always let pings in, whatever else they say. A request whose answer did not arrive may have been
heard or not; both are right, and what there is in the end is what the API says.
"""

import contextlib
import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import urlsplit

from netloom.lab import Lab
from netloom.store.kube import kubeconfig as kubeconfigs
from tests.lab.pinging import answers
from tests.lab.worlds import document
from tests.support.process import wait_until

NAMESPACE = "churn"
NETWORKS = ("c0", "c1", "c2", "c3")
PAIRS = {"r0": ("c0", "c1"), "r1": ("c2", "c3")}
PLURALS = {
    "Network": "networks",
    "Subnet": "subnets",
    "NetworkAttachment": "networkattachments",
    "SecurityProfile": "securityprofiles",
    "Router": "routers",
    "LoadBalancer": "loadbalancers",
}
COMING_AND_GOING = ("NetworkAttachment", "SecurityProfile", "Router", "LoadBalancer")
PACE = 0.12
HEARD = (200, 201, 202, 404, 409, 422)
AWAY = (OSError, http.client.HTTPException)
BUSY = (429, 500, 502, 503, 504)


class Api:
    """The lab's API by one connection, made again when it breaks."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab, self._namespace = lab, namespace
        self._connection: http.client.HTTPSConnection | None = None
        self._headers: dict[str, str] = {}

    def send(self, method: str, kind: str, name: str = "", body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request; one of `AWAY` where there is no answer."""
        path = f"/apis/netloom.dev/v1alpha1/namespaces/{self._namespace}/{PLURALS[kind]}{'/' * bool(name)}{name}"
        return self.ask(method, path, body)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request for any path."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            connection = self._connection or self._connect()
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {**self._headers, "Content-Type": content})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except BaseException:
            self.close()
            raise

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        status, answer = self.send("GET", kind)
        if status != 200:
            raise OSError(f"{status} {answer}")
        return list(answer["items"])

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPSConnection:
        cluster = kubeconfigs.load(str(self._lab.kubeconfig))
        url = urlsplit(cluster.server)
        assert url.hostname
        self._headers = cluster.headers()
        self._connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=cluster.tls())
        return self._connection


class Churn:
    """Somebody who always wants something else."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab = lab
        self.nodes = list(lab.nodes)
        """Where attachments come and go."""
        self._random = Random(seed)
        self._api = Api(lab, NAMESPACE)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        """The number of accepted requests, by type."""
        self._attachments = {
            f"{network}-{node}-{port}": self._attachment(network, node, port)
            for network in NETWORKS for node in lab.nodes for port in ("veth", "internal")
        }  # fmt: skip

    def start(self) -> None:
        """Make what stays, and begin."""
        for number, network in enumerate(NETWORKS):
            self._must("POST", document("Network", network, {}))
            self._must("POST", document("Subnet", network, {"network": network, "cidr": f"10.9{number}.0.0/24"}))
            port = {"type": "veth", "netns": str(self._lab.workload(f"churn-{network}")), "name": "eth0"}
            node = self._lab.nodes[number % len(self._lab.nodes)]
            spec = {"node": node, "network": network, "ips": [f"10.9{number}.0.250"], "port": port}
            self._must("POST", document("NetworkAttachment", f"watcher-{network}", spec))
        wait_until(lambda: not self.unready(), what="what stays to be Ready", interval=0.2)
        self._thread.start()

    def stop(self) -> None:
        """Ask for no further changes."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._api.close()

    def more(self, count: int = 10, *, timeout: float = 120.0) -> None:
        """Return when some more requests were accepted."""
        goal = self.done.total() + count
        wait_until(lambda: self.done.total() >= goal or self.problems, what="more requests", timeout=timeout)
        assert not self.problems, self.problems

    # The requests.

    def _run(self) -> None:
        try:
            while not self._enough.wait(self._random.uniform(0, PACE)):
                with contextlib.suppress(*AWAY):
                    self._request()
        except Exception as error:  # noqa: BLE001  # a thread has nobody to raise to
            self.problems.append(repr(error))

    def _request(self) -> None:
        random = self._random
        kind = random.choices(COMING_AND_GOING, (70, 10, 8, 12))[0]
        match kind:
            case "NetworkAttachment":
                chosen = [name for name, spec in self._attachments.items() if spec["node"] in self.nodes]
                name = random.choice(chosen)
                spec = self._attachments[name]
            case "SecurityProfile":
                name, spec = f"p{random.randrange(3)}", self._profile()
            case "Router":
                name, networks = random.choice(list(PAIRS.items()))
                spec = {"networks": [{"network": network} for network in networks]}
            case _:
                own = random.randrange(3)
                name, spec = f"b{own}", self._balancer(own)
        labels = {"app": random.choice("xyz")}
        what = random.choices(("POST", "DELETE", "PATCH"), (5, 3, 2))[0]
        if what == "POST":
            self._heard(what, kind, "", document(kind, name, spec, labels=labels))
        elif what == "DELETE":
            self._heard(what, kind, name)
        else:
            changed = {"spec": spec} if kind in ("SecurityProfile", "LoadBalancer") else {}
            self._heard(what, kind, name, {"metadata": {"labels": labels}, **changed})

    def _attachment(self, network: str, node: str, port: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": port}
        if port == "veth":
            found |= {"netns": str(self._lab.workload(f"churn-{network}-{node}")), "name": "eth0"}
        return {"node": node, "network": network, "port": found}

    def _profile(self) -> dict[str, Any]:
        random = self._random
        peer = random.choice([{"cidr": "10.0.0.0/8"}, {"selector": {"matchLabels": {"app": random.choice("xyz")}}}])
        ports = [{"protocol": "tcp", "port": random.randrange(1, 9999)}]
        rules = [{"ports": [{"protocol": "icmp"}]}, {"from": [peer], "ports": ports}]
        return {"selector": {"matchLabels": {"app": random.choice("xyz")}}, "ingress": rules}

    def _balancer(self, own: int) -> dict[str, Any]:
        random = self._random
        number = random.randrange(len(NETWORKS))
        vip = {"ip": f"10.9{number}.0.{200 + own}", "port": random.randrange(80, 83)}
        selector = {"matchLabels": {"app": random.choice("xyz")}}
        return {"networks": [NETWORKS[number]], "vips": [vip], "selector": selector}

    def _heard(self, method: str, kind: str, name: str, body: object = None) -> None:
        status, answer = self._api.send(method, kind, name, body)
        if status in BUSY:
            return
        assert status in HEARD, (method, kind, name, status, answer)
        if status < 300:
            self.done[f"{method} {kind}"] += 1

    def _must(self, method: str, body: dict[str, Any]) -> None:
        status, answer = self._api.send(method, body["kind"], "", body)
        assert status in (201, 409), answer

    # What became of it.

    def unready(self) -> list[str]:
        """Return the objects that are not Ready now, with their conditions."""
        found = []
        for kind in ("Subnet", *COMING_AND_GOING):
            for item in self._api.items(kind):
                ready, generation = _ready(item), item["metadata"].get("generation", 0)
                current = ready.get("observedGeneration", 0) == generation
                if ready.get("status") != "True" or not current or "deletionTimestamp" in item["metadata"]:
                    found.append(f"{kind} {item['metadata']['name']}: {ready}")
        return found

    def silent(self) -> list[str]:
        """Return the attachments that do not answer to their network's watcher."""
        found = []
        items = self._api.items("NetworkAttachment")
        for network in NETWORKS:
            addresses = {
                ip.partition("/")[0]: item["metadata"]["name"]
                for item in items if item["spec"]["network"] == network
                for ip in item["status"].get("ips", ()) if not item["metadata"]["name"].startswith("watcher-")
            }  # fmt: skip
            seen = answers(self._lab.netns(f"churn-{network}"), list(addresses))
            found += [f"{addresses[ip]} ({ip})" for ip, answered in seen.items() if not answered]
        return found

    def clear(self) -> None:
        """Wish everything away, and return when it is gone."""
        for kind in reversed(PLURALS):
            for item in self._api.items(kind):
                self._api.send("DELETE", kind, item["metadata"]["name"])
            wait_until(lambda kind=kind: not self._api.items(kind), what=f"every {kind} to go", timeout=120)  # type: ignore[misc]


@contextlib.contextmanager
def churning(lab: Lab, *, seed: int = 1) -> Iterator[Churn]:
    """Have somebody churn."""
    churn = Churn(lab, seed)
    try:
        churn.start()
        yield churn
    finally:
        churn.stop()


def _ready(item: dict[str, Any]) -> dict[str, Any]:
    conditions = item.get("status", {}).get("conditions", ())
    return next((dict(one) for one in conditions if one["type"] == "Ready"), {})
