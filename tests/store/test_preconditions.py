"""A deletion that depends on what others wrote: decided in one step with it, where this process decides."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from netloom.errors import Conflict, NotFound
from netloom.store.base import Precondition, PreconditionFailed, Store, Stored
from netloom.store.etcd.store import EtcdStore
from netloom.store.memory import MemoryStore
from netloom.store.sqlite.store import SqliteStore
from tests.store.kinds import GADGET, WIDGET, gadget, widget
from tests.support.etcd import Etcd

KINDS = (WIDGET, GADGET)


def is_user(stored: Stored) -> bool:
    return stored.kind is WIDGET


async def opened(name: str, folder: Path) -> Store:
    return await SqliteStore.open(folder / "db", kinds=KINDS) if name == "sqlite" else MemoryStore()


@pytest.fixture(params=["memory", "sqlite"])
def on_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Store], Awaitable[None]]], None]:
    def run(test: Callable[[Store], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await opened(request.param, tmp_path)
            await test(store)
            await store.close()

        asyncio.run(main())

    return run


OnStore = Callable[[Callable[[Store], Awaitable[None]]], None]


def test_what_was_written_after_the_look_forbids(on_store: OnStore) -> None:
    async def test(store: Store) -> None:
        since = (await store.create(GADGET, gadget("g"))).revision
        await store.create(WIDGET, widget("ns", "user"))
        with pytest.raises(PreconditionFailed, match="Widget ns/user was written meanwhile"):
            await store.delete(GADGET, "", "g", unless=Precondition(since, is_user))
        assert (await store.get(GADGET, "", "g")).name == "g"
        now = await store.revision()
        await store.delete(GADGET, "", "g", unless=Precondition(now, is_user))
        with pytest.raises(NotFound):
            await store.get(GADGET, "", "g")

    on_store(test)


def test_what_does_not_matter_and_what_is_gone_forbids_nothing(on_store: OnStore) -> None:
    async def test(store: Store) -> None:
        since = (await store.create(GADGET, gadget("g"))).revision
        await store.create(GADGET, gadget("other"))
        await store.create(WIDGET, widget("ns", "other"))
        await store.delete(GADGET, "", "g", unless=Precondition(since, lambda stored: stored.name == "user"))

    on_store(test)


def test_a_write_that_is_decided_just_before_forbids(on_store: OnStore) -> None:
    async def test(store: Store) -> None:
        since = (await store.create(GADGET, gadget("g"))).revision
        # Both are asked for before either is decided: in one batch, where there are batches.
        made, refused = await asyncio.gather(
            store.create(WIDGET, widget("ns", "user")),
            store.delete(GADGET, "", "g", unless=Precondition(since, is_user)),
            return_exceptions=True,
        )
        assert isinstance(made, Stored)
        assert isinstance(refused, PreconditionFailed)

    on_store(test)


def test_a_write_that_is_decided_just_after_does_not_matter(on_store: OnStore) -> None:
    async def test(store: Store) -> None:
        since = (await store.create(GADGET, gadget("g"))).revision
        gone, made = await asyncio.gather(
            store.delete(GADGET, "", "g", unless=Precondition(since, is_user)),
            store.create(WIDGET, widget("ns", "user")),
        )
        assert gone.revision < made.revision

    on_store(test)


def test_where_the_past_is_forgotten_one_has_to_look_again() -> None:
    async def main() -> None:
        store = MemoryStore(window_changes=3)
        since = (await store.create(GADGET, gadget("g"))).revision
        for number in range(10):
            await store.create(GADGET, gadget(f"other-{number}"))
        with pytest.raises(PreconditionFailed):
            await store.delete(GADGET, "", "g", unless=Precondition(since, is_user))

    asyncio.run(main())


def test_to_be_overtaken_is_a_conflict() -> None:
    assert issubclass(PreconditionFailed, Conflict)


@pytest.mark.etcd
def test_on_etcd_what_this_process_has_heard_forbids(etcd: Etcd) -> None:
    async def main() -> None:
        store = await EtcdStore.open(etcd.urls, prefix="/unless", kinds=KINDS)
        since = (await store.create(GADGET, gadget("g"))).revision
        watch = await store.watch(WIDGET, since=since)
        await store.create(WIDGET, widget("ns", "user"))
        await watch.next()
        with pytest.raises(PreconditionFailed):
            await store.delete(GADGET, "", "g", unless=Precondition(since, is_user))
        await store.delete(GADGET, "", "g", unless=Precondition(await store.revision(), is_user))
        await watch.close()
        await store.close()

    asyncio.run(main())
