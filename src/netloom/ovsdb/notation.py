"""Values on the wire and in Python (RFC 7047, section 5.1).  Pure.

    column           wire                              Python
    required         atom                              atom
    optional         atom or ["set", []]               atom or None
    set              atom or ["set", [atom, ...]]      frozenset
    map              ["map", [[atom, atom], ...]]      dict
    atoms            "x", 1, 1.5, true, ["uuid", "…"]  str, int, float, bool, Uuid

Encoding needs no schema: a value's Python type determines its shape. Decoding does: on the wire a set of one is an
atom. `Shape`s tell msgspec: it decodes atoms itself and passes the others to `decode_shape`, so that a message of
thousands of rows becomes typed rows in one pass.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from netloom.ovsdb.errors import RemoteError


class Uuid(str):
    """The uuid of a row, chosen by the server; as a value, a reference to the row."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


class NamedUuid(Struct, frozen=True, gc=False):
    """A reference to a row that the same transaction inserts."""

    name: str


Atom = str | int | float | bool | Uuid | NamedUuid
Value = Atom | AbstractSet[Any] | Mapping[Any, Any] | None
"""A value of a column."""

Wire = Any
"""A value as JSON."""

ZERO = Uuid("00000000-0000-0000-0000-000000000000")

_PLAIN = frozenset({str, int, float, bool})
_EMPTY = ("set", ())


def atom_to_wire(value: Wire) -> Wire:
    """Return an atom in wire notation."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Uuid:
        return ("uuid", str(value))  # A plain string: msgspec accepts no subclass.
    if kind is NamedUuid:
        return ("named-uuid", value.name)
    if isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{kind.__name__} is not a valid type of a column's value: {value!r}")


def to_wire(value: Value) -> Wire:
    """Return a column's value in wire notation."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if value is None:
        return _EMPTY
    if kind is dict:
        return ("map", _pairs(value))
    if kind is frozenset or isinstance(value, AbstractSet):
        return ("set", [one if type(one) in _PLAIN else atom_to_wire(one) for one in value])  # type: ignore[union-attr]
    if isinstance(value, Mapping):
        return ("map", _pairs(value))
    return atom_to_wire(value)


def _pairs(value: Wire) -> list[tuple[Any, Any]]:
    pairs = list(value.items())
    for key, one in pairs:
        if type(key) not in _PLAIN or type(one) not in _PLAIN:
            return [(atom_to_wire(key), atom_to_wire(one)) for key, one in pairs]
    return pairs


# From the wire. A wrong shape raises TypeError or ValueError: `decode_shape` makes a RemoteError of it. The types of
# atoms are not checked: the server's schema was, before the column was requested.


def uuid_from_wire(wire: Wire) -> Uuid:
    """Return a reference."""
    tag, value = wire
    if tag != "uuid" or type(value) is not str:
        raise ValueError("not a uuid")
    return Uuid(value)


def _elements(wire: Wire) -> Wire:
    """Return the elements; a set of one may be without its brackets."""
    if type(wire) is not list:
        return (wire,)
    tag, elements = wire
    if tag == "set":
        return elements
    if tag == "uuid":
        return (wire,)
    raise ValueError("not a set")


def _set(wire: Wire) -> frozenset[Any]:
    return frozenset(_elements(wire))


def _uuids(wire: Wire) -> frozenset[Uuid]:
    return frozenset([uuid_from_wire(one) for one in _elements(wire)])


def optional_from_wire(wire: Wire) -> Wire:
    """Return an optional atom, or None."""
    if type(wire) is not list:
        return wire
    found = _elements(wire)
    if len(found) > 1:
        raise ValueError("not an optional value")
    return found[0] if found else None


def _optional_uuid(wire: Wire) -> Uuid | None:
    found = optional_from_wire(wire)
    return None if found is None else uuid_from_wire(found)


def _map(wire: Wire) -> dict[Any, Any]:
    tag, pairs = wire
    if tag != "map":
        raise ValueError("not a map")
    return dict(pairs)


def _map_to_uuids(wire: Wire) -> dict[Any, Uuid]:
    return {key: uuid_from_wire(value) for key, value in _map(wire).items()}


class Shape:
    """The type of a column whose values msgspec cannot decode by itself.

    To msgspec it is a generic type of `object`, so that it accepts whatever the converter returns.
    """

    __slots__ = ("__args__", "__parameters__", "convert", "key", "kind", "value")
    __origin__ = object

    def __init__(self, convert: Callable[[Any], Any], kind: str, key: str, value: str = "") -> None:
        self.convert = convert
        self.kind, self.key, self.value = kind, key, value
        self.__args__ = ()
        self.__parameters__ = ()

    def accepts(self, shape: tuple[str, str, str]) -> bool:
        """Return whether it can hold the values of a column of this shape (`schema.ColumnType.shape`)."""
        kind, key, value = shape
        return (key, value) == (self.key, self.value) and kind in _FITS[self.kind]


_FITS = {"map": ("map",), "set": ("set", "optional", "required"), "optional": ("optional", "required")}

if TYPE_CHECKING:
    Strings = frozenset[str]
    Integers = frozenset[int]
    Reals = frozenset[float]
    Booleans = frozenset[bool]
    Uuids = frozenset[Uuid]
    OptionalUuid = Uuid | None
    StringMap = Mapping[str, str]
    StringToInteger = Mapping[str, int]
    StringToUuid = Mapping[str, Uuid]
    IntegerMap = Mapping[int, int]
    IntegerToString = Mapping[int, str]
    IntegerToUuid = Mapping[int, Uuid]
else:
    Strings = Shape(_set, "set", "string")
    Integers = Shape(_set, "set", "integer")
    Reals = Shape(_set, "set", "real")
    Booleans = Shape(_set, "set", "boolean")
    Uuids = Shape(_uuids, "set", "uuid")
    OptionalUuid = Shape(_optional_uuid, "optional", "uuid")
    StringMap = Shape(_map, "map", "string", "string")
    StringToInteger = Shape(_map, "map", "string", "integer")
    StringToUuid = Shape(_map_to_uuids, "map", "string", "uuid")
    IntegerMap = Shape(_map, "map", "integer", "integer")
    IntegerToString = Shape(_map, "map", "integer", "string")
    IntegerToUuid = Shape(_map_to_uuids, "map", "integer", "uuid")


def decode_shape(kind: Wire, wire: Wire) -> Wire:
    """Decode what msgspec cannot: its `dec_hook`."""
    try:
        return kind.convert(wire) if type(kind) is Shape else uuid_from_wire(wire)
    except (TypeError, ValueError, LookupError) as problem:
        raise RemoteError(f"wrong shape of a column's value: {problem}") from problem
