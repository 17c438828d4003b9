"""Addresses: how fast they are allocated, how full a block gets, how fast a controller restarts.

`netloom apiserver` and `netloom controller` are separate processes, as on a real site; the benchmark's client
(bench/client) creates attachments and watches until each has its address. An allocation is three durable writes: the
attachment, its IPLock, its status. The reference of each rate is the limit: how many times three such writes per second
the store accepts when it is used directly, on this machine, in this run. The reference of the restart is a process that
reads and decodes the same objects through the same API and does nothing else.
"""

import asyncio
import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.api import Client, Target, api_process, resident_mb
from bench.table import Row
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.store.base import Store
from netloom.store.etcd.store import EtcdStore
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from netloom.store.sqlite.store import SqliteStore
from tests.support.etcd import etcd
from tests.support.process import Program, free_port, scratch

ALLOCATED = 6_000
BLOCK = 4_093
"""The allocatable addresses of a /20, as in kos."""
HELD, NETWORKS = 50_000, 500
CLIENTS, BATCH = 8, 32
WRITERS = 128


class Site(NamedTuple):
    """An API server, and where its controllers find it."""

    api: Target
    kubeconfig: Path
    folder: Path


def rows() -> list[Row]:
    """Measure and return the table."""
    found: list[Row] = []
    with scratch("bench-ipam") as folder:
        client = Client(folder)
        with scratch("bench-sqlite") as data, site(f"sqlite:{data}/bench.db") as here:
            limit = asyncio.run(_limit(lambda: SqliteStore.open(data / "limit.db")))
            found += [_rate(client, here, "sqlite", limit, 0.12), *_block(client, here, limit)]
        with etcd() as server:
            limit = asyncio.run(_limit(lambda: EtcdStore.open(server.urls, prefix="/limit")))
            with site(f"etcd:{server.url}") as here:
                found.append(_rate(client, here, "etcd", limit, 0.35))
        with scratch("bench-many") as data, site(f"sqlite:{data}/bench.db") as here:
            found += _restart(here)
    return found


@contextlib.contextmanager
def site(store: str) -> Iterator[Site]:
    """Yield an API server on a store."""
    with scratch("bench-site") as folder, api_process(folder, "apiserver", "--store", store) as api:
        yield Site(api, folder / "data" / "admin.kubeconfig", folder)


@contextlib.contextmanager
def controller(here: Site, *words: str) -> Iterator[tuple[Program, int]]:
    """Yield a controller that is in sync, and its health port."""
    port = free_port()
    netloom = os.environ.get("NETLOOM", ".venv/bin/netloom")
    command: list[str | Path] = [
        netloom,
        "controller",
        "--kubeconfig",
        here.kubeconfig,
        "--quarantine",
        "0",
        "--no-leader-elect",
    ]
    command += ["--health-listen", f"127.0.0.1:{port}", *words]
    with Program(command, log=here.folder / "controller.log") as program:
        program.wait_ready(lambda: text(port, "/readyz") is not None)
        yield program, port


def _rate(client: Client, here: Site, store: str, limit: float, wanted: float) -> Row:
    with controller(here):
        asyncio.run(make(here, [network("bench")], [subnet("bench", "10.64.0.0/12")]))
        client.run(here.api, "allocate", "-n", 500, *_load(), "-network", "bench", "-prefix", "warm")
        figures = client.run(here.api, "allocate", "-n", ALLOCATED, *_load(), "-network", "bench", "-prefix", "a")
    what = f"addresses allocated, {store}, {CLIENTS} clients"
    return Row(what, figures["per_second"], "/s", limit, wanted)


def _block(client: Client, here: Site, limit: float) -> list[Row]:
    """Fill a block to its last address, and empty it."""
    with controller(here):
        asyncio.run(make(here, [network("full")], [subnet("full", "10.128.0.0/20")]))
        words = ("-n", BLOCK, *_load(), "-prefix", "f")
        filled = client.run(here.api, "allocate", *words, "-network", "full")
        emptied = client.run(here.api, "release", *words)
    return [
        Row(f"a /20 filled, {BLOCK:,} of {BLOCK:,} addresses", filled["seconds"], "s", BLOCK / limit),
        Row("and emptied", emptied["seconds"], "s", BLOCK / limit),
    ]


def _restart(here: Site) -> list[Row]:
    """Allocate addresses to many attachments, and restart the controller."""
    names = [f"n{number:03}" for number in range(NETWORKS)]
    blocks = [f"10.{number // 32}.{number % 32 * 8}.0/21" for number in range(NETWORKS)]
    nets = [network(name) for name in names]
    subnets = [subnet(name, block) for name, block in zip(names, blocks, strict=True)]
    with controller(here):
        asyncio.run(make(here, nets, subnets))
        attachments = [attachment(f"a{number}", names[number % NETWORKS]) for number in range(HELD)]
        asyncio.run(make_all(here, attachments))
        before = asyncio.run(quiet(here))
    beside = reading(here, HELD * 2)
    began = time.perf_counter()
    with controller(here) as (program, _):
        took = time.perf_counter() - began
        time.sleep(2)  # Any pending write happens by then.
        memory = resident_mb(program.pid)
        wrote = asyncio.run(revision(here)) - before
    return [
        Row(f"{HELD:,} on {NETWORKS} Networks: restart to in sync", took, "s", beside, 2.5, False),
        Row("writes at the restart", wrote, "", None, 0, False),
        Row("resident, controller", memory, "MB", None, 250, False),
    ]


def reading(here: Site, least: int, northbound: str = "", *, more: Sequence[Kind] = (), cluster: str = "") -> float:
    """Return how many seconds a process takes to read and decode what the controller must know.

    That are `more` kinds than for addresses, or those of a `cluster` with this kubeconfig.
    """
    kinds = [kind.name for kind in (NETWORK_ATTACHMENT, IP_LOCK, NETWORK, SUBNET, *more)]
    argv = [sys.executable, "-m", "bench.reading", str(here.kubeconfig), northbound, *kinds, *filter(None, [cluster])]
    began = time.perf_counter()
    read = subprocess.run(argv, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began
    assert int(read.stdout) >= least, read.stdout
    return took


def _load() -> tuple[str | int, ...]:
    return ("-clients", CLIENTS, "-batch", BATCH)


async def _limit(opened: Callable[[], Awaitable[Store]]) -> float:
    """Return how many allocations per second a store accepts when it is used directly."""
    store = await opened()
    turns = iter(range(ALLOCATED // 2))

    async def write() -> None:
        for number in turns:
            created = await store.create(NETWORK_ATTACHMENT, attachment(f"a{number}", "bench"))
            await store.create(IP_LOCK, lock(number))
            document = created.document() | {"status": STATUS}
            await store.update(NETWORK_ATTACHMENT, document, subresource="status")

    try:
        began = time.perf_counter()
        await asyncio.gather(*(write() for _ in range(WRITERS)))
        return ALLOCATED // 2 / (time.perf_counter() - began)
    finally:
        await store.close()


STATUS: Document = {
    "ips": ["10.64.0.9/12"],
    "mac": "02:00:00:00:00:09",
    "vni": 4096,
    "observedGeneration": 1,
    "conditions": [
        {"type": kind, "status": "True", "reason": "Assigned", "message": "x" * 40, "lastTransitionTime": "2026-01-01"}
        for kind in ("Addressed", "Ready")
    ],
}


def _document(kind: str, name: str, spec: Document) -> Document:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def network(name: str) -> Document:
    """Return a Network."""
    return _document("Network", name, {})


def subnet(network: str, block: str) -> Document:
    """Return the Subnet of a Network."""
    return _document("Subnet", network, {"network": network, "cidr": block})


def attachment(name: str, network: str) -> Document:
    """Return an attachment."""
    return _document("NetworkAttachment", name, {"node": "n1", "network": network})


def lock(number: int) -> Document:
    """Return an IPLock."""
    made = _document("IPLock", f"v1-4096-{number}", {"network": "bench", "vni": 4096, "ip": "10.64.0.9"})
    owner = {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "name": f"a{number}", "uid": "x" * 36}
    made["metadata"] |= {"ownerReferences": [owner | {"controller": True}]}
    return made


@contextlib.asynccontextmanager
async def opened(here: Site) -> AsyncIterator[KubeStore]:
    """Yield a store over the API."""
    store = await KubeStore.open(kubeconfig.load(str(here.kubeconfig)))
    try:
        await store.revision()
        yield store
    finally:
        await store.close()


async def revision(here: Site) -> int:
    """Return the revision of the newest write."""
    async with opened(here) as store:
        return await store.revision()


async def quiet(here: Site) -> int:
    """Wait until there are no more writes, such as Events and the usage of Subnets; return the revision."""
    async with opened(here) as store:
        before, now = -1, await store.revision()
        while before != now:
            await asyncio.sleep(5)
            before, now = now, await store.revision()
        return now


async def make(here: Site, networks: list[Document], subnets: list[Document]) -> None:
    """Create Networks and their Subnets, and wait until they are valid."""
    async with opened(here) as store:
        await create_all(store, NETWORK, networks)
        since = (await store.list(SUBNET, limit=1)).revision
        await create_all(store, SUBNET, subnets)
        await _until(store, SUBNET, since, len(subnets), lambda document: document["status"].get("validated", False))


async def make_all(here: Site, attachments: list[Document]) -> None:
    """Create attachments, and wait until all have an address."""
    async with opened(here) as store:
        since = (await store.list(NETWORK_ATTACHMENT, limit=1)).revision
        async with asyncio.TaskGroup() as group:
            work = _until(
                store, NETWORK_ATTACHMENT, since, len(attachments), lambda document: document["status"].get("ips")
            )
            group.create_task(work)
            await create_all(store, NETWORK_ATTACHMENT, attachments)


async def create_all(store: Store, kind: Kind, documents: Iterable[Document]) -> None:
    """Create objects, many at a time."""
    left = iter(documents)

    async def create() -> None:
        for document in left:
            await store.create(kind, document)

    await asyncio.gather(*(create() for _ in range(WRITERS)))


async def _until(store: Store, kind: Kind, since: int, count: int, good: Callable[[Document], object]) -> None:
    """Wait until so many objects written after `since` are good."""
    seen: set[str] = set()
    watch = await store.watch(kind, since=since)
    try:
        async with asyncio.timeout(600):
            while len(seen) < count:
                for event in await watch.next():
                    if event.object.name not in seen and good({"status": {}} | event.object.document()):
                        seen.add(event.object.name)
    finally:
        await watch.close()


def text(port: int, path: str) -> str | None:
    """Return a page of a process's health port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
