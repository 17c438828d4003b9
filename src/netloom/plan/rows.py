"""What must exist in a database: rows, the sets they are members of, and what could not be planned.  Pure.

A resource is planned by itself: its `Outcome` is the rows it needs (`Row`), what it adds to sets and maps of rows that
other resources need (`Member`: a port is a member of its switch's `ports`), and its problems. All outcomes together are
the wanted database. So one changed attachment among many costs one outcome and one small transaction, and one bad
resource costs that resource.

A row is known by its table and its key. The key is made from what the row stands for, never from chance or order: the
same wish always gives the same key, and the driver finds its rows again by the key they carry in `external_ids`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.plan.problem import Problem


class Ref(NamedTuple):
    """Which planned row.  As a column's value: a reference to it."""

    table: str
    key: str


Atom = str | int | float | bool | Ref
Column = Atom | frozenset[str] | frozenset[int] | frozenset[Ref] | Mapping[str, str] | Mapping[str, int] | None
"""A column as OVSDB has it: required (an atom), optional (an atom or None), a set (frozenset), a map."""


class Row(Struct, frozen=True, gc=False):
    """One row.  Its columns are all that are ours in it: the driver leaves the others as they are.

    `external_ids` may be among them: the driver adds the owner to it.
    """

    table: str
    key: str
    columns: Mapping[str, Column]

    @property
    def ref(self) -> Ref:
        """The way to refer to it."""
        return Ref(self.table, self.key)


class Member(NamedTuple):
    """One element of a set column, or with `key` one entry of a map column, of a row some resource plans.

    A member of a row that nobody plans is not written: it waits until somebody does. A column that has members is never
    among the row's own columns.
    """

    row: Ref
    column: str
    value: str | int | Ref
    key: str = ""


class Outcome(Struct):
    """What one resource comes to."""

    rows: list[Row] = []
    members: list[Member] = []
    problems: list[Problem] = []
