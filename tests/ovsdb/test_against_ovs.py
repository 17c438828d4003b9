"""Our cache and that of the OVS project's own library agree with the server, on random histories."""

import asyncio
import time
from typing import Any

import ovs.db.idl  # type: ignore[import-untyped]
import pytest

from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.notation import to_wire
from tests.ovsdb.following import following, run, synced, until
from tests.ovsdb.histories import SCHEMA, History
from tests.ovsdb.real import Plain, Standalone, standalone
from tests.ovsdb.test_memory_against_server import plain as normal
from tests.ovsdb.typed import ROWS

pytestmark = pytest.mark.ovn

TABLES = ("Root", "Leaf")


BOUNDED = {"few", "counts"}
"""Of at most three elements. A difference may have six, and the other library then refuses it."""


def differences(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> list[Any]:
    """Return what is not the same."""
    found: list[Any] = []
    for table in TABLES:
        for uuid in one[table].keys() | other[table].keys():
            mine, yours = one[table].get(uuid), other[table].get(uuid)
            if mine is None or yours is None:
                found.append((table, uuid, mine, yours))
                continue
            names = [name for name in mine if name not in BOUNDED and mine[name] != yours[name]]
            found += [(table, uuid, name, mine[name], yours[name]) for name in names]
    return found


def theirs(idl: Any) -> dict[str, dict[str, Any]]:
    """Return what the other library has; it keeps no columns that were never anything but empty."""
    return {
        table: {
            str(uuid): {
                name: normal(row._data[name].to_json()) if name in row._data else frozenset()
                for name in SCHEMA["tables"][table]["columns"]
            }
            for uuid, row in idl.tables[table].rows.items()
        }
        for table in TABLES
    }


def ours(client: OvsdbClient) -> dict[str, dict[str, Any]]:
    """Return what we have."""
    return {
        table: {
            str(uuid): {name: wire(getattr(row, name)) for name in SCHEMA["tables"][table]["columns"]}
            for uuid, row in client.cache.rows(table).items()
        }
        for table in TABLES
    }


def wire(value: Any) -> Any:
    return normal(_lists(to_wire(value)))


def _lists(value: Any) -> Any:
    return [_lists(one) for one in value] if isinstance(value, (tuple, list)) else value


def stored(real: Plain) -> dict[str, dict[str, Any]]:
    """Return what the server has."""
    selects = [{"op": "select", "table": table, "where": []} for table in TABLES]
    results = real.call("transact", ["Test", *selects])
    return {
        table: {
            row["_uuid"][1]: {name: normal(one) for name, one in row.items() if name[0] != "_"}
            for row in result["rows"]
        }
        for table, result in zip(TABLES, results, strict=True)
    }


def catch_up(idl: Any, mark: str) -> None:
    """Let the other library run until it has seen a row of this name."""
    deadline = time.monotonic() + 30
    while not any(row.name == mark for row in idl.tables["Root"].rows.values()):
        assert time.monotonic() < deadline
        idl.run()
        poller = ovs.poller.Poller()
        idl.wait(poller)
        poller.timer_wait(20)
        poller.block()


async def history(server: Standalone, seed: int) -> None:
    helper = ovs.db.idl.SchemaHelper(schema_json=SCHEMA)
    helper.register_all()
    idl = ovs.db.idl.Idl(server.remote, helper)
    source = History(seed)
    try:
        with Plain(server.socket) as real:
            real.call("transact", ["Test", {"op": "delete", "table": "Root", "where": []}])
            async with following([server.remote], "Test", {"Root": None, "Leaf": None}, rows=ROWS) as client:
                for round_number in range(4):
                    for _ in range(25):
                        real.answer("transact", ["Test", *source.transaction()])
                        rows = stored(real)
                        source.learn({table: sorted(rows[table]) for table in TABLES})
                    mark = f"mark-{seed}-{round_number}"
                    row = {"op": "insert", "table": "Root", "row": {"name": mark}, "uuid": source.uuid()}
                    spare = {"op": "delete", "table": "Root", "where": [["name", "!=", mark], ["flag", "==", True]]}
                    real.call("transact", ["Test", spare, row])
                    await until(lambda mark=mark: client.cache.indexed("Root", "name").get(mark))  # type: ignore[misc]
                    await asyncio.to_thread(catch_up, idl, mark)
                    truth = stored(real)
                    assert truth["Root"]
                    assert ours(client) == truth
                    assert differences(theirs(idl), truth) == []
                    if round_number % 2:
                        assert client._link is not None
                        assert client._link._transport is not None
                        connects = client.counters.connects
                        client._link._transport.abort()
                        await until(lambda before=connects: client.counters.connects > before)  # type: ignore[misc]
                        await synced(client)
    finally:
        idl.close()


@pytest.mark.parametrize("seed", range(12))
def test_both_libraries_agree_with_the_server_on_random_histories(seed: int) -> None:
    with standalone(SCHEMA) as server:
        run(lambda: history(server, seed))
