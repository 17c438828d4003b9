"""All outcomes together: the desired rows, and what changed in them.  Pure.

A resource's outcome replaces its previous one; the changes accumulate until `take` returns them as a delta. Deltas,
applied one after another, always result in the desired rows: a member has *joined* when it became part of a planned row
and *left* when it no longer is, also because one of the rows it connects was added or removed.

Rules that make the result independent of the order of replacements:

- A member counts when its row is planned, and the row that it refers to as well. The same member given by several
  resources is one.
- Of several values for one key of a map the smallest is used.
- Of several resources that plan the same row the smallest has it. The others get a problem, and their members of that
  row, or that refer to it, do not count.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Member, Outcome, Ref, Row

Value = str | int | Ref


class Delta(Struct):
    """What changed.  Members of a removed row are among those that left."""

    rows: set[Ref] = set()
    """Created, changed in their own columns, or removed."""
    joined: set[Member] = set()
    left: set[Member] = set()
    problems: set[Unit] = set()
    """The resources whose problems changed."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.joined or self.left or self.problems)


class _Parts(Struct, gc=False):
    """The contributions of a unit."""

    rows: tuple[Row, ...]
    members: tuple[Member, ...]
    problems: tuple[Problem, ...]
    given: tuple[Member, ...]
    """The members that count: all, unless a row was lost to another unit."""


_NONE = _Parts((), (), (), ())


class DesiredRows:
    """The desired rows, and the units that they belong to."""

    def __init__(self) -> None:
        self.rows: dict[Ref, Row] = {}
        self.of: dict[Ref, Unit] = {}
        """The unit of each row."""
        self.problems: dict[Unit, tuple[Problem, ...]] = {}
        self._parts: dict[Unit, _Parts] = {}
        self._claims: dict[Ref, set[Unit]] = {}
        """The units that plan a row, where that is more than one."""
        self._columns: dict[Ref, dict[str, dict[Value, Member]]] = {}
        """Given members, by row, column and slot: the key in a map, the value in a set."""
        self._counts: dict[Member, int] = {}
        """How many units gave a member, where that is more than one."""
        self._rivals: dict[tuple[Ref, str, str], set[Member]] = {}
        """The members for one key of a map, where they have different values."""
        self._naming: dict[Ref, Member | set[Member]] = {}
        """Members by the row they refer to: one, in most cases, or several."""
        self._delta = Delta()

    def take(self) -> Delta:
        """Return what changed since the last call."""
        taken, self._delta = self._delta, Delta()
        return taken

    def has_members(self, ref: Ref) -> bool:
        """Return whether a row has members, including those that do not count yet."""
        return ref in self._columns

    def members(self, ref: Ref) -> Mapping[str, Mapping[Value, Value]]:
        """Return the members of a row that count, by column, then by map key (or, in a set, by value)."""
        if ref not in self.rows:
            return {}
        found: dict[str, dict[Value, Value]] = {}
        for member in self._effective(ref):
            found.setdefault(member.column, {})[member.key or member.value] = member.value
        return found

    def replace(self, unit: Unit, outcome: Outcome | None) -> None:
        """Replace the outcome of a unit; None: the unit was removed."""
        old = self._parts.get(unit, _NONE)
        if outcome is None:
            new = _Parts((), (), (), old.given)
            self._parts.pop(unit, None)
        else:
            members = tuple(dict.fromkeys(outcome.members))
            new = self._parts[unit] = _Parts(tuple(outcome.rows), members, tuple(outcome.problems), old.given)
        unsettled = self._claim(unit, old.rows, new.rows)
        self._settle(unit, new)
        for other in unsettled - {unit}:
            self._settle(other, self._parts[other])

    def _claim(self, unit: Unit, old: tuple[Row, ...], new: tuple[Row, ...]) -> set[Unit]:
        """Assign a unit's rows to it; return the other units that plan the same rows."""
        unsettled: set[Unit] = set()
        if old:
            for ref in {row.ref for row in old}.difference([row.ref for row in new]):
                self._release(unit, ref, unsettled)
        for row in new:
            ref = Ref(row.table, row.key)
            holder = self.of.get(ref)
            if holder is None:
                if ref in self._naming or ref in self._columns:
                    self._plan(ref, row)
            elif holder == unit:
                if self.rows[ref] == row:
                    continue
            else:
                claims = self._claims.setdefault(ref, {holder})
                claims.add(unit)
                if holder < unit:
                    continue
                unsettled |= claims
            self.rows[ref] = row
            self.of[ref] = unit
            self._delta.rows.add(ref)
        return unsettled

    def _release(self, unit: Unit, ref: Ref, unsettled: set[Unit]) -> None:
        claims = self._claims.get(ref, set())
        claims.discard(unit)
        if len(claims) == 1:
            del self._claims[ref]
        if self.of[ref] != unit:
            return
        if not claims:
            self._unplan(ref)
            return
        heir = self.of[ref] = min(claims)
        self.rows[ref] = next(row for row in self._parts[heir].rows if row.ref == ref)
        self._delta.rows.add(ref)
        unsettled |= claims

    def _settle(self, unit: Unit, parts: _Parts) -> None:
        """Update the members and problems of a unit."""
        lost = {row.ref for row in parts.rows if self.of[row.ref] != unit} if self._claims else None
        given, problems = parts.members, parts.problems
        if lost:
            given = tuple(one for one in given if one.row not in lost and one.value not in lost)
            problems += tuple(
                Problem("Conflict", f"{ref.table} {ref.key} belongs to {self.of[ref]} already") for ref in sorted(lost)
            )
        before, parts.given = parts.given, given
        if not before:
            self._give(given)
        elif before != given:
            old, new = set(before), set(given)
            for member in old - new:
                self._withdraw(member)
            self._give(new - old)
        if (problems or self.problems) and problems != self.problems.get(unit, ()):
            self._delta.problems.add(unit)
            if problems:
                self.problems[unit] = problems
            else:
                del self.problems[unit]

    # Members.

    def _give(self, members: Iterable[Member]) -> None:
        rows, delta = self.rows, self._delta
        for member in members:
            row, column, value, key = member
            columns = self._columns.get(row)
            if columns is None:
                columns = self._columns[row] = {}
            slots = columns.get(column)
            if slots is None:
                slots = columns[column] = {}
            slot = key or value
            present = slots.get(slot)
            if present is None:
                slots[slot] = member
                if type(value) is Ref:
                    self._name(value, member)
                    if value not in rows:
                        continue
                if row not in rows:
                    continue
                if delta.left:
                    self._joined(member)
                else:
                    delta.joined.add(member)
            elif present == member or member in self._rivals.get((row, column, key), ()):
                self._counts[member] = self._counts.get(member, 1) + 1
            else:
                self._compete(member, present)

    def _compete(self, member: Member, present: Member) -> None:
        """Add a value for a key of a map that has another value."""
        before = self._counting(member)
        self._rivals.setdefault((member.row, member.column, member.key), {present}).add(member)
        if isinstance(member.value, Ref):
            self._name(member.value, member)
        self._update_slot(member, before)

    def _withdraw(self, member: Member) -> None:
        count = self._counts.get(member, 1) - 1
        if count:
            if count == 1:
                del self._counts[member]
            else:
                self._counts[member] = count
            return
        row, column, value, key = member
        before = self._counting(member)
        if isinstance(value, Ref):
            self._unname(value, member)
        rivals = self._rivals.get((row, column, key))
        if rivals is None or member not in rivals:
            self._vacate(row, column, key or value)
        else:
            rivals.discard(member)
            self._columns[row][column][key] = next(iter(rivals))
            if len(rivals) == 1:
                del self._rivals[row, column, key]
        self._update_slot(member, before)

    def _vacate(self, row: Ref, column: str, slot: Value) -> None:
        columns = self._columns[row]
        slots = columns[column]
        del slots[slot]
        if not slots:
            del columns[column]
        if not columns:
            del self._columns[row]

    def _name(self, ref: Ref, member: Member) -> None:
        present = self._naming.setdefault(ref, member)
        if present is member:
            return
        if isinstance(present, set):
            present.add(member)
        else:
            self._naming[ref] = {present, member}

    def _unname(self, ref: Ref, member: Member) -> None:
        present = self._naming[ref]
        if isinstance(present, set):
            present.discard(member)
        if not present or present == member:
            del self._naming[ref]

    def _naming_now(self, ref: Ref) -> list[tuple[Member, Member | None]]:
        """Return the members of other rows that refer to a row, each with the one that counts in its slot."""
        naming = self._naming.get(ref)
        if naming is None:
            return []
        every = naming if isinstance(naming, set) else (naming,)
        return [(one, self._counting(one)) for one in every if one.row != ref]

    def _update_slot(self, slot: Member, before: Member | None) -> None:
        """Record which member counts in a slot now, where another did before."""
        after = self._counting(slot)
        if after == before:
            return
        if before is not None:
            self._left(before)
        if after is not None:
            self._joined(after)

    def _counting(self, slot: Member) -> Member | None:
        """Return the member that counts in a member's slot."""
        row, column, value, key = slot
        if row not in self.rows:
            return None
        present = self._columns.get(row, _EMPTY).get(column, {}).get(key or value)
        return None if present is None else self._best(present)

    def _best(self, present: Member) -> Member | None:
        """Return the member of a planned row that counts, of those in one slot."""
        row, column, value, key = present
        if key and (rivals := self._rivals.get((row, column, key))) is not None:
            planned = [one for one in rivals if not isinstance(one.value, Ref) or one.value in self.rows]
            return min(planned, key=_order) if planned else None
        return None if isinstance(value, Ref) and value not in self.rows else present

    def _effective(self, row: Ref) -> Iterator[Member]:
        for slots in self._columns.get(row, _EMPTY).values():
            for present in slots.values():
                if (member := self._best(present)) is not None:
                    yield member

    def _plan(self, ref: Ref, row: Row) -> None:
        """Add a planned row: count its members, and the members that refer to it."""
        before = self._naming_now(ref)
        self.rows[ref] = row
        for member in self._effective(ref):
            self._joined(member)
        for one, was in before:
            self._update_slot(one, was)

    def _unplan(self, ref: Ref) -> None:
        before = self._naming_now(ref)
        for member in self._effective(ref):
            self._left(member)
        self._delta.rows.add(ref)
        del self.rows[ref], self.of[ref]
        for one, was in before:
            self._update_slot(one, was)

    def _joined(self, member: Member) -> None:
        delta = self._delta
        if delta.left and member in delta.left:
            delta.left.discard(member)
        else:
            delta.joined.add(member)

    def _left(self, member: Member) -> None:
        delta = self._delta
        if delta.joined and member in delta.joined:
            delta.joined.discard(member)
        else:
            delta.left.add(member)


_EMPTY: dict[str, dict[Value, Member]] = {}


def _order(member: Member) -> tuple[str, str]:
    return type(member.value).__name__, str(member.value)
