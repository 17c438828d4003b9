"""Watches that share a connection; nobody who watches can tell, but by the number of connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netloom.errors import Expired, Forbidden, TooManyRequests, Unreachable
from netloom.front.api.http.limits import Limits
from netloom.model.kind import Kind
from netloom.model.registry import NETWORK, SUBNET
from netloom.store.kube.kubeconfig import Cluster
from netloom.store.kube.store import KubeStore
from tests.front.serving import Serving, make_credentials, network, serving
from tests.support.process import wait_until


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("credentials")
    make_credentials(folder)
    return folder


@asynccontextmanager
async def opened(server: Serving, who: str = "admin") -> AsyncIterator[KubeStore]:
    ca = (server.folder / "ca.crt").read_bytes()
    store = await KubeStore.open(Cluster(server=f"https://127.0.0.1:{server.port}", ca=ca, token=f"{who}-token"))
    try:
        yield store
    finally:
        await store.close()


def run(
    credentials: Path,
    work: Callable[[Serving, KubeStore], Awaitable[None]],
    who: str = "admin",
    limits: Limits | None = None,
) -> None:
    async def main(server: Serving) -> None:
        async with opened(server, who) as store:
            await work(server, store)

    with serving(credentials, limits=limits) as server:
        asyncio.run(main(server))


async def now(store: KubeStore, kind: Kind) -> int:
    return (await store.list(kind, "default")).revision


def test_watches_share_one_connection_and_each_hears_its_own(credentials: Path) -> None:
    async def work(server: Serving, store: KubeStore) -> None:
        await store.create(NETWORK, network("first"))
        since = await now(store, NETWORK)
        watches = [await store.watch(NETWORK, "default", since=since) for _ in range(20)]
        other = await store.watch(SUBNET, "default", since=since)
        assert len(server.api.watches) == 21
        assert server.server.connections <= 3
        await store.create(NETWORK, network("second"))
        for watch in watches:
            [event] = await watch.next()
            assert event.object.name == "second"
            await watch.close()
        await asyncio.to_thread(wait_until, lambda: len(server.api.watches) == 1, what="the watches to end")
        await other.close()

    run(credentials, work)


def test_a_watch_that_may_not_be_is_refused_as_it_would_be_alone(credentials: Path) -> None:
    async def work(server: Serving, store: KubeStore) -> None:
        await store.list(NETWORK, "a")
        with pytest.raises(Forbidden):
            await store.watch(NETWORK, "b", since=1)
        with pytest.raises(Expired):
            await store.watch(NETWORK, "a", since=10_000)

    run(credentials, work, who="viewer-a")


def test_a_refusal_with_details_is_read_like_any_other(credentials: Path) -> None:
    async def work(server: Serving, store: KubeStore) -> None:
        await store.list(NETWORK, "default")
        since = (await store.create(NETWORK, network("first"))).revision
        await store.watch(NETWORK, "default", since=since)
        with pytest.raises(TooManyRequests) as caught:
            await store.watch(NETWORK, "default", since=since)
        assert caught.value.retry_after == 1

    run(credentials, work, limits=Limits(watches_per_identity=1))


def test_when_the_connection_is_lost_each_watch_goes_on_from_where_it_was(credentials: Path) -> None:
    async def work(server: Serving, store: KubeStore) -> None:
        await store.create(NETWORK, network("first"))
        since = await now(store, NETWORK)
        watches = [await store.watch(NETWORK, "default", since=since) for _ in range(3)]
        for connection in list(server.server._connections()):
            server.loop.call_soon_threadsafe(connection.abort)
        for watch in watches:
            with pytest.raises(Unreachable):
                await watch.next()
            await watch.close()
        again = [await store.watch(NETWORK, "default", since=watch.revision) for watch in watches]
        await store.create(NETWORK, network("second"))
        for watch in again:
            [event] = await watch.next()
            assert event.object.name == "second"

    run(credentials, work)


def test_one_who_does_not_read_holds_up_the_others_until_he_is_gone(
    credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netloom.store.kube.streams.MOST_WAITING", 100)

    async def work(server: Serving, store: KubeStore) -> None:
        await store.create(NETWORK, network("first"))
        since = await now(store, NETWORK)
        idle = await store.watch(NETWORK, "default", since=since)
        reads = await store.watch(NETWORK, "default", since=since)
        for number in range(5):
            await store.create(NETWORK, network(f"n{number}"))
        await idle.close()
        seen: list[str] = []
        while len(seen) < 5:
            seen += [event.object.name for event in await reads.next()]
        assert seen == [f"n{number}" for number in range(5)]

    run(credentials, work)


def test_a_store_that_is_closed_ends_its_watches(credentials: Path) -> None:
    async def work(server: Serving, store: KubeStore) -> None:
        await store.create(NETWORK, network("first"))
        watch = await store.watch(NETWORK, "default", since=await now(store, NETWORK))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_refused(watch.next()))
            await asyncio.sleep(0)
            await store.close()
        assert waiting.result()

    run(credentials, work)


async def _refused(work: Awaitable[object]) -> bool:
    try:
        await work
    except Unreachable:
        return True
    return False
