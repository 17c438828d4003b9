"""`netloom apiserver` as an aggregated API of a real Kubernetes: kubectl with the cluster's own kubeconfig and RBAC.

One cluster of the current version for the module; the older one by `make test-versions`.
"""

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from netloom.run.cluster.manifests import NAMESPACE
from netloom.store.kube import kubeconfig as kubeconfigs
from tests.e2e import joined as joining
from tests.e2e.cluster_rights import RIGHTS, refused, with_attachments
from tests.e2e.cluster_times import times_are_kept
from tests.e2e.joined import Joined
from tests.e2e.kubectl_flows import COLLECTED, FLOWS, IN_USE, Flow, named
from tests.run.serving import netloom
from tests.support import kube as kube_support
from tests.support.etcd import Etcd
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

VERSIONS = [
    pytest.param(kube_support.CURRENT, marks=pytest.mark.kube),
    pytest.param(kube_support.OLDER, marks=pytest.mark.versions),
]
ON_CURRENT = pytest.mark.parametrize("joined", VERSIONS[:1], indirect=True)
"""For what needs a controller manager, which only the current version has here."""
KILLS = 3
ELSEWHERE = """\
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: red}
spec: {}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: elsewhere}
spec: {node: n2, network: red}
"""
_numbers = count()


@pytest.fixture(scope="module", params=VERSIONS)
def joined(
    request: pytest.FixtureRequest, etcd: Etcd, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Joined]:
    """A cluster whose API ours is a part of."""
    current = request.param == kube_support.CURRENT
    folder = tmp_path_factory.mktemp("aggregated")
    store = f"etcd:{etcd.url}?prefix=/aggregated-{next(_numbers)}"
    with (
        kube_support.kube(request.param, controller_manager=current) as cluster,
        joining.aggregated(cluster, kubectl, folder, store=store) as made,
    ):
        yield made


@pytest.mark.parametrize("flow", FLOWS, ids=named)
def test_kubectl_does_what_people_do_with_it(flow: Flow, joined: Joined, tmp_path: Path) -> None:
    flow(joined.user(tmp_path))


@ON_CURRENT
@pytest.mark.parametrize("flow", [*COLLECTED, *IN_USE], ids=named)
def test_the_cluster_collects_what_is_owned(flow: Flow, joined: Joined, tmp_path: Path) -> None:
    joined.until_collecting()
    flow(joined.user(tmp_path))


@pytest.mark.parametrize("right", RIGHTS, ids=named)
def test_the_cluster_says_who_may_what(right: Callable[[Joined], None], joined: Joined) -> None:
    right(joined)


def test_an_agent_reads_nothing_that_does_not_concern_its_node(joined: Joined) -> None:
    namespace = with_attachments(joined)
    joined.admin("-n", namespace, "apply", "-f", "-", stdin=ELSEWHERE)
    for kubeconfig in (joined.agent("n1"), joined.node_user("n1")):
        for words in (
            ("get", "na", "-A"),
            ("get", "na"),
            ("get", "na", "--field-selector=spec.node=n2"),
            ("get", "na", "--field-selector=spec.network=red"),
            ("get", "na", "elsewhere"),
            ("get", "network", "red"),
            ("get", "nodes.netloom.dev"),
            ("get", "nodes.netloom.dev", "n2"),
        ):
            refused(joined.kubectl.run("-n", namespace, *words, kubeconfig=kubeconfig, check=False))


@ON_CURRENT
def test_a_deleted_namespace_takes_all_that_is_in_it(joined: Joined) -> None:
    namespace = with_attachments(joined)
    joined.admin("delete", "namespace", namespace, "--timeout=120s")

    def said() -> str:
        return str(joined.admin("-n", namespace, "create", "-f", "-", stdin=ELSEWHERE, check=False).err)

    # What the cluster says of a namespace is remembered for half a second: that it was going, too.
    wait_until(lambda: f'namespaces "{namespace}" not found' in said(), what="the namespace to be known to be gone")


def test_whoever_comes_directly_is_known_by_the_cluster_too(joined: Joined) -> None:
    assert joined.apiserver is not None
    networks = "/apis/netloom.dev/v1alpha1/networks"
    viewer = joined.cluster.account(NAMESPACE, "netloom-controller")
    assert joined.apiserver.ask(networks, kubeconfigs.load(str(viewer)).headers())[0] == 200
    joined.admin("create", "serviceaccount", "stranger")
    stranger = joined.cluster.account("default", "stranger")
    code, said = joined.apiserver.ask(networks, kubeconfigs.load(str(stranger)).headers())
    assert (code, "system:serviceaccount:default:stranger" in said) == (403, True)
    assert joined.apiserver.ask(networks, {"Authorization": "Bearer of nothing"})[0] == 401
    assert joined.apiserver.ask("/healthz")[0] == 200


def test_the_cluster_takes_what_is_printed_wherever_the_server_is(joined: Joined) -> None:
    assert joined.apiserver is not None
    for place in (["--address", "192.0.2.5"], ["--image", "netloom:1"]):
        told = netloom("apiserver", "--aggregated", *joined.apiserver.settings, "--print-manifests", *place).out
        # Not stored: the one that is there leads to the server that is used.
        joined.admin("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=told)


def test_nobody_becomes_another_by_headers_alone(joined: Joined) -> None:
    assert joined.apiserver is not None
    pretended = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    assert joined.apiserver.ask("/apis/netloom.dev/v1alpha1/networks", pretended)[0] == 401


@pytest.mark.versions  # It takes most of a minute.
def test_a_right_that_the_cluster_takes_away_ends_the_watch(joined: Joined) -> None:
    """Through kube-apiserver, and on a connection of its own to our server."""
    assert joined.apiserver is not None
    namespace = with_attachments(joined)
    joined.admin("-n", namespace, "create", "serviceaccount", "vera")
    account = f"--serviceaccount={namespace}:vera"
    joined.admin("-n", namespace, "create", "rolebinding", "vera", "--clusterrole=netloom:view", account)
    vera = joined.cluster.account(namespace, "vera")
    target = f"/apis/netloom.dev/v1alpha1/namespaces/{namespace}/networks?watch=true"
    direct = f"https://127.0.0.1:{joined.apiserver.port}", str(joined.apiserver.data / "ca.crt")
    through = joined.cluster.url, str(joined.cluster.ca_file)
    with ExitStack() as held:
        streams = []
        for server, ca in (direct, through):
            request = urllib.request.Request(server + target, headers=kubeconfigs.load(str(vera)).headers())
            context = ssl.create_default_context(cafile=ca)
            opened = partial(urllib.request.urlopen, request, timeout=120, context=context)
            wait_until(lambda opened=opened: _granted(opened), what="the right to come")  # type: ignore[misc]
            streams.append(held.enter_context(opened()))
        joined.admin("-n", namespace, "delete", "rolebinding", "vera")
        for stream in streams:
            *_, last = map(json.loads, stream)
            assert (last["type"], last["object"]["code"]) == ("ERROR", 403)


def _granted(opened: Callable[[], Any]) -> bool:
    try:
        opened().close()
    except urllib.error.HTTPError as error:
        error.close()
        return False
    return True


def test_events_and_leases_are_the_clusters_own(joined: Joined) -> None:
    assert joined.apiserver is not None
    namespace = with_attachments(joined)
    wait_until(
        lambda: "SubnetValidated" in joined.admin("-n", namespace, "get", "events").out, what="an event", interval=0.2
    )
    assert "netloom-controller" in joined.admin("-n", NAMESPACE, "get", "leases", "-o", "name").out
    account = joined.cluster.account(NAMESPACE, "netloom-controller")
    assert joined.apiserver.ask("/api/v1/events", kubeconfigs.load(str(account)).headers())[0] == 404


def test_our_own_commands_work_through_the_cluster(joined: Joined) -> None:
    namespace = with_attachments(joined)
    shown = netloom("get", "networkattachments", "-n", namespace, kubeconfig=joined.cluster.kubeconfig)
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["mine", "theirs"]
    deleted = netloom("delete", "na/mine", "-n", namespace, kubeconfig=joined.cluster.kubeconfig)
    assert "mine" in deleted.out


def test_no_wish_that_was_acknowledged_is_lost_when_the_server_is_killed(joined: Joined) -> None:
    assert joined.apiserver is not None
    namespace = joined.namespace()
    path = f"/apis/netloom.dev/v1alpha1/namespaces/{namespace}/networks"
    acknowledged: list[str] = []
    over = threading.Event()

    def create(thread: int) -> None:
        for number in count():
            if over.is_set():
                return
            name = f"w{thread}-{number}"
            document = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "metadata": {"name": name}, "spec": {}}
            code, _ = joined.cluster.request("POST", path, document)
            if code == 201:
                acknowledged.append(name)
            else:
                over.wait(0.05)  # The server is away; the cluster says so at once.

    account = joined.cluster.account(NAMESPACE, "netloom-apiserver")
    threads = [threading.Thread(target=create, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(KILLS):
            enough = len(acknowledged) + 20
            wait_until(partial(lambda enough: len(acknowledged) > enough, enough), what="objects to be accepted")
            joined.apiserver.kill()
            joined.apiserver.start(account)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    listed = joined.admin("-n", namespace, "get", "networks", "-o", "name").out.split()
    assert {f"network.netloom.dev/{name}" for name in acknowledged} <= set(listed)
    joined.admin("-n", namespace, "wait", "--for=condition=Ready", "networks", "--all", "--timeout=120s")


def test_times_are_finer_than_seconds(joined: Joined, kubectl_old: Kubectl) -> None:
    times_are_kept(joined, kubectl_old, exact=True)
