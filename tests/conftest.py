"""Fixtures every test may ask for: real programs, one of each per test process, started when first asked for.

A lab and a Kubernetes cost seconds to start, and something for as long as they run. Test processes begin with a part
each of all the tests, so those that share a lab come first, in the first one's, and those with a Kubernetes last: then
one process starts the one and another the other. Within these, and in between, the order is chance's.
"""

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import etcd as etcd_support
from tests.support import kube as kube_support
from tests.support import kubectl as kubectl_support
from tests.support.etcd import Etcd
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl

# Libraries that tests compare with install eventlet, and others use it when it is there; it warns at every fork of the
# process that has imported it. What needs it (RPC over RabbitMQ) is tested in processes of its own.
sys.modules["eventlet"] = None  # type: ignore[assignment]

# No test fails because the machine is slow. In CI the examples are the same every time: searching for new ones, and
# keeping those that failed, is for developers' machines.
hypothesis.settings.register_profile("here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("here"), derandomize=True, database=None)
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("ci"), max_examples=10)
hypothesis.settings.load_profile(os.environ.get("NETLOOM_TEST_PROFILE") or ("ci" if os.environ.get("CI") else "here"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Put the tests into an order by what they share."""
    yield  # Chance has its turn.
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if not {"lab", "plain"}.isdisjoint(getattr(item, "fixturenames", ())):
        return 0
    return 2 if item.get_closest_marker("kube") else 1


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """A real etcd, shared by the tests of this process: use a key prefix of your own."""
    with etcd_support.etcd() as running:
        yield running


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """A real kube-apiserver of the current version with garbage collection, shared by the tests of this process."""
    with kube_support.kube(kube_support.CURRENT, controller_manager=True) as running:
        yield running


@pytest.fixture(scope="session")
def kube_old() -> Iterator[Kube]:
    """A real kube-apiserver of the oldest version Netloom supports; mark its tests `versions`."""
    with kube_support.kube(kube_support.OLDER) as running:
        yield running


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The current kubectl."""
    return kubectl_support.current_kubectl(_folder(tmp_path_factory))


@pytest.fixture(scope="session")
def kubectl_old(tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Debian 12's kubectl 1.20: as old a client as Netloom promises to serve."""
    return kubectl_support.old_kubectl(_folder(tmp_path_factory))


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("kubectl")
