"""The operations of a transaction (RFC 7047, section 5.2), as values; encoded directly to bytes.  Pure.

    Insert("Logical_Switch", {"name": "blue", "ports": frozenset({NamedUuid("p1")})}, "s1")
    Mutate("Logical_Switch", is_uuid(u), [("ports", "insert", frozenset({NamedUuid("p2")}))])
    Wait("Logical_Switch", is_uuid(u), ("name",), [{"name": "blue"}])

Values have the shapes of `notation`. An update without columns, and an insert of an empty row, are valid.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from netloom.ovsdb.notation import NamedUuid, Uuid, Value, to_wire

__all__ = [
    "Assert", "Comment", "Condition", "Delete", "Insert", "Mutate", "Mutation", "NamedUuid", "Operation",
    "OperationResult", "Update", "Wait", "encode_transact", "eq", "is_uuid",
]  # fmt: skip

Condition = tuple[str, str, Value]
"""Column, function (==, !=, <, <=, >, >=, includes, excludes), value."""

Mutation = tuple[str, str, Value]
"""Column, mutator (insert, delete, +=, -=, *=, /=, %=), value."""

Row = Mapping[str, Value]


class Insert(Struct, frozen=True, gc=False):
    """Add a row; `uuid_name` lets other operations refer to it by `NamedUuid`."""

    table: str
    row: Row
    uuid_name: str = ""
    uuid: str = ""
    """The row's uuid; empty: the server chooses.  Servers since 2.13."""


class Update(Struct, frozen=True, gc=False):
    """Set columns of the selected rows."""

    table: str
    where: Sequence[Condition]
    row: Row


class Mutate(Struct, frozen=True, gc=False):
    """Change columns of the selected rows, relative to their values."""

    table: str
    where: Sequence[Condition]
    mutations: Sequence[Mutation]


class Delete(Struct, frozen=True, gc=False):
    """Delete the selected rows."""

    table: str
    where: Sequence[Condition]


class Wait(Struct, frozen=True, gc=False):
    """Continue only if the selected rows are (or with `until="!="` are not) these, in these columns."""

    table: str
    where: Sequence[Condition]
    columns: Sequence[str]
    rows: Sequence[Row]
    until: str = "=="
    timeout: int = 0
    """In milliseconds; 0: do not wait."""


class Comment(Struct, frozen=True, gc=False):
    """A comment in the database's log."""

    comment: str


class Assert(Struct, frozen=True, gc=False):
    """Continue only if this connection owns the lock."""

    lock: str


Operation = Insert | Update | Mutate | Delete | Wait | Comment | Assert


class OperationResult(Struct, frozen=True, gc=False):
    """The result of one operation."""

    uuid: Uuid | None = None
    """The uuid of the inserted row."""
    count: int = 0
    """How many rows were updated, mutated or deleted."""


def is_uuid(uuid: str) -> tuple[Condition, ...]:
    """Select one row by its uuid."""
    return (("_uuid", "==", uuid if type(uuid) is Uuid else Uuid(uuid)),)


def eq(column: str, value: Value) -> tuple[Condition, ...]:
    """Select rows by one column."""
    return ((column, "==", value),)


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def uuid_name(of: str) -> str:
    """Return a text as a valid `uuid_name`: letters, digits and underscores."""
    return "n" + _NOT_IN_NAMES.sub("_", of)


def row_to_wire(row: Row) -> dict[str, Any]:
    """Return a row in wire notation."""
    return {column: value if type(value) is str else to_wire(value) for column, value in row.items()}


def _where(conditions: Sequence[Condition]) -> list[Any]:
    return [(column, function, to_wire(value)) for column, function, value in conditions]


def operation_to_wire(operation: Operation) -> dict[str, Any]:
    """Return an operation in wire notation."""
    match operation:
        case Insert():
            wire = {"op": "insert", "table": operation.table, "row": row_to_wire(operation.row)}
            if operation.uuid_name:
                wire["uuid-name"] = operation.uuid_name
            if operation.uuid:
                wire["uuid"] = operation.uuid
            return wire
        case Update():
            row = row_to_wire(operation.row)
            return {"op": "update", "table": operation.table, "where": _where(operation.where), "row": row}
        case Mutate():
            mutations = _where(operation.mutations)
            return {"op": "mutate", "table": operation.table, "where": _where(operation.where), "mutations": mutations}
        case Delete():
            return {"op": "delete", "table": operation.table, "where": _where(operation.where)}
        case Wait():
            return {
                "op": "wait",
                "timeout": operation.timeout,
                "table": operation.table,
                "where": _where(operation.where),
                "columns": operation.columns,
                "until": operation.until,
                "rows": [row_to_wire(row) for row in operation.rows],
            }
        case Comment():
            return {"op": "comment", "comment": operation.comment}
        case Assert():
            return {"op": "assert", "lock": operation.lock}


_encoder = msgspec.json.Encoder()


def encode_transact(database: str, operations: Sequence[Operation], identifier: int) -> bytes:
    """Return the request that applies all operations, or none."""
    request = bytearray(b'{"id":%d,"method":"transact","params":[%b' % (identifier, _encoder.encode(database)))
    encode_into = _encoder.encode_into
    # One by one: a thousand operations at once as lists and dicts would trigger the garbage collector several times.
    for operation in operations:
        request += b","
        encode_into(operation_to_wire(operation), request, -1)
    request += b"]}"
    return bytes(request)


def without(operations: Sequence[Operation], missing: frozenset[str]) -> list[Operation]:
    """Return the operations without columns that the server does not have."""
    kept: list[Operation] = []
    for operation in operations:
        if isinstance(operation, (Insert, Update)):
            row = {name: one for name, one in operation.row.items() if f"{operation.table}.{name}" not in missing}
            if len(row) < len(operation.row):
                if isinstance(operation, Insert):
                    operation = Insert(operation.table, row, operation.uuid_name, operation.uuid)
                else:
                    operation = Update(operation.table, operation.where, row)
        kept.append(operation)
    return kept
