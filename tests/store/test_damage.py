"""A stored value that is not the object it should be is set aside, named, and in nobody's way."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import AlreadyExists, NotFound
from netloom.model.registry import LEASE
from netloom.model.values.selectors import selector
from netloom.store.base import EventType
from netloom.store.damage import Unreadable, flaw
from netloom.store.etcd.api import Etcd as EtcdClient
from netloom.store.etcd.store import EtcdStore
from netloom.store.etcd.wire import put
from netloom.store.semantics import encode, stamp
from netloom.store.sqlite.log import SCHEMA
from netloom.store.sqlite.store import SqliteStore
from tests.store.backends import collect
from tests.store.kinds import GADGET, WIDGET, gadget, lease, widget
from tests.store.sqlites import KINDS, within
from tests.support.etcd import Etcd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def three(store: SqliteStore) -> None:
    """Make a, b and c, and change b."""
    for name in "abc":
        await store.create(WIDGET, widget("ns", name, {"app": "x"}, size=1))
    changed = (await store.get(WIDGET, "ns", "b")).document()
    changed["spec"]["size"] = 2
    await store.update(WIDGET, changed)
    await store.create(GADGET, gadget("g"))


def sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


NEWEST = "WHERE revision = (SELECT max(revision) FROM log WHERE key = 'ns/b')"


def raw_replaced(old: str, new: str) -> str:
    return f"UPDATE log SET raw = CAST(replace(CAST(raw AS TEXT), '{old}', '{new}') AS BLOB) {NEWEST}"


WAYS = {
    "not JSON": raw_replaced('"spec":', '"spec"#'),
    "not UTF-8": f"UPDATE log SET raw = CAST(substr(raw, 1, length(raw) - 4) || x'ff2c7d7d' AS BLOB) {NEWEST}",
    "no metadata": raw_replaced('"metadata":', '"mepadata":'),
    "another name": raw_replaced('"name":"b"', '"name":"q"'),
    "another kind": raw_replaced('"kind":"Widget"', '"kind":"Gidget"'),
    "another value": raw_replaced('"size":2', '"size":3'),
    "empty": f"UPDATE log SET raw = x'' {NEWEST}",
    "another key": f"UPDATE log SET key = 'ns/B' {NEWEST}",
    "a key that is no text": f"UPDATE log SET key = CAST(x'6e732fff' AS TEXT) {NEWEST}",
    "another resource": f"UPDATE log SET resource = 'test.netloom.dev/wadgets' {NEWEST}",
    "another sum": f"UPDATE log SET sum = sum + 1 {NEWEST}",
}


@pytest.mark.parametrize("way", WAYS)
def test_one_changed_byte_costs_one_object(path: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    within(path, three)
    sql(path, WAYS[way])

    async def look(store: SqliteStore) -> None:
        page = await store.list(WIDGET)
        assert [item.name for item in page.items] == ["a", "c"]
        assert [item.name for item in (await store.list(WIDGET, selector=selector("app=x"))).items] == ["a", "c"]
        assert "b" in {one.name for one in await store.damaged()}
        with pytest.raises(Unreadable, match=r'widgets\.test\.netloom\.dev "ns/b" \(revision 5\) cannot be read'):
            await store.get(WIDGET, "ns", "b")
        with pytest.raises(AlreadyExists, match="delete it by its name"):
            await store.create(WIDGET, widget("ns", "b"))
        with pytest.raises(Unreadable):
            await store.update(WIDGET, {"metadata": {"namespace": "ns", "name": "b", "resourceVersion": "5"}})
        with pytest.raises(Unreadable):
            await store.delete(WIDGET, "ns", "b", uid="some")
        watch = await store.watch(WIDGET, since=page.revision)
        await store.create(WIDGET, widget("ns", "d", {"app": "x"}))
        await store.delete(WIDGET, "ns", "b")
        await store.create(WIDGET, widget("ns", "b", {"app": "x"}, size=4))
        events = await collect(watch, 2)
        assert [(event.type, event.object.name) for event in events] == [
            (EventType.ADDED, "d"),
            (EventType.ADDED, "b"),
        ]
        assert "b" not in {one.name for one in await store.damaged()}

    with caplog.at_level(logging.ERROR):
        within(path, look)
    assert 'widgets.test.netloom.dev "ns/b" (revision 5) is set aside' in caplog.text
    caplog.clear()

    async def mended(store: SqliteStore) -> None:
        assert [item.name for item in (await store.list(WIDGET)).items] == ["a", "b", "c", "d"]
        assert (await store.get(WIDGET, "ns", "b")).document()["spec"] == {"size": 4}

    within(path, mended)


def test_what_is_set_aside_stays_until_it_is_deleted(path: Path) -> None:
    """It outlives restarts and compaction, and when it is deleted nothing older of it comes back."""
    within(path, three)
    sql(path, WAYS["not JSON"])

    async def busy(store: SqliteStore) -> None:
        assert [one.revision for one in await store.damaged()] == [5]
        document = (await store.get(WIDGET, "ns", "a")).document()
        for turn in range(100):
            document["spec"]["size"] = turn + 10
            document = (await store.update(WIDGET, document)).document()

    async def deleted(store: SqliteStore) -> None:
        await store.delete(WIDGET, "ns", "b", dry_run=True)
        assert len(await store.damaged()) == 1
        gone = await store.delete(WIDGET, "ns", "b")
        assert (gone.namespace, gone.name, gone.document()["metadata"]["name"]) == ("ns", "b", "b")
        with pytest.raises(NotFound):
            await store.delete(WIDGET, "ns", "b")
        await busy_elsewhere(store)

    async def busy_elsewhere(store: SqliteStore) -> None:
        for number in range(60):
            await store.create(WIDGET, widget("ns", f"z{number}"))

    async def look(store: SqliteStore) -> None:
        assert await store.damaged() == []
        with pytest.raises(NotFound):
            await store.get(WIDGET, "ns", "b")

    for act in (busy, busy, deleted, look):
        within(path, act, window_changes=20)
    assert "ns/b" not in rows(path), "no row about it is left"


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    keys = [key for (key,) in db.execute("SELECT key FROM log")]
    db.close()
    return keys


def test_a_watcher_that_resumes_before_the_damage_sees_the_object_go(path: Path) -> None:
    within(path, three)
    sql(path, WAYS["not JSON"])

    async def look(store: SqliteStore) -> None:
        watch = await store.watch(WIDGET, since=4)
        (event,) = await collect(watch, 1)
        assert (event.type, event.object.name, event.object.revision) == (EventType.DELETED, "b", 5)
        assert [item.name for item in (await store.list(WIDGET, revision=4)).items] == ["a", "b", "c"]

    within(path, look)


def test_an_old_row_that_cannot_be_read_matters_to_nobody(path: Path) -> None:
    within(path, three)
    sql(path, "UPDATE log SET raw = x'00' WHERE revision = 3")

    async def look(store: SqliteStore) -> None:
        assert [item.name for item in (await store.list(WIDGET)).items] == ["a", "b", "c"]
        assert await store.damaged() == []
        await store.create(WIDGET, widget("ns", "d"))

    within(path, look)
    assert len([key for key in rows(path) if key == "ns/b"]) == 1


def test_a_lease_that_cannot_be_read_is_free(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        await store.create(LEASE, lease("ns", "leader"))

    async def look(store: SqliteStore) -> None:
        with pytest.raises(NotFound):
            await store.get(LEASE, "ns", "leader")
        await store.create(LEASE, lease("ns", "leader"))
        assert await store.damaged() == []

    within(path, fill)
    sql(path, "UPDATE log SET raw = x'00'")
    within(path, look)
    within(path, nothing)


async def nothing(store: SqliteStore) -> None:
    """Only open and close."""


def test_a_file_without_checksums_is_taken_over(path: Path) -> None:
    """Of schema 1 it is looked whether rows are objects at all; what is written from then on has a checksum."""
    within(path, three)
    sql(path, "ALTER TABLE log DROP COLUMN sum", "PRAGMA user_version = 1", raw_replaced('"metadata":', '"mepadata":'))

    async def look(store: SqliteStore) -> None:
        assert [one.name for one in await store.damaged()] == ["b"]
        assert [item.name for item in (await store.list(WIDGET)).items] == ["a", "c"]
        await store.create(WIDGET, widget("ns", "d"))

    within(path, look)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    assert db.execute("SELECT count(*) FROM log WHERE sum IS NOT NULL").fetchone() == (1,)
    db.close()


@given(st.data())
def test_any_byte_may_change_and_what_passes_can_be_read(data: st.DataObject) -> None:
    """Without a checksum: whatever passes as an object decodes, and has the name it is filed under."""
    body = encode(WIDGET, {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"x": "y"}}, "spec": {}})
    raw = bytearray(stamp(WIDGET, "ns", "a", 7, body).raw)
    assert flaw(WIDGET, "ns/a", bytes(raw), revision=7) == ""
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if not flaw(WIDGET, "ns/a", bytes(raw), revision=7):
        metadata = msgspec.json.decode(bytes(raw))["metadata"]
        assert (metadata["namespace"], metadata["name"]) == ("ns", "a")


@pytest.mark.etcd
@pytest.mark.parametrize("value", [b"not json", b"{}", b'{"metadata":{"name":"b"}}', b"\xff"])
def test_a_value_in_etcd_that_is_no_object_costs_itself(
    etcd: Etcd, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = f"/damage-{value.hex()}"

    async def go() -> None:
        store = await EtcdStore.open(etcd.urls, kinds=KINDS, prefix=prefix)
        watch = await store.watch(WIDGET, selector=selector("app=x"), since=await store.revision())
        for name in "abc":
            await store.create(WIDGET, widget("ns", name, {"app": "x"}))
        client = EtcdClient(etcd.urls)
        await client.txn([], [put(f"{prefix}/test.netloom.dev/widgets/ns/b", value)])
        await client.txn([], [put(f"{prefix}/test.netloom.dev/widgets/ns/stray", value)])
        await client.close()
        for _ in range(2):
            assert [item.name for item in (await store.list(WIDGET, limit=2)).items] == ["a", "c"]
            assert [item.name for item in (await store.list(WIDGET, selector=selector("app=x"))).items] == ["a", "c"]
        assert [one.name for one in await store.damaged()] == ["b", "stray"]
        with pytest.raises(Unreadable):
            await store.get(WIDGET, "ns", "b")
        with pytest.raises(AlreadyExists):
            await store.create(WIDGET, widget("ns", "b"))
        with pytest.raises(Unreadable):
            await store.delete(WIDGET, "ns", "stray", uid="some")
        for name in ("b", "stray"):
            assert (await store.delete(WIDGET, "ns", name)).name == name
        await store.create(WIDGET, widget("ns", "b", {"app": "x"}))
        events = await collect(watch, 5)
        seen = [(event.type, event.object.name) for event in events]
        assert seen[3:] == [(EventType.DELETED, "b"), (EventType.ADDED, "b")]
        assert await store.damaged() == []
        await store.close()
        assert caplog.text.count('"ns/stray"') == 1, "it is named once"
        again = await EtcdStore.open(etcd.urls, kinds=KINDS, prefix=prefix)
        assert [item.name for item in (await again.list(WIDGET)).items] == ["a", "b", "c"]
        await again.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(go())
