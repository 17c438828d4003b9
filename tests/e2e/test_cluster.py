"""Netloom on a plain Kubernetes that holds our CRDs, without an API server of ours.

One cluster of the current version, which other tests use too; the older one by `make test-versions`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import joined as joining
from tests.e2e.cluster_rights import RIGHTS, with_attachments
from tests.e2e.cluster_times import times_are_kept
from tests.e2e.joined import Joined
from tests.e2e.kubectl_flows import COLLECTED, FLOWS, HOUSEHOLD, Flow, named
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl

CLUSTERS = [
    pytest.param("kube", marks=pytest.mark.kube),
    pytest.param("kube_old", marks=pytest.mark.versions),
]
ON_CURRENT = pytest.mark.parametrize("joined", CLUSTERS[:1], indirect=True)
"""For what needs a controller manager, which only the current version has here."""


@pytest.fixture(scope="module", params=CLUSTERS)
def joined(
    request: pytest.FixtureRequest, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Joined]:
    """A cluster with our CRDs and a controller."""
    cluster = request.getfixturevalue(request.param)
    assert isinstance(cluster, Kube)
    with joining.with_crds(cluster, kubectl, tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.mark.parametrize("flow", FLOWS, ids=named)
def test_kubectl_does_what_people_do_with_it(flow: Flow, joined: Joined, tmp_path: Path) -> None:
    flow(joined.user(tmp_path))


@ON_CURRENT
@pytest.mark.parametrize("flow", [*HOUSEHOLD, *COLLECTED], ids=named)
def test_the_cluster_collects_what_is_owned_and_empties_namespaces(flow: Flow, joined: Joined, tmp_path: Path) -> None:
    joined.until_collecting()
    flow(joined.user(tmp_path))


@pytest.mark.parametrize("right", RIGHTS, ids=named)
def test_the_cluster_says_who_may_what(right: Callable[[Joined], None], joined: Joined) -> None:
    right(joined)


def test_an_agent_can_read_what_rbac_cannot_keep_from_it(joined: Joined) -> None:
    """RBAC knows no field selectors: docs/kubernetes.md says so."""
    namespace = with_attachments(joined)
    words = ("-n", namespace, "get", "na", "-o", "name")
    assert "theirs" in joined.kubectl.run(*words, kubeconfig=joined.agent("n1")).out


def test_times_are_finer_than_seconds(joined: Joined, kubectl_old: Kubectl) -> None:
    times_are_kept(joined, kubectl_old, exact=False)
