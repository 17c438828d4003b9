"""Pods that come and go on a cluster all the time, by seed, through its API; and what there must be of them in the end.

A request whose answer did not arrive may have been heard or not: in the end, what the API says counts.
"""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from netloom.lab import Lab
from netloom.lab.kube import images
from netloom.plan.kube import names
from tests.lab.churning import AWAY, BUSY, Api
from tests.lab.pinging import answers
from tests.lab.resting import eventually
from tests.support.process import wait_until

PACE = 0.5
"""Seconds between two changes, at most."""
MOST = 4
"""Pods for each node."""
OWN = "netloom-of"
Ask = Callable[..., tuple[int, dict[str, Any]]]
ATTACHMENTS = f"/apis/netloom.dev/v1alpha1/namespaces/{names.NAMESPACE}/networkattachments"
LOCKS = f"/apis/netloom.dev/v1alpha1/namespaces/{names.NAMESPACE}/iplocks"


class PodChurn:
    """Somebody who creates and deletes pods."""

    def __init__(self, lab: Lab, namespace: str, *, seed: int) -> None:
        self._lab, self.namespace = lab, namespace
        self._random = Random(seed)
        self._own, self._api = Api(lab, namespace), Api(lab, names.NAMESPACE)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
        self._made = 0
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        """The number of accepted requests, by method."""

    def start(self) -> None:
        """Begin."""
        self._must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        wait_until(self._has_account, what="the service account", interval=0.1)
        self._thread.start()

    def stop(self) -> None:
        """Ask for no further changes."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._own.close()

    def more(self, count: int, *, timeout: float = 180.0) -> None:
        """Return when some more requests were accepted."""
        goal = self.done.total() + count
        wait_until(lambda: self.done.total() >= goal or self.problems, what="more requests", timeout=timeout)
        assert not self.problems, self.problems

    def _run(self) -> None:
        try:
            while not self._enough.wait(self._random.uniform(0, PACE)):
                with contextlib.suppress(*AWAY):
                    self._request()
        except Exception as error:  # noqa: BLE001  # a thread has nobody to raise to
            self.problems.append(repr(error))

    def _request(self) -> None:
        pods = self._pods(self._own.ask)
        if twice := _twice(pods):
            self.problems.append(f"addresses of several pods: {twice}")
        named = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if self._random.randrange(MOST * len(self._lab.nodes)) >= len(named):
            self._made += 1
            status, answer = self._own.ask("POST", self._path(), _pod(f"p{self._made}"))
        else:
            method = "DELETE"
            status, answer = self._own.ask(method, f"{self._path()}/{self._random.choice(named)}")
        assert status in (200, 201, 403, 404, 409, *BUSY), (status, answer)
        if status < 300:
            self.done["DELETE" if status == 200 else "POST"] += 1

    # What became of it.

    def settled(self) -> None:
        """Return when every pod runs and answers, each with addresses of its own, and nothing is left of others."""
        eventually(self._unready, "every pod to run")
        pods = self._pods(self._ask)
        assert not _twice(pods)
        assert not self.problems, self.problems
        eventually(self._silent, "every pod to answer")
        eventually(self._orphans, "nothing to be left of pods that are gone")

    def clear(self) -> None:
        """Delete all, and return when nothing is left."""
        self._must("DELETE", f"/api/v1/namespaces/{self.namespace}")
        wait_until(self._is_gone, what="the namespace to go", timeout=180, interval=0.5)
        eventually(self._orphans, "nothing to be left of the pods")

    def _unready(self) -> list[str]:
        found = []
        for pod in self._pods(self._ask):
            name, status = pod["metadata"]["name"], pod["status"]
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
            if not ready or not status.get("podIPs") or "deletionTimestamp" in pod["metadata"]:
                found.append(f"{name} on {pod['spec'].get('nodeName')}: {status}")
        return found

    def _silent(self) -> list[str]:
        addresses = {
            ip["ip"]: pod["metadata"]["name"] for pod in self._pods(self._ask) for ip in pod["status"]["podIPs"]
        }
        seen = answers(self._lab.netns(self._lab.nodes[0]), list(addresses))
        return [f"{addresses[ip]} ({ip})" for ip, answered in seen.items() if not answered]

    def _orphans(self) -> list[str]:
        """Return what there is of pods that are not there."""
        mine = names.pod(self.namespace, "")
        wanted = {names.pod(self.namespace, pod["metadata"]["name"]) for pod in self._pods(self._ask)}
        attachments = {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in self._items(self._ask, ATTACHMENTS)
            if one["metadata"]["name"].startswith(mine)
        }
        found = [f"attachment {name}" for name in attachments.keys() ^ wanted]
        ports = self._named("central", "ovn-nbctl", "Logical_Switch_Port")
        found += [f"logical port {name}" for name in {one for one in ports if one.startswith(mine)} ^ wanted]
        plugged: set[str] = set()
        for node in self._lab.nodes:
            shown = self._lab.exec(node, ["ovs-vsctl", "--format=json", "--columns=external_ids", "list", "Interface"])
            ids = [dict(row[0][1]) for row in json.loads(shown.stdout)["data"]]
            plugged |= {name for one in ids if (name := one.get(OWN, "").rpartition("/")[2]).startswith(mine)}
        found += [f"interface {name}" for name in plugged ^ wanted]
        owners = [
            owner["name"]
            for lock in self._items(self._ask, LOCKS)
            if "deletionTimestamp" not in lock["metadata"]
            for owner in lock["metadata"]["ownerReferences"]
        ]
        found += [f"lock of {name}" for name in {name for name in owners if name.startswith(mine)} - wanted]
        return found

    def _named(self, place: str, tool: str, table: str) -> list[str]:
        shown = self._lab.exec(place, [tool, "--format=json", "--columns=name", "list", table])
        return [row[0].rpartition("/")[2] for row in json.loads(shown.stdout)["data"]]

    def _pods(self, ask: Ask) -> list[dict[str, Any]]:
        return self._items(ask, self._path())

    def _items(self, ask: Ask, path: str) -> list[dict[str, Any]]:
        status, answer = ask("GET", path)
        if status != 200:
            raise OSError(f"{status} {answer}")
        return list(answer["items"])

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request by a connection of its own: one that is not used for a while may be closed."""
        with contextlib.closing(Api(self._lab, self.namespace)) as api:
            return api.ask(method, path, body)

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _has_account(self) -> bool:
        return self._ask("GET", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")[0] == 200

    def _is_gone(self) -> bool:
        return self._ask("GET", f"/api/v1/namespaces/{self.namespace}")[0] == 404

    def _must(self, method: str, path: str, body: object = None) -> None:
        status, answer = self._ask(method, path, body)
        assert status in (200, 201, 409), answer


@contextlib.contextmanager
def pods_churning(lab: Lab, namespace: str, *, seed: int) -> Iterator[PodChurn]:
    """Have pods come and go."""
    churn = PodChurn(lab, namespace, seed=seed)
    try:
        churn.start()
        yield churn
    finally:
        churn.stop()


def _twice(pods: list[dict[str, Any]]) -> dict[str, int]:
    """Return the addresses that several pods have; one that has ended shows those that it had."""
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    found = Counter(ip["ip"] for pod in running for ip in pod["status"].get("podIPs", ()))
    return {ip: count for ip, count in found.items() if count > 1}


def _pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "wait", "image": images.TOOLS}],
        },
    }
