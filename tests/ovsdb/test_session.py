"""A session and a server, joined without a network."""

import json
from random import Random
from typing import Any

import pytest

from netloom.ovsdb.cache import Cache
from netloom.ovsdb.errors import Conflict, RemoteError, TransactionRefused
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.monitor import Following
from netloom.ovsdb.notation import ZERO, NamedUuid, Uuid
from netloom.ovsdb.operations import Assert, Comment, Delete, Insert, Mutate, Update, Wait, eq, is_uuid
from netloom.ovsdb.session import (
    METHODS,
    Changed,
    Closed,
    LockChanged,
    Position,
    RpcAnswered,
    RpcSession,
    Stage,
    Synced,
)
from tests.ovsdb.pairs import NORTHBOUND, TABLES, Pair


def answered(event: object) -> RpcAnswered:
    assert isinstance(event, RpcAnswered)
    return event


def inserted(event: object) -> Uuid:
    results = answered(event).results
    assert results is not None
    assert results[0].uuid is not None
    return results[0].uuid


def names(cache: Cache) -> list[str]:
    return sorted(row.name for row in cache.rows("Logical_Switch").values())


@pytest.mark.parametrize("lacking", range(3))
def test_servers_of_three_generations_are_followed(lacking: int) -> None:
    methods = ["transact", "monitor", "get_schema", "echo", *METHODS[lacking:]]
    if lacking < 2:
        methods += ["monitor_cond", "set_db_change_aware"]
    server = Server([Database(NORTHBOUND, Random(1))], methods=methods)
    pair = Pair(server)
    assert pair.session.stage is Stage.FOLLOWING
    assert pair.session.method == lacking
    uuid = inserted(pair.transact(Insert("Logical_Switch", {"name": "a", "other_config": {"k": "v"}})))
    pair.transact(Mutate("Logical_Switch", is_uuid(uuid), [("other_config", "insert", {"l": "w"})]))
    pair.transact(Update("Logical_Switch", is_uuid(uuid), {"name": "b"}))
    row = pair.cache.rows("Logical_Switch")[uuid]
    assert (row.name, row.other_config) == ("b", {"k": "v", "l": "w"})
    pair.transact(Delete("Logical_Switch", is_uuid(uuid)))
    assert not pair.cache.rows("Logical_Switch")


def test_a_transaction_is_in_the_cache_before_its_answer() -> None:
    pair = Pair()
    number = pair.session.transact([Insert("Logical_Switch", {"name": "a"})])
    kinds = [type(event) for event in pair.carry()]
    assert kinds == [Changed, RpcAnswered]
    assert number > 0


def test_a_set_and_a_map_change_by_differences() -> None:
    pair = Pair()
    row: dict[str, Any] = {
        "name": "s",
        "ports": frozenset({NamedUuid("a"), NamedUuid("b")}),
        "other_config": {"x": "1", "y": "2"},
    }
    ports = [Insert("Logical_Switch_Port", {"name": name}, name) for name in ("a", "b")]
    uuid = inserted(pair.transact(Insert("Logical_Switch", row), *ports))
    ports_now = pair.cache.rows("Logical_Switch")[uuid].ports
    assert len(ports_now) == 2
    gone = min(ports_now)
    mutations: list[Any] = [("ports", "delete", frozenset({gone})), ("other_config", "delete", frozenset({"x"}))]
    pair.transact(Mutate("Logical_Switch", is_uuid(uuid), mutations))
    pair.transact(Update("Logical_Switch", is_uuid(uuid), {"other_config": {"y": "3", "z": "4"}}))
    now = pair.cache.rows("Logical_Switch")[uuid]
    assert (now.ports, now.other_config) == (ports_now - {gone}, {"y": "3", "z": "4"})
    assert set(pair.cache.rows("Logical_Switch_Port")) == set(now.ports)


def test_refusals_name_their_operation_and_conflicts_are_their_own_class() -> None:
    pair = Pair()
    wrong = answered(pair.transact(Comment("x"), Insert("Logical_Switch", {"name": 1}))).error
    assert isinstance(wrong, TransactionRefused)
    assert (wrong.operation, wrong.error) == (1, "syntax error")
    dangling: dict[str, Any] = {"name": "s", "ports": frozenset({Uuid("6cd5bb8c-0d34-4b8e-9bd4-6e9c4a1b0c11")})}
    at_commit = answered(pair.transact(Insert("Logical_Switch", dangling))).error
    assert isinstance(at_commit, TransactionRefused)
    assert (at_commit.operation, at_commit.error) == (None, "referential integrity violation")
    waited = answered(pair.transact(Wait("Logical_Switch", (), ("name",), [{"name": "x"}]))).error
    assert isinstance(waited, Conflict)
    unknown = Pair(following=Following("OVN_Northbound", TABLES))
    unknown.session.following = Following("Other", TABLES, known={})
    assert isinstance(answered(unknown.transact(Comment("x"))).error, TransactionRefused)


def test_a_new_connection_resumes_where_the_old_one_ended() -> None:
    pair = Pair()
    for name in "abc":
        pair.transact(Insert("Logical_Switch", {"name": name}))
    pair.server.drop(pair.connection)
    other = Pair(pair.server)
    other.transact(Insert("Logical_Switch", {"name": "d"}), Delete("Logical_Switch", eq("name", "a")))
    resumed = Pair(pair.server, cache=pair.cache, position=pair.position)
    event = resumed.events[-1]
    assert isinstance(event, Synced)
    assert event.resumed
    assert len(event.changes) == 2
    assert names(resumed.cache) == ["b", "c", "d"]
    again = Pair(pair.server, cache=pair.cache, position=pair.position)
    assert isinstance(again.events[-1], Synced)
    assert again.events[-1].changes == []


def test_where_history_is_forgotten_everything_is_compared() -> None:
    pair = Pair()
    pair.transact(Insert("Logical_Switch", {"name": "a"}))
    pair.transact(Insert("Logical_Switch", {"name": "b"}))
    pair.server.databases["OVN_Northbound"].history.clear()
    Pair(pair.server).transact(Delete("Logical_Switch", eq("name", "a")), Insert("Logical_Switch", {"name": "c"}))
    pair.server.databases["OVN_Northbound"].history.clear()
    again = Pair(pair.server, cache=pair.cache, position=pair.position)
    event = again.events[-1]
    assert isinstance(event, Synced)
    assert not event.resumed
    assert len(event.changes) == 2
    assert names(again.cache) == ["b", "c"]


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"model": "clustered", "leader": False}, "does not lead"),
        ({"model": "clustered", "connected": False}, "lost its cluster"),
        ({"model": "relay", "connected": False}, "not connected"),
        ({"schema": ["set", []]}, "has not joined"),
        ({"name": "Other"}, "does not have the database"),
    ],
)
def test_a_server_that_will_not_do_is_left(about: dict[str, Any], reason: str) -> None:
    server = Server([Database(NORTHBOUND, Random(1))])
    server.describe("OVN_Northbound", **about)
    event = Pair(server).events[-1]
    assert isinstance(event, Closed)
    assert reason in event.reason
    good = Pair()
    good.server.describe("OVN_Northbound", **about)
    good.carry()
    assert isinstance(good.events[-1], Closed)
    assert good.session.stage is Stage.CLOSED


def test_a_server_that_is_behind_is_left() -> None:
    server = Server([Database(NORTHBOUND, Random(1))])
    cid = ["uuid", "6cd5bb8c-0d34-4b8e-9bd4-6e9c4a1b0c11"]
    server.describe("OVN_Northbound", model="clustered", leader=False, index=5, cid=cid)
    position = Position(index=7, cluster=Uuid(cid[1]))
    event = Pair(server, position=position, leader_only=False).events[-1]
    assert isinstance(event, Closed)
    assert "behind" in event.reason
    server.describe("OVN_Northbound", index=8)
    assert Pair(server, position=position, leader_only=False).session.stage is Stage.FOLLOWING
    assert position.index == 8


def test_another_cluster_is_another_database() -> None:
    position = Position(last_id=Uuid("6cd5bb8c-0d34-4b8e-9bd4-6e9c4a1b0c11"), cluster=Uuid("x"))
    pair = Pair(position=position)
    assert position.cluster is None
    assert isinstance(pair.events[-1], Synced)


def test_a_schema_that_changes_begins_anew() -> None:
    pair = Pair()
    newer = {**NORTHBOUND, "version": "99.0.0"}
    pair.server.describe("OVN_Northbound", schema=json.dumps(newer))
    event = pair.carry()[-1]
    assert isinstance(event, Closed)
    assert "99.0.0" in event.reason
    assert not event.elsewhere
    assert pair.position.last_id == ZERO


def test_a_monitor_that_is_canceled_begins_anew() -> None:
    pair = Pair()
    events = pair.session.receive(b'{"id":null,"method":"monitor_canceled","params":["netloom"]}')
    assert isinstance(events[-1], Closed)
    assert pair.session.receive(b'{"id":null,"method":"odd","params":[]}') == []
    other = Pair()
    assert other.session.receive(b'{"id":null,"method":"monitor_canceled","params":["other"]}') == []


def test_an_old_server_without_the_database_is_left() -> None:
    server = Server([Database(NORTHBOUND, Random(1))], methods=["get_schema", "monitor"])
    pair = Pair(server, following=Following("Open_vSwitch", {"Bridge": None}))
    assert isinstance(pair.events[-1], Closed)


def test_a_server_that_will_not_be_followed_is_left() -> None:
    server = Server([Database(NORTHBOUND, Random(1))], methods=["get_schema"])
    event = Pair(server).events[-1]
    assert isinstance(event, Closed)
    assert "refuses the monitor" in event.reason


def test_locks_go_from_hand_to_hand() -> None:
    first = Pair()
    second, third = Pair(first.server), Pair(first.server)
    first.session.lock("l")
    assert first.carry() == [LockChanged("l", held=True)]
    assert answered(first.transact(Assert("l"))).error is None
    second.session.lock("l")
    assert second.carry() == []
    assert isinstance(answered(second.transact(Assert("l"))).error, Conflict)
    third.session.locks["l"] = False
    third.session._request("steal", ["l"], lambda message: third.session._on_lock("l", message))
    assert third.carry() == [LockChanged("l", held=True)]
    assert first.carry() == [LockChanged("l", held=False)]
    third.session.unlock("l")
    third.session.unlock("never asked for")
    third.carry()
    first.carry()
    first.server.drop(first.connection)
    assert second.carry() == [LockChanged("l", held=True)]


def test_a_lock_asked_for_twice_is_an_error_of_the_peer() -> None:
    pair = Pair()
    pair.session.lock("l")
    pair.session.lock("l")
    with pytest.raises(RemoteError, match="is refused"):
        pair.carry()


def test_echoes_are_answered_and_other_requests_politely_refused() -> None:
    pair = Pair()
    pair.session.receive(
        b'{"id":"echo","method":"echo","params":["x"]}{"id":7,"method":"odd","params":[]}{"id":8,"method":"echo"}'
    )
    answers = pair.session.to_send()
    assert b'{"id":"echo","result":["x"],"error":null}' in answers
    assert b'{"id":7,"result":null,"error":"unknown method"}' in answers
    pair.session.probe()
    assert pair.carry() == []


def test_conditions_choose_rows() -> None:
    following = Following(
        "OVN_Northbound", {"Logical_Switch": ["name"]}, {"Logical_Switch": [("name", "==", "a"), False]}
    )
    pair = Pair(following=following)
    other = Pair(pair.server)
    for name in "abc":
        other.transact(Insert("Logical_Switch", {"name": name}))
    pair.carry()
    assert names(pair.cache) == ["a"]


@pytest.mark.parametrize(
    "message",
    [
        b'{"id":99,"result":[],"error":null}',
        b'{"id":"x","result":[],"error":null}',
        b'{"id":null,"method":"update3","params":["other","x",{}]}',
        b'{"id":null,"method":"update3","params":["netloom"]}',
        b'{"id":null,"method":"update2","params":{}}',
        b'{"id":null,"method":"update3","params":["netloom","x",{"Logical_Switch":{"u":{"modify":{"name":"x"}}}}]}',
        b'{"id":null,"method":"update3","params":["netloom","x",{"Logical_Switch":{"u":{"delete":null}}}]}',
        b'{"id":null,"method":"update3","params":["netloom","x",{"Logical_Switch":{"u":{}}}]}',
        b'{"id":null,"method":"locked","params":[]}',
        b'{"id":null,"method":"echo","params":[}',
        b"nonsense",
    ],
)
def test_nonsense_is_the_peers_mistake(message: bytes) -> None:
    pair = Pair()
    with pytest.raises(RemoteError):
        pair.session.receive(message)


def test_a_change_of_the_wrong_shape_is_the_peers_mistake_and_changes_nothing() -> None:
    pair = Pair()
    uuid = inserted(pair.transact(Insert("Logical_Switch", {"name": "a"})))
    for column in ('"name":["set",[]]', '"ports":["odd",1]', '"other_config":3', '"ports":["set",["x"]]'):
        update = f'{{"Logical_Switch":{{"{uuid}":{{"modify":{{{column}}}}}}}}}'
        with pytest.raises(RemoteError):
            pair.session.receive(f'{{"id":null,"method":"update3","params":["netloom","x",{update}]}}'.encode())
    assert names(pair.cache) == ["a"]


def test_indexes_stay_current() -> None:
    pair = Pair()
    by_name = pair.cache.indexed("Logical_Switch", "name")
    row: dict[str, Any] = {"name": "a", "external_ids": {"owner": "us"}}
    uuid = inserted(pair.transact(Insert("Logical_Switch", row)))
    by_owner = pair.cache.indexed("Logical_Switch", "external_ids:owner")
    by_both = pair.cache.indexed("Logical_Switch", "name", "external_ids")
    pair.transact(Insert("Logical_Switch", {"name": "a"}))
    assert len(by_name.get("a")) == 2
    assert list(by_owner.get("us")) == [uuid]
    assert by_owner.one("us").name == "a"  # type: ignore[union-attr]
    assert by_name.one("zzz") is None
    assert list(by_both.get("a", frozenset({("owner", "us")}))) == [uuid]
    pair.transact(Update("Logical_Switch", is_uuid(uuid), {"name": "b", "external_ids": {}}))
    assert (len(by_owner), "us" in by_owner, sorted(map(str, by_name))) == (0, False, ["a", "b"])
    pair.transact(Delete("Logical_Switch", ()))
    assert len(by_name) == 0
    assert pair.cache.indexed("Logical_Switch", "name") is by_name


def test_a_session_that_has_not_begun_takes_no_updates() -> None:
    session = RpcSession(Following("OVN_Northbound", TABLES), Cache(), Position())
    session.start()
    with pytest.raises(RemoteError, match="unexpected"):
        session.receive(b'{"id":null,"method":"update3","params":["netloom","x",{}]}')
