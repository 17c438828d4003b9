"""What people see of addresses, with the unmodified kubectl, current and old, against a real `netloom serve`."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from netloom.model.registry import KINDS
from tests.run.serving import NETLOOM, Serving, environment, netloom, serving
from tests.support.kube import Kube
from tests.support.kubectl import Answer, Kubectl
from tests.support.process import Program, wait_until

pytestmark = pytest.mark.kube

BLUE = """\
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue-v4}
spec: {network: blue, cidr: 10.10.0.0/29}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: web}
spec: {node: n1, network: blue}
"""
ATTACHMENT = """\
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: %s}
spec: {node: n2, network: blue%s}
"""
_numbers = count()


class User:
    """One kubectl in one namespace."""

    def __init__(self, kubectl: Kubectl, kubeconfig: Path, namespace: str) -> None:
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def __call__(self, *words: str | Path, **options: Any) -> Answer:
        return self.kubectl.run("-n", self.namespace, *words, kubeconfig=self.kubeconfig, **options)

    def apply(self, text: str) -> None:
        self("apply", "-f", "-", stdin=text)

    def addressed(self, name: str, value: str = "True") -> None:
        self("wait", f"--for=condition=Addressed={value}", f"na/{name}", "--timeout=120s")

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").out)

    def rows(self, *words: str) -> list[dict[str, str]]:
        """Return what a table shows, each row by column."""
        head, *rows = self(*words).out.splitlines()
        starts = [
            index for index, c in enumerate(head) if c != " " and (index == 0 or head[index - 3 : index] == "   ")
        ]
        ends = [*starts[1:], None]
        cut = [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in [head, *rows]]
        return [dict(zip(cut[0], row, strict=True)) for row in cut[1:]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("addresses")) as running:
        yield running


@pytest.fixture(params=["kubectl", "kubectl_old"])
def user(request: pytest.FixtureRequest, server: Serving) -> User:
    return User(request.getfixturevalue(request.param), server.kubeconfig, f"test-{next(_numbers)}")


def test_wide_shows_address_mac_node_and_readiness(user: User) -> None:
    user.apply(BLUE)
    user.addressed("web")
    (row,) = user.rows("get", "networkattachments", "-o", "wide")
    status = user.json("get", "na", "web")["status"]
    assert row["IPS"] == "10.10.0.2/29" == status["ips"][0]
    assert row["MAC"] == status["mac"]
    assert len(row["MAC"]) == 17
    assert (row["NODE"], row["NETWORK"], row["ADDRESSED"]) == ("n1", "blue", "True")
    assert (row["READY"], row["REASON"]) == ("Unknown", "NotPlugged")


def test_subnets_show_capacity_and_use(user: User) -> None:
    user.apply(BLUE)
    user.apply(ATTACHMENT % ("db", ""))
    user.addressed("db")
    wait_until(lambda: user.rows("get", "subnets")[0]["USED"] == "2", what="the use to be counted")
    (row,) = user.rows("get", "subnets")
    assert (row["CIDR"], row["VALIDATED"], row["CAPACITY"]) == ("10.10.0.0/29", "true", "5")
    user("delete", "na", "web", "db")
    # After the quarantine.
    wait_until(lambda: user.rows("get", "subnets")[0]["USED"] == "0", what="the addresses to be free again")


def test_networks_show_the_vni_they_got(user: User) -> None:
    user.apply(BLUE)
    user("wait", "--for=condition=Ready", "network/blue", "--timeout=120s")
    (row,) = user.rows("get", "networks")
    assert int(row["VNI"]) >= 4096
    assert "VNIAssigned" in user("describe", "network", "blue").out


def test_describe_tells_the_story_of_an_attachment(user: User) -> None:
    user.apply(BLUE)
    user.addressed("web")
    user.apply(ATTACHMENT % ("late", ", ips: [10.10.0.2]"))
    user.addressed("late", "False")
    refused = wait_until(lambda: _with("AddressRefused", user("describe", "na", "late").out), what="the Event")
    assert f"10.10.0.2 is taken by {user.namespace}/web" in refused
    assert user.json("get", "na", "late")["status"]["errors"]["ipam"] == [f"10.10.0.2 is taken by {user.namespace}/web"]
    user("delete", "na", "web")
    user.addressed("late")
    told = wait_until(lambda: _with("AddressAssigned", user("describe", "na", "late").out), what="the Event")
    events = told.partition("Events:")[2]
    assert events.index("AddressRefused") < events.index("AddressAssigned")
    assert "10.10.0.2/29" in events
    assert "errors" not in user.json("get", "na", "late")["status"]


def test_who_waits_on_a_full_subnet_says_so_and_is_served(user: User) -> None:
    user.apply(BLUE)
    for number in range(4):
        user.apply(ATTACHMENT % (f"a{number}", ""))
    user.addressed("web")
    for number in range(4):
        user.addressed(f"a{number}")
    user.apply(ATTACHMENT % ("late", ""))
    user.addressed("late", "False")
    wait_until(lambda: _with("AddressWaiting", user("describe", "na", "late").out), what="the Event")
    assert "Subnet blue-v4 is full" in user("describe", "na", "late").out
    user("delete", "na", "a0")
    user.addressed("late")


def test_an_attachment_made_again_has_its_address_back(user: User) -> None:
    user.apply(BLUE)
    user.addressed("web")
    user.apply(ATTACHMENT % ("other", ""))
    user.addressed("other")
    before = user.json("get", "na", "web")["status"]
    user("delete", "na", "web")
    user.apply(ATTACHMENT % ("web", ""))
    user.addressed("web")
    after = user.json("get", "na", "web")["status"]
    assert (after["ips"], after["mac"]) == (before["ips"], before["mac"])
    assert after["locks"][0]["uid"] != before["locks"][0]["uid"]


def test_what_is_in_use_is_not_deleted_and_kubectl_says_who_uses_it(user: User) -> None:
    user.apply(BLUE)
    user.addressed("web")
    for words in (["network", "blue"], ["subnet", "blue-v4"], ["subnets", "--all"], ["networks", "--all"]):
        refused = user("delete", *words, "--timeout=120s", check=False)
        assert refused.rc == 1
        assert "Error from server (Conflict): " in refused.err
        assert f"it is used by NetworkAttachment {user.namespace}/web" in refused.err
    dry = user("delete", "subnet", "blue-v4", "--dry-run=server", check=False)
    assert "it is used by" in dry.err
    assert user("get", "networks,subnets,na", "-o", "name").out.count("\n") == 3
    # Locks in quarantine are in nobody's way.
    user("delete", "na/web", "subnet/blue-v4", "network/blue", "--timeout=120s")
    assert user("get", "networks,subnets,na", "-o", "name").out == ""


def test_the_doctor_finds_nothing_amiss(server: Serving, user: User) -> None:
    user.apply(BLUE)
    user.addressed("web")
    answer = server.cli("doctor", "--chapter", "addresses")
    assert answer.out.endswith("addresses: no problems found.\n")


def _with(word: str, text: str) -> str:
    return text if word in text else ""


def test_on_a_kubernetes_clusters_own_api(kube: Kube, kubectl: Kubectl, tmp_path: Path) -> None:
    """There nothing is refused: an attachment whose Network went says so, and gives its address back."""
    user = User(kubectl, kube.kubeconfig, "addresses")
    user("create", "namespace", user.namespace)
    user.apply(netloom("crds").out)
    for kind in KINDS:
        if kind.group == "netloom.dev":
            user("wait", "--for=condition=Established", f"crd/{kind.qualified}", "--timeout=120s")
    kubectl.until_known(kubeconfig=kube.kubeconfig)
    argv = [*NETLOOM, "controller", "--kubeconfig", str(kube.kubeconfig), "--lease-namespace", user.namespace]
    argv += ["--vni-rest", "3"]
    with Program(argv, log=tmp_path / "controller.log", env=environment()) as controller:
        user.apply(BLUE)
        user("wait", "--for=condition=Addressed", "na/web", "--timeout=120s")
        (row,) = user.rows("get", "na", "-o", "wide")
        assert row["IPS"] == '["10.10.0.2/29"]'
        assert row["MAC"]
        user("delete", "subnet/blue-v4", "network/blue")
        user("wait", "--for=condition=Addressed=False", "na/web", "--timeout=120s")
        told = wait_until(lambda: _with("AddressReleased", user("describe", "na", "web").out), what="the Event")
        assert "Network blue does not exist" in told
        wait_until(lambda: not user("get", "iplocks", "-o", "name").out, what="the lock to leave quarantine")
        user.apply(BLUE)
        user("wait", "--for=condition=Addressed", "na/web", "--timeout=120s")
        assert netloom("doctor", "--chapter", "addresses", kubeconfig=kube.kubeconfig).rc == 0
        vni = user.json("get", "network", "blue")["status"]["vni"]
        user("delete", "na/web", "subnet/blue-v4", "network/blue")
        wait_until(lambda: not user("get", "iplocks", "-o", "name").out, what="no address to be locked")
        lock = ("get", f"vnilock/vni-{vni}", "--ignore-not-found", "-o", "name")
        freed = ("get", f"vnilock/vni-{vni}", "-o", "jsonpath={.metadata.deletionTimestamp}")
        assert wait_until(lambda: user(*freed).out, what="the VNI to rest")
        wait_until(lambda: not user(*lock).out, what="no VNI to be locked")
        assert controller.stop() == 0, controller.output()
