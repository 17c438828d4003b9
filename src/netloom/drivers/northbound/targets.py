"""Which uuids references have: of rows that are there, and of rows that are to be inserted.  Pure.

Whoever refers to a row that is wanted and not there has it inserted. A row that cannot live alone must be held by
another, or it is gone as soon as it is inserted: who holds what is kept here too.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from netloom.drivers.northbound.observed import NAMED, ObservedRows
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Member, Ref, Row

TAKEN = "NameTaken"


class Desired(Protocol):
    """What is wanted, as the planner keeps it."""

    @property
    def rows(self) -> Mapping[Ref, Row]:
        """All rows."""

    @property
    def of(self) -> Mapping[Ref, Unit]:
        """Which resource a row is for."""

    def has_members(self, ref: Ref) -> bool:
        """Return whether there may be members of a row."""

    def members(self, ref: Ref) -> Mapping[str, Mapping[Any, Any]]:
        """Return a row's members: by column, the values by themselves or by their key."""


class Changes(Protocol):
    """What changed in what is wanted."""

    @property
    def rows(self) -> Collection[Ref]:
        """Rows that came, changed or went."""

    @property
    def joined(self) -> Collection[Member]:
        """Members that came."""

    @property
    def left(self) -> Collection[Member]:
        """Members that went."""


class Targets:
    """What can be referred to, in one look."""

    def __init__(
        self, wanted: Desired, seen: ObservedRows, new_uuid: Callable[[], str], held: Collection[Unit]
    ) -> None:
        self.problems: dict[Unit, Problem] = {}
        self.blocked: dict[Unit, tuple[str, str]] = {}
        self.new: dict[Ref, str] = {}
        """Rows to insert."""
        self.todo: list[Ref] = []
        """Those of them that nobody has seen to yet."""
        self.covered: Collection[Ref] = ()
        """The rows that are looked at."""
        self.uncovered = False
        """Whether another one is to be inserted: what it is a member of has not changed, and is not known here."""
        self._wanted = wanted
        self._seen = seen
        self._shape = seen.shape
        self._new_uuid = new_uuid
        self._held = held
        self._safe: set[Ref] = set()
        """New rows that are held by one that is there."""
        self._holders: dict[Ref, list[Ref]] = {}
        """For each new row the new rows that hold it."""

    def resolve(self, ref: Ref) -> str | None:
        """Return the uuid of a wanted row, there or new; None: it cannot be had."""
        if ref not in self._wanted.rows:
            return None
        uuid = self._seen.uuids.get(ref) or self.new.get(ref) or self._seen.in_flight.get(ref)
        if uuid is not None:
            return uuid
        unit = self._wanted.of[ref]
        if unit in self._held or unit in self.problems or not self._possible(unit, ref):
            return None
        uuid = self.new[ref] = self._new_uuid()
        self.todo.append(ref)
        if ref not in self.covered:
            self.uncovered = True
        return uuid

    def _possible(self, unit: Unit, ref: Ref) -> bool:
        table = self._shape.get(ref.table)
        if table is None:
            self.problems[unit] = Problem("Unsupported", f"this OVN has no table {ref.table}")
            return False
        if not (table.unique or ref.table in NAMED):
            return True
        name = self._wanted.rows[ref].columns.get("name")
        if not name or (ref.table, name) not in self._seen.taken:
            return True
        text = f"a {ref.table} called {name!r} that is not Netloom's is in the northbound database: rename or remove it"
        self.problems[unit] = Problem(TAKEN, text)
        self.blocked[unit] = (ref.table, str(name))
        return False

    def hold(self, ref: Ref, holder: Ref | None) -> None:
        """Know that a new row is held: by another new one, or (None) by one that is there."""
        if holder is None:
            self._safe.add(ref)
        else:
            self._holders.setdefault(ref, []).append(holder)

    def dead(self) -> set[str]:
        """Return the new rows that nothing would hold."""
        safe, known = self._safe, dict[Ref, bool]()
        return {uuid for ref, uuid in self.new.items() if ref not in safe and not self._alive(ref, known)}

    def _alive(self, ref: Ref, known: dict[Ref, bool]) -> bool:
        if ref in known:
            return known[ref]
        if ref in self._safe or self._shape[ref.table].root:
            return True
        known[ref] = False  # Two rows that hold only each other hold nothing.
        found = any(self._alive(holder, known) for holder in self._holders.get(ref, ()))
        known[ref] = found
        return found


def meets(in_flight: Collection[Ref], delta: Changes) -> bool:
    """Whether what changed has to do with rows that are on their way: what those will be is not known for sure."""
    return (
        any(ref in in_flight for ref in delta.rows)
        or any(one.row in in_flight for one in delta.joined)
        or any(one.row in in_flight or one.value in in_flight for one in delta.left)
    )


class Sent:
    """What was sent and may not have arrived: who looks at what is seen does not see it.

    Only a row that is inserted can be counted on before it is seen. What was changed, removed, joined or left, and is
    to be otherwise again, cannot be compared with what is seen now.
    """

    def __init__(self) -> None:
        self._rows: set[Ref] = set()
        self._members: set[tuple[Ref, str, object]] = set()

    def meets(self, delta: Changes) -> bool:
        """Whether something changed again; if not, it counts as sent from now on."""
        members = {(one.row, one.column, one.key or one.value) for some in (delta.joined, delta.left) for one in some}
        if not (self._rows.isdisjoint(delta.rows) and self._members.isdisjoint(members)):
            return True
        self._rows.update(delta.rows)
        self._members |= members
        return False


def order(member: Member) -> tuple[Ref, str, str, str]:
    """Return what members are sorted by."""
    return member.row, member.column, member.key, str(member.value)
