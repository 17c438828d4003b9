"""After a cut only what changed meanwhile is sent, where the server knows; else everything, and the cache is right."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.operations import Delete, Insert, Update, eq
from tests.ovsdb.following import following, run, synced, until
from tests.ovsdb.proxy import proxy
from tests.ovsdb.real import Member, Plain, Standalone, cluster, standalone

if TYPE_CHECKING:
    from netloom.ovsdb.monitor import Change

pytestmark = pytest.mark.ovn

ROWS = 3000


def fill(plain: Plain) -> None:
    rows = [
        {
            "op": "insert",
            "table": "Logical_Switch",
            "row": {"name": f"switch-{n}", "external_ids": ["map", [["k", "v" * 50]]]},
        }
        for n in range(ROWS)
    ]
    plain.call("transact", ["OVN_Northbound", *rows])
    # The server forgets transactions that are larger than the database: let the last one be small.
    plain.call("transact", ["OVN_Northbound", {"op": "insert", "table": "Logical_Switch", "row": {"name": "last"}}])


def stored(plain: Plain) -> dict[str, str]:
    rows = plain.call("transact", ["OVN_Northbound", {"op": "select", "table": "Logical_Switch", "where": []}])[0]
    return {row["_uuid"][1]: row["name"] for row in rows["rows"]}


def cached(client: OvsdbClient) -> dict[str, str]:
    return {str(uuid): row.name for uuid, row in client.cache.rows("Logical_Switch").items()}


def change(plain: Plain) -> None:
    operations: list[Any] = [
        {"op": "insert", "table": "Logical_Switch", "row": {"name": "new"}},
        {"op": "update", "table": "Logical_Switch", "where": [["name", "==", "switch-1"]], "row": {"name": "other"}},
        {"op": "delete", "table": "Logical_Switch", "where": [["name", "==", "switch-2"]]},
    ]
    plain.call("transact", ["OVN_Northbound", *operations])


def test_a_clustered_server_sends_only_what_changed_during_a_cut() -> None:
    async def main(server: Member) -> None:
        told: list[Change] = []
        with Plain(server.socket) as plain:
            fill(plain)
            async with (
                proxy(server.socket, server.folder / "proxy") as relay,
                following([f"unix:{server.folder}/proxy"], changed=told.extend) as client,
            ):
                assert len(told) == ROWS + 1
                told.clear()
                relay.closed = True
                relay.cut()
                await until(lambda: not client.synced.is_set())
                change(plain)
                relay.closed = False
                await synced(client)
                assert (client.counters.downloads, client.counters.resumes) == (1, 1)
                assert relay.received[-1] < relay.received[0] / 5
                assert cached(client) == stored(plain)
                assert sorted((c.old and c.old.name, c.new and c.new.name) for c in told if c.old and c.new) == [
                    ("switch-1", "other")
                ]
                assert len(told) == 3

    with cluster(1) as members:
        run(lambda: main(members[0]))


def test_a_server_that_knows_no_history_sends_everything_and_only_differences_are_told() -> None:
    async def main(server: Standalone) -> None:
        told: list[Change] = []
        with Plain(server.socket) as plain:
            fill(plain)
            async with (
                proxy(server.socket, server.folder / "proxy") as relay,
                following([f"unix:{server.folder}/proxy"], changed=told.extend) as client,
            ):
                told.clear()
                relay.closed = True
                relay.cut()
                await until(lambda: not client.synced.is_set())
                change(plain)
                relay.closed = False
                await synced(client)
                assert client.counters.downloads == 2
                assert cached(client) == stored(plain)
                assert len(told) == 3

    with standalone() as server:
        run(lambda: main(server))


def test_a_database_that_is_compacted_under_the_client_is_followed_on() -> None:
    async def main(server: Member) -> None:
        async with following([server.remote]) as client:
            for number in range(20):
                await client.transact([Insert("Logical_Switch", {"name": f"n{number}"})])
                if number % 5 == 0:
                    await asyncio.to_thread(server.control_command, "ovsdb-server/compact")
            await client.transact(
                [Delete("Logical_Switch", eq("name", "n3")), Update("Logical_Switch", eq("name", "n4"), {"name": "m"})]
            )
            with Plain(server.socket) as plain:
                assert cached(client) == stored(plain)

    with cluster(1) as members:
        run(lambda: main(members[0]))


def test_a_server_that_is_killed_and_comes_back_is_followed_on() -> None:
    async def main(server: Standalone) -> None:
        async with following([server.remote]) as client:
            await client.transact([Insert("Logical_Switch", {"name": "one"})])
            server.kill()
            await until(lambda: not client.synced.is_set())
            server.start()
            await synced(client)
            await client.transact([Insert("Logical_Switch", {"name": "two"})])
            assert sorted(cached(client).values()) == ["one", "two"]

    with standalone() as server:
        run(lambda: main(server))
