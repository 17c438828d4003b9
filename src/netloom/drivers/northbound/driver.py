"""The hands on OVN's northbound database: what is ours there, and how it is made what is wanted.

    wanted, delta ──► Comparison ──► bundles ──► transactions, several on their way at once ──► the database
        ▲                                              │ a guard did not hold: look again
        └──────────────── what is seen ◄───────────────┤ refused: halve it until the one at fault is alone

`apply` with a delta looks at what changed, without one at everything. It returns when the database has all that it
takes; then a second `apply` writes nothing. Whoever is at fault ends up in `problems`; everybody else is written. What
the database did not answer (`Unreachable`) may have been done or not: the caller applies everything, once the rows are
followed again.

Nothing is written unless `fence` says that we may, asked again before each transaction.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from netloom.drivers.northbound.audit import RowFinding, findings
from netloom.drivers.northbound.bundles import Bundle, describe, kept
from netloom.drivers.northbound.diff import Comparison
from netloom.drivers.northbound.observed import Seen, shape
from netloom.drivers.northbound.pipeline import Line
from netloom.drivers.northbound.targets import TAKEN, Changes, Sent, Wishes
from netloom.drivers.northbound.write import Transaction, Writer, groups
from netloom.errors import NetloomError, Unreachable
from netloom.ovsdb.errors import Conflict, TransactionRefused
from netloom.ovsdb.io import OvsdbClient
from netloom.ovsdb.monitor import Change
from netloom.ovsdb.notation import Uuid
from netloom.ovsdb.rows import northbound as known
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Ref, Row

DATABASE = "OVN_Northbound"
OWNER = "netloom"
UNDERWAY = 4
"""How many transactions may be on their way."""
ATTEMPTS = 20
"""How often to look again because somebody else was faster, before it is the caller's turn."""
AT_FAULT = 64
"""How many resources of one transaction are told apart when it is refused."""
NOBODYS_FAULT = frozenset({"not allowed", "permission error", "I/O error", "resources exhausted", "aborted"})
"""Refusals that have nothing to do with what was asked for."""

_VOLATILE = frozenset({("Logical_Switch_Port", "up"), ("Logical_Switch_Port", "dynamic_addresses"), ("BFD", "status")})
"""Columns that OVN writes and nobody here reads."""
TABLES: dict[str, Sequence[str] | None] = {
    table: [column for column in row.__struct_fields__ if column != "_uuid" and (table, column) not in _VOLATILE]
    for table, row in known.TABLES.items()
    if "external_ids" in row.__struct_fields__ and table not in ("NB_Global", "Connection", "SSL")
}
"""What is followed."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class NorthboundCounters:
    """What was done."""

    transactions: int = 0
    conflicts: int = 0
    refused: int = 0
    unanswered: int = 0
    written: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows, by table and by what was done: insert, update, delete; members are updates of what they are put into."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Rows that were not as we had left them, by table."""


@dataclass(slots=True)
class Applied:
    """What came of it."""

    written: int = 0
    """How many changes."""
    transactions: int = 0
    told: set[Unit] = field(default_factory=set)
    """Whose problem is another now."""
    repaired: dict[Unit, str] = field(default_factory=dict)
    """What was not as we had left it, for people."""


def always() -> bool:
    """Be allowed to write."""
    return True


class Northbound:
    """The rows of one owner in a northbound database."""

    def __init__(
        self,
        connect: Callable[[Callable[[Sequence[Change]], None]], OvsdbClient],
        owner: str = OWNER,
        *,
        random: Random,
        fence: Callable[[], bool] = always,
    ) -> None:
        """`connect` makes the connection, given whom to tell of changes."""
        self.counters = NorthboundCounters()
        self.problems: dict[Unit, Problem] = {}
        """Who is not, or not wholly, in the database, and why."""
        self.amiss: Callable[[], None] = lambda: None
        """Called when something calls for a look at everything."""
        self._next = random.getrandbits(32)
        text = f"{random.getrandbits(96):024x}"
        self._rest = f"-{text[:4]}-4{text[5:8]}-a{text[9:12]}-{text[12:]}"
        self._fence = fence
        self._blocked: dict[Unit, tuple[str, str]] = {}
        """The names, with their tables, that others have and we need."""
        self._schema: object = None
        self._said: set[tuple[str, str]] = set()
        self._connects = 0
        self._seen = Seen(owner, {})
        self.client = connect(self._changed)

    def seen(self) -> dict[Ref, Row]:
        """Return our rows as they are: all columns that are followed, references to rows of ours as such."""
        self._learn()
        return {ref: Row(*ref, self._columns(ref)) for ref in self._seen.uuids}

    def _columns(self, ref: Ref) -> dict[str, Any]:
        row = self._seen.row(ref)
        refs = self._seen.refs
        table = self._seen.shape[ref.table]
        found: dict[str, Any] = {}
        for column in table.columns:
            value = getattr(row, column)
            if (link := table.links.get(column)) is not None:
                value = frozenset(refs.get(one, one) for one in value) if link.many else refs.get(value, value)
            found[column] = value
        return found

    def _changed(self, changes: Sequence[Change]) -> None:
        changed = self._seen.changed
        for table, uuid, old, new in changes:
            changed(table, uuid, old, new)
        connects, self._connects = self._connects, self.client.counters.connects
        # What changed while nobody listened is nothing of ours; of two rows one is too many; a name has become free.
        if (
            connects != self._connects
            or self._seen.doubles
            or any(name not in self._seen.taken for name in self._blocked.values())
        ):
            self.amiss()

    def _learn(self) -> None:
        """Know what the server has: another one may have another schema."""
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
        self, wanted: Wishes, delta: Changes | None = None, *, repairing: bool = False, keep: bool = False
    ) -> Applied:
        """Make the database what is wanted: what `delta` says has changed, or everything.

        With `repairing` whatever there is to do is somebody else's doing, and is told. With `keep` a look at everything
        takes nothing away.
        """
        applied = Applied()
        refused: dict[Unit, Problem] = {}
        last_chance = False
        for _ in range(ATTEMPTS):
            self._learn()
            look = Comparison(wanted, self._seen, new_uuid=self._new_uuid, held=refused.keys())
            if delta is None:
                for _ in look.steps():
                    await asyncio.sleep(0)
                bundles = kept(look.finish()) if keep else look.finish()
            else:
                bundles = look.delta(delta)
            if look.incomplete:
                delta = None
                continue
            self._tell_unknown(look.unknown)
            self._blocked |= look.blocked
            if repairing and not applied.transactions:
                self._tell_repairs(bundles, applied)
            if not bundles and (last_chance or not refused):
                break
            if not bundles:
                # What stood in the way of those that were refused may be gone, now that the others are written.
                last_chance = True
                refused = {}
                continue
            now_refused, done = await self._send(bundles, applied)
            refused |= now_refused
            if done and not refused:
                break
        else:
            raise Conflict("timed out", "somebody else keeps changing our rows")
        self._conclude(wanted, delta, look.problems | refused, applied)
        return applied

    def audit(self, wanted: Wishes) -> list[RowFinding]:
        """Return what is not as it should be; nothing is written."""
        bundles, problems = self._look(wanted)
        return findings(bundles, problems, self._seen, wanted.rows)

    async def mend(self, wanted: Wishes, units: Collection[Unit], gone: Callable[[Unit], bool]) -> Applied:
        """Put right what is amiss with the rows of some resources, and of no others.

        For who has not followed the resources: of one that is not wanted `gone` says, once more, whether it is gone.
        """
        applied = Applied()
        bundles, _ = self._look(wanted)
        alive = set(wanted.of.values())
        some = [one for one in bundles if one.unit in units and (one.unit in alive or gone(one.unit))]
        applied.repaired = {one.unit: describe(one)[1] for one in some}
        refused, _ = await self._send(some, applied)
        self.problems |= refused
        return applied

    def _look(self, wanted: Wishes) -> tuple[list[Bundle], dict[Unit, Problem]]:
        self._learn()
        look = Comparison(wanted, self._seen, new_uuid=self._new_uuid)
        return look.everything(), look.problems

    def _conclude(self, wanted: Wishes, delta: Changes | None, found: dict[Unit, Problem], applied: Applied) -> None:
        if delta is None:
            before = self.problems
        else:
            units = {unit for ref in delta.rows if (unit := wanted.of.get(ref))} | found.keys()
            before = {unit: self.problems[unit] for unit in units if unit in self.problems}
        applied.told = {unit for unit in before.keys() | found.keys() if before.get(unit) != found.get(unit)}
        self.problems = {unit: one for unit, one in self.problems.items() if unit not in before} | found
        taken = {unit for unit, problem in self.problems.items() if problem.reason == TAKEN}
        self._blocked = {unit: name for unit, name in self._blocked.items() if unit in taken}

    async def apply_each(self, wanted: Wishes, deltas: Iterable[Changes]) -> Applied:
        """Make the database what is wanted, delta by delta, while earlier ones are still on their way.

        What is on its way is taken to arrive. Where it does not, or there is anything out of the ordinary, everything
        is compared at the end.
        """
        applied = Applied()
        self._learn()
        sent = Sent()
        try:
            async with asyncio.TaskGroup() as group:
                line = Line(group, UNDERWAY)
                for delta in deltas:
                    if line.failed:
                        continue  # It is planned all the same.
                    if sent.meets(delta):
                        line.failed.append(([], Conflict("timed out", "what is on its way has changed again")))
                        continue
                    await self._fly(wanted, delta, line, applied)
                await line.drain()
        finally:
            self._seen.flying.clear()
        for _, error in line.failed:
            if not _theirs(error):
                raise error
        if not line.failed:
            return applied
        rest = await self.apply(wanted)
        rest.written += applied.written
        rest.transactions += applied.transactions
        rest.told |= applied.told
        return rest

    async def _fly(self, wanted: Wishes, delta: Changes, line: Line, applied: Applied) -> None:
        look = Comparison(wanted, self._seen, new_uuid=self._new_uuid)
        bundles = look.delta(delta)
        if look.incomplete or look.problems or self.problems:
            line.failed.append(([], Conflict("timed out", "there is more to it")))
            return
        self._tell_unknown(look.unknown)
        writer = Writer(self._seen, lambda table: len(self.client.cache.rows(table)))
        for some in groups(bundles, many=True):
            await line.put(some, partial(self._try, writer.transaction(some), some, applied))
            self._seen.flying.update((new.ref, new.uuid) for bundle in some for new in bundle.inserts)

    async def _send(self, bundles: Sequence[Bundle], applied: Applied) -> tuple[dict[Unit, Problem], bool]:
        """Write bundles until a transaction fails; return who was refused, and whether all is written."""
        writer = Writer(self._seen, lambda table: len(self.client.cache.rows(table)))
        async with asyncio.TaskGroup() as group:
            line = Line(group, UNDERWAY)
            for some in groups(bundles):
                if line.failed:
                    break
                await line.put(some, partial(self._try, writer.transaction(some), some, applied))
            await line.drain()
        found: dict[Unit, Problem] = {}
        for sent, error in line.failed:
            if not _theirs(error):
                raise error
            if isinstance(error, TransactionRefused):
                found |= await self._isolate(sent, writer, applied)
        return found, not line.failed

    async def _try(
        self,
        transaction: Transaction,
        bundles: Collection[Bundle],
        applied: Applied,
        sent: Callable[[], None] | None = None,
    ) -> NetloomError | None:
        """Send a transaction; return what was wrong with it."""
        if not self._fence():
            return Unreachable("not certain to lead: nothing is written")
        self.counters.transactions += 1
        applied.transactions += 1
        try:
            await self.client.transact(transaction.operations, sent=sent)
        except NetloomError as error:
            self.counters.conflicts += isinstance(error, Conflict)
            self.counters.refused += isinstance(error, TransactionRefused)
            self.counters.unanswered += not isinstance(error, Conflict | TransactionRefused)
            return error
        applied.written += sum(bundle.size for bundle in bundles)
        self._count(bundles)
        return None

    async def _isolate(self, bundles: list[Bundle], writer: Writer, applied: Applied) -> dict[Unit, Problem]:
        """Write those of a refused transaction that are not at fault, by halving it; return who is."""
        found: dict[Unit, Problem] = {}
        parts = [bundles]
        while parts:
            part = parts.pop(0)
            error = await self._try(writer.transaction(part), part, applied)
            if error is not None and not _theirs(error):
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
        written.update((new.ref.table, "insert") for bundle in bundles for new in bundle.inserts)
        written.update((change.ref.table, "update") for bundle in bundles for change in bundle.updates)
        written.update((touch.ref.table, "update") for bundle in bundles for touch in bundle.joins)
        written.update((touch.ref.table, "update") for bundle in bundles for touch in bundle.leaves)
        written.update((gone.ref.table, "delete") for bundle in bundles for gone in bundle.removals)

    def _tell_repairs(self, bundles: Iterable[Bundle], applied: Applied) -> None:
        for bundle in bundles:
            if bundle.unit in self.problems:
                continue
            tables, text = describe(bundle)
            self.counters.repaired.update(tables)
            applied.repaired[bundle.unit] = text
            logger.warning("somebody else changed rows of %s, they are put back: %s", bundle.unit, text)

    def _tell_unknown(self, unknown: set[tuple[str, str]]) -> None:
        if new := unknown - self._said:
            self._said |= new
            names = ", ".join(sorted(f"{table}.{column}" for table, column in new))
            logger.warning("this OVN does not have %s: left out", names)

    def _new_uuid(self) -> str:
        """Return a uuid that nobody has: a random one, counted on in the part that the server finds rows by."""
        self._next = (self._next + 1) & 0xFFFFFFFF
        return Uuid(f"{self._next:08x}{self._rest}")


def _theirs(error: NetloomError) -> bool:
    """Whether an error is about what was asked for, rather than about asking."""
    return isinstance(error, Conflict) or (isinstance(error, TransactionRefused) and error.error not in NOBODYS_FAULT)


def _halves(part: list[Bundle]) -> list[list[Bundle]]:
    """Return a list in two, not between bundles that go together; nothing if that cannot be."""
    cuts = [i for i in range(1, len(part)) if not part[i - 1].glued]
    if not cuts:
        return []
    cut = min(cuts, key=lambda i: abs(i - len(part) // 2))
    return [part[:cut], part[cut:]]
