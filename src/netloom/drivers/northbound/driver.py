"""The driver of OVN's northbound database: it makes our rows equal to the desired rows.

    desired, delta ──► Comparison ──► bundles ──► transactions, several in flight ──► the database
        ▲                                              │ a guard failed: compare again
        └──────────────── observed rows ◄──────────────┤ refused: halve it until the cause is alone

`apply` with a delta compares what changed, without one it compares everything. It returns when the database has all
that it accepts; then a second `apply` writes nothing. Resources that the database refuses are in `problems`; all others
are written. A transaction without an answer (`Unreachable`) may have been executed or not: the caller applies
everything, once the rows are monitored again.

Nothing is written unless `fence` returns True; it is called before each transaction.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, KeysView, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from netloom.drivers.northbound.audit import RowFinding, findings
from netloom.drivers.northbound.bundles import Bundle, describe, kept
from netloom.drivers.northbound.diff import Comparison
from netloom.drivers.northbound.observed import ObservedRows, shape
from netloom.drivers.northbound.pipeline import Pipeline
from netloom.drivers.northbound.targets import TAKEN, Sent
from netloom.drivers.northbound.write import Writer, groups
from netloom.errors import NetloomError, Unreachable
from netloom.ovsdb.errors import Conflict, TransactionRefused
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.monitor import Change
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.operations import Operation
from netloom.ovsdb.rows import northbound
from netloom.plan.names import OWNER
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Ref
from netloom.signals import Signal

DATABASE = "OVN_Northbound"
UNDERWAY = 4
"""How many transactions may be in flight."""
ATTEMPTS = 20
"""How often to compare again because another writer was faster, before giving up."""
AT_FAULT = 64
"""How many refused resources of one transaction are identified one by one."""
UNRELATED = frozenset({"not allowed", "permission error", "I/O error", "resources exhausted", "aborted"})
"""Errors that do not depend on the content of a transaction."""

_VOLATILE = frozenset({("Logical_Switch_Port", "up"), ("Logical_Switch_Port", "dynamic_addresses"), ("BFD", "status")})
"""Columns that OVN writes and this driver does not read."""
TABLES: dict[str, Sequence[str] | None] = {
    table: [column for column in row.__struct_fields__ if column != "_uuid" and (table, column) not in _VOLATILE]
    for table, row in northbound.TABLES.items()
    if "external_ids" in row.__struct_fields__ and table not in ("NB_Global", "Connection", "SSL")
}
"""The monitored columns."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class NorthboundCounters:
    """Counters of what was written."""

    transactions: int = 0
    conflicts: int = 0
    refused: int = 0
    unanswered: int = 0
    written: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows, by table and operation: insert, update, delete; a member is an update of the row it is added to."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Rows that another writer had changed, by table."""


@dataclass(slots=True)
class Applied:
    """The result of `apply`."""

    written: int = 0
    """The number of changes."""
    transactions: int = 0
    units: set[Unit] = field(default_factory=set)
    """The resources whose problem changed."""
    repaired: dict[Unit, str] = field(default_factory=dict)
    """What another writer had changed, for people."""


class Northbound:
    """The rows of one owner in a northbound database."""

    def __init__(
        self,
        connect: Callable[[Callable[[Sequence[Change]], None]], OvsdbClient],
        owner: str = OWNER,
        *,
        random: Random,
        fence: Callable[[], bool] = lambda: True,
    ) -> None:
        """`connect` makes the connection, given the callback for changes."""
        self.counters = NorthboundCounters()
        self.problems: dict[Unit, Problem] = {}
        """The resources that are not, or not completely, in the database, and why."""
        self.on_problem: Signal[[]] = Signal()
        """Sent when everything must be compared again."""
        self._next = random.getrandbits(32)
        text = f"{random.getrandbits(96):024x}"
        self._rest = f"-{text[:4]}-4{text[5:8]}-a{text[9:12]}-{text[12:]}"
        self._fence = fence
        self._blocked: dict[Unit, tuple[str, str]] = {}
        """The names, with their tables, that rows of other owners have and ours need."""
        self._schema: object = None
        self._reported: set[tuple[str, str]] = set()
        self._connects = 0
        self._seen = ObservedRows(owner, {})
        self.client = connect(self._changed)

    def seen(self) -> KeysView[Ref]:
        """Return which rows are ours and observed."""
        return self._seen.uuids.keys()

    def _changed(self, changes: Sequence[Change]) -> None:
        changed = self._seen.changed
        for table, uuid, old, new in changes:
            changed(table, uuid, old, new)
        connects, self._connects = self._connects, self.client.counters.connects
        # Compare everything after a new connection, if a row exists twice, and if a name has become free.
        if (
            connects != self._connects
            or self._seen.doubles
            or any(name not in self._seen.taken for name in self._blocked.values())
        ):
            self.on_problem()

    def _learn(self) -> None:
        """Read the schema of the server: another server may have another one."""
        schema = self.client.schema
        if schema is not None and schema is not self._schema:
            self._schema = schema
            missing = self.client.missing
            followed = {
                table: [column for column in columns or () if f"{table}.{column}" not in missing]
                for table, columns in TABLES.items()
                if table not in missing
            }
            self._seen.learn(shape(schema, followed))

    async def apply(
        self, wanted: DesiredRows, delta: Delta | None = None, *, repairing: bool = False, keep: bool = False
    ) -> Applied:
        """Make the database equal to the desired rows: where `delta` says that they changed, or everywhere.

        With `repairing` another writer made all differences, and they are reported. With `keep` a comparison of
        everything removes nothing.
        """
        applied = Applied()
        refused: dict[Unit, Problem] = {}
        last_chance = False
        for _ in range(ATTEMPTS):
            self._learn()
            comparison = Comparison(wanted, self._seen, new_uuid=self._new_uuid, held=refused.keys())
            if delta is None:
                for _ in comparison.steps():
                    await asyncio.sleep(0)
                bundles = kept(comparison.finish()) if keep else comparison.finish()
            else:
                bundles = comparison.delta(delta)
            if comparison.incomplete:
                delta = None
                continue
            self._report_unknown(comparison.unknown)
            self._blocked |= comparison.blocked
            if repairing and not applied.transactions:
                self._report_repairs(bundles, applied)
            if not bundles and (last_chance or not refused):
                break
            if not bundles:
                # The reason of a refusal may be gone, now that the others are written.
                last_chance = True
                refused = {}
                continue
            now_refused, done = await self._send(bundles, applied)
            refused |= now_refused
            if done and not refused:
                break
        else:
            raise Conflict("timed out", "another writer keeps changing our rows")
        self._conclude(wanted, delta, comparison.problems | refused, applied)
        return applied

    def audit(self, wanted: DesiredRows) -> list[RowFinding]:
        """Return the findings; nothing is written."""
        bundles, problems = self._look(wanted)
        return findings(bundles, problems, self._seen, wanted.rows)

    async def mend(self, wanted: DesiredRows, units: Collection[Unit], gone: Callable[[Unit], bool]) -> Applied:
        """Repair the rows of some resources, and of no others.

        For a caller that has not watched the resources: `gone` checks once more whether a resource without desired rows
        is deleted.
        """
        applied = Applied()
        bundles, _ = self._look(wanted)
        alive = set(wanted.of.values())
        some = [one for one in bundles if one.unit in units and (one.unit in alive or gone(one.unit))]
        applied.repaired = {one.unit: describe(one)[1] for one in some}
        refused, _ = await self._send(some, applied)
        self.problems |= refused
        return applied

    def _look(self, wanted: DesiredRows) -> tuple[list[Bundle], dict[Unit, Problem]]:
        self._learn()
        comparison = Comparison(wanted, self._seen, new_uuid=self._new_uuid)
        return comparison.everything(), comparison.problems

    def _conclude(self, wanted: DesiredRows, delta: Delta | None, found: dict[Unit, Problem], applied: Applied) -> None:
        if delta is None:
            before = self.problems
        else:
            units = {unit for ref in delta.rows if (unit := wanted.of.get(ref))} | found.keys()
            before = {unit: self.problems[unit] for unit in units if unit in self.problems}
        applied.units = {unit for unit in before.keys() | found.keys() if before.get(unit) != found.get(unit)}
        self.problems = {unit: one for unit, one in self.problems.items() if unit not in before} | found
        taken = {unit for unit, problem in self.problems.items() if problem.reason == TAKEN}
        self._blocked = {unit: name for unit, name in self._blocked.items() if unit in taken}

    async def apply_each(self, wanted: DesiredRows, deltas: Iterable[Delta]) -> Applied:
        """Make the database equal to the desired rows, delta by delta, while earlier transactions are in flight.

        Transactions in flight are expected to succeed. If one does not, or in any other special case, everything is
        compared at the end.
        """
        applied = Applied()
        self._learn()
        sent = Sent()
        try:
            async with asyncio.TaskGroup() as group:
                pipeline = Pipeline(group, UNDERWAY)
                for delta in deltas:
                    if pipeline.failed:
                        continue  # The iteration plans the rest.
                    if sent.meets(delta):
                        pipeline.failed.append(([], Conflict("timed out", "a change in flight has changed again")))
                        continue
                    await self._send_delta(wanted, delta, pipeline, applied)
                await pipeline.drain()
        finally:
            self._seen.in_flight.clear()
        for _, error in pipeline.failed:
            if not _depends_on_content(error):
                raise error
        if not pipeline.failed:
            return applied
        rest = await self.apply(wanted)
        rest.written += applied.written
        rest.transactions += applied.transactions
        return rest

    async def _send_delta(self, wanted: DesiredRows, delta: Delta, pipeline: Pipeline, applied: Applied) -> None:
        comparison = Comparison(wanted, self._seen, new_uuid=self._new_uuid)
        bundles = comparison.delta(delta)
        if comparison.incomplete or comparison.problems or self.problems:
            pipeline.failed.append(([], Conflict("timed out", "a special case")))
            return
        self._report_unknown(comparison.unknown)
        writer = Writer(self._seen, lambda table: len(self.client.cache.rows(table)))
        for some in groups(bundles, many=True):
            await pipeline.put(some, partial(self._try, writer.transaction(some), some, applied))
            self._seen.in_flight.update((new.ref, new.uuid) for bundle in some for new in bundle.inserts)

    async def _send(self, bundles: Sequence[Bundle], applied: Applied) -> tuple[dict[Unit, Problem], bool]:
        """Write bundles until a transaction fails; return the refused resources, and whether all is written."""
        writer = Writer(self._seen, lambda table: len(self.client.cache.rows(table)))
        async with asyncio.TaskGroup() as group:
            pipeline = Pipeline(group, UNDERWAY)
            for some in groups(bundles):
                if pipeline.failed:
                    break
                await pipeline.put(some, partial(self._try, writer.transaction(some), some, applied))
            await pipeline.drain()
        found: dict[Unit, Problem] = {}
        for sent, error in pipeline.failed:
            if not _depends_on_content(error):
                raise error
            if isinstance(error, TransactionRefused):
                found |= await self._isolate(sent, writer, applied)
        return found, not pipeline.failed

    async def _try(
        self,
        operations: Sequence[Operation],
        bundles: Collection[Bundle],
        applied: Applied,
        sent: Callable[[], None] | None = None,
    ) -> NetloomError | None:
        """Send a transaction; return the error, if any."""
        if not self._fence():
            return Unreachable("not certain to be the leader: nothing is written")
        self.counters.transactions += 1
        applied.transactions += 1
        try:
            await self.client.transact(operations, sent=sent)
        except NetloomError as error:
            self.counters.conflicts += isinstance(error, Conflict)
            self.counters.refused += isinstance(error, TransactionRefused)
            self.counters.unanswered += not isinstance(error, Conflict | TransactionRefused)
            return error
        applied.written += sum(bundle.size for bundle in bundles)
        self._count(bundles)
        return None

    async def _isolate(self, bundles: list[Bundle], writer: Writer, applied: Applied) -> dict[Unit, Problem]:
        """Write the resources of a refused transaction that are not its cause, by halving it; return those that are."""
        found: dict[Unit, Problem] = {}
        parts = [bundles]
        while parts:
            part = parts.pop(0)
            error = await self._try(writer.transaction(part), part, applied)
            if error is not None and not _depends_on_content(error):
                raise error
            if not isinstance(error, TransactionRefused):
                continue
            halves = _halves(part) if len(found) < AT_FAULT else ()
            if halves:
                parts[:0] = halves
                continue
            text = f"the northbound database refused it: {error.message}"
            found |= {bundle.unit: Problem("Refused", text[:1024]) for bundle in part}
            logger.warning("the northbound database refused %s: %s", part[0].unit, error.message)
        return found

    def _count(self, bundles: Collection[Bundle]) -> None:
        written = self.counters.written
        for one in bundles:
            written.update((new.ref.table, "insert") for new in one.inserts)
            written.update((change.ref.table, "update") for change in one.updates)
            written.update((touch.ref.table, "update") for touch in (*one.joins, *one.leaves))
            written.update((gone.ref.table, "delete") for gone in one.removals)

    def _report_repairs(self, bundles: Iterable[Bundle], applied: Applied) -> None:
        for bundle in bundles:
            if bundle.unit in self.problems:
                continue
            tables, text = describe(bundle)
            self.counters.repaired.update(tables)
            applied.repaired[bundle.unit] = text
            logger.warning("another writer changed rows of %s, reverted: %s", bundle.unit, text)

    def _report_unknown(self, unknown: set[tuple[str, str]]) -> None:
        if new := unknown - self._reported:
            self._reported |= new
            names = ", ".join(sorted(f"{table}.{column}" for table, column in new))
            logger.warning("this OVN does not have %s: ignored", names)

    def _new_uuid(self) -> str:
        """Return a new uuid: random, with a counter in the part that the server hashes."""
        self._next = (self._next + 1) & 0xFFFFFFFF
        return Uuid(f"{self._next:08x}{self._rest}")


def _depends_on_content(error: NetloomError) -> bool:
    """Return whether an error depends on the content of the transaction."""
    return isinstance(error, Conflict) or (isinstance(error, TransactionRefused) and error.error not in UNRELATED)


def _halves(part: list[Bundle]) -> list[list[Bundle]]:
    """Return a list in two halves, not split between glued bundles; [] if that is not possible."""
    cuts = [i for i in range(1, len(part)) if not part[i - 1].glued]
    if not cuts:
        return []
    cut = min(cuts, key=lambda i: abs(i - len(part) // 2))
    return [part[:cut], part[cut:]]
