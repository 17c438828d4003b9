"""From desired rows and observed rows to the changes that must be written.  Pure.

    DesiredRows, Delta ──► Comparison ──► bundles, one for each resource, those that others need first

New rows get their uuids here, so that rows of other bundles, and of other transactions that are already in flight, can
refer to them.

What is ours and what is not:

- Columns that the plan has are made equal to it; other columns are left alone. So are entries of `external_ids` that
  are not ours.
- Columns that refer to many rows, and columns that have members, are never replaced: missing values are added, and
  values that the plan does not have are removed if they are rows of ours or plain values. A row of another owner that
  is attached to one of ours stays.
- Rows that cannot exist unreferenced are removed by removing the references to them.

`Comparison(...).delta(delta)` compares what the planner says has changed, `.everything()` compares all rows. A desired
row that is needed and missing is inserted even where the delta does not name it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from netloom.drivers.northbound.bundles import Bundle, Changed, Gone, New, Touch, ordered
from netloom.drivers.northbound.observed import KEY, OF, OWNER, Link, ObservedRows
from netloom.drivers.northbound.targets import Targets, meets, order
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Ref

PREFIX = "netloom-"
STEP = 1000
MEMBERS = frozenset((("Address_Set", "addresses"), ("DNS", "records")))
"""Columns of plain values that are filled by members only, also when there are none."""


class Comparison:
    """One comparison of desired with observed rows."""

    def __init__(
        self, wanted: DesiredRows, seen: ObservedRows, *, new_uuid: Callable[[], str], held: Collection[Unit] = ()
    ) -> None:
        """Write nothing for units that are `held`, and nothing that needs their missing rows."""
        self.unknown: set[tuple[str, str]] = set()
        """Tables and columns this database does not have."""
        self.incomplete = False
        """Whether a change depends on rows that this comparison did not cover: compare everything."""
        self._wanted = wanted
        self._seen = seen
        self._shape = seen.shape
        self._held = held
        self._targets = Targets(wanted, seen, new_uuid, held)
        self.problems = self._targets.problems
        """The resources that cannot be written, and why."""
        self.blocked = self._targets.blocked
        """The table and name that another row has."""
        self._bundles: dict[Unit, Bundle] = {}
        self._full = False

    def everything(self) -> list[Bundle]:
        """Return all changes to write."""
        for _ in self.steps():
            pass
        return self.finish()

    def steps(self) -> Iterator[None]:
        """Compare everything, in steps, so that other tasks get their turns; then call `finish`.

        A change in the database in the meantime may be missed here: the guards of the transactions catch it.
        """
        self._full = True
        self._targets.covered = self._wanted.rows
        for position, ref in enumerate(self._wanted.rows):
            self._row(ref)
            if position % STEP == STEP - 1:
                yield
        for position, ref in enumerate(list(self._seen.uuids)):
            if ref not in self._wanted.rows and ref in self._seen.uuids:
                self._remove(ref, self._seen.uuids[ref])
            if position % (8 * STEP) == STEP - 1:
                yield
        for ref, doubles in self._seen.doubles.items():
            for uuid in doubles:
                self._remove(ref, uuid)

    def delta(self, delta: Delta) -> list[Bundle]:
        """Return the changes to write for a delta."""
        if self._seen.in_flight and meets(self._seen.in_flight, delta):
            self.incomplete = True
            return []
        self._targets.covered = delta.rows
        # Few are sorted, for a stable order; sorting many takes too long.
        few = len(delta.joined) + len(delta.left) < 1000
        for ref in sorted(delta.rows) if few else delta.rows:
            if ref in self._wanted.rows:
                self._row(ref)
            elif ref in self._seen.uuids:
                self._remove(ref, self._seen.uuids[ref])
        new, join_new = self._targets.new, self._join_new
        for member in sorted(delta.joined, key=order) if few else delta.joined:
            if member.value not in new or not join_new(member):
                self._joined(member)
        again = {(one.row, one.column, one.key) for one in delta.joined if one.key} if delta.left else ()
        for member in sorted(delta.left, key=order) if few else delta.left:
            if not member.key or (member.row, member.column, member.key) not in again:
                self._left(member)
        return self.finish()

    # Rows.

    def _row(self, ref: Ref) -> None:
        row = self._seen.row(ref)
        if row is None:
            self._targets.resolve(ref)
            return
        unit = self._wanted.of[ref]
        if unit in self._held:
            return
        self._update(unit, ref, row)
        if self._full:
            self._compare_members(ref, row)

    def _update(self, unit: Unit, ref: Ref, row: Any) -> None:  # noqa: ANN401  # a row of any table
        table = self._shape[ref.table]
        uuid = self._seen.uuids[ref]
        seen: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        planned = self._wanted.rows[ref].columns
        for column, value in planned.items():
            if column == "external_ids" or column not in table.columns:
                continue
            have = getattr(row, column)
            link = table.links.get(column)
            if link is not None:
                if link.many:
                    self._links(ref, uuid, column, link, have, cast("frozenset[Ref]", value))
                    continue
                value = self._linked(unit, link, value, None)
            if have != value:
                seen[column] = have
                columns[column] = value
        ids = self._ids(unit, ref, planned.get("external_ids"))
        have = row.external_ids
        wanted = {key: value for key, value in have.items() if not key.startswith(PREFIX)} | ids
        if have != wanted:
            seen["external_ids"] = have
            columns["external_ids"] = wanted
        if columns:
            self._bundle(unit).updates.append(Changed(ref, uuid, seen, columns))

    def _insert(self, ref: Ref) -> None:
        unit = self._wanted.of[ref]
        table = self._shape[ref.table]
        planned = self._wanted.rows[ref].columns
        # The columns of a new row are empty by default.
        columns: dict[str, Any] = {column: value for column, value in planned.items() if value is not None}
        if not planned.keys() <= table.columns:
            for column in planned.keys() - table.columns:
                self.unknown.add((ref.table, column))
                columns.pop(column, None)
        for column, link in table.links.items():
            if column in columns:
                columns[column] = self._linked(unit, link, columns[column], ref)
        columns["external_ids"] = self._ids(unit, ref, planned.get("external_ids"))
        self._bundle(unit).inserts.append(New(ref, self._targets.new[ref], columns))
        if self._wanted.has_members(ref):
            for column, entries in self._wanted.members(ref).items():
                for key, value in entries.items():
                    slot = cast("str", key) if column in table.maps else None
                    self._join(ref, self._targets.new[ref], column, value, slot)

    def _remove(self, ref: Ref, uuid: str) -> None:
        """Delete a row; one that cannot exist unreferenced goes with the last reference to it.

        But the server does that at the end of the transaction, after it has checked whether the rows that it refers to
        may be deleted: a row that keeps another one alive is deleted explicitly.
        """
        unit, table, row = self._seen.unit(uuid), self._shape[ref.table], self._seen.rows[uuid]
        holds = any(link.strong and not link.many and getattr(row, column) for column, link in table.links.items())
        if (table.root or holds) and unit not in self._held:
            self._bundle(unit).removals.append(Gone(ref, uuid))

    # References.

    def _linked(self, unit: Unit, link: Link, value: Any, holder: Ref | None) -> Any:  # noqa: ANN401  # a column
        """Return a column's references as uuids, without those that are not possible."""
        if not link.many:
            return None if value is None else self._refer(unit, link, value, holder)
        found = (self._refer(unit, link, ref, holder) for ref in value)
        return frozenset(uuid for uuid in found if uuid is not None)

    def _refer(self, unit: Unit, link: Link, ref: Ref, holder: Ref | None) -> str | None:
        uuid = self._targets.new.get(ref)
        if uuid is None:
            uuid = self._targets.resolve(ref)
            if ref not in self._targets.new:
                return uuid
        owner = self._wanted.of[ref]
        if owner != unit:
            self._bundle(unit).needs.add(owner)
        if link.strong:
            self._targets.hold(ref, holder)
        return uuid

    def _links(  # which column of which row, and both sides
        self, ref: Ref, uuid: str, column: str, link: Link, have: frozenset[str], value: Iterable[Ref]
    ) -> None:
        """Make a column that refers to many rows equal to the plan, except for rows of other owners in it."""
        wanted = {target: self._targets.resolve(target) for target in value}
        for target, one in wanted.items():
            if one is not None and one not in have:
                self._join(ref, uuid, column, target)
        keep = set(wanted.values())
        for one in have:
            if one in keep:
                continue
            ours = self._seen.refs.get(one)
            # The server removes weak references to deleted rows.
            if ours is not None and (link.strong or (ours in self._wanted.rows and self._seen.uuids.get(ours) == one)):
                self._leave(ref, uuid, column, one, unit=self._seen.unit(one))

    # Members.

    def _compare_members(self, ref: Ref, row: Any) -> None:  # noqa: ANN401  # a row of any table
        """Make the columns of a row that have members equal to these."""
        table = self._shape[ref.table]
        uuid = self._seen.uuids[ref]
        own = self._wanted.rows[ref].columns
        members = self._wanted.members(ref)
        for column, link in table.links.items():
            if not link.many or column in own:
                continue
            have = getattr(row, column)
            wanted = members.get(column)
            if have or wanted:
                self._links(ref, uuid, column, link, have, cast("Iterable[Ref]", wanted or ()))
        for column in table.sets | table.maps:
            if column in table.links or column in own:
                continue
            entries = members.get(column)
            if entries is None and (ref.table, column) not in MEMBERS:
                continue
            self._compare_plain(ref, column, getattr(row, column), entries or {})

    def _compare_plain(self, ref: Ref, column: str, have: Any, entries: Mapping[Any, Any]) -> None:  # noqa: ANN401
        uuid = self._seen.uuids[ref]
        if column in self._shape[ref.table].maps:
            for key, value in have.items():
                if entries.get(key) != value:
                    self._leave(ref, uuid, column, value, key)
            for key, value in entries.items():
                if have.get(key) != value:
                    self._join(ref, uuid, column, value, key)
            return
        wanted = entries.keys()
        if have == wanted:
            return
        for value in have - wanted:
            self._leave(ref, uuid, column, value)
        for value in wanted - have:
            self._join(ref, uuid, column, value)

    def _join_new(self, member: Member) -> bool:
        """Add a new row to an existing one, the fast path of most changes; return whether it applies."""
        ref, column, value, _ = member
        uuid, of = self._seen.uuids.get(ref), self._wanted.of
        if uuid is None or ref not in of or type(value) is not Ref or self._held:
            return False
        self._bundle(of[value]).joins.append(Touch(ref, uuid, column, self._targets.new[value]))
        if self._shape[ref.table].links[column].strong:
            self._targets.hold(value, None)
        return True

    def _joined(self, member: Member) -> None:
        ref, column, value, key = member
        uuid = self._seen.uuids.get(ref)
        if uuid is None or ref not in self._wanted.rows:
            self._targets.resolve(ref)  # It is filled when it is inserted.
            return
        have = getattr(self._seen.rows[uuid], column)
        if key:
            there = have.get(key)
            if there == value:
                return
            if there is not None:
                self._leave(ref, uuid, column, there, key)
            self._join(ref, uuid, column, value, key)
            return
        one = self._targets.resolve(value) if type(value) is Ref else value
        if one is not None and one not in have:
            self._join(ref, uuid, column, value)

    def _left(self, member: Member) -> None:
        ref = member.row
        row = self._seen.row(ref)
        if row is None or ref not in self._wanted.rows:
            return
        uuid = self._seen.uuids[ref]
        have = getattr(row, member.column)
        if member.key:
            if member.key in have:
                self._leave(ref, uuid, member.column, have[member.key], member.key)
            return
        if not isinstance(member.value, Ref):
            if member.value in have:
                self._leave(ref, uuid, member.column, member.value)
            return
        one = self._seen.uuids.get(member.value)
        if one is None or one not in have:
            return
        if self._shape[ref.table].links[member.column].strong or member.value in self._wanted.rows:
            self._leave(ref, uuid, member.column, one, unit=self._seen.unit(one))

    def _join(self, ref: Ref, uuid: str, column: str, value: object, key: str | None = None) -> None:
        """Add a value to a column, in the bundle of the row that is added, or else of the column's row."""
        owner = self._wanted.of[ref]
        if owner in self._held:
            return
        if not isinstance(value, Ref):
            self._bundle(owner).joins.append(Touch(ref, uuid, column, value, key))
            return
        unit = self._wanted.of.get(value) or owner
        if unit in self._held:
            return
        holder = ref if ref in self._targets.new else None
        one = self._refer(unit, self._shape[ref.table].links[column], value, holder)
        if one is None:
            return
        bundle = self._bundle(unit)
        bundle.joins.append(Touch(ref, uuid, column, one, key))
        if holder is not None and owner != unit:
            bundle.needs.add(owner)

    def _leave(
        self, ref: Ref, uuid: str, column: str, value: object, key: str | None = None, unit: Unit | None = None
    ) -> None:
        unit = unit or self._wanted.of[ref]
        if unit not in self._held:
            self._bundle(unit).leaves.append(Touch(ref, uuid, column, value, key))

    # The end.

    def finish(self) -> list[Bundle]:
        """Return the bundles."""
        while self._targets.todo:
            self._insert(self._targets.todo.pop())
        self.incomplete |= self._targets.uncovered
        # The server would delete new rows without a reference at once.
        if dead := self._targets.dead():
            self.incomplete |= not (self._full or self.problems)
            for bundle in self._bundles.values():
                bundle.inserts = [one for one in bundle.inserts if one.uuid not in dead]
                bundle.joins = [one for one in bundle.joins if one.value not in dead and one.uuid not in dead]
        problems = self.problems
        return ordered([one for one in self._bundles.values() if one.unit not in problems and one.size])

    def _bundle(self, unit: Unit) -> Bundle:
        bundle = self._bundles.get(unit)
        if bundle is None:
            bundle = self._bundles[unit] = Bundle(unit)
        return bundle

    def _ids(self, unit: Unit, ref: Ref, planned: Any) -> dict[str, str]:  # noqa: ANN401  # a column or None
        marks = {OWNER: self._seen.owner, KEY: ref.key, OF: str(unit)}
        return {**planned, **marks} if planned else marks
