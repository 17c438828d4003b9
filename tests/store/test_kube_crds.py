"""Netloom's own kinds on a real Kubernetes API server, through the definitions that `netloom crds` prints."""

import asyncio
import os
from functools import partial

import pytest

from netloom.model.registry import KINDS, LEASE
from netloom.model.schemas.crds import crds
from netloom.model.values.selectors import selector
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from tests.store.backends import seen
from tests.support.kube import Kube
from tests.support.process import wait_until

ATTACHMENT = KINDS.named("networkattachments")


def served(kube: Kube, path: str) -> bool:
    try:
        return kube.request("GET", path)[0] == 200
    except ValueError:  # Until the path is known the answer is not JSON.
        return False


@pytest.mark.kube
def test_every_kind_is_kept_by_a_kubernetes_cluster(kube: Kube) -> None:
    for crd in crds():
        status, answer = kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        assert status in (201, 409), answer
    for kind in KINDS:
        wait_until(partial(served, kube, kind.path()), what=f"{kind.plural} to be served")

    async def go() -> None:
        store = await KubeStore.open(kubeconfig.load(str(kube.kubeconfig)))
        for kind in KINDS:
            assert (await store.list(kind, limit=1)).revision > 0
        on_n1 = selector("", "spec.node=n1", selectable=ATTACHMENT.selectable)
        watch = await store.watch(ATTACHMENT, "default", selector=on_n1, since=await store.revision())
        for name, node in (("store-a", "n1"), ("store-b", "n2"), ("store-c", "n1")):
            document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"node": node, "network": "blue"}}
            made = await store.create(ATTACHMENT, document)
            assert made.value().metadata.generation == 1
        assert await seen(watch, 2) == ["ADDED store-a", "ADDED store-c"]
        for name in ("store-a", "store-b", "store-c"):
            await store.delete(ATTACHMENT, "default", name)
        assert await seen(watch, 2) == ["DELETED store-a", "DELETED store-c"]
        await watch.close()
        await store.close()

    asyncio.run(go())


@pytest.mark.kube
def test_watches_of_a_kubernetes_cluster_share_connections(kube: Kube) -> None:
    async def go() -> None:
        client = kubeconfig.load(str(kube.kubeconfig)).client()
        store = KubeStore(client)
        before = len(os.listdir("/proc/self/fd"))
        since = (await store.list(LEASE, "default")).revision
        watches = await asyncio.gather(*(store.watch(LEASE, "default", since=since) for _ in range(120)))
        assert client.multiplexed
        assert len(os.listdir("/proc/self/fd")) - before <= 3, "the server allows 100 or 250 streams on a connection"
        await store.create(LEASE, {"metadata": {"name": "shared", "namespace": "default"}, "spec": {}})
        assert await asyncio.gather(*(seen(watch, 1) for watch in watches)) == [["ADDED shared"]] * 120
        await watches[0].close()
        await store.delete(LEASE, "default", "shared")
        assert await asyncio.gather(*(seen(watch, 1) for watch in watches[1:])) == [["DELETED shared"]] * 119
        await store.close()

    asyncio.run(go())
