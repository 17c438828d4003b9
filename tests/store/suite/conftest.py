"""Every test of the suite runs on every store."""

from pathlib import Path

import pytest

from tests.store.backends import Backend, EtcdBackend, KubeBackend, MemoryBackend, SqliteBackend

STORES = [
    "memory",
    "sqlite",
    pytest.param("etcd", marks=pytest.mark.etcd),
    pytest.param("kube", marks=pytest.mark.kube),
    pytest.param("kube-old", marks=pytest.mark.versions),
]


@pytest.fixture(scope="session")
def kube_backend(request: pytest.FixtureRequest) -> KubeBackend:
    return KubeBackend(request.getfixturevalue("kube"))


@pytest.fixture(scope="session")
def kube_old_backend(request: pytest.FixtureRequest) -> KubeBackend:
    return KubeBackend(request.getfixturevalue("kube_old"))


@pytest.fixture(params=STORES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "memory":
        return MemoryBackend()
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "store.db")
    if request.param == "etcd":
        return EtcdBackend(request.getfixturevalue("etcd"))
    kube: KubeBackend = request.getfixturevalue("kube_backend" if request.param == "kube" else "kube_old_backend")
    return kube
