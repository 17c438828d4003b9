"""A real cluster of three servers: the leader is followed, and when it dies the client moves on and loses nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from netloom.ovsdb.errors import Unreachable
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.operations import Insert
from tests.ovsdb.following import following, run, synced, until
from tests.ovsdb.real import Member, Plain, cluster
from tests.support.process import wait_until

pytestmark = [pytest.mark.ovn, pytest.mark.slow]


@pytest.fixture
def members() -> Iterator[list[Member]]:
    with cluster(3) as running:
        yield running


def leader(members: list[Member]) -> Member:
    return wait_until(lambda: next((one for one in members if one.leads()), None), what="a leader")


async def insert(client: OvsdbClient, name: str) -> None:
    """Insert a switch once, whatever happens to the servers."""
    while True:
        await synced(client)
        if client.cache.indexed("Logical_Switch", "name").get(name):
            return  # The answer was lost; the transaction was not.
        try:
            await client.transact([Insert("Logical_Switch", {"name": name})])
        except Unreachable:
            continue
        return


def names(member: Member) -> list[str]:
    with Plain(member.socket) as plain:
        select = {"op": "select", "table": "Logical_Switch", "where": [], "columns": ["name"]}
        return sorted(row["name"] for row in plain.call("transact", ["OVN_Northbound", select])[0]["rows"])


def test_the_client_follows_a_cluster_whose_leader_is_killed_and_nothing_is_lost(members: list[Member]) -> None:
    first = leader(members)

    async def main() -> None:
        async with following([member.remote for member in members]) as client:
            assert client.remote == first.remote
            for number in range(50):
                await insert(client, f"before-{number}")
            writer = asyncio.create_task(write(client))
            await until(lambda: client.cache.indexed("Logical_Switch", "name").get("during-5"))
            first.kill()
            await asyncio.wait_for(writer, 120)
            assert client.remote != first.remote
            assert client.counters.resumes >= 1
            assert client.counters.downloads == 1
            expected = sorted([f"before-{n}" for n in range(50)] + [f"during-{n}" for n in range(100)])
            assert sorted(row.name for row in client.cache.rows("Logical_Switch").values()) == expected
            alive = [member for member in members if member is not first]
            assert names(leader(alive)) == expected

    async def write(client: OvsdbClient) -> None:
        for number in range(100):
            await insert(client, f"during-{number}")

    run(main)


def test_the_client_moves_when_the_lead_moves(members: list[Member]) -> None:
    first = leader(members)

    async def main() -> None:
        async with following([member.remote for member in members]) as client:
            await insert(client, "one")
            first.control_command("cluster/failure-test", "transfer-leadership")
            await until(lambda: not first.leads())
            await until(lambda: client.remote != first.remote and client.synced.is_set())
            await insert(client, "two")
            assert leader(members).remote == client.remote

    run(main)


def test_a_client_that_needs_no_leader_stays_where_it_is(members: list[Member]) -> None:
    follower = next(member for member in members if not member.leads())

    async def main() -> None:
        async with (
            following([follower.remote], leader_only=False) as reader,
            following([member.remote for member in members]) as writer,
        ):
            await insert(writer, "x")
            await until(lambda: reader.cache.indexed("Logical_Switch", "name").get("x"))
            await reader.transact([Insert("Logical_Switch", {"name": "by way of a follower"})])
            assert reader.remote == follower.remote

    run(main)


def test_a_client_that_wants_the_leader_does_not_settle_for_a_follower(members: list[Member]) -> None:
    follower = next(member for member in members if not member.leads())

    async def main() -> None:
        async with following([follower.remote], wait=False) as client:
            await until(lambda: client.counters.disconnects >= 2)
            assert not client.synced.is_set()
            with pytest.raises(Unreachable):
                await client.transact([Insert("Logical_Switch", {"name": "x"})])

    run(main)
