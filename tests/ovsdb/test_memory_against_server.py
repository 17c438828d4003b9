"""The server in memory does what ovsdb-server does: the same random transactions into both, good and bad ones."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from netloom.ovsdb.memory.server import Connection, Database, Server
from tests.ovsdb.histories import SCHEMA, History
from tests.ovsdb.real import Plain, Standalone, standalone

pytestmark = pytest.mark.ovn

TABLES = ("Root", "Leaf")
MONITOR = {
    "Root": [{"where": [["number", ">", 1], ["flag", "==", True]]}],
    "Leaf": [{"columns": ["name", "tags", "next"]}],
}
ALL: dict[str, Any] = {"Root": [{}], "Leaf": [{}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with standalone(SCHEMA) as running:
        yield running


class Memory:
    """A plain client of the server in memory."""

    def __init__(self) -> None:
        self.connection: Connection = Server([Database(SCHEMA, Random(1))]).connect()
        self.told: list[tuple[str, Any]] = []
        self._next = 0

    def answer(self, method: str, params: Any) -> dict[str, Any]:
        self._next += 1
        self.connection.receive(json.dumps({"id": self._next, "method": method, "params": params}).encode())
        text, answers = self.connection.to_send().decode(), []
        while text:
            message, end = json.JSONDecoder().raw_decode(text)
            text = text[end:]
            if "method" in message:
                self.told.append((message["method"], message["params"]))
            else:
                answers.append(message)
        assert len(answers) == 1
        return dict(answers[0])


def plain(value: Any) -> Any:
    """Return a value such that equal values are equal: sets without order, a set of one like its element."""
    match value:
        case ["set", list() as elements]:
            return frozenset(plain(one) for one in elements) if len(elements) != 1 else plain(elements[0])
        case ["map", list() as pairs]:
            return frozenset((plain(key), plain(one)) for key, one in pairs)
        case list():
            return tuple(value)
        case dict():
            return {key: plain(one) for key, one in value.items() if key != "_version"}
        case _:
            return value


def outcome(results: list[Any], *, rows: bool = False) -> list[Any]:
    """Return of each result what both must agree on.

    Inside a transaction rows may refer to names that are never inserted, for which each server chooses a uuid.
    """
    found: list[Any] = []
    for result in results:
        if result is None or "error" in result:
            found.append(None if result is None else result["error"])
        elif "rows" in result:
            found.append({row["_uuid"][1]: plain(row) if rows else None for row in result["rows"]})
        else:
            found.append(plain(result))
    return found


def updates(told: list[tuple[str, Any]]) -> list[Any]:
    """Return the updates told, without the ids that each server chooses."""
    found = []
    for method, params in told:
        tables = {
            table: {uuid: {kind: plain(row) for kind, row in update.items()} for uuid, update in rows.items()}
            for table, rows in params[-1].items()
        }
        found.append((method, params[0], {table: rows for table, rows in tables.items() if rows}))
    return found


def clear(real: Plain) -> None:
    real.call("transact", ["Test", {"op": "delete", "table": "Root", "where": []}])


def contents(client: Any) -> Any:
    selects = [{"op": "select", "table": table, "where": []} for table in TABLES]
    return outcome(client.answer("transact", ["Test", *selects])["result"], rows=True)


@pytest.mark.parametrize("seed", range(40))
def test_random_transactions_end_the_same_in_memory_and_in_ovsdb_server(server: Standalone, seed: int) -> None:
    history, memory = History(seed), Memory()
    with Plain(server.socket) as real:
        clear(real)
        for number in range(40):
            operations = history.transaction()
            theirs = real.answer("transact", ["Test", *operations])
            ours = memory.answer("transact", ["Test", *operations])
            assert (ours["error"], theirs["error"]) == (None, None)
            assert outcome(ours["result"]) == outcome(theirs["result"]), (number, operations)
            now = contents(real)
            assert contents(memory) == now, (number, operations)
            history.learn({table: sorted(rows) for table, rows in zip(TABLES, now, strict=True)})


@pytest.mark.parametrize("method", ["monitor", "monitor_cond", "monitor_cond_since"])
@pytest.mark.parametrize("seed", range(6))
def test_monitors_tell_the_same_in_memory_as_in_ovsdb_server(server: Standalone, method: str, seed: int) -> None:
    history, memory = History(seed + 1000, faults=0.0), Memory()
    extra = ["00000000-0000-0000-0000-000000000000"] if method == "monitor_cond_since" else []
    asked: Any = ALL if method == "monitor" else MONITOR
    with Plain(server.socket) as real:
        clear(real)
        for number in range(40):
            if number == 20:
                theirs = real.call(method, ["Test", "m", asked, *extra])
                ours = memory.answer(method, ["Test", "m", asked, *extra])["result"]
                theirs, ours = ([theirs[2], ours[2]]) if extra else [theirs, ours]
                assert updates([("initial", ["m", ours])]) == updates([("initial", ["m", theirs])])
            operations = history.transaction()
            real.answer("transact", ["Test", *operations])
            memory.answer("transact", ["Test", *operations])
            assert updates(memory.told) == updates(real.told), (number, operations)
            memory.told.clear()
            real.told.clear()
            rows = contents(real)
            history.learn({table: sorted(one) for table, one in zip(TABLES, rows, strict=True)})


def test_the_random_transactions_are_of_every_kind(server: Standalone) -> None:
    seen: Counter[str] = Counter()
    memory = Memory()
    for seed in range(20):
        history = History(seed)
        for _ in range(20):
            results = memory.answer("transact", ["Test", *history.transaction()])["result"]
            errors = [result["error"] for result in results if result and "error" in result]
            seen.update(errors or ["done"])
            rows = contents(memory)
            history.learn({table: sorted(one) for table, one in zip(TABLES, rows, strict=True)})
    wanted = {"done", "syntax error", "constraint violation", "referential integrity violation", "timed out"}
    assert all(seen[kind] > 10 for kind in wanted), seen
