"""The network of a large cluster: what a restart of the controller costs.

A real kube-apiserver has the nodes, pods, Services, EndpointSlices and policies; there are no kubelets. Netloom's
objects are on `netloom apiserver`, their rows in a real ovsdb-server. The reference of the restart is a process that
reads and decodes the same objects and rows, and does nothing else.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from bench import ipam
from bench.api import resident_mb
from bench.northbound import server, transactions
from bench.table import Row
from netloom.errors import AlreadyExists, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kubernetes import CLUSTER_NODE, ENDPOINT_SLICE, NETWORK_POLICY, POD, SERVICE
from netloom.model.registry import EVENT, LOAD_BALANCER, NAMESPACE, NETWORK_ATTACHMENT, ROUTER, SECURITY_PROFILE
from netloom.plan.kube import names
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from tests.plan import kube_objects as objects
from tests.support import kube as kube_support
from tests.support.kube import Kube
from tests.support.process import scratch

NODES, PODS, SERVICES, POLICIES = 100, 5_000, 2_000, 500
ENDPOINTS = 3
WRITERS = 16
SPACE = "bench"
BLOCKS = ("--kube-pod-cidrs", "10.128.0.0/14", "--kube-service-cidrs", "10.250.0.0/16")


def rows() -> list[Row]:
    """Measure and return the table."""
    with (
        scratch("bench-kube") as folder,
        server() as database,
        kube_support.kube(kube_support.CURRENT) as cluster,
        ipam.site(f"sqlite:{folder}/bench.db") as here,
    ):
        asyncio.run(_fill(cluster))
        asyncio.run(_space(here))
        words = ("--kube", *BLOCKS, "--kube-cluster", str(cluster.kubeconfig), "--ovn-nb", database.remote)
        with ipam.controller(here, *words):
            asyncio.run(_until_made(here))
            before = asyncio.run(ipam.quiet(here))
        others = asyncio.run(_revision(cluster.kubeconfig))
        beside = ipam.reading(
            here,
            PODS * 2,
            database.remote,
            more=(ROUTER, SECURITY_PROFILE, LOAD_BALANCER),
            cluster=str(cluster.kubeconfig),
        )
        began = time.perf_counter()
        with ipam.controller(here, *words) as (program, port):
            took = time.perf_counter() - began
            time.sleep(2)  # Any pending write happens by then.
            memory = resident_mb(program.pid)
            wrote = asyncio.run(ipam.revision(here)) - before + transactions(port)
            wrote += asyncio.run(_revision(cluster.kubeconfig)) - others
    what = f"{SERVICES:,} Services, {POLICIES} policies, {PODS:,} pods: restart to in sync"
    return [
        Row(what, took, "s", beside, 3.0, more_is_better=False),
        Row("writes at the restart, to both APIs and to OVN", wrote, "", wanted=0, more_is_better=False),
        Row("resident, controller", memory, "MB", wanted=500, more_is_better=False),
    ]


async def _fill(cluster: Kube) -> None:
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    cluster.request("POST", f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    store = await KubeStore.open(kubeconfig.load(str(cluster.kubeconfig)))
    try:
        for kind, documents in (
            (
                CLUSTER_NODE,
                (objects.node_document(f"n{i}", f"10.{128 + i // 256}.{i % 256}.0/24") for i in range(NODES)),
            ),
            (POD, _pods()),
            (SERVICE, (_service(i) for i in range(SERVICES))),
            (ENDPOINT_SLICE, (_slice(i) for i in range(SERVICES))),
            (NETWORK_POLICY, (_policy(i) for i in range(POLICIES))),
        ):
            left = iter(documents)
            await asyncio.gather(*(_create(store, kind, left) for _ in range(WRITERS)))
    finally:
        await store.close()


async def _create(store: KubeStore, kind: Kind, left: Iterator[Document]) -> None:
    for one in left:
        while True:
            try:
                await store.create(kind, one)
            except Unreachable:  # It may be slow, and may have created it.
                continue
            except AlreadyExists:
                pass
            break


def _pods() -> Iterator[Document]:
    for i in range(PODS):
        yield objects.pod_document(f"p{i}", f"n{i % NODES}", namespace=SPACE, labels={"app": f"a{i % POLICIES}"})


def _service(i: int) -> Document:
    made = objects.service_document(f"s{i}", "")
    made["metadata"]["namespace"] = SPACE
    # The server chooses its addresses.
    made["spec"] = {"ports": made["spec"]["ports"]}
    return made


def _slice(i: int) -> Document:
    ips = [f"10.128.{(i + number) % NODES}.{3 + i // NODES}" for number in range(ENDPOINTS)]
    made = objects.slice_document(f"s{i}-1", f"s{i}", *ips)
    made["metadata"]["namespace"] = SPACE
    return made


def _policy(i: int) -> Document:
    peer = {"podSelector": {"matchLabels": {"app": f"a{(i + 1) % POLICIES}"}}}
    rule = {"from": [peer], "ports": [{"protocol": "TCP", "port": 8080}]}
    spec = {
        "podSelector": {"matchLabels": {"app": f"a{i}"}},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    made = objects.policy_document(f"policy{i}", spec)
    made["metadata"]["namespace"] = SPACE
    return made


async def _space(here: ipam.Site) -> None:
    async with ipam.opened(here) as store:
        await store.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}})


async def _until_made(here: ipam.Site) -> None:
    """Wait until there is all that is made for the cluster, with addresses."""
    async with ipam.opened(here) as store, asyncio.timeout(1800):
        while True:
            attachments = (await store.list(NETWORK_ATTACHMENT, names.NAMESPACE)).items
            addressed = sum(bool(one.value().status.ips) for one in attachments)  # type: ignore[attr-defined]
            balancers = len((await store.list(LOAD_BALANCER, names.NAMESPACE)).items)
            profiles = len((await store.list(SECURITY_PROFILE, names.NAMESPACE)).items)
            if addressed >= PODS + NODES and balancers >= SERVICES and profiles >= POLICIES:
                return
            await asyncio.sleep(2)


async def _revision(path: Path) -> int:
    """Return the newest revision of what a controller could write: Nodes, for their status, and Events."""
    store = await KubeStore.open(kubeconfig.load(str(path)))
    try:
        pages = [await store.list(kind) for kind in (CLUSTER_NODE, EVENT)]
        return max(one.revision for page in pages for one in page.items)
    finally:
        await store.close()


if __name__ == "__main__":
    for line_ in rows():
        print(line_)
