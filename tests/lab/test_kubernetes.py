"""Labs whose control plane is a real Kubernetes, by either of the two ways: real packets, on either fabric."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from netloom.lab import Lab
from netloom.run.cluster.manifests import NAMESPACE
from tests.e2e import joined as joining
from tests.e2e.joined import NODES, Joined
from tests.lab import labs
from tests.lab.worlds import MANIFESTS, Way, World
from tests.run.serving import netloom
from tests.support import kube as kube_support
from tests.support.etcd import Etcd
from tests.support.kubectl import Kubectl

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

A, B, C, A6, B6 = "10.70.0.11", "10.70.0.12", "10.70.0.13", "fd00:70::11", "fd00:70::12"
WAYS = [
    pytest.param((way, version), marks=mark, id=f"{way}-{version}")
    for version, mark in ((kube_support.CURRENT, pytest.mark.kube), (kube_support.OLDER, pytest.mark.versions))
    for way in ("aggregated", "crds")
]
REACHED: list[Way] = [
    *(
        (who, whom, how)
        for who, whom in (("a", B), ("b", A), ("a", C), ("c", B), ("a", B6), ("b", A6))
        for how in ("ping", 80)
    ),
    ("other", A, 80),
]
APART: list[Way] = [("other", B, "ping"), ("other", C, 80), ("a", "10.70.0.14", "ping"), ("b", "10.70.0.14", 80)]


@pytest.fixture(scope="module", params=WAYS)
def joined(
    request: pytest.FixtureRequest, etcd: Etcd, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Joined]:
    """A cluster that has Netloom, without a controller: that is the lab's."""
    way, version = request.param
    folder = tmp_path_factory.mktemp("kubernetes")
    with kube_support.kube(version) as cluster:
        if way == "crds":
            with joining.with_crds(cluster, kubectl, folder, controlled=False) as made:
                yield made
        else:
            store = f"etcd:{etcd.url}?prefix=/lab-{version}"
            with joining.aggregated(cluster, kubectl, folder, store=store, controlled=False) as made:
                yield made


@pytest.fixture(scope="module")
def lab(joined: Joined) -> Iterator[Lab]:
    """Three nodes, whose agents have tokens that the cluster bound to them."""
    credentials = joined.folder / "credentials"
    credentials.mkdir()
    for node in NODES:
        shutil.copy(joined.agent(node), credentials / f"{node}.kubeconfig")
    shutil.copy(joined.cluster.account(NAMESPACE, "netloom-controller"), credentials / "controller.kubeconfig")
    with labs.running(nodes=3, kubeconfig=joined.cluster.kubeconfig, agents=credentials) as running:
        yield running


@pytest.mark.parametrize("fabric", ["ovn", "vxlan"])
def test_attachments_reach_each_other_across_nodes(fabric: str, lab: Lab, joined: Joined) -> None:
    name = f"kube-{fabric}"
    joined.admin("create", "namespace", name)
    made = World(lab, name)
    try:
        text = (MANIFESTS / "vxlan.yaml").read_text().replace("fabric: vxlan", f"fabric: {fabric}")
        text = text.replace("vni: 70", "vni: 80" if fabric == "ovn" else "vni: 70")
        made.apply(text)
        made.ready(text)
        for machine in ("a", "b", "c", "twin", "other"):
            made.listen(machine, 80)
        found = made.reaches(REACHED)
        assert {way for way, answer in found.items() if not answer} == set()
        assert found["b", A, 80].split()[0] == "a"
        assert found["other", A, 80].split()[0] == "twin"
        assert set(made.tries(APART).values()) == {""}
    finally:
        made.end()


def test_the_agents_are_the_clusters_own_people(lab: Lab, joined: Joined) -> None:
    """What runs in the lab has no other credential than the cluster's: nodes are Ready by it, and held to their own."""
    ready = netloom("get", "nodes.netloom.dev", "-o", "name", kubeconfig=joined.agent("n1"), check=False)
    mine = netloom("get", "nodes.netloom.dev/n1", "-o", "name", kubeconfig=joined.agent("n1"))
    assert mine.out.strip() == "node.netloom.dev/n1"
    assert "forbidden" in ready.err
    assert not (lab.layout.folder / "netloom.db").exists()


def test_a_lab_without_its_own_api_says_where_it_is(lab: Lab) -> None:
    shown = labs.command("status", "--data", lab.layout.folder)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "controller" in shown.stdout
    assert Path(lab.layout.folder, "controller.kubeconfig").exists()
