"""From `--store` to an open store."""

import asyncio
from pathlib import Path

import pytest

from netloom.errors import BadRequest, Unreachable
from netloom.store.memory import MemoryStore
from netloom.store.opening import open_store
from netloom.store.sqlite import SqliteStore
from tests.support.etcd import Etcd
from tests.support.process import free_port


def test_a_store_is_opened_by_its_name(tmp_path: Path) -> None:
    async def go() -> None:
        memory = await open_store("memory:")
        assert isinstance(memory, MemoryStore)
        durable = await open_store(f"sqlite:{tmp_path}/x.db")
        assert isinstance(durable, SqliteStore)
        await durable.close()
        dead = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(Unreachable):
            await open_store(f"etcd:{dead},{dead}")

    asyncio.run(go())


@pytest.mark.etcd
def test_an_etcd_is_opened_by_its_addresses(etcd: Etcd) -> None:
    async def go() -> None:
        store = await open_store(f"etcd:{etcd.url}, ")
        assert await store.revision() > 1
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("url", ["", "sqlite:", "etcd:", "memory:x", "mysql:x", "/var/lib/x.db"])
def test_what_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="is not a store: it is memory:, sqlite:PATH or etcd:URL"):
        asyncio.run(open_store(url))
