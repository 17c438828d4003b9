"""The uuids of references: of existing rows, and of rows to insert.  Pure.

A reference to a desired row that does not exist inserts it. A row that cannot exist unreferenced needs a row that holds
it, or the server deletes it at once: which row holds which is recorded here too.
"""

from collections.abc import Callable, Collection

from netloom.drivers.northbound.observed import NAMED, ObservedRows
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Member, Ref

TAKEN = "NameTaken"


class Targets:
    """The rows that references can name, in one comparison."""

    def __init__(
        self, wanted: DesiredRows, seen: ObservedRows, new_uuid: Callable[[], str], held: Collection[Unit]
    ) -> None:
        self.problems: dict[Unit, Problem] = {}
        self.blocked: dict[Unit, tuple[str, str]] = {}
        self.new: dict[Ref, str] = {}
        """Rows to insert."""
        self.todo: list[Ref] = []
        """Those of them without columns yet."""
        self.covered: Collection[Ref] = ()
        """The rows that the comparison covers."""
        self.uncovered = False
        """Whether another row is to be inserted, whose memberships the comparison does not cover."""
        self._wanted = wanted
        self._seen = seen
        self._shape = seen.shape
        self._new_uuid = new_uuid
        self._held = held
        self._safe: set[Ref] = set()
        """New rows that an existing row holds."""
        self._holders: dict[Ref, list[Ref]] = {}
        """The new rows that hold a new row."""

    def resolve(self, ref: Ref) -> str | None:
        """Return the uuid of a desired row, existing or new; None: it is not possible."""
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
        text = f"the northbound database has a {ref.table} named {name!r} that is not Netloom's: rename or delete it"
        self.problems[unit] = Problem(TAKEN, text)
        self.blocked[unit] = (ref.table, str(name))
        return False

    def hold(self, ref: Ref, holder: Ref | None) -> None:
        """Record that a new row is held: by another new one, or (None) by an existing one."""
        if holder is None:
            self._safe.add(ref)
        else:
            self._holders.setdefault(ref, []).append(holder)

    def dead(self) -> set[str]:
        """Return the new rows that no row would hold."""
        safe, known = self._safe, dict[Ref, bool]()
        return {uuid for ref, uuid in self.new.items() if ref not in safe and not self._alive(ref, known)}

    def _alive(self, ref: Ref, known: dict[Ref, bool]) -> bool:
        if ref in known:
            return known[ref]
        if ref in self._safe or self._shape[ref.table].root:
            return True
        known[ref] = False  # Rows that hold only each other are not held.
        found = any(self._alive(holder, known) for holder in self._holders.get(ref, ()))
        known[ref] = found
        return found


def meets(in_flight: Collection[Ref], delta: Delta) -> bool:
    """Return whether a delta concerns rows in flight, whose final state is not certain."""
    return (
        any(ref in in_flight for ref in delta.rows)
        or any(one.row in in_flight for one in delta.joined)
        or any(one.row in in_flight or one.value in in_flight for one in delta.left)
    )


class Sent:
    """What was sent and may not have arrived yet, so that the observed rows do not show it.

    Only an inserted row can be used before it is observed. A second change of something that was changed, removed,
    joined or left cannot be compared with the observed rows.
    """

    def __init__(self) -> None:
        self._rows: set[Ref] = set()
        self._members: set[tuple[Ref, str, object]] = set()

    def meets(self, delta: Delta) -> bool:
        """Return whether a delta changes something again; if not, record it as sent."""
        members = {(one.row, one.column, one.key or one.value) for some in (delta.joined, delta.left) for one in some}
        if not (self._rows.isdisjoint(delta.rows) and self._members.isdisjoint(members)):
            return True
        self._rows.update(delta.rows)
        self._members |= members
        return False


def order(member: Member) -> tuple[Ref, str, str, str]:
    """Return the sort key of a member."""
    return member.row, member.column, member.key, str(member.value)
