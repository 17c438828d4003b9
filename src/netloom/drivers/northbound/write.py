"""From bundles to transactions: their size, their order and their guards.  Pure.

All changes of one set in a transaction are one mutation. Each existing row that is changed is guarded by a wait: that
it is still ours, and, where columns are set, that they still have the observed values. So a writer that decided by an
older state fails, and compares again. A mutation adds and removes single values, whatever else the set contains: it
only needs the row to exist and to be ours. The guard of a new row is the index on its name, where its table has one.
Otherwise it is a wait that no row with that key exists, as long as tables are small, since the server scans the whole
table for it. If two rows with one key exist nevertheless, they are observed, and one is removed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from netloom.drivers.northbound.bundles import Bundle, Touch
from netloom.drivers.northbound.observed import KEY, OWNER, ObservedRows
from netloom.ovsdb.operations import Condition, Delete, Insert, Mutate, Mutation, Operation, Update, Wait, is_uuid
from netloom.plan.rows import Ref

FEW = 512
"""Up to this number of operations a user probably waits for the result."""
SMALL, LARGE = 48, 300
"""Operations per transaction, approximately.  OVN processes each transaction as a whole and is fastest with small ones;
the database is fastest with some hundreds."""
LOOKED_THROUGH = 50_000
"""How many rows the server may scan for the keys that a transaction inserts."""


def groups(bundles: Sequence[Bundle], *, many: bool = False) -> Iterator[list[Bundle]]:
    """Yield the bundles of each transaction, in order; `many`: more follow."""
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
    """Builds transactions for a database."""

    def __init__(self, seen: ObservedRows, count: Callable[[str], int]) -> None:
        """`count` returns the number of rows of a table."""
        self._seen = seen
        self._count = count

    def transaction(self, group: Sequence[Bundle]) -> list[Operation]:
        """Return the transaction of some resources."""
        new = Counter(one.ref.table for bundle in group for one in bundle.inserts)
        shape = self._seen.shape
        few = frozenset(
            table
            for table, many in new.items()
            if shape[table].root and not shape[table].unique and many * self._count(table) <= LOOKED_THROUGH
        )
        return _Transaction(self._seen).operations(group, few)


class _Transaction:
    """One transaction while it is built."""

    def __init__(self, seen: ObservedRows) -> None:
        self._seen = seen
        self._waits: list[Operation] = []
        self._acts: list[Operation] = []
        self._sure: set[str] = set()
        """Rows that need no further guard."""
        self._touches: dict[str, list[tuple[Touch, bool]]] = {}

    def operations(self, group: Iterable[Bundle], few: frozenset[str]) -> list[Operation]:
        """Return the operations to send; the server may scan the tables in `few` for the keys to insert."""
        for bundle in group:
            self._add(bundle, few)
        # The mutations of sets and maps, row by row.
        for uuid, several in self._touches.items():
            ref = several[0][0].ref
            if uuid not in self._sure:
                self._guard(ref, uuid)
            maps = self._seen.shape[ref.table].maps
            self._acts.append(Mutate(ref.table, is_uuid(uuid), _mutations(several, maps)))
        return self._waits + self._acts

    def _add(self, bundle: Bundle, few: frozenset[str]) -> None:
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

    def _guard(self, ref: Ref, uuid: str) -> None:
        where = self._ours(ref, uuid)
        self._waits.append(Wait(ref.table, where, ("_uuid",), ({"_uuid": where[0][2]},)))

    def _ours(self, ref: Ref, uuid: str) -> tuple[Condition, ...]:
        """Return the condition for a row of ours.  The uuid comes first: the server has an index on it."""
        return *is_uuid(uuid), ("external_ids", "includes", self._marks(ref))

    def _marks(self, ref: Ref) -> dict[str, str]:
        return {OWNER: self._seen.owner, KEY: ref.key}


def _mutations(several: Iterable[tuple[Touch, bool]], maps: frozenset[str]) -> list[Mutation]:
    """Return the mutations of one row: deletions first, since an insertion does not replace a map's value."""
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
