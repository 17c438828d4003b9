"""The stores as the one suite sees them: how to open, and how to make the past go away.

    @scenario
    async def test_something(w: World) -> None:
        made = await w.store.create(WIDGET, w.widget("a"))

A `World` is one open store with namespaces of its own, so that tests can share a server.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from netloom.errors import Expired
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import LEASE
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Event, Store, Stored, Watch
from netloom.store.etcd.api import Etcd as EtcdClient
from netloom.store.etcd.store import EtcdStore
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from netloom.store.memory import MemoryStore
from netloom.store.sqlite.store import SqliteStore
from tests.store.kinds import GADGET, WIDGET, crd, widget
from tests.support.etcd import NEWER, Etcd
from tests.support.kube import Kube
from tests.support.process import wait_until

KINDS = (WIDGET, GADGET, LEASE)
LOCAL = ("memory", "sqlite", "etcd")
"""The stores of our own engine: see `Backend.local`."""
ETCDS = tuple(f"etcd-{version}" for version in NEWER)
"""etcd in other versions than the distribution's."""
SHARED = ("etcd", "netloom", "kube", "kube-old")
"""The stores that several processes may have open at once."""
WINDOW = 400
"""How many changes the stores of our own remember here."""
QUEUE = 100
PATIENCE = 60.0
VERSIONS = ["", *(pytest.param(version, marks=pytest.mark.versions) for version in NEWER)]
"""The versions of etcd, for a fixture that starts one."""


class Backend(Protocol):
    """One kind of store."""

    name: str
    local: bool
    """Whether it is of our own engine: the past ends where our window ends, and events come at once."""

    async def open(self) -> Store: ...

    async def forget(self, store: Store) -> None:
        """See to it that the past before now is compacted."""

    def namespace(self, name: str) -> None:
        """Make a namespace, where that is needed."""


class MemoryBackend:
    name = "memory"
    local = True

    async def open(self) -> Store:
        return MemoryStore(window_changes=WINDOW, queue_length=QUEUE)

    async def forget(self, store: Store) -> None:
        await write_a_lot(store)

    def namespace(self, name: str) -> None:
        pass


class SqliteBackend:
    name = "sqlite"
    local = True

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> Store:
        return await SqliteStore.open(self._path, kinds=KINDS, window_changes=WINDOW, queue_length=QUEUE)

    async def forget(self, store: Store) -> None:
        await write_a_lot(store)

    def namespace(self, name: str) -> None:
        pass


class EtcdBackend:
    name = "etcd"
    local = True

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._prefix = f"/test-{secrets.token_hex(4)}"

    async def open(self) -> Store:
        return await EtcdStore.open(
            self._etcd.urls, prefix=self._prefix, kinds=KINDS, window_changes=WINDOW, queue_length=QUEUE
        )

    async def forget(self, store: Store) -> None:
        await write_a_lot(store)
        await compact(self._etcd.url, await store.revision())

    def namespace(self, name: str) -> None:
        pass


class KubeBackend:
    name = "kube"
    local = False

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        for kind in (WIDGET, GADGET):
            status, answer = kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(kind))
            assert status in (201, 409), answer
            wait_until(partial(_served, kube, kind), what=f"{kind.plural} to be served")

    async def open(self) -> Store:
        return await KubeStore.open(kubeconfig.load(str(self._kube.kubeconfig)))

    async def forget(self, store: Store) -> None:
        await compact(self._kube._etcd_url, await store.revision())

    def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        status, answer = self._kube.request("POST", "/api/v1/namespaces", body)
        assert status == 201, answer


class NetloomBackend:
    """A Kubernetes-style store whose server is Netloom's own: writes made together go in batches."""

    name = "netloom"
    local = False

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def open(self) -> Store:
        store = await KubeStore.open(kubeconfig.load(str(self._kubeconfig)))
        await store.revision()  # From its first answer on it knows that the server takes batches.
        return store

    async def forget(self, store: Store) -> None:
        await write_a_lot(store)

    def namespace(self, name: str) -> None:
        pass


def _served(kube: Kube, kind: Kind) -> bool:
    try:
        return kube.request("GET", kind.path())[0] == 200
    except ValueError:  # Until the path is known the answer is not JSON.
        return False


async def write_a_lot(store: Store) -> None:
    """Write until the present is no longer in the window of a store that remembers `WINDOW` changes."""
    junk = await store.create(GADGET, {"metadata": {"generateName": "junk-"}, "spec": {"turn": 0}})
    for turn in range(WINDOW * 2):
        document = junk.document()
        document["spec"]["turn"] = turn + 1
        junk = await store.update(GADGET, document)
    await store.delete(GADGET, "", junk.name)


async def compact(url: str, revision: int) -> None:
    """Make an etcd drop its history."""
    client = EtcdClient([url])
    try:
        await client.compact(revision)
    finally:
        await client.close()


@dataclass(slots=True)
class World:
    """One open store, and places in it that no other test uses."""

    backend: Backend
    store: Store
    ns: str
    """A namespace."""
    ns2: str
    """Another, which comes after it."""

    def widget(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Document:
        """Return a widget to create in `ns`."""
        return widget(self.ns, name, labels, **spec)

    async def add(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Stored:
        """Create a widget in `ns`."""
        return await self.store.create(WIDGET, self.widget(name, labels, **spec))

    async def edit(self, name: str, change: Callable[[Document], object]) -> Stored:
        """Change a widget of `ns`."""
        document = (await self.store.get(WIDGET, self.ns, name)).document()
        change(document)
        return await self.store.update(WIDGET, document)

    async def remove(self, name: str) -> Stored:
        """Delete a widget of `ns`."""
        return await self.store.delete(WIDGET, self.ns, name)

    @asynccontextmanager
    async def watching(
        self, *, kind: Kind = WIDGET, namespace: str | None = None, selector: Selector = EVERYTHING, since: int
    ) -> AsyncIterator[Watch]:
        """Watch widgets of `ns`, unless told otherwise, for a while."""
        where = self.ns if namespace is None else namespace
        watch = await self.store.watch(kind, where, selector=selector, since=since)
        try:
            yield watch
        finally:
            await watch.close()


async def collect(watch: Watch, count: int) -> list[Event]:
    """Return the next `count` events; that there are no more of them at once is for the caller to check."""
    events: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(events) < count:
            events += await watch.next()
    return events


async def seen(watch: Watch, count: int) -> list[str]:
    """Return the next `count` events as words."""
    return [f"{event.type} {event.object.name}" for event in await collect(watch, count)]


async def expires(store: Store, *, since: int, namespace: str) -> bool:
    """Whether a watch from `since` is told to list again, at once or when it looks."""
    try:
        watch = await store.watch(WIDGET, namespace, since=since)
        try:
            async with asyncio.timeout(PATIENCE):
                await watch.next()
        finally:
            await watch.close()
    except Expired:
        return True
    return False


Scenario = Callable[[World], Awaitable[None]]


def scenario(test: Scenario) -> Callable[[Backend], None]:
    """Make a test that runs on every store out of what happens in one."""

    def run(backend: Backend) -> None:
        asyncio.run(_within(backend, test))

    run.__name__ = run.__qualname__ = getattr(test, "__name__", "scenario")
    run.__module__ = test.__module__
    return run


async def _within(backend: Backend, test: Scenario) -> None:
    tag = secrets.token_hex(3)
    world = World(backend, await backend.open(), f"t{tag}-a", f"t{tag}-b")
    backend.namespace(world.ns)
    backend.namespace(world.ns2)
    try:
        async with asyncio.timeout(240):
            await test(world)
    finally:
        await world.store.close()
