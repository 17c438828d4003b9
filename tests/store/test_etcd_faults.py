"""Members of etcd that are cut off, that hang, or that take few calls at once: the client leaves them, or waits."""

import asyncio
from collections.abc import Iterator

import pytest

from netloom.errors import Unreachable
from netloom.store.etcd import api
from netloom.store.etcd import store as etcd_module
from netloom.store.etcd.api import Etcd as EtcdClient
from netloom.store.etcd.store import EtcdStore
from netloom.store.etcd.wire import put
from tests.store.backends import VERSIONS, collect
from tests.store.kinds import WIDGET, widget
from tests.support.etcd import Cluster, Etcd, cluster
from tests.support.etcd import etcd as running_etcd

pytestmark = pytest.mark.etcd
KEEPALIVE = 0.5
FLAGS = ["--grpc-keepalive-min-time=100ms", "--heartbeat-interval=50", "--election-timeout=500"]
"""Quick to notice; a server takes no PINGs more often than this."""


@pytest.fixture(params=VERSIONS)
def three(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(version=request.param, flags=FLAGS) as members:
        yield members


@pytest.fixture(params=VERSIONS)
def narrow(request: pytest.FixtureRequest) -> Iterator[Etcd]:
    """An etcd that takes 16 streams on a connection."""
    with running_etcd(version=request.param, flags=["--max-concurrent-streams=16"]) as server:
        yield server


async def heard_by_a_watcher(store: EtcdStore, others: EtcdStore) -> None:
    """See that a watch of `store` hears of what is written by `others`."""
    watch = await store.watch(WIDGET, since=await others.revision())
    await others.create(WIDGET, widget("ns", "b"))
    assert [event.object.name for event in await collect(watch, 1)] == ["b"]
    await watch.close()


def test_a_watcher_leaves_a_member_that_is_cut_off_from_its_peers(three: Cluster) -> None:
    async def go() -> None:
        store = await EtcdStore.open(three.urls, kinds=[WIDGET])
        others = await EtcdStore.open(three.urls[1:], kinds=[WIDGET])
        await store.create(WIDGET, widget("ns", "a"))
        three.cut_off(0)
        await heard_by_a_watcher(store, others)
        assert (await store.create(WIDGET, widget("ns", "c"))).name == "c"
        await store.close()
        await others.close()

    asyncio.run(go())


def test_a_write_goes_past_a_member_without_a_leader(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been done when a member says so: even a write may be given to the next one."""

    async def go() -> None:
        three.cut_off(0)
        client = EtcdClient(three.urls)
        await client.txn([], [put("/x", b"1")])
        assert len((await client.range("/x")).kvs) == 1
        await client.close()
        monkeypatch.setattr(api, "ELECTION_SECONDS", 0.3)
        alone = EtcdClient(three.urls[:1])
        with pytest.raises(Unreachable, match="no leader"):
            await alone.range("/x")
        await alone.close()

    asyncio.run(go())


def test_a_request_waits_for_the_election_of_a_leader(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ELECTION_SECONDS", 120.0)

    async def go() -> None:
        client = EtcdClient(three.urls[:1])
        for number in (1, 2):
            three.members[number].kill()
        await asyncio.to_thread(three.wait_unhealthy, 0)
        writing = asyncio.ensure_future(client.txn([], [put("/x", b"1")]))
        reading = asyncio.ensure_future(client.range("/x"))
        await asyncio.wait([writing, reading], timeout=0.5)
        assert not writing.done()
        assert not reading.done()
        await asyncio.to_thread(three.members[1].start)
        await writing
        await reading
        await client.close()

    asyncio.run(go())


def test_a_member_that_hangs_is_left_for_another(three: Cluster) -> None:
    async def go() -> None:
        store = await EtcdStore.open(three.urls, kinds=[WIDGET], keepalive=KEEPALIVE)
        others = await EtcdStore.open(three.urls[1:], kinds=[WIDGET])
        await store.create(WIDGET, widget("ns", "a"))
        three.members[0].hang()
        reading = asyncio.ensure_future(store.get(WIDGET, "ns", "a"))
        await asyncio.to_thread(three.wait_without, 0)
        await heard_by_a_watcher(store, others)
        assert (await reading).name == "a", "what only reads is asked of another"
        await store.close()
        await others.close()

    asyncio.run(go())


def test_a_server_that_takes_few_calls_at_once_is_given_no_more(narrow: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(narrow.urls, kinds=[WIDGET])
        watch = await store.watch(WIDGET, since=await store.revision())
        made = await asyncio.gather(*(store.create(WIDGET, widget("ns", f"w{n}")) for n in range(400)))
        assert len(made) == 400
        assert len(await collect(watch, 400)) == 400
        await store.close()

    asyncio.run(go())


def test_watches_leave_room_for_calls(narrow: Etcd) -> None:
    async def go() -> None:
        client = EtcdClient(narrow.urls)
        async with asyncio.TaskGroup() as group, asyncio.timeout(120):
            watching = [group.create_task(first_message(client)) for _ in range(40)]
            await client.txn([], [put("/x", b"1")])
            assert await asyncio.gather(*watching) == [True] * 40
        await client.close()

    asyncio.run(go())


async def first_message(client: EtcdClient) -> bool:
    """Watch until etcd says that the watch has begun, and for as long as the other watches need."""
    async with client.watch("/x", "/y", 0) as messages:
        async for response in messages:
            if response.events:
                return True
    return False


def test_what_is_more_than_one_answer_may_have_is_asked_for_in_parts(
    narrow: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_MAX_MESSAGE", 4_000_000)

    async def go() -> None:
        store = await EtcdStore.open(narrow.urls, kinds=[WIDGET])
        names = [f"w{number:02}" for number in range(60)]
        for name in names:
            await store.create(WIDGET, widget("ns", name, pad="x" * 100_000))
        assert [item.name for item in (await store.list(WIDGET)).items] == names
        page = await store.list(WIDGET, limit=50)
        assert ([item.name for item in page.items], page.remaining) == (names[:50], 10)
        await store.close()
        again = await EtcdStore.open(narrow.urls, kinds=[WIDGET])
        watch = await again.watch(WIDGET, since=1)
        assert len(await collect(watch, 60)) == 60, "the history comes in parts, too"
        await again.close()

    assert etcd_module.PAGE > 60
    asyncio.run(go())
