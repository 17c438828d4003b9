"""A hundred thousand malformed messages: only the library's own error comes out, nothing hangs, nothing grows."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.ovsdb.cache import Cache
from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.monitor import Following
from netloom.ovsdb.operations import Delete, Insert, Mutate, NamedUuid, Update, eq
from netloom.ovsdb.session import Position, Session
from tests.ovsdb.pairs import NORTHBOUND, TABLES, Pair
from tests.support.tracing import untraced

WORDS = [
    *(
        b'"initial"',
        b'"insert"',
        b'"modify"',
        b'"delete"',
        b'"old"',
        b'"new"',
        b'"uuid"',
        b'"set"',
        b'"map"',
        b'"update3"',
    ),
    *(b'"update2"', b'"update"', b'"locked"', b'"stolen"', b'"echo"', b'"monitor_canceled"', b'"netloom"', b'"error"'),
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b"1e999",
        b"-0",
        b"99999999999999999999",
        b'"\\ud800"',
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
    ),
    *(b",", b":", b"\\", b"\x00", b"\xff", b" ", b"[" * 2000, b'{"a":' * 2000),
]


COLUMNS = {
    "Logical_Switch": ["name", "ports", "other_config"],
    "Logical_Switch_Port": ["name", "tag", "up", "addresses", "options"],
}
SMALL: dict[str, Any] = {
    "name": "OVN_Northbound",
    "version": "7.0.0",
    "tables": {
        table: {
            "isRoot": table == "Logical_Switch",
            "columns": {name: NORTHBOUND["tables"][table]["columns"][name] for name in columns},
        }
        for table, columns in COLUMNS.items()
    },
}
"""Most of what a server says first is its schema, of no interest here."""


def conversation() -> list[bytes]:
    """Return what a server says to a session, message by message, in a history with everything in it."""
    pair = Pair(Server([Database(SMALL, Random(1))]))
    pair.session.lock("mine")
    pair.carry()
    for number in range(5):
        pair.transact(
            Insert(
                "Logical_Switch",
                {"name": f"s{number}", "ports": frozenset({NamedUuid("p")}), "other_config": {"a": "{"}},
            ),
            Insert(
                "Logical_Switch_Port",
                {"name": f"p{number}", "tag": 3, "up": True, "addresses": frozenset({"a", "b"})},
                "p",
            ),
        )
    pair.transact(Update("Logical_Switch_Port", eq("name", "p1"), {"tag": None, "options": {"a": "b"}}))
    pair.transact(Mutate("Logical_Switch", eq("name", "s1"), [("other_config", "insert", {"b": 'c"}'})]))
    pair.transact(Delete("Logical_Switch", eq("name", "s0")))
    pair.transact(Insert("Logical_Switch", {"name": 1}))
    pair.session.probe()
    pair.server.describe("OVN_Northbound", leader=False)
    pair.carry()
    return pair.sent


def mutated(data: bytes, random: Random) -> bytes:
    """Return a message that was damaged in one to three places."""
    for _ in range(random.randint(1, 3)):
        at, to = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        match random.randrange(6):
            case 0:
                data = data[:at] + random.choice(WORDS) + data[at:]
            case 1:
                data = data[:at] + data[at + random.randint(1, 8) :]
            case 2:
                data = data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
            case 3:
                data = data[:to] + data[at : at + random.randint(1, 40)] + data[to:]
            case 4:
                data = data[:at]
            case _:
                words = [word for word in WORDS if word in data]
                if words:
                    data = data.replace(random.choice(words), random.choice(WORDS), random.randint(1, 3))
        data = data or b"{"
    return data


def prepared(stage: int, messages: list[bytes]) -> Session:
    """Return a session that has heard the conversation up to a place."""
    session = Session(Following("OVN_Northbound", TABLES), Cache(), Position(), limit=1 << 20)
    session.start()
    for at, message in enumerate(messages[:stage]):
        session.receive(message)
        if at == 0:
            session.lock("mine")
            for _ in range(9):
                session.transact([Insert("Logical_Switch", {})])
            session.probe()
    return session


def resident() -> int:
    """Return how much memory this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
def test_a_hundred_thousand_malformed_messages_are_survived() -> None:
    messages = conversation()
    random = Random(20)
    outcomes = survived(5_000, messages, random)
    with untraced():
        outcomes += survived(15_000, messages, random)
        base = resident()
        outcomes += survived(80_000, messages, random)
    assert resident() < base + (64 << 20)
    assert outcomes["error"] > 10_000
    assert outcomes["taken"] > 10_000


def survived(count: int, messages: list[bytes], random: Random) -> Counter[str]:
    """Have sessions receive so many damaged messages; return what they made of them."""
    outcomes = Counter[str]()
    for number in range(count):
        if number % 20 == 0:
            stage = random.randrange(len(messages))
            session = prepared(stage, messages)
        message = messages[stage] if number % 3 else random.choice(messages)
        damaged = mutated(message, random)
        step = 1 << random.randrange(6, 14)
        try:
            for start in range(0, len(damaged), step):
                session.receive(damaged[start : start + step])
        except RemoteError:
            outcomes["error"] += 1
            session = prepared(min(stage, 1), messages)
        else:
            outcomes["taken"] += 1
        session.to_send()
    return outcomes


@pytest.mark.parametrize("seed", range(4))
def test_the_server_in_memory_survives_malformed_requests_too(seed: int) -> None:
    random = Random(seed)
    server = Server([Database(NORTHBOUND, Random(1))])
    client = Session(Following("OVN_Northbound", TABLES), Cache(), Position())
    client.start()
    client.lock("mine")
    client.transact(
        [Insert("Logical_Switch", {"name": "x", "other_config": {"a": "b"}}), Delete("Logical_Switch", eq("name", "x"))]
    )
    request = client.to_send()
    connection = server.connect()
    for _ in range(3000):
        try:
            connection.receive(mutated(request, random))
        except RemoteError:
            server.drop(connection)
            connection = server.connect()
        connection.to_send()
