"""The file behind the SQLite store: what is in it, who may open it, and what happens when it cannot be written."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from netloom.errors import AlreadyExists, Conflict, Internal, NotFound, Unreachable
from netloom.model.registry import LEASE
from netloom.store.base import Store
from netloom.store.sqlite.log import SCHEMA
from netloom.store.sqlite.reserve import NoRoom
from netloom.store.sqlite.store import ASIDE, BATCH, SqliteStore
from tests.store.kinds import GADGET, WIDGET, gadget, lease, widget
from tests.store.sqlites import KINDS, within

OPEN = "import asyncio, sys; from netloom.store.sqlite.store import SqliteStore as S; asyncio.run(S.open(sys.argv[1]))"


async def nothing(store: Store) -> None:
    """Only open and close."""


def rows(path: Path) -> int:
    with sqlite3.connect(path) as db:
        count: int = db.execute("SELECT count(*) FROM log").fetchone()[0]
    db.close()
    return count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    async def look(store: Store) -> None:
        await store.create(WIDGET, widget("ns", "a"))
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

    old = os.umask(0)
    try:
        within(path, look)
    finally:
        os.umask(old)


def test_every_commit_is_synced(path: Path) -> None:
    async def look(store: SqliteStore) -> None:
        db = store._log._db
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"

    within(path, look)


def test_two_cannot_open_one_file(path: Path) -> None:
    async def second(store: Store) -> None:
        with pytest.raises(Unreachable, match=r"store\.db is in use by another process"):
            await SqliteStore.open(path, kinds=KINDS)
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, str(path), stderr=subprocess.PIPE)
        _, complaint = await other.communicate()
        assert b"is in use by another process" in complaint
        await store.create(WIDGET, widget("ns", "a"))

    within(path, second)
    within(path, nothing)


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    within(path, nothing)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(Internal, match=rf"written by a newer Netloom \(schema {SCHEMA + 1}; this one knows {SCHEMA}\)"):
        within(path, nothing)


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(Internal, match="not one of Netloom's"):
        within(path, nothing)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    db.close()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database at all, it is a poem " * 100)
    with pytest.raises(Internal, match=r"store\.db is damaged or not a database"):
        within(path, nothing)


@pytest.mark.parametrize("damage", ["cut", "overwritten", "header"])
def test_a_damaged_file_is_refused_with_its_name(path: Path, damage: str) -> None:
    async def fill(store: Store) -> None:
        await asyncio.gather(*(store.create(WIDGET, widget("ns", f"w{n}", pad="x" * 500)) for n in range(200)))

    within(path, fill)
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "overwritten":
        path.write_bytes(whole[:8192] + b"\xff" * 4096 * 4 + whole[8192 + 4096 * 4 :])
    else:
        path.write_bytes(whole[:100] + b"\xff" * 200 + whole[300:])
    with pytest.raises(Internal, match=r"store\.db is damaged"):
        within(path, nothing)


def image(path: Path) -> tuple[bytes, bytes]:
    """Return what a power cut would leave of an open store: the file and its journal."""
    return path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()


def test_a_write_that_was_torn_by_a_power_cut_leaves_a_whole_past(path: Path, tmp_path: Path) -> None:
    """What was written before the cut is there up to some commit, and each commit whole: no gap, no half."""
    cut = tmp_path / "cut.db"
    images: list[tuple[bytes, bytes]] = []

    async def fill(store: Store) -> None:
        for group in range(12):
            names = [f"w{group:02}-{n}" for n in range(5)]
            await asyncio.gather(*(store.create(WIDGET, widget("ns", name, pad="x" * 300)) for name in names))
        images.append(image(path))

    within(path, fill)
    (main, wal), random = images[0], Random(3)
    found = set()
    for turn in range(60):
        offset = random.randrange(len(wal))
        torn = wal[:offset] if turn % 2 else wal[:offset] + random.randbytes(len(wal) - offset)
        cut.write_bytes(main)
        cut.with_name("cut.db-wal").write_bytes(torn)

        async def look(store: Store) -> None:
            items = (await store.list(WIDGET)).items
            assert sorted(item.revision for item in items) == list(range(2, 2 + len(items)))
            assert len(items) % 5 == 0, "a commit is all or nothing"
            assert all(item.document()["spec"] == {"pad": "x" * 300} for item in items)
            watch = await store.watch(WIDGET, since=1)
            assert not items or len(await watch.next()) == len(items)
            found.add(len(items))

        within(cut, look)
        cut.unlink()
    assert len(found) > 5, "the cuts were at different places"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"cannot open .*nowhere/store\.db: No such file"):
        within(tmp_path / "nowhere" / "store.db", nothing)
    with pytest.raises(Unreachable, match="cannot open"):
        within(tmp_path, nothing)


def test_concurrent_writes_share_transactions(path: Path) -> None:
    async def write(store: SqliteStore) -> None:
        commits: list[str] = []
        store._log._db.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
        count = BATCH + 10
        made = await asyncio.gather(*(store.create(WIDGET, widget("ns", f"w{n:03}")) for n in range(count)))
        assert len(commits) == 2
        assert [m.revision for m in made] == list(range(2, count + 2))

    within(path, write)


def test_writes_of_one_batch_see_each_other_in_order(path: Path) -> None:
    async def write(store: Store) -> None:
        first, second, removed, third = await asyncio.gather(
            store.create(WIDGET, widget("ns", "a", turn=1)),
            store.create(WIDGET, widget("ns", "a", turn=2)),
            store.delete(WIDGET, "ns", "a"),
            store.create(WIDGET, widget("ns", "a", turn=3)),
            return_exceptions=True,
        )
        assert isinstance(second, AlreadyExists)
        assert not isinstance(first, BaseException)
        assert not isinstance(removed, BaseException)
        assert not isinstance(third, BaseException)
        assert (first.revision, removed.revision, third.revision) == (2, 3, 4)
        assert (await store.get(WIDGET, "ns", "a")).document()["spec"] == {"turn": 3}
        stale = first.document()
        results = await asyncio.gather(
            store.update(WIDGET, third.document() | {"spec": {"turn": 4}}),
            store.update(WIDGET, third.document() | {"spec": {"turn": 5}}),
            store.update(WIDGET, stale),
            return_exceptions=True,
        )
        assert [isinstance(r, Conflict) for r in results] == [False, True, True]

    within(path, write)


def test_nobody_sees_what_is_not_committed(path: Path) -> None:
    async def write(store: Store) -> None:
        watch = await store.watch(WIDGET, since=1)
        writing = asyncio.ensure_future(store.create(WIDGET, widget("ns", "a")))
        await asyncio.sleep(0)
        with pytest.raises(NotFound):
            await store.get(WIDGET, "ns", "a")
        assert await store.revision() == 1
        await writing
        assert len(await watch.next()) == 1

    within(path, write)


def test_a_write_whose_author_went_away_in_time_is_not_done(path: Path) -> None:
    async def write(store: Store) -> None:
        gone = asyncio.ensure_future(store.create(WIDGET, widget("ns", "gone")))
        kept = asyncio.ensure_future(store.create(WIDGET, widget("ns", "kept")))
        await asyncio.sleep(0)
        gone.cancel()
        await kept
        assert [item.name for item in (await store.list(WIDGET)).items] == ["kept"]

    within(path, write)


def test_one_writers_nonsense_is_its_own_problem(path: Path) -> None:
    async def write(store: Store) -> None:
        made = await store.create(WIDGET, widget("ns", "a"))
        broken = {**made.document(), "spec": object()}
        bad, good = await asyncio.gather(
            store.update(WIDGET, broken), store.create(WIDGET, widget("ns", "b")), return_exceptions=True
        )
        assert isinstance(bad, TypeError)
        assert not isinstance(good, BaseException)

    within(path, write)


def test_a_full_disk_fails_all_writers_and_changes_nothing(path: Path) -> None:
    async def write(store: SqliteStore) -> None:
        await store.create(WIDGET, widget("ns", "before"))
        before = await store.revision()
        watch = await store.watch(WIDGET, since=before)
        (pages,) = store._log._db.execute("PRAGMA page_count").fetchone()
        store._log._db.execute(f"PRAGMA max_page_count = {pages + 1}").fetchall()
        big = "x" * 100_000
        results = await asyncio.gather(
            *(store.create(WIDGET, widget("ns", f"w{n}", pad=big)) for n in range(5)),
            store.create(WIDGET, widget("ns", "before")),
            store.delete(WIDGET, "ns", "missing"),
            return_exceptions=True,
        )
        assert all(isinstance(r, Unreachable) and "disk is full" in r.message for r in results[:5])
        assert isinstance(results[5], AlreadyExists)
        assert isinstance(results[6], NotFound)
        assert await store.revision() == before
        assert [item.name for item in (await store.list(WIDGET)).items] == ["before"]
        store._log._db.execute(f"PRAGMA max_page_count = {pages + 1000}").fetchall()
        made = await store.create(WIDGET, widget("ns", "after", pad=big))
        assert made.revision == before + 1
        (event,) = await watch.next()
        assert event.object.name == "after"

    within(path, write)

    async def reopened(store: Store) -> None:
        assert [item.name for item in (await store.list(WIDGET)).items] == ["after", "before"]

    within(path, reopened)


async def attempt(store: Store, name: str) -> str:
    """Create something large; return what went wrong."""
    try:
        await store.create(WIDGET, widget("ns", name, pad="x" * 4000))
    except Unreachable as error:
        return error.message
    return ""


@pytest.mark.root
@pytest.mark.parametrize("together", [1, 2 * ASIDE])  # Committed on the loop, and by a thread.
def test_a_file_system_without_room_fails_writers_and_recovers(tmp_path: Path, together: int) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)], check=True)
    try:
        filler = small / "filler"

        async def write(store: SqliteStore) -> None:
            await store.create(WIDGET, widget("ns", "before"))
            filler.write_bytes(b"x" * 350_000)
            results: list[str] = []
            for group in range(0, 256, together):
                results += await asyncio.gather(*(attempt(store, f"w{group + i}") for i in range(together)))
            assert "could not be written" in results[-1]
            there = [item.name for item in (await store.list(WIDGET)).items]
            with pytest.raises(NoRoom):
                await store.check_disk()
            filler.unlink()
            await store.create(WIDGET, widget("ns", "zz-after"))
            await store.check_disk()
            assert [item.name for item in (await store.list(WIDGET)).items] == [*there, "zz-after"]

        within(small / "store.db", write)

        async def look(store: Store) -> None:
            names = [item.name for item in (await store.list(WIDGET)).items]
            assert {"before", "zz-after"} <= set(names)

        within(small / "store.db", look)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_file_that_changed_behind_the_stores_back_is_not_written_any_more(path: Path) -> None:
    async def write(store: SqliteStore) -> None:
        await store.create(WIDGET, widget("ns", "a"))
        store._log._db.execute("INSERT INTO log VALUES (3, 'x', 'y', NULL, NULL)")
        for _ in range(2):
            with pytest.raises(Unreachable, match="open it again"):
                await store.create(WIDGET, widget("ns", "b"))
        assert [item.name for item in (await store.list(WIDGET)).items] == ["a"]

    within(path, write)


def test_what_is_queued_when_the_store_closes_is_written(path: Path) -> None:
    async def write(store: Store) -> None:
        writing = asyncio.ensure_future(store.create(WIDGET, widget("ns", "a")))
        await asyncio.sleep(0)
        await store.close()
        await writing
        await store.close()
        with pytest.raises(Unreachable):
            await store.revision()

    within(path, write)

    async def look(store: Store) -> None:
        assert (await store.get(WIDGET, "ns", "a")).name == "a"

    within(path, look)


def test_a_store_is_asked_only_for_its_kinds_and_keeps_the_rows_of_others(path: Path) -> None:
    async def fill(store: Store) -> None:
        await store.create(WIDGET, widget("ns", "a"))
        await store.create(LEASE, lease("ns", "leader"))

    within(path, fill)

    async def less() -> None:
        store = await SqliteStore.open(path, kinds=[LEASE])
        assert await store.revision() == 3
        with pytest.raises(Internal, match=r"opened without widgets\.test\.netloom\.dev"):
            await store.list(WIDGET)
        await store.create(LEASE, lease("ns", "other"))
        await store.close()

    asyncio.run(less())

    async def look(store: Store) -> None:
        assert (await store.get(WIDGET, "ns", "a")).name == "a"
        assert await store.revision() == 4

    within(path, look)


def test_old_rows_are_removed_and_the_file_does_not_grow_for_ever(path: Path) -> None:
    async def churn(store: Store) -> None:
        item = await store.create(WIDGET, widget("ns", "a", pad="x" * 2000))
        for turn in range(400):
            item = await store.update(WIDGET, item.document() | {"spec": {"turn": turn, "pad": "x" * 2000}})
            made = await store.create(GADGET, gadget("g", turn=turn))
            await store.delete(GADGET, "", made.name)

    within(path, churn, window_changes=50)
    assert rows(path) < 200
    within(path, churn_again, window_changes=50)
    assert rows(path) < 200
    assert path.stat().st_size < 500_000, "of some three million bytes written"


async def churn_again(store: Store) -> None:
    item = await store.get(WIDGET, "ns", "a")
    assert item.document()["spec"]["turn"] == 399
    for turn in range(1200):
        item = await store.update(WIDGET, item.document() | {"spec": {"turn": turn, "pad": "x" * 2000}})


def test_the_file_shrinks_when_most_of_it_is_empty(path: Path) -> None:
    async def grow(store: Store) -> None:
        await asyncio.gather(*(store.create(WIDGET, widget("ns", f"w{n}", pad="x" * 3000)) for n in range(600)))

    async def shrink(store: Store) -> None:
        for item in (await store.list(WIDGET)).items:
            await store.delete(WIDGET, "ns", item.name)
        for turn in range(100):
            made = await store.create(GADGET, gadget("g", turn=turn))
            await store.delete(GADGET, "", made.name)

    within(path, grow, window_changes=20)
    before = path.stat().st_size
    within(path, shrink, window_changes=20)
    assert path.stat().st_size < before / 2


def test_revisions_never_go_back_even_when_everything_is_deleted(path: Path) -> None:
    async def churn(store: Store) -> None:
        for turn in range(50):
            made = await store.create(GADGET, gadget("g", turn=turn))
            await store.delete(GADGET, "", made.name)

    within(path, churn, window_changes=1)
    first: list[int] = []

    async def look(store: Store) -> None:
        first.append(await store.revision())
        assert (await store.list(GADGET)).items == []

    within(path, look, window_changes=1)
    within(path, look, window_changes=1)
    assert first == [101, 101]


def test_the_past_survives_a_restart_as_far_as_it_was_kept(path: Path) -> None:
    async def churn(store: Store) -> None:
        item = await store.create(WIDGET, widget("ns", "a", turn=0))
        for turn in range(1, 100):
            item = await store.update(WIDGET, item.document() | {"spec": {"turn": turn}})

    within(path, churn, window_changes=40)

    async def look(store: Store) -> None:
        now = await store.revision()
        (item,) = (await store.list(WIDGET, revision=now - 30)).items
        assert item.document()["spec"] == {"turn": 99 - 30}
        watch = await store.watch(WIDGET, since=now - 30)
        assert [event.object.document()["spec"]["turn"] for event in await watch.next()] == list(range(70, 100))

    within(path, look, window_changes=40)
    within(path, look, window_changes=400)
