"""The schema of a database (RFC 7047, section 3.2): its tables and the types of their columns.  Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from netloom.ovsdb.errors import RemoteError

UNLIMITED = 1 << 62

ATOMS = frozenset({"integer", "real", "boolean", "string", "uuid"})


class BaseType(Struct, frozen=True):
    """The type of an atom."""

    type: str
    enum: tuple[Any, ...] | None = None
    minimum: float | None = None
    """minInteger, minReal or minLength."""
    maximum: float | None = None
    ref_table: str = ""
    ref_weak: bool = False


class ColumnType(Struct, frozen=True):
    """The type of a column: a map if there is a value type, else a set, an optional or a required atom."""

    key: BaseType
    value: BaseType | None = None
    min: int = 1
    max: int = 1
    mutable: bool = True
    ephemeral: bool = False

    @property
    def is_map(self) -> bool:
        """Whether it holds key-value pairs."""
        return self.value is not None

    @property
    def is_optional(self) -> bool:
        """Whether it holds one atom or none."""
        return self.value is None and (self.min, self.max) == (0, 1)

    @property
    def is_required(self) -> bool:
        """Whether it holds exactly one atom."""
        return self.value is None and (self.min, self.max) == (1, 1)

    @property
    def is_set(self) -> bool:
        """Whether it may hold several atoms."""
        return self.value is None and self.max > 1

    @property
    def is_composite(self) -> bool:
        """Whether its changes are sent as differences (`update2`)."""
        return self.max > 1

    @property
    def shape(self) -> tuple[str, str, str]:
        """The shape of its values in Python."""
        kind = "map" if self.is_map else "set" if self.is_set else "optional" if self.is_optional else "required"
        return kind, self.key.type, self.value.type if self.value else ""


class TableSchema(Struct, frozen=True):
    """One table."""

    columns: Mapping[str, ColumnType]
    max_rows: int = UNLIMITED
    is_root: bool = False
    indexes: tuple[tuple[str, ...], ...] = ()


class Schema(Struct, frozen=True):
    """One database."""

    name: str
    version: str
    tables: Mapping[str, TableSchema]
    checksum: str = ""

    @classmethod
    def parse(cls, source: bytes | str | Mapping[str, Any]) -> "Schema":
        """Return the schema in a JSON text or document."""
        try:
            document = msgspec.json.decode(source) if isinstance(source, (bytes, str)) else source
            tables = {name: _table(table) for name, table in document["tables"].items()}
            # As in ovsdb-server: if no table is marked as a root, all are, for schemas older than this mark.
            if not any(table.is_root for table in tables.values()):
                tables = {name: msgspec.structs.replace(table, is_root=True) for name, table in tables.items()}
            return cls(
                name=str(document["name"]),
                version=str(document.get("version", "")),
                tables=tables,
                checksum=str(document.get("cksum", "")),
            )
        except (msgspec.DecodeError, AttributeError, LookupError, TypeError, ValueError) as problem:
            raise RemoteError(f"not a database schema: {problem!r}") from problem


def _table(document: Mapping[str, Any]) -> TableSchema:
    return TableSchema(
        columns={name: _column(column) for name, column in document["columns"].items()},
        max_rows=int(document.get("maxRows", UNLIMITED)),
        is_root=bool(document.get("isRoot", False)),
        indexes=tuple(tuple(index) for index in document.get("indexes", ())),
    )


def _column(document: Mapping[str, Any]) -> ColumnType:
    mutable, ephemeral = bool(document.get("mutable", True)), bool(document.get("ephemeral", False))
    kind = document["type"]
    if isinstance(kind, str):
        return ColumnType(_base(kind), mutable=mutable, ephemeral=ephemeral)
    most = kind.get("max", 1)
    return ColumnType(
        key=_base(kind["key"]),
        value=_base(kind["value"]) if "value" in kind else None,
        min=int(kind.get("min", 1)),
        max=UNLIMITED if most == "unlimited" else int(most),
        mutable=mutable,
        ephemeral=ephemeral,
    )


def _base(document: str | Mapping[str, Any]) -> BaseType:
    if isinstance(document, str):
        document = {"type": document}
    kind = document["type"]
    if kind not in ATOMS:
        raise ValueError(f"{kind!r} is not a type")
    enum = document.get("enum")
    if enum is not None:
        enum = tuple(enum[1]) if isinstance(enum, list) and enum and enum[0] == "set" else (enum,)
    return BaseType(
        type=kind,
        enum=enum,
        minimum=_limit(document, "minInteger", "minReal", "minLength"),
        maximum=_limit(document, "maxInteger", "maxReal", "maxLength"),
        ref_table=str(document.get("refTable", "")),
        ref_weak=document.get("refType") == "weak",
    )


def _limit(document: Mapping[str, Any], *names: str) -> float | None:
    return next((document[name] for name in names if name in document), None)
