"""What the etcd store does when etcd goes away, forgets, or answers strangely."""

import asyncio
from collections.abc import Callable, Iterator
from random import Random

import pytest

from netloom.errors import (
    BadRequest,
    Conflict,
    Expired,
    Internal,
    NetloomError,
    NotFound,
    TimedOut,
    TooLarge,
    Unreachable,
)
from netloom.model.registry import KINDS as ALL_KINDS
from netloom.model.registry import LEASE
from netloom.model.values.selectors import selector
from netloom.store.etcd import store as etcd_module
from netloom.store.etcd.api import Etcd as EtcdClient
from netloom.store.etcd.api import Tls
from netloom.store.etcd.store import EtcdStore
from netloom.store.etcd.wire import put
from tests.store.backends import VERSIONS, collect, compact
from tests.store.fakegrpc import Call, always, in_turn, serving
from tests.store.kinds import GADGET, WIDGET, widget
from tests.support.etcd import Etcd
from tests.support.etcd import etcd as running_etcd
from tests.support.process import free_port

KINDS = (WIDGET, GADGET, LEASE)


@pytest.fixture(params=VERSIONS)
def own_etcd(request: pytest.FixtureRequest) -> Iterator[Etcd]:
    """An etcd that may be killed."""
    with running_etcd(version=request.param) as server:
        yield server


@pytest.mark.etcd
def test_a_watch_survives_a_crash_of_etcd(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        watch = await store.watch(WIDGET, since=await store.revision())
        await store.create(WIDGET, widget("ns", "a"))
        assert [event.object.name for event in await collect(watch, 1)] == ["a"]
        own_etcd.kill()
        with pytest.raises(Unreachable):
            await store.create(WIDGET, widget("ns", "lost"))
        own_etcd.start()
        await store.create(WIDGET, widget("ns", "b"))
        assert [event.object.name for event in await collect(watch, 1)] == ["b"]
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_another_server_is_asked_when_the_first_does_not_answer(own_etcd: Etcd) -> None:
    async def go() -> None:
        dead = f"http://127.0.0.1:{free_port()}"
        store = await EtcdStore.open([dead, *own_etcd.urls], kinds=KINDS)
        await store.create(WIDGET, widget("ns", "a"))
        assert (await store.get(WIDGET, "ns", "a")).name == "a"
        await store.close()
        with pytest.raises(Unreachable):
            await EtcdStore.open([dead], kinds=KINDS)

    asyncio.run(go())


@pytest.mark.etcd
def test_history_that_is_lost_while_nobody_looks_expires_watchers(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        watch = await store.watch(WIDGET, since=await store.revision())
        await store._feed.stop()  # The feed is away, as in a partition.
        for number in range(5):
            await store.create(WIDGET, widget("ns", f"w{number}"))
        await compact(own_etcd.url, await store.revision())
        await store._feed.start(until=0, compact_every=None)
        with pytest.raises(Expired):
            await collect(watch, 1)
        page = await store.list(WIDGET)
        again = await store.watch(WIDGET, since=page.revision)
        await store.create(WIDGET, widget("ns", "new"))
        assert [event.object.name for event in await collect(again, 1)] == ["new"]
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_a_store_opens_on_an_etcd_that_has_forgotten_its_past(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        first = await store.revision()
        for number in range(5):
            await store.create(WIDGET, widget("ns", f"w{number}"))
        await compact(own_etcd.url, await store.revision())
        await store.close()
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        assert len((await store.list(WIDGET)).items) == 5
        with pytest.raises(Expired):
            await store.watch(WIDGET, since=first)
        with pytest.raises(Expired):
            await store.list(WIDGET, revision=first)
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_old_history_is_compacted_when_asked(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS, compact_every=0.02)
        await store.create(WIDGET, widget("ns", "a"))
        first = await store.revision()
        async with asyncio.timeout(120):
            while True:
                await store.create(GADGET, {"metadata": {"generateName": "g-"}})
                try:
                    await store.list(WIDGET, revision=first)
                except Expired:
                    break
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_keys_of_others_are_not_touched_and_not_understood(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        watch = await store.watch(WIDGET, since=await store.revision())
        client = EtcdClient(own_etcd.urls)
        for key in ("/netloom/stray", "/netloom/other.group/things/ns/a", "/elsewhere/x"):
            await client.txn([], [put(key, b"not json")])
        await client.close()
        await store.create(WIDGET, widget("ns", "a"))
        assert [event.object.name for event in await collect(watch, 1)] == ["a"]
        with pytest.raises(Internal, match="opened without"):
            await store.list(ALL_KINDS.named("networks"))
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_lists_longer_than_a_page_are_put_together(own_etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_module, "PAGE", 7)

    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        names = [f"w{number:02}" for number in range(30)]
        await asyncio.gather(
            *(store.create(WIDGET, widget("ns", name, {"odd": str(int(name[1:]) % 2)})) for name in names)
        )
        assert [item.name for item in (await store.list(WIDGET)).items] == names
        page = await store.list(WIDGET, limit=10)
        assert ([item.name for item in page.items], page.remaining) == (names[:10], 20)
        page = await store.list(WIDGET, limit=20, token=page.token)
        assert ([item.name for item in page.items], page.token) == (names[10:], "")
        page = await store.list(WIDGET, limit=10, selector=selector("odd=1"))
        assert [item.name for item in page.items] == names[1:20:2]
        page = await store.list(WIDGET, limit=10, selector=selector("odd=1"), token=page.token)
        assert ([item.name for item in page.items], page.token) == (names[21::2], "")
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_an_object_that_is_too_large_for_etcd_is_refused(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        with pytest.raises(TooLarge):
            await store.create(WIDGET, widget("ns", "a", pad="x" * (2 << 20)))
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_large_lists_are_read_whole(own_etcd: Etcd) -> None:
    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        for number in range(12):
            await store.create(WIDGET, widget("ns", f"w{number:02}", pad="x" * 1_000_000))
        assert len((await store.list(WIDGET)).items) == 12
        watch = await store.watch(WIDGET, since=1)
        assert len(await collect(watch, 12)) == 12
        await store.close()
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        watch = await store.watch(WIDGET, since=1)
        assert len(await collect(watch, 12)) == 12
        await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_a_generated_name_that_is_taken_is_generated_again(own_etcd: Etcd) -> None:
    class Stubborn(Random):
        """Gives each name twice."""

        def __init__(self) -> None:
            super().__init__(7)
            self.turn = 0

        def choices(self, population: str, weights: None = None, *, cum_weights: None = None, k: int = 1) -> list[str]:  # type: ignore[override]
            self.turn += 1
            return [f"{(self.turn + 1) // 2}"] * k

    async def go() -> None:
        store = await EtcdStore.open(own_etcd.urls, kinds=KINDS, random=Stubborn())
        document = {"metadata": {"generateName": "g-"}}
        names = [(await store.create(GADGET, document)).name for _ in range(3)]
        assert names == ["g-11111", "g-22222", "g-33333"]
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("code", "words", "cls"),
    [
        (11, "etcdserver: mvcc: required revision has been compacted", Expired),
        (11, "etcdserver: mvcc: required revision is a future revision", TimedOut),
        (14, "etcdserver: request timed out", Unreachable),
        (4, "context deadline exceeded", TimedOut),
        (3, "etcdserver: key is not provided", Internal),
        (3, "etcdserver: request is too large", TooLarge),
    ],
)
def test_etcds_errors_become_ours(code: int, words: str, cls: type[NetloomError]) -> None:
    async def go() -> None:
        async with serving(always(lambda call: call.fail(code, words))) as server:
            client = EtcdClient([server.url])
            with pytest.raises(cls):
                await client.range("/x")
            with pytest.raises(cls):
                async with client.watch("/x", "/y", 1) as messages:
                    await anext(messages)
            await client.close()

    asyncio.run(go())


def header(revision: int) -> bytes:
    """Return the header of an answer of etcd."""
    return b"\x0a\x02\x18" + bytes((revision,))


def test_a_write_that_may_have_been_done_is_not_sent_to_another_server() -> None:
    async def go() -> None:
        def hang_up(call: Call) -> None:
            call.writer.transport.abort()

        async with serving(always(hang_up)) as bad, serving(always(lambda call: call.reply(header(7)))) as good:
            client = EtcdClient([bad.url, good.url])
            with pytest.raises(Unreachable):
                await client.txn([], [])
            assert good.calls == []
            client._current = 0
            assert (await client.range("/x")).revision == 7
            await client.close()

    asyncio.run(go())


CREATED = header(5) + b"\x18\x01"
CANCELLED = header(5) + b"\x20\x01\x32\x07because"
OPENED = header(9) + b"\x10\x01"


def telling(*messages: bytes, code: int | None = None) -> Callable[[Call], None]:
    """Answer a watch with these messages, and end it where a code is given."""

    def answer(call: Call) -> None:
        call.head()
        for message in messages:
            call.tell(message)
        if code is not None:
            call.end(code, "leader changed")

    return answer


def test_a_watch_that_etcd_ends_is_taken_up_again() -> None:
    async def go() -> None:
        answers = in_turn(
            lambda call: call.reply(OPENED),
            telling(CREATED, CANCELLED),
            telling(CREATED, code=14),
            telling(CREATED, code=0),
            telling(CREATED, header(9)),
        )
        async with serving(answers) as server:
            store = await EtcdStore.open([server.url], kinds=KINDS)
            watch = await store.watch(WIDGET, since=9)
            assert watch.revision == 9
            assert len(server.calls) == 5
            await store.close()

    asyncio.run(go())


def test_an_etcd_that_never_sends_its_history_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netloom.store.etcd.feed._CATCH_UP_SECONDS", 0.05)

    async def go() -> None:
        async with serving(in_turn(lambda call: call.reply(OPENED), telling())) as server:
            with pytest.raises(TimedOut, match="did not send its history"):
                await EtcdStore.open([server.url], kinds=KINDS)

    asyncio.run(go())


def test_a_bug_in_the_feed_does_not_leave_watchers_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with serving(in_turn(lambda call: call.reply(OPENED), telling(header(9)))) as server:
            store = await EtcdStore.open([server.url], kinds=KINDS)
            watch = await store.watch(WIDGET, since=9)
            monkeypatch.setattr(store._hub, "advance", None)
            server.calls[-1].tell(header(10))
            with pytest.raises(Internal, match="the etcd watch failed"):
                await watch.next()
            await store.close()

    asyncio.run(go())


@pytest.mark.etcd
def test_what_is_remembered_of_an_object_is_never_the_last_word(own_etcd: Etcd) -> None:
    async def go() -> None:
        one = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        other = await EtcdStore.open(own_etcd.urls, kinds=KINDS)
        made = await one.create(WIDGET, widget("ns", "a", size=1))
        changed = made.document()
        changed["spec"]["size"] = 2
        newer = await other.update(WIDGET, changed)
        assert (await one.get(WIDGET, "ns", "a", known=made.revision)).revision == made.revision
        assert (await one.get(WIDGET, "ns", "a")).revision == newer.revision
        with pytest.raises(Conflict):
            await other.update(WIDGET, made.document())
        # `one` remembers `newer` now; once more somebody else is faster.
        changed = newer.document()
        changed["spec"]["size"] = 3
        newest = await other.update(WIDGET, changed)
        for document in (newer.document(), made.document()):
            with pytest.raises(Conflict):
                await one.update(WIDGET, document)
        assert (await one.delete(WIDGET, "ns", "a", uid=newest.document()["metadata"]["uid"])).name == "a"
        with pytest.raises(NotFound):
            await other.update(WIDGET, newest.document())
        with pytest.raises(NotFound):
            await other.delete(WIDGET, "ns", "a")
        await one.close()
        await other.close()

    asyncio.run(go())


def test_addresses_are_needed() -> None:
    with pytest.raises(BadRequest, match="no etcd address"):
        EtcdClient([])
    assert "hush" not in repr(Tls(key=b"hush"))
    with pytest.raises(BadRequest, match="certificates cannot be used"):
        EtcdClient(["https://127.0.0.1:1"], Tls(ca=b"nonsense"))
