"""What must exist in a database: rows, the sets they are members of, and what could not be planned.  Pure.

Each resource is planned by itself: its `Outcome` is the rows it needs (`Row`), what it adds to sets and maps of other
resources' rows (`Member`: a port is a member of its switch's `ports`), and its problems. All outcomes together are the
desired database. So one changed attachment among many costs one outcome and one small transaction, and an invalid
resource costs that resource only.

A row is identified by its table and its key. The key is made from what the row represents, never from random numbers or
the order of events: the same spec always gives the same key, and the driver finds its rows again by the key that they
carry in `external_ids`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from netloom.plan.problem import Problem


class Ref(NamedTuple):
    """The identity of a planned row.  As a column's value, a reference to it."""

    table: str
    key: str


Atom = str | int | float | bool | Ref
Column = Atom | frozenset[str] | frozenset[int] | frozenset[Ref] | Mapping[str, str] | Mapping[str, int] | None
"""A column as OVSDB has it: required (an atom), optional (an atom or None), a set (frozenset), a map."""


class Row(Struct, frozen=True, gc=False):
    """One row.  The driver writes these columns and leaves all others as they are.

    `external_ids` may be among them: the driver adds the owner to it.
    """

    table: str
    key: str
    columns: Mapping[str, Column]

    @property
    def ref(self) -> Ref:
        """A reference to it."""
        return Ref(self.table, self.key)


class Member(NamedTuple):
    """One element of a set column, or with `key` one entry of a map column, of a planned row.

    A member of a row that no resource plans is not written until one does. A column that has members is never among the
    row's own columns.
    """

    row: Ref
    column: str
    value: str | int | Ref
    key: str = ""


class Outcome(Struct):
    """The plan of one resource."""

    rows: list[Row] = []
    members: list[Member] = []
    problems: list[Problem] = []

    def add(self, row: Row, to: Ref, column: str) -> None:
        """Add a row that is a member of another one."""
        self.rows.append(row)
        self.members.append(Member(to, column, row.ref))

    def report(self, reason: str, message: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(reason, message))
