"""A full disk: what is refused, what is not, and how to get out of it.  On a small file system of its own."""

import asyncio
import logging
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from netloom.errors import NotFound
from netloom.model.registry import LEASE
from netloom.store.sqlite.reserve import NoRoom, Reserve
from netloom.store.sqlite.store import SqliteStore
from tests.front.serving import network, path
from tests.run.serving import Serving
from tests.store.kinds import GADGET, WIDGET, lease, widget
from tests.support.process import wait_until

pytestmark = pytest.mark.root
KINDS = (WIDGET, GADGET, LEASE)
PAD = "x" * 4000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def within(folder: Path, act: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def go() -> None:
        store = await SqliteStore.open(folder / "store.db", kinds=KINDS)
        try:
            await act(store)
        finally:
            await store.close()

    asyncio.run(go())


async def fill(store: SqliteStore) -> list[str]:
    """Create until there is no room; return what there is."""
    for number in range(4000):
        try:
            await store.create(WIDGET, widget("ns", f"w{number:04}", pad=PAD))
        except NoRoom:
            break
    return [item.name for item in (await store.list(WIDGET)).items]


def test_deletions_work_on_a_full_disk_and_make_room(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go(store: SqliteStore) -> None:
        await store.create(LEASE, lease("ns", "leader"))
        kept = widget("ns", "kept")
        kept["metadata"]["finalizers"] = ["test.netloom.dev/wait"]
        await store.create(WIDGET, kept)
        await store.create(WIDGET, widget("ns", "other"))
        names = await fill(store)
        revision = await store.revision()
        watch = await store.watch(WIDGET, since=revision)
        for number in range(3):
            with pytest.raises(NoRoom):
                await store.create(WIDGET, widget("ns", f"more{number}"))
        changed = (await store.get(WIDGET, "ns", "other")).document()
        with pytest.raises(NoRoom):
            await store.update(WIDGET, {**changed, "spec": {"size": 1}})
        with pytest.raises(NoRoom):
            await store.check_disk()
        assert (await store.create(WIDGET, widget("ns", "pretended"), dry_run=True)).name == "pretended"
        renewed = (await store.get(LEASE, "ns", "leader")).document()
        renewed["spec"] = {**renewed.get("spec", {}), "holderIdentity": "me"}
        await store.update(LEASE, renewed)
        marked = (await store.delete(WIDGET, "ns", "kept")).document()
        marked["metadata"]["finalizers"] = []
        await store.update(WIDGET, marked)
        with pytest.raises(NotFound):
            await store.get(WIDGET, "ns", "kept")
        for name in [name for name in names if name.startswith("w")]:
            await store.delete(WIDGET, "ns", name)
        heard = await watch.next()
        assert heard[0].object.name == "kept", "who watches hears of it"
        await store.check_disk()
        await store.create(WIDGET, widget("ns", "after", pad=PAD))
        assert [item.name for item in (await store.list(WIDGET)).items] == ["after", "other"]

    with caplog.at_level(logging.INFO):
        within(small, go)
    told = [record.message for record in caplog.records if "the disk" in record.message]
    assert len(told) == 2, told
    assert "takes only deletions" in told[0]
    assert "has space again" in told[1]

    async def look(store: SqliteStore) -> None:
        assert [item.name for item in (await store.list(WIDGET)).items] == ["after", "other"]

    within(small, look)


def test_a_batch_that_finds_no_room_keeps_its_deletions(small: Path) -> None:
    async def go(store: SqliteStore) -> None:
        await store.create(WIDGET, widget("ns", "old"))
        await store.create(WIDGET, widget("ns", "older"))
        (small / "filler").write_bytes(b"x" * 3_500_000)
        big = [store.create(WIDGET, widget("ns", f"w{number:04}", pad=PAD * 100)) for number in range(3)]
        gone, missing, *refused = await asyncio.gather(
            store.delete(WIDGET, "ns", "old"),
            store.delete(WIDGET, "ns", "nobody"),
            *big,
            return_exceptions=True,
        )
        assert all(isinstance(result, NoRoom) for result in refused)
        assert not isinstance(gone, BaseException)
        assert isinstance(missing, NotFound)
        assert [item.name for item in (await store.list(WIDGET)).items] == ["older"]

    within(small, go)


def test_a_disk_that_others_fill_is_noticed_when_the_store_is_opened(small: Path) -> None:
    async def two(store: SqliteStore) -> None:
        for name in ("a", "b"):
            await store.create(WIDGET, widget("ns", name))

    within(small, two)
    assert not (small / "store.db-reserve").exists()
    filler = small / "filler"
    filler.write_bytes(b"x" * 3_700_000)

    async def full(store: SqliteStore) -> None:
        with pytest.raises(NoRoom):
            await store.check_disk()
        with pytest.raises(NoRoom):
            await store.create(WIDGET, widget("ns", "c"))
        await store.delete(WIDGET, "ns", "a")
        filler.unlink()
        await store.check_disk()
        await store.create(WIDGET, widget("ns", "c"))
        assert (small / "store.db-reserve").stat().st_size == 512 << 10

    within(small, full)


def test_the_reserve_is_of_blocks_that_are_allocated(tmp_path: Path) -> None:
    reserve = Reserve(str(tmp_path / "x.db"))
    file = tmp_path / "x.db-reserve"
    assert file.stat().st_blocks * 512 >= 8 << 20
    assert file.stat().st_mode & 0o777 == 0o600
    reserve.run_out()
    reserve.run_out()
    assert (reserve.full, file.exists()) == (True, False)
    assert reserve.recover()
    assert (reserve.full, file.exists()) == (False, True)
    reserve.release()
    assert not file.exists()


def test_a_server_on_a_full_disk_is_not_ready_and_deletes(small: Path) -> None:
    server = Serving(small)
    server.start()
    assert server.program is not None
    try:
        filler = small / "filler"
        code, number = 201, 0
        filler.write_bytes(b"x" * 1_500_000)
        while code == 201:
            body = network(f"n{number:04}")
            body["metadata"]["annotations"] = {"pad": PAD}
            code, answer = server.request("POST", path("networks"), body)
            number += 1
        assert code == 503, answer
        assert b"only deletions are taken" in answer
        code, report = server.request("GET", "/readyz?verbose")
        assert code == 500
        assert b"[-]disk failed: reason withheld" in report
        assert b"[+]store ok" in report
        assert server.request("GET", "/livez")[0] == 200
        assert server.request("DELETE", path("networks", name="n0000"))[0] == 200
        assert server.request("GET", path("networks", name="n0000"))[0] == 404
        filler.unlink()
        wait_until(server.ready, what="the server to be ready again")
        body = network("after")
        assert server.request("POST", path("networks"), body)[0] == 201
        log = server.log.read_text()
        assert log.count("the disk is full") == 1, log
        assert log.count("the disk has space again") == 1
    finally:
        server.kill()
