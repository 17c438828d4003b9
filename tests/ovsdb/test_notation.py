"""Values to the wire and back, schemas, and rows made from them."""

import json
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.ovsdb import datum, notation
from netloom.ovsdb.errors import Conflict, RemoteError, TransactionRefused, failure
from netloom.ovsdb.monitor import Following, Monitor
from netloom.ovsdb.notation import NamedUuid, Uuid, decode_shape, to_wire
from netloom.ovsdb.operations import (
    Assert,
    Comment,
    Delete,
    Insert,
    Mutate,
    Operation,
    Update,
    Wait,
    encode_transact,
    eq,
    is_uuid,
    uuid_name,
    without,
)
from netloom.ovsdb.reconnect import split_host
from netloom.ovsdb.rows import northbound
from netloom.ovsdb.schema import BaseType, ColumnType, Schema
from tests.ovsdb.pairs import NORTHBOUND
from tests.ovsdb.typed import TOOL

U = Uuid("6cd5bb8c-0d34-4b8e-9bd4-6e9c4a1b0c11")


def test_operations_are_encoded_as_the_rfc_has_them() -> None:
    row = {
        "a": "x",
        "b": U,
        "c": frozenset({NamedUuid("n")}),
        "d": {"k": U},
        "e": None,
        "f": 1.5,
        "g": True,
        "h": {"k": "v"},
    }
    encoded = json.loads(
        encode_transact(
            "D",
            [
                Insert("T", row, "n"),
                Insert("T", {}, uuid=str(U)),
                Update("T", is_uuid(str(U)), {"a": "y"}),
                Mutate("T", is_uuid(U), [("c", "insert", frozenset({U}))]),
                Delete("T", eq("a", "x")),
                Wait("T", (), ("a",), [{"a": "x"}], until="!="),
                Comment("c"),
                Assert("l"),
            ],
            7,
        )
    )
    where = [["_uuid", "==", ["uuid", str(U)]]]
    assert (encoded["id"], encoded["method"], encoded["params"][0]) == (7, "transact", "D")
    assert encoded["params"][1:] == [
        {
            "op": "insert",
            "table": "T",
            "uuid-name": "n",
            "row": {
                "a": "x",
                "b": ["uuid", str(U)],
                "c": ["set", [["named-uuid", "n"]]],
                "d": ["map", [["k", ["uuid", str(U)]]]],
                "e": ["set", []],
                "f": 1.5,
                "g": True,
                "h": ["map", [["k", "v"]]],
            },
        },
        {"op": "insert", "table": "T", "row": {}, "uuid": str(U)},
        {"op": "update", "table": "T", "where": where, "row": {"a": "y"}},
        {"op": "mutate", "table": "T", "where": where, "mutations": [["c", "insert", ["set", [["uuid", str(U)]]]]]},
        {"op": "delete", "table": "T", "where": [["a", "==", "x"]]},
        {"op": "wait", "table": "T", "where": [], "columns": ["a"], "until": "!=", "rows": [{"a": "x"}], "timeout": 0},
        {"op": "comment", "comment": "c"},
        {"op": "assert", "lock": "l"},
    ]


def test_what_is_no_column_value_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="not a valid type of a column's value"):
        to_wire(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        to_wire(frozenset({(1, 2)}))


def test_subclasses_of_atoms_sets_and_maps_are_sent_as_what_they_are() -> None:
    class Word(str):
        pass

    assert to_wire(Word("x")) == "x"
    assert to_wire({"a"}) == ("set", ["a"])
    assert to_wire(msgspec.structs.asdict(NamedUuid("x"))) == ("map", [("name", "x")])


def test_a_uuid_name_may_be_made_of_anything() -> None:
    assert uuid_name("lsp/default/a-b.c") == "nlsp_default_a_b_c"
    assert repr(U) == f"Uuid('{U}')"


SHAPES: dict[str, Any] = {
    "Strings": (st.frozensets(st.text(max_size=3), max_size=4), ("set", "string", "")),
    "Integers": (st.frozensets(st.integers(-9, 9), max_size=4), ("set", "integer", "")),
    "StringMap": (st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4), ("map", "string", "string")),
    "IntegerMap": (st.dictionaries(st.integers(-9, 9), st.integers(-9, 9), max_size=4), ("map", "integer", "integer")),
    "Uuids": (st.frozensets(st.uuids().map(lambda one: Uuid(str(one))), max_size=4), ("set", "uuid", "")),
    "OptionalUuid": (st.none() | st.uuids().map(lambda one: Uuid(str(one))), ("optional", "uuid", "")),
    "IntegerToUuid": (
        st.dictionaries(st.integers(0, 9), st.uuids().map(lambda one: Uuid(str(one))), max_size=4),
        ("map", "integer", "uuid"),
    ),
}


@pytest.mark.parametrize("name", sorted(SHAPES))
@given(data=st.data())
def test_a_value_comes_back_from_the_wire_as_it_was(name: str, data: st.DataObject) -> None:
    strategy, shape = SHAPES[name]
    value = data.draw(strategy)
    there = getattr(notation, name)
    wire = msgspec.json.decode(msgspec.json.encode(to_wire(value)))
    assert decode_shape(there, wire) == value
    if isinstance(value, frozenset) and len(value) == 1:
        assert decode_shape(there, wire[1][0]) == value
    assert there.accepts(shape)


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("Strings", ["set"]),
        ("Strings", ["odd", []]),
        ("Strings", ["set", [["x"]]]),
        ("StringMap", ["map", [["a"]]]),
        ("StringMap", "a"),
        ("StringMap", ["set", []]),
        ("Uuids", ["set", ["x"]]),
        ("Uuids", ["uuid", 1]),
        ("OptionalUuid", ["set", [["uuid", "a"], ["uuid", "b"]]]),
        ("Uuid", ["named-uuid", "x"]),
    ],
)
def test_a_value_of_the_wrong_shape_is_the_servers_mistake(name: str, wire: Any) -> None:
    with pytest.raises(RemoteError):
        decode_shape(getattr(notation, name), wire)


def test_the_schema_of_the_northbound_is_understood() -> None:
    schema = Schema.parse(json.dumps(NORTHBOUND))
    ports = schema.tables["Logical_Switch"].columns["ports"]
    assert ports.shape == ("set", "uuid", "")
    assert (ports.key.ref_table, ports.key.ref_weak) == ("Logical_Switch_Port", False)
    acl = schema.tables["ACL"].columns
    assert acl["severity"].shape == ("optional", "string", "")
    assert acl["severity"].key.enum == ("alert", "warning", "notice", "info", "debug")
    assert (acl["priority"].key.minimum, acl["priority"].key.maximum) == (0, 32767)
    assert acl["external_ids"].shape == ("map", "string", "string")
    assert schema.tables["Logical_Switch"].is_root
    assert not schema.tables["Logical_Switch_Port"].is_root


@pytest.mark.parametrize(
    "source",
    [b"x", b"[]", b"{}", b'{"name":"x","tables":{"T":{"columns":{"c":{"type":"odd"}}}}}', b'{"name":"x","tables":[]}'],
)
def test_what_is_no_schema_is_refused(source: bytes) -> None:
    with pytest.raises(RemoteError):
        Schema.parse(source)


def test_where_no_table_is_a_root_all_are() -> None:
    assert Schema.parse(b'{"name":"x","tables":{"T":{"columns":{"c":{"type":"string"}}}}}').tables["T"].is_root


@pytest.mark.ovn
def test_the_rows_in_the_tree_are_what_the_installed_schemas_give() -> None:
    done = subprocess.run([TOOL, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + " (run tools/ovsdb-rows)"


def test_columns_that_the_server_lacks_or_has_otherwise_are_left_out_and_named() -> None:
    document = json.loads(json.dumps(NORTHBOUND))
    del document["tables"]["Mirror"]
    columns = document["tables"]["Logical_Switch_Port"]["columns"]
    del columns["mirror_rules"]
    columns["tag"] = {"type": "string"}
    columns["up"] = {"type": {"key": "boolean", "min": 0, "max": "unlimited"}}
    columns["name"] = {"type": {"key": "string", "min": 0}}
    columns["addresses"] = {"type": {"key": "string", "min": 0}}
    columns["options"] = {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}}
    columns["ha_chassis_group"] = {"type": {"key": "string", "min": 0}}
    columns["brand_new"] = {"type": "string"}
    monitor = Monitor(
        Following("OVN_Northbound", {"Logical_Switch_Port": None, "Mirror": None}), Schema.parse(document)
    )
    assert sorted(monitor.missing) == [
        "Logical_Switch_Port.ha_chassis_group",
        "Logical_Switch_Port.mirror_rules",
        "Logical_Switch_Port.name",
        "Logical_Switch_Port.options",
        "Logical_Switch_Port.tag",
        "Logical_Switch_Port.up",
        "Mirror",
    ]
    asked = monitor.request()
    assert list(asked) == ["Logical_Switch_Port"]
    assert "addresses" in asked["Logical_Switch_Port"][0]["columns"]
    assert "brand_new" not in asked["Logical_Switch_Port"][0]["columns"]


def test_what_the_server_lacks_is_not_written() -> None:
    missing = frozenset({"T.new"})
    given: list[Operation] = [Insert("T", {"a": "x", "new": "y"}, "n"), Update("T", (), {"new": "y"}), Delete("T", ())]
    assert without(given, missing) == [Insert("T", {"a": "x"}, "n"), Update("T", (), {}), Delete("T", ())]


def test_an_update_in_the_longer_notation_is_understood_too() -> None:
    monitor = Monitor(Following("OVN_Northbound", {"Logical_Switch_Port": None}), Schema.parse(NORTHBOUND))
    row = {"name": "p", "tag": ["set", [3]], "addresses": "a", "up": ["set", []]}
    data = {"Logical_Switch_Port": {str(U): {"insert": row}}, "Other": {"x": {"insert": {}}}}
    found = monitor.decode(msgspec.json.encode(data)).whole["Logical_Switch_Port"][U]
    assert found == northbound.LogicalSwitchPort(name="p", tag=3, addresses=frozenset({"a"}), _uuid=U)
    for wrong in (
        {"insert": {"name": 3}},
        {"insert": {"name": ["set", []]}},
        {},
        {"insert": {"tag": [3]}},
        {"odd": None},
    ):
        with pytest.raises(RemoteError):
            monitor.decode(msgspec.json.encode({"Logical_Switch_Port": {str(U): wrong}}))
    for text in (b"[]", b"{", b'{"Logical_Switch_Port":1}'):
        with pytest.raises(RemoteError):
            monitor.decode(text)
        with pytest.raises(RemoteError):
            monitor.decode_old(text)


def test_all_kinds_of_updates_may_come_in_the_longer_notation() -> None:
    monitor = Monitor(Following("OVN_Northbound", {"Logical_Switch_Port": None}), Schema.parse(NORTHBOUND))
    odd = {"tag": ["set", [3]]}
    updates = {"a": {"initial": odd}, "b": {"modify": odd}, "c": {"delete": None}}
    found = monitor.decode(msgspec.json.encode({"Logical_Switch_Port": updates}))
    assert [list(one["Logical_Switch_Port"]) for one in found] == [["a"], ["b"], ["c"]]


def test_the_tag_of_an_error_says_the_reaction() -> None:
    assert isinstance(failure("timed out", "x", 1), Conflict)
    assert isinstance(failure("not owner", "", 1), Conflict)
    refused = failure("constraint violation", "why", None)
    assert isinstance(refused, TransactionRefused)
    assert (refused.error, refused.details, refused.operation, str(refused)) == (
        "constraint violation",
        "why",
        None,
        "constraint violation: why",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:6641", ("127.0.0.1", 6641)),
        ("[::1]:6641", ("::1", 6641)),
        ("[fe80::1]", ("fe80::1", 6640)),
        ("db.example", ("db.example", 6640)),
    ],
)
def test_remotes_have_hosts_and_ports(text: str, expected: tuple[str, int]) -> None:
    assert split_host(text) == expected


def test_defaults_and_arithmetic_are_the_servers() -> None:
    integers = ColumnType(BaseType("integer"), min=1, max=5)
    assert datum.default(integers) == frozenset({0})
    assert datum.mutation("/=", -2, ColumnType(BaseType("integer")), Uuid)(7) == -3
    assert datum.mutation("%=", -2, ColumnType(BaseType("integer")), Uuid)(7) == 1
    single, several = ColumnType(BaseType("integer")), frozenset({-1, 1})
    assert datum.mutation("*=", 2, integers, Uuid)(several) == frozenset({-2, 2})
    with pytest.raises(datum.Fault, match="range error"):
        datum.mutation("+=", 1, single, Uuid)(2**63 - 1)
    with pytest.raises(datum.Fault, match="domain error"):
        datum.mutation("/=", 0, single, Uuid)(1)
    with pytest.raises(datum.Fault, match="duplicates"):
        datum.mutation("*=", 0, integers, Uuid)(several)
    with pytest.raises(datum.Fault, match="range error"):
        datum.mutation("*=", 1e308, ColumnType(BaseType("real")), Uuid)(1e308)
