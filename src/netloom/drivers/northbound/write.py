"""From bundles to transactions: how many together, in which order, and guarded by what.  Pure.

What is put into or taken out of one set by all bundles of a transaction is one mutation. Each row that is there and is
changed is guarded by a wait: that it is still ours, and, where columns are set, that they are still as they were seen.
So whoever decided by an older state fails, and looks again. A mutation adds and takes single values, whatever else the
set holds: for it to be right the row need only be there and ours. A new row's guard is the index on its name, where its
table has one; where it has none, a wait that there is no row of that key, as long as tables are small: the server looks
through the whole table for it. Two rows of one key that come about all the same are seen, and one removed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from netloom.drivers.northbound.bundles import Bundle, Touch
from netloom.drivers.northbound.observed import KEY, OWNER, ObservedRows
from netloom.ovsdb.operations import Condition, Delete, Insert, Mutate, Mutation, Operation, Update, Wait, is_uuid
from netloom.plan.rows import Ref

FEW = 512
"""Operations up to which somebody is taken to be waiting for them."""
SMALL, LARGE = 48, 300
"""How many operations go into one transaction, about: OVN takes them up in the same pieces, and is quickest with small
ones; the database is quickest with some hundreds."""
LOOKED_THROUGH = 50_000
"""How many rows of a table a transaction may have the server look at for rows of the keys it inserts."""


def groups(bundles: Sequence[Bundle], *, many: bool = False) -> Iterator[list[Bundle]]:
    """Give the bundles of each transaction, in order; `many`: there are more to come."""
    weights = [bundle.weight for bundle in bundles]
    limit = SMALL if not many and sum(weights) <= FEW else LARGE
    group: list[Bundle] = []
    size = 0
    glued = False
    for bundle, weight in zip(bundles, weights, strict=True):
        if group and not glued and size + weight > limit:
            yield group
            group, size = [], 0
        group.append(bundle)
        size += weight
        glued = bundle.glued
    if group:
        yield group


class Writer:
    """Makes operations for the database `seen` is about."""

    def __init__(self, seen: ObservedRows, count: Callable[[str], int]) -> None:
        """`count` says how many rows a table has."""
        self._seen = seen
        self._count = count

    def transaction(self, group: Sequence[Bundle]) -> "Transaction":
        """Return all that is to be written for some resources."""
        made = Transaction(self._seen)
        few = self._few(group)
        for bundle in group:
            made.add(bundle, few)
        made.finish()
        return made

    def _few(self, group: Iterable[Bundle]) -> frozenset[str]:
        """Return the tables in which the server may look for rows of the keys that are to be inserted."""
        new = Counter(one.ref.table for bundle in group for one in bundle.inserts)
        shape = self._seen.shape
        return frozenset(
            table
            for table, many in new.items()
            if shape[table].root and not shape[table].unique and many * self._count(table) <= LOOKED_THROUGH
        )


class Transaction:
    """One transaction while it is made."""

    def __init__(self, seen: ObservedRows) -> None:
        self._seen = seen
        self._waits: list[Operation] = []
        self._acts: list[Operation] = []
        self._sure: set[str] = set()
        """Rows that need no further guard."""
        self._touches: dict[str, list[tuple[Touch, bool]]] = {}

    @property
    def operations(self) -> list[Operation]:
        """What to send."""
        return self._waits + self._acts

    def add(self, bundle: Bundle, few: frozenset[str]) -> None:
        """Take in what is to be written for a resource."""
        for new in bundle.inserts:
            table = new.ref.table
            self._sure.add(new.uuid)
            self._acts.append(Insert(table, new.columns, "", str(new.uuid)))
            if table in few:
                self._waits.append(Wait(table, (("external_ids", "includes", self._marks(new.ref)),), ("_uuid",), ()))
        for change in bundle.updates:
            where = self._ours(change.ref, change.uuid)
            self._sure.add(change.uuid)
            self._waits.append(Wait(change.ref.table, where, tuple(change.seen), (change.seen,)))
            self._acts.append(Update(change.ref.table, where[:1], change.columns))
        for touch in bundle.leaves:
            self._touches.setdefault(touch.uuid, []).append((touch, False))
        for touch in bundle.joins:
            self._touches.setdefault(touch.uuid, []).append((touch, True))
        for gone in bundle.removals:
            self._guard(gone.ref, gone.uuid)
            self._acts.append(Delete(gone.ref.table, is_uuid(gone.uuid)))

    def finish(self) -> None:
        """Put the changes of sets and maps, row by row."""
        for uuid, several in self._touches.items():
            ref = several[0][0].ref
            if uuid not in self._sure:
                self._guard(ref, uuid)
            maps = self._seen.shape[ref.table].maps
            self._acts.append(Mutate(ref.table, is_uuid(uuid), _mutations(several, maps)))

    def _guard(self, ref: Ref, uuid: str) -> None:
        where = self._ours(ref, uuid)
        self._waits.append(Wait(ref.table, where, ("_uuid",), ({"_uuid": where[0][2]},)))

    def _ours(self, ref: Ref, uuid: str) -> tuple[Condition, ...]:
        """Choose a row by its uuid, if it is ours.  The uuid comes first: by it the server finds the row at once."""
        return *is_uuid(uuid), ("external_ids", "includes", self._marks(ref))

    def _marks(self, ref: Ref) -> dict[str, str]:
        return {OWNER: self._seen.owner, KEY: ref.key}


def _mutations(several: Iterable[tuple[Touch, bool]], maps: frozenset[str]) -> list[Mutation]:
    """Return the mutations of one row: what goes before what comes, because a map keeps the value a key has."""
    gone: dict[str, dict[Any, Any]] = {}
    come: dict[str, dict[Any, Any]] = {}
    for touch, joins in several:
        into = (come if joins else gone).setdefault(touch.column, {})
        into[touch.value if touch.key is None else touch.key] = touch.value
    found: list[Mutation] = []
    for mutator, columns in (("delete", gone), ("insert", come)):
        for column, values in columns.items():
            found.append((column, mutator, values if column in maps else frozenset(values)))
    return found
