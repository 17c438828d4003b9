"""Monitors: which tables and columns to monitor, which of them the server has, and decoding its updates.  Pure.

`Following` is what the caller wants. With the server's schema it becomes a `Monitor`: the request to send, and the
decoders of the answers. A table or column that the server lacks, or has with another type, is left out and listed in
`missing`; its attribute keeps its default. A column that only the server knows is not requested.

Complete rows (`initial`, `insert`) are decoded by msgspec into typed rows, in one pass over the message. Changes
(`modify`) are differences and are applied by column: a set's difference has the elements in exactly one of the two, a
map's also the keys with changed values, and any other is the new value.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import force_setattr

from netloom.ovsdb.errors import RemoteError
from netloom.ovsdb.notation import Shape, Uuid, Wire, decode_shape, optional_from_wire, to_wire, uuid_from_wire
from netloom.ovsdb.operations import Condition
from netloom.ovsdb.rows import northbound, southbound, vswitch
from netloom.ovsdb.schema import ColumnType, Schema

Row = Any
"""One of the structs of `ovsdb.rows`."""

KNOWN: dict[str, dict[str, type[Struct]]] = {
    module.DATABASE: module.TABLES for module in (northbound, southbound, vswitch)
}


class Change(NamedTuple):
    """The change of one row: inserted (`old` is None), deleted (`new` is None) or modified."""

    table: str
    uuid: Uuid
    old: Row | None
    new: Row | None


class Following(Struct, frozen=True):
    """What to monitor of a database."""

    database: str
    tables: Mapping[str, Sequence[str] | None]
    """Columns by table; None: all that are known."""
    conditions: Mapping[str, Sequence[Condition | bool]] = {}
    """Only rows for which one of these holds; without conditions, all rows."""
    known: Mapping[str, type[Struct]] | None = None
    """The types of rows by table, if they are not those of `ovsdb.rows`."""

    def rows(self) -> Mapping[str, type[Struct]]:
        """Return the types of the rows, by table."""
        return KNOWN[self.database] if self.known is None else self.known


class Updates(NamedTuple):
    """The contents of one message, by table and uuid: complete rows, differences of rows, deleted rows."""

    whole: dict[str, dict[Uuid, Row]]
    changed: dict[str, dict[Uuid, dict[str, Any]]]
    gone: dict[str, list[Uuid]]


class _Column(NamedTuple):
    convert: Callable[[Any], Any]
    composite: bool


class _Old(Struct):
    """One row's update in RFC 7047's notation."""

    old: Any = None
    new: dict[str, Any] | None = None


T = TypeVar("T")

_fallback = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, Any] | None]]]).decode
_old = msgspec.json.Decoder(dict[str, dict[str, _Old]]).decode


@lru_cache
def _hints(row: type[Struct]) -> dict[str, Any]:
    """Return the types of a row's columns."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(row) if field.name != "_uuid"}


@lru_cache
def _decoder(tables: tuple[tuple[str, type[Struct]], ...]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of <table-updates2> of these tables."""
    fields: list[Any] = [(table, dict[str, _update(row)], msgspec.field(default_factory=dict)) for table, row in tables]  # type: ignore[misc]
    return msgspec.json.Decoder(msgspec.defstruct("Updates", fields), dec_hook=decode_shape)


def _update(row: type[Struct]) -> type[Struct]:
    return msgspec.defstruct(
        f"Update{row.__name__}",
        [
            ("initial", row | None, None),
            ("insert", row | None, None),
            ("modify", dict[str, Any] | None, None),
            ("delete", Any | UnsetType, UNSET),
        ],
        gc=False,
    )


def where_to_wire(conditions: Sequence[Condition | bool]) -> list[Any]:
    """Return a monitor's conditions in wire notation."""
    return [one if isinstance(one, bool) else (one[0], one[1], to_wire(one[2])) for one in conditions]


class Monitor:
    """A `Following` combined with a server's schema."""

    def __init__(self, following: Following, schema: Schema) -> None:
        self.following = following
        self.missing: list[str] = []
        """Tables ("T") and columns ("T.c") that the server does not have with the expected type."""
        self.columns: dict[str, dict[str, _Column]] = {}
        self._types = following.rows()
        for table, columns in following.tables.items():
            self._choose(table, columns, schema)
        self._decoder = _decoder(tuple((table, self._types[table]) for table in self.columns))

    def _choose(self, table: str, columns: Sequence[str] | None, schema: Schema) -> None:
        row = self._types[table]
        there = schema.tables.get(table)
        if there is None:
            self.missing.append(table)
            return
        hints = _hints(row)
        chosen = {}
        for column in hints if columns is None else columns:
            kind = there.columns.get(column)
            convert = None if kind is None else converter(hints[column], kind)
            if kind is None or convert is None:
                self.missing.append(f"{table}.{column}")
            else:
                chosen[column] = _Column(convert, kind.is_composite)
        self.columns[table] = chosen

    def request(self, *, conditions: bool = True) -> dict[str, Any]:
        """Return the request, by table; without `conditions` as in RFC 7047."""
        asked: dict[str, Any] = {}
        for table, columns in self.columns.items():
            one: dict[str, Any] = {"columns": list(columns)}
            where = self.following.conditions.get(table)
            if conditions and where is not None:
                one["where"] = where_to_wire(where)
            asked[table] = [one] if conditions else one
        return asked

    def decode(self, data: Raw | bytes) -> Updates:
        """Return decoded <table-updates2>."""
        try:
            message = self._decoder.decode(data)
        except msgspec.ValidationError:
            return self._decode_slowly(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
            raise RemoteError(f"not table updates: {problem}") from problem
        found = Updates({}, {}, {})
        for table in self.columns:
            if updates := getattr(message, table):
                _sort_out(table, updates, found)
        return found

    def _decode_slowly(self, data: Raw | bytes) -> Updates:
        """Do the same by column: values that msgspec's types refuse may be valid, such as ["set", ["x"]] for "x"."""
        message = _read(_fallback, data)
        found = Updates({}, {}, {})
        for table, updates in message.items():
            if table not in self.columns:
                continue
            for uuid, update in updates.items():
                match update:
                    case {"initial": dict() as row} | {"insert": dict() as row}:
                        found.whole.setdefault(table, {})[Uuid(uuid)] = self.row(table, uuid, row)
                    case {"modify": dict() as row}:
                        found.changed.setdefault(table, {})[Uuid(uuid)] = row
                    case {"delete": _}:
                        found.gone.setdefault(table, []).append(Uuid(uuid))
                    case _:
                        raise RemoteError(f"empty update of a row of {table}")
        return found

    def decode_old(self, data: Raw | bytes) -> Updates:
        """Return decoded <table-updates> of RFC 7047."""
        message = _read(_old, data)
        found = Updates({}, {}, {})
        for table, updates in message.items():
            if table not in self.columns:
                continue
            for uuid, update in updates.items():
                if update.new is None:
                    found.gone.setdefault(table, []).append(Uuid(uuid))
                else:
                    found.whole.setdefault(table, {})[Uuid(uuid)] = self.row(table, uuid, update.new)
        return found

    def row(self, table: str, uuid: str, wire: Mapping[str, Any]) -> Row:
        """Return a row from columns in wire notation."""
        columns = self.columns[table]
        try:
            values = {name: columns[name].convert(value) for name, value in wire.items() if name in columns}
        except (TypeError, ValueError) as problem:
            raise RemoteError(f"malformed row of {table}: {problem}") from problem
        return self._types[table](**values, _uuid=Uuid(uuid))

    def changed(self, table: str, row: Row, difference: Mapping[str, Any]) -> Row:
        """Return a row with a difference applied."""
        columns = self.columns[table]
        try:
            values = {
                name: _apply(getattr(row, name), columns[name].convert(value), columns[name].composite)
                for name, value in difference.items()
                if name in columns
            }
        except (TypeError, ValueError) as problem:
            raise RemoteError(f"malformed change of a row of {table}: {problem}") from problem
        return msgspec.structs.replace(row, **values)


def _read(decode: Callable[[Raw | bytes], T], data: Raw | bytes) -> T:
    """Return decoded bytes, or raise `RemoteError`."""
    try:
        return decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        raise RemoteError(f"not table updates: {problem}") from problem


def _sort_out(table: str, updates: dict[str, Any], found: Updates) -> None:
    whole: dict[Uuid, Row] = {}
    for uuid, update in updates.items():
        row = update.insert or update.initial
        if row is not None:
            name = Uuid(uuid)
            force_setattr(row, "_uuid", name)
            whole[name] = row
        elif update.modify is not None:
            found.changed.setdefault(table, {})[Uuid(uuid)] = update.modify
        elif update.delete is not UNSET:
            found.gone.setdefault(table, []).append(Uuid(uuid))
        else:
            raise RemoteError(f"empty update of a row of {table}")
    if whole:
        found.whole[table] = whole


def _apply(value: Wire, difference: Wire, composite: bool) -> Wire:
    if not composite:
        return difference
    if isinstance(value, frozenset):
        return value ^ difference
    result = dict(value)
    for key, one in difference.items():
        if key in result and result[key] == one:
            del result[key]
        else:
            result[key] = one
    return result


_CHECKS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: type(value) is str,
    int: lambda value: type(value) is int,
    float: lambda value: type(value) in (int, float),
    bool: lambda value: type(value) is bool,
}
_NAMES = {"string": str, "integer": int, "real": float, "boolean": bool, "uuid": Uuid}


def converter(hint: Wire, kind: ColumnType) -> Callable[[Any], Any] | None:
    """Return a function from wire notation to our value, or None if the server's column has another type."""
    atom = _NAMES[kind.key.type]
    if isinstance(hint, Shape):
        return hint.convert if hint.accepts(kind.shape) else None
    if kind.is_map or kind.is_set:
        return None
    if hint is Uuid:
        return uuid_from_wire if atom is Uuid and kind.is_required else None
    optional = hint not in _CHECKS
    expected = next(iter(set(hint.__args__) - {type(None)})) if optional else hint
    if expected is not atom or (kind.is_optional and not optional):
        return None
    check = _CHECKS[expected]

    def convert(wire: Wire) -> Wire:
        value = optional_from_wire(wire) if optional else wire
        if not optional if value is None else not check(value):
            raise ValueError(f"{wire!r} is not {expected.__name__}")
        return value

    return convert
