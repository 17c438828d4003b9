"""What the tests of the plan share: resources from YAML, what is wanted as JSON, and a check by the real schema."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from netloom.model import codec
from netloom.model.document import Resource
from netloom.model.registry import KINDS
from netloom.model.schemas.validation import admit
from netloom.ovsdb.schema import BaseType, ColumnType, Schema
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Ref
from netloom.plan.world.world import Port

SCHEMA = Path("/usr/share/ovn/ovn-nb.ovsschema")
"""Of Debian's package ovn-common."""


def resources(text: str) -> list[Resource]:
    """Return the resources of a YAML text; their namespace is `default`, and their status may be given."""
    found = []
    for document in codec.documents(text):
        document.setdefault("apiVersion", "netloom.dev/v1alpha1")
        kind = KINDS.kind(document["apiVersion"], document["kind"])
        metadata = document.setdefault("metadata", {})
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        admit(kind, copy.deepcopy(document))  # A case is something the API would take.
        found.append(kind.decode(msgspec.json.encode(document)))
    return found


def unit_of(resource: Resource) -> Unit:
    return Unit(resource.kind, resource.metadata.namespace, resource.metadata.name)


def planned(*specs: str | Resource | Port) -> Planner:
    """Return a planner that has planned some resources, given as such or as YAML."""
    planner = Planner()
    for spec in specs:
        for resource in resources(spec) if isinstance(spec, str) else [spec]:
            planner.put(resource)
    planner.flush()
    return planner


def rendered(wanted: DesiredRows) -> dict[str, Any]:
    """Return all that is wanted as JSON has it, sorted."""
    rows: dict[str, Any] = {}
    for ref in sorted(wanted.rows):
        row = wanted.rows[ref]
        assert row.ref == ref
        rows[f"{ref.table} {ref.key}"] = {
            "of": str(wanted.of[ref]),
            "columns": {name: _plain(row.columns[name]) for name in sorted(row.columns)},
            "members": _members(wanted, ref),
        }
    problems = {str(unit): [list(one) for one in wanted.problems[unit]] for unit in sorted(wanted.problems)}
    return {"rows": rows, "problems": problems}


def _members(wanted: DesiredRows, ref: Ref) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, places in sorted(wanted.members(ref).items()):
        if any(place != value for place, value in places.items()):
            found[column] = {place: _plain(places[place]) for place in sorted(places)}
        else:
            found[column] = sorted(map(_plain, places.values()))
    return found


def _plain(value: object) -> Any:
    if isinstance(value, Ref):
        return f"@{value.table} {value.key}"
    if isinstance(value, frozenset):
        return sorted(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    return value


class Database:
    """The most simple database: what is in it is what deltas brought."""

    def __init__(self) -> None:
        self.rows: dict[Ref, Mapping[str, Any]] = {}
        self.members: set[Member] = set()

    def apply(self, wanted: DesiredRows, delta: Delta) -> None:
        """Do what a delta says, and insist that it says nothing else."""
        assert not delta.joined & self.members, "joined twice"
        assert delta.left <= self.members, "left without having joined"
        self.members = (self.members - delta.left) | delta.joined
        for ref in delta.rows:
            if (row := wanted.rows.get(ref)) is not None:
                self.rows[ref] = row.columns
            else:
                self.rows.pop(ref, None)

    def insist(self, wanted: DesiredRows) -> None:
        """Fail unless this is what is wanted."""
        assert self.rows == {ref: row.columns for ref, row in wanted.rows.items()}
        assert {(one.row, one.column, one.key or one.value): one.value for one in self.members} == {
            (ref, column, place): value
            for ref in wanted.rows
            for column, places in wanted.members(ref).items()
            for place, value in places.items()
        }
        for member in self.members:
            assert member.row in self.rows
            assert not isinstance(member.value, Ref) or member.value in self.rows


@cache
def northbound() -> Schema:
    assert SCHEMA.exists(), f"{SCHEMA} is missing: apt-get install ovn-common"
    return Schema.parse(SCHEMA.read_bytes())


def offences(wanted: DesiredRows) -> Iterator[str]:
    """Give what the real northbound database would refuse, and references to rows that nobody plans."""
    for ref, row in wanted.rows.items():
        table = northbound().tables.get(ref.table)
        if table is None:
            yield f"there is no table {ref.table}"
            continue
        added = wanted.members(ref)
        for name in added.keys() & row.columns.keys():
            yield f"{ref}.{name} has members and is a column of its own"
        values = {**row.columns, **{name: _column(places) for name, places in added.items()}}
        for name, value in values.items():
            if (column := table.columns.get(name)) is None:
                yield f"{ref.table} has no column {name}"
                continue
            yield from (f"{ref}.{name}: {text}" for text in _column_offences(column, value))
            for one in _refs(value):
                if one not in wanted.rows:
                    yield f"{ref}.{name}: {one} is not planned"
        if table.is_root is False and not _is_held(wanted, ref):
            yield f"{ref} is of a table without roots, and nothing refers to it"


def _column(places: Mapping[Any, Any]) -> Any:
    is_map = any(place != value for place, value in places.items())
    return dict(places) if is_map else frozenset(places.values())


def _column_offences(column: ColumnType, value: Any) -> Iterator[str]:
    if column.is_map:
        if not isinstance(value, Mapping):
            yield f"{value!r} is no map"
            return
        for key, one in value.items():
            yield from _atom_offences(column.key, key)
            assert column.value is not None
            yield from _atom_offences(column.value, one)
    elif column.is_set:
        if not isinstance(value, frozenset):
            yield f"{value!r} is no frozenset"
            return
        for one in value:
            yield from _atom_offences(column.key, one)
    elif value is not None or column.is_required:
        yield from _atom_offences(column.key, value)


INFINITE = float("inf")
_TYPES = {"integer": int, "real": float, "boolean": bool, "string": str, "uuid": Ref}


def _atom_offences(base: BaseType, value: Any) -> Iterator[str]:
    if type(value) is not _TYPES[base.type]:
        yield f"{value!r} is no {base.type}"
        return
    if base.enum is not None and value not in base.enum:
        yield f"{value!r} is none of {base.enum}"
    if isinstance(value, Ref) and value.table != base.ref_table:
        yield f"{value!r} is no reference to {base.ref_table}"
    size = len(value) if isinstance(value, str) else value if isinstance(value, int | float) else None
    if size is None:
        return
    low = -INFINITE if base.minimum is None else base.minimum
    high = INFINITE if base.maximum is None else base.maximum
    if not low <= size <= high:
        yield f"{value!r} is not between {base.minimum} and {base.maximum}"


def _refs(value: Any) -> Iterable[Ref]:
    every = value if isinstance(value, frozenset) else [value]
    return [one for one in every if isinstance(one, Ref)]


def _is_held(wanted: DesiredRows, ref: Ref) -> bool:
    return any(
        ref in _refs(value)
        for row in wanted.rows.values()
        for value in [*row.columns.values(), *(frozenset(p.values()) for p in wanted.members(row.ref).values())]
    )
