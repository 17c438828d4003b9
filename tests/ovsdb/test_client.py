"""The client with servers in memory: reconnecting, probing, waiting, locks; and over real unix sockets."""

import asyncio
import json
import logging
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from netloom.ovsdb.errors import Conflict, TransactionRefused, Unreachable
from netloom.ovsdb.io import OvsdbClient, open_remote
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.memory.serving import Pipe, dial, serve
from netloom.ovsdb.operations import Assert, Comment, Insert, Update, Wait, eq
from tests.ovsdb.following import following, run, synced, until
from tests.ovsdb.pairs import NORTHBOUND
from tests.ovsdb.real import Plain, standalone

if TYPE_CHECKING:
    from netloom.ovsdb.monitor import Change


def database() -> Database:
    return Database(NORTHBOUND, Random(1))


def names(client: OvsdbClient) -> list[str]:
    return sorted(row.name for row in client.cache.rows("Logical_Switch").values())


def test_a_connection_that_breaks_is_made_again_and_resumed() -> None:
    async def main() -> None:
        server, pipes, told = Server([database()]), list[Pipe](), list["Change"]()
        async with following(["m"], dial=dial({"m": server}, pipes), changed=told.extend) as client:
            await client.transact([Insert("Logical_Switch", {"name": "a"})])
            pipes[-1].cut()
            with pytest.raises(Unreachable):
                await client.transact([Comment("x")])
            await until(lambda: client.counters.connects == 2)
            await synced(client)
            await client.transact([Insert("Logical_Switch", {"name": "b"})])
            assert names(client) == ["a", "b"]
            assert (client.counters.resumes, client.counters.unanswered, len(told)) == (1, 1, 2)
            assert client.schema is not None

    run(main)


def test_of_several_servers_the_leader_is_found_and_followed_when_it_changes() -> None:
    async def main() -> None:
        shared = database()
        servers = {name: Server([shared]) for name in "abc"}
        for name, server in servers.items():
            server.describe("OVN_Northbound", model="clustered", leader=name == "b")
        async with following(list("abc"), dial=dial(servers)) as client:
            assert client.remote == "b"
            await client.transact([Insert("Logical_Switch", {"name": "x"})])
            servers["c"].describe("OVN_Northbound", leader=True)
            servers["b"].describe("OVN_Northbound", leader=False)
            await until(lambda: client.remote == "c" and client.synced.is_set())
            await client.transact([Insert("Logical_Switch", {"name": "y"})])
            assert names(client) == ["x", "y"]

    run(main)


def test_nothing_is_sent_where_nobody_is() -> None:
    async def main() -> None:
        async with following(["nobody"], dial=dial({}), wait=False) as client:
            with pytest.raises(Unreachable):
                await client.transact([Comment("x")])
            await until(lambda: client.counters.failures >= 2)
            assert client.schema is None

    run(main)


def test_refusals_and_conflicts_are_raised_and_counted() -> None:
    async def main() -> None:
        async with following(["m"], dial=dial({"m": Server([database()])})) as client:
            with pytest.raises(TransactionRefused):
                await client.transact([Insert("Logical_Switch", {"name": 1})])
            with pytest.raises(Conflict):
                await client.transact([Wait("Logical_Switch", (), ("name",), [{"name": "x"}])])
            assert (client.counters.refusals, client.counters.conflicts) == (1, 1)

    run(main)


def test_a_wait_with_time_waits_until_it_is_so_or_the_time_is_over() -> None:
    async def main() -> None:
        server = Server([database()])
        async with following(["m"], dial=dial({"m": server})) as client:
            wait = Wait("Logical_Switch", eq("name", "x"), ("name",), [{"name": "x"}], timeout=60_000)
            waiting = asyncio.create_task(client.transact([wait]))
            await client.transact([Comment("x")])
            assert not waiting.done()
            await client.transact([Insert("Logical_Switch", {"name": "other"})])
            assert not waiting.done()
            await client.transact([Insert("Logical_Switch", {"name": "x"})])
            await asyncio.wait_for(waiting, 120)
            never = Wait("Logical_Switch", (), ("name",), [], timeout=20)
            refused = asyncio.create_task(client.transact([never]))
            while not refused.done():
                await asyncio.sleep(0.01)
                await client.transact([Comment("time passes")])
            with pytest.raises(Conflict):
                await refused

    run(main)


def test_locks_are_asked_for_on_each_connection() -> None:
    async def main() -> None:
        server, pipes = Server([database()]), list[Pipe]()
        connect = dial({"m": server}, pipes)
        async with following(["m"], dial=connect) as one, following(["m"], dial=connect) as two:
            lock = one.lock("l")
            assert one.lock("l") is lock
            await asyncio.wait_for(lock.held.wait(), 120)
            await one.transact([Assert("l"), Insert("Logical_Switch", {"name": "a"})])
            other = two.lock("l")
            with pytest.raises(Conflict):
                await two.transact([Assert("l")])
            pipes[0].cut()
            await asyncio.wait_for(other.held.wait(), 120)
            async with asyncio.timeout(120):  # The server may know of the cut before the client does.
                while lock.held.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0)
            two.unlock("l")
            two.unlock("l")
            await asyncio.wait_for(lock.held.wait(), 120)

    run(main)


def test_conditions_choose_rows() -> None:
    async def main() -> None:
        conditions: dict[str, Any] = {"Logical_Switch": [("name", "==", "a"), False]}
        async with following(["m"], dial=dial({"m": Server([database()])}), conditions=conditions) as client:
            await client.transact([Insert("Logical_Switch", {"name": name}) for name in "abc"])
            assert names(client) == ["a"]

    run(main)


def test_what_the_server_lacks_is_said_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    document = {**NORTHBOUND, "tables": {name: dict(table) for name, table in NORTHBOUND["tables"].items()}}
    switch = document["tables"]["Logical_Switch"]
    switch["columns"] = {name: column for name, column in switch["columns"].items() if name != "copp"}

    async def main() -> None:
        server, pipes = Server([Database(document, Random(1))]), list[Pipe]()
        async with following(["m"], dial=dial({"m": server}, pipes)) as client:
            assert client.missing == {"Logical_Switch.copp"}
            await client.transact([Insert("Logical_Switch", {"name": "a", "copp": None})])
            pipes[-1].cut()
            await until(lambda: client.counters.connects == 2)
            await synced(client)
            assert names(client) == ["a"]

    with caplog.at_level(logging.WARNING):
        run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "m: schema 7.0.0 lacks Logical_Switch.copp: not monitored"
    ]


def test_a_server_that_falls_silent_is_probed_and_left(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    async def main(folder: Path) -> None:
        listening = await asyncio.start_unix_server(silent, folder / "silent")
        async with following([f"unix:{folder}/silent"], wait=False, probe=0.05) as client:
            await until(lambda: client.counters.disconnects >= 1)
            assert client.counters.probes >= 1
            assert not client.synced.is_set()
        listening.close()

    run(lambda: main(tmp_path))


def test_a_server_that_speaks_nonsense_is_left(tmp_path: Path) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        try:
            await reader.read()
        finally:
            writer.close()

    async def main(folder: Path) -> None:
        listening = await asyncio.start_unix_server(odd, folder / "odd")
        async with following([f"unix:{folder}/odd"], wait=False) as client:
            await until(lambda: client.counters.disconnects >= 2)
        listening.close()

    run(lambda: main(tmp_path))


def test_what_came_before_nonsense_is_told_and_what_was_missed_is_told_later() -> None:
    async def main() -> None:
        server, pipes, told = Server([database()]), list[Pipe](), list["Change"]()
        async with following(["m"], dial=dial({"m": server}, pipes), changed=told.extend) as client:
            update = json.dumps(
                {"Logical_Switch": {"6cd5bb8c-0d34-4b8e-9bd4-6e9c4a1b0c11": {"insert": {"name": "ghost"}}}}
            )
            good = f'{{"id":null,"method":"update3","params":["netloom","x",{update}]}}'
            pipes[-1]._protocol.data_received((good + '{"id":null,"method":"update3","params":[]}').encode())
            await until(lambda: client.counters.connects == 2)
            await synced(client)
            assert client.counters.downloads == 2
            assert [(change.old is None, change.new is None) for change in told] == [(True, False), (False, True)]

    run(main)


def test_a_listener_that_fails_is_a_bug_that_comes_out_of_run() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        client = OvsdbClient(
            ["m"],
            "OVN_Northbound",
            tables={"Logical_Switch": None},
            random=Random(1),
            changed=fail,
            dial=dial({"m": server}),
        )
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(client.run(), 120)

    one = database()
    server = Server([one])
    one.transact([{"op": "insert", "table": "Logical_Switch", "row": {}}])
    run(main)


def test_somebody_who_no_longer_waits_for_an_answer_disturbs_nobody() -> None:
    async def main() -> None:
        async with following(["m"], dial=dial({"m": Server([database()])})) as client:
            hasty = asyncio.create_task(client.transact([Insert("Logical_Switch", {"name": "a"})]))
            await asyncio.sleep(0)
            hasty.cancel()
            await client.transact([Insert("Logical_Switch", {"name": "b"})])
            assert names(client) == ["a", "b"]

    run(main)


def test_the_server_in_memory_serves_on_a_unix_socket(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(Server([database()]), tmp_path / "s"), following([f"unix:{tmp_path}/s"]) as client:
            await client.transact([Insert("Logical_Switch", {"name": f"s{number}"}) for number in range(500)])
            assert len(names(client)) == 500
            await asyncio.to_thread(ask, tmp_path / "s")
            assert client._link is not None
            assert client._link._transport is not None
            client._link._transport.write(b"nonsense")
            await until(lambda: client.counters.disconnects == 1)

    def ask(path: Path) -> None:
        with Plain(path) as plain:
            assert plain.call("list_dbs", []) == ["OVN_Northbound", "_Server"]
            assert plain.call("get_schema", ["OVN_Northbound"])["version"] == NORTHBOUND["version"]
            assert plain.answer("get_schema", ["odd"])["error"]["error"] == "unknown database"
            assert plain.answer("monitor_cancel", ["odd"])["error"] == {"error": "unknown monitor"}
            plain.call("monitor", ["OVN_Northbound", "m", {"NB_Global": {}}])
            assert plain.answer("monitor", ["OVN_Northbound", "m", {}])["error"]["details"] == "duplicate monitor ID"
            assert plain.answer("monitor", ["OVN_Northbound", "n", {"Odd": {}}])["error"]
            assert plain.answer("monitor", ["OVN_Northbound", "n", {"NB_Global": 3}])["error"]
            assert plain.call("monitor_cancel", ["m"]) == {}
            assert plain.answer("unlock", ["odd"])["result"] == {}
            assert plain.answer("transact", [])["error"]["error"] == "syntax error"

    run(main)


def test_many_transactions_are_written_without_waiting_and_answered_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serve(Server([database()]), tmp_path / "s"),
            following([f"unix:{tmp_path}/s"]) as client,
        ):
            rows = [Insert("Logical_Switch", {"name": "x" * 10_000}) for _ in range(100)]
            answers = await asyncio.gather(*(client.transact(rows) for _ in range(8)))
            assert [len(one) for one in answers] == [100] * 8
            assert len(client.cache.rows("Logical_Switch")) == 800

    run(main)


def test_a_transaction_that_waits_can_be_canceled() -> None:
    server = Server([database()])
    connection = server.connect()
    wait = {"op": "wait", "table": "Logical_Switch", "where": [], "columns": ["name"], "until": "!=", "rows": []}

    def send(method: str, params: list[Any], number: int | None) -> bytes:
        connection.receive(json.dumps({"id": number, "method": method, "params": params}).encode())
        return connection.to_send()

    assert send("transact", ["OVN_Northbound", wait], 5) == b""
    assert send("cancel", [5], None) == b'{"id":5,"result":null,"error":"canceled"}'
    assert b"unknown method" in send("odd", [], 6)
    assert send("odd", [], None) == b""


def test_a_remote_that_needs_tls_is_refused_without_it() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="TLS"):
            await open_remote("ssl:127.0.0.1:1", asyncio.Protocol(), None)

    run(main)


@pytest.mark.ovn
def test_a_real_server_is_followed_and_written_to() -> None:
    async def main(remote: str) -> None:
        async with following([remote], probe=0.05) as client:
            await client.transact([Insert("Logical_Switch", {"name": "blue", "other_config": {"a": "b"}})])
            await client.transact([Update("Logical_Switch", eq("name", "blue"), {"name": "red"})])
            assert names(client) == ["red"]
            await until(lambda: client.counters.probes >= 3)
            assert client.counters.disconnects == 0
            lock = client.lock("mine")
            await asyncio.wait_for(lock.held.wait(), 120)
            await client.transact([Assert("mine")])

    with standalone() as server:
        run(lambda: main(server.remote))
