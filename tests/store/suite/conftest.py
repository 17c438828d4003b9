"""Every test of the suite runs on every store, but those that say on which only, and why:

    @pytest.mark.only_on("sqlite", "etcd", because="the others forget")
    @scenario
    async def test_something(w: World) -> None: ...

On the others such a test is not collected: it neither passes nor is skipped there.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.backends import (
    ETCDS,
    Backend,
    EtcdBackend,
    KubeBackend,
    MemoryBackend,
    NetloomBackend,
    SqliteBackend,
)
from tests.support import etcd as etcd_support
from tests.support.etcd import Etcd
from tests.support.process import Program

STORES = {
    "memory": pytest.param("memory"),
    "sqlite": pytest.param("sqlite"),
    "etcd": pytest.param("etcd", marks=pytest.mark.etcd),
    **{name: pytest.param(name, marks=pytest.mark.versions) for name in ETCDS},
    "netloom": pytest.param("netloom"),
    "kube": pytest.param("kube", marks=pytest.mark.kube),
    "kube-old": pytest.param("kube-old", marks=pytest.mark.versions),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each store a test is for."""
    if "backend" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_on")
    if only is None:
        names: set[str] = set(STORES)
    else:
        names = {*only.args, *(ETCDS if "etcd" in only.args else ())}
        assert names <= set(STORES), only
        assert only.kwargs["because"], only
    chosen = [store for name, store in STORES.items() if name in names]
    metafunc.parametrize("backend", chosen, indirect=True)


@pytest.fixture(scope="session")
def kube_backend(request: pytest.FixtureRequest) -> KubeBackend:
    return KubeBackend(request.getfixturevalue("kube"))


@pytest.fixture(scope="session")
def kube_old_backend(request: pytest.FixtureRequest) -> KubeBackend:
    return KubeBackend(request.getfixturevalue("kube_old"))


@pytest.fixture(scope="session")
def newer_etcds() -> Iterator[dict[str, Etcd]]:
    """An etcd of each of the other versions."""
    with ExitStack() as running:
        yield {
            name: running.enter_context(etcd_support.etcd(version=version))
            for name, version in zip(ETCDS, etcd_support.NEWER, strict=True)
        }


@pytest.fixture(scope="session")
def netloom_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetloomBackend]:
    folder = tmp_path_factory.mktemp("apiserver")
    data = folder / "data"
    kubeconfig = data / "admin.kubeconfig"
    with Program([sys.executable, "-m", "tests.store.apiserver", data], log=folder / "log") as program:
        program.wait_ready(kubeconfig.exists)
        yield NetloomBackend(kubeconfig)


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "memory":
        return MemoryBackend()
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "store.db")
    if request.param == "etcd":
        return EtcdBackend(request.getfixturevalue("etcd"))
    if request.param in ETCDS:
        etcds: dict[str, Etcd] = request.getfixturevalue("newer_etcds")
        return EtcdBackend(etcds[request.param])
    if request.param == "netloom":
        netloom: NetloomBackend = request.getfixturevalue("netloom_backend")
        return netloom
    kube: KubeBackend = request.getfixturevalue("kube_backend" if request.param == "kube" else "kube_old_backend")
    return kube
