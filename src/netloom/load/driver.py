"""Creates and deletes attachments by plan, and records when each reaches which state.

    steps, each at its time ──► create, delete ──► the API
   watch (label: this run) ──► addressed, ready, gone ──► tester, if the attachment is to be tested

A step begins when it is due, whatever the state of earlier ones; only a delete waits for its own attachment, up to
`pending` seconds, so that every attachment is measured. In the end, also after an interruption, all objects with the
run's label are removed; `clean` does the same for a run whose driver was killed.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from netloom.control.runtime.cache import Change
from netloom.control.runtime.informer import Informer
from netloom.errors import NetloomError, NotFound
from netloom.load import objects
from netloom.load.objects import Seen
from netloom.load.plan import Doing, Load, Phase, PlannedNetwork, Slot, Step
from netloom.load.records import Life, RunResult
from netloom.load.testers import Tester, Trial
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.store.base import Store

GONE_SECONDS = 60.0
TESTS = 8
"""How many tests may run at a time: each is a process or two."""


@dataclass(slots=True)
class Now:
    """The progress of a run, for display."""

    phase: str = "preparing"
    steps: int = 0
    done: int = 0
    alive: int = 0
    ready: int = 0
    broken: int = 0


@dataclass(slots=True)
class _Open:
    """A life that is not over."""

    life: Life
    slot: Slot
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no further state is expected before its delete."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    trial: Trial | None = None
    guests: int = 0
    """How many tests ping it now."""
    alone: asyncio.Event = field(default_factory=asyncio.Event)


class Driver:
    """One run."""

    def __init__(
        self,
        store: Store,
        load: Load,
        *,
        namespace: str,
        networks: Sequence[PlannedNetwork],
        slots: Sequence[Slot],
        steps: Sequence[Step],
        tester: Tester | None = None,
        pending: float = 60.0,
        stop_on_error: bool = False,
    ) -> None:
        self.outcome = RunResult(load.run)
        self.now = Now(steps=len(steps))
        self.fabric = load.fabric
        self._before_phase: Callable[[Phase], Awaitable[None]] | None = None
        self._store = store
        self._load = load
        self._namespace = namespace
        self._networks = networks
        self._slots = slots
        self._steps = steps
        self._tester = tester
        self._pending = pending
        self._stop_on_error = stop_on_error
        self._open: dict[str, _Open] = {}
        self._began = math.nan
        self._tests = asyncio.Semaphore(TESTS)
        self._halt = asyncio.Event()
        self._group: asyncio.TaskGroup

    @property
    def alive(self) -> list[Life]:
        """The existing attachments: created, and not being deleted."""
        lives = (opened.life for opened in self._open.values())
        return [life for life in lives if life.uid and math.isnan(life.ending)]

    def clock(self) -> float:
        """Return the time of this run's clock, which all processes of this machine share."""
        return asyncio.get_running_loop().time()

    async def run(self, *, before_phase: Callable[[Phase], Awaitable[None]] | None = None) -> RunResult:
        """Do all steps, clean up, and return the outcome.

        `before_phase` is awaited before a phase begins, once everything that was begun before is settled.
        """
        self._before_phase = before_phase
        try:
            await objects.prepare(self._store, self._load, self._namespace, self._networks, seconds=self._pending)
            await self._drive()
        finally:
            self.now.phase = "cleaning up"
            await objects.protected(self._clean())
        return self.outcome

    async def _clean(self) -> None:
        # Nodes stay: their agents may still run, and create them again.
        await objects.clean(self._store, self._load.run, objects.KINDS[:-1])
        if self._tester is not None:
            await self._tester.close()

    async def _drive(self) -> None:
        informer = Informer(
            self._store,
            NETWORK_ATTACHMENT,
            objects.seen,
            random=Random(self._load.seed),  # noqa: S311  # only to spread attempts
            namespace=self._namespace,
            selector=objects.of_run(self._load.run),
        )
        informer.on_change(self._on_change)
        async with asyncio.TaskGroup() as watching:
            following = watching.create_task(informer.run())
            await informer.synced.wait()
            self._began = self.clock()
            async with asyncio.TaskGroup() as self._group:
                for step in self._steps:
                    if not await self._is_due(step):
                        break
                    if step.doing is Doing.CREATE:
                        self._expect(step)
                    self._group.create_task(self._run_step(step))
                if self.now.phase != Phase.COOL_DOWN:
                    await asyncio.gather(*(self._settled(opened) for opened in self._open.values()))
                    await self._rest(Phase.COOL_DOWN)
            self.outcome.seconds = self.clock() - self._began
            following.cancel()

    async def _is_due(self, step: Step) -> bool:
        """Wait until a step is due; return False if the run is to stop before that."""
        if step.phase != self.now.phase:
            if step.phase is not Phase.WARM_UP:
                await self._rest(step.phase)
            self.now.phase = step.phase
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._began + step.at - self.clock())):
                await self._halt.wait()
        return not self._halt.is_set()

    async def _rest(self, phase: Phase) -> None:
        """Await `before_phase`; that time does not count."""
        if self._before_phase is None:
            return
        began = self.clock()
        await asyncio.gather(*(opened.settled.wait() for opened in self._open.values()))
        await self._before_phase(phase)
        self._began += self.clock() - began

    def _name(self, step: Step) -> str:
        return f"{self._load.run}-{step.slot:05}-{step.turn}"

    def _expect(self, step: Step) -> None:
        """Begin a life, before anything checks whether all are settled."""
        slot = self._slots[step.slot]
        life = Life(self._name(step), slot.number, slot.network, slot.node, step.phase, due=self._began + step.at)
        self._open[life.name] = _Open(life, slot)
        self.outcome.lives.append(life)

    async def _run_step(self, step: Step) -> None:
        name = self._name(step)
        try:
            if step.doing is Doing.CREATE:
                await self._create(name)
            else:
                await self._delete(name, step)
        except NetloomError as error:
            self._broke(f"{step.doing} failed: {error.reason}", error.message, name)
        finally:
            self.now.done += 1

    async def _create(self, name: str) -> None:
        opened = self._open[name]
        life, slot = opened.life, opened.slot
        if slot.tested and self._tester is not None:
            opened.trial = await self._tester.begin(slot)
        document = objects.attachment(self._load, self._namespace, name, slot, opened.trial)
        life.asked = self.clock()
        try:
            await self._store.create(NETWORK_ATTACHMENT, document)
        except BaseException:
            opened.settled.set()
            opened.gone.set()
            raise
        life.answered = self.clock()
        self.now.alive += 1

    async def _delete(self, name: str, step: Step) -> None:
        opened = self._open[name]
        life = opened.life
        await self._settled(opened)
        life.ended_due = self._began + step.at
        if math.isnan(life.answered):
            return
        life.ending = self.clock()
        if opened.guests:
            await opened.alone.wait()
            life.ending = self.clock()
        with contextlib.suppress(NotFound):
            await self._store.delete(NETWORK_ATTACHMENT, self._namespace, name)
        life.ended = self.clock()
        self.now.alive -= 1
        try:
            async with asyncio.timeout(GONE_SECONDS):
                await opened.gone.wait()
        except TimeoutError:
            self._broke("never gone", f"not gone within {GONE_SECONDS:g} s", name)
        if opened.trial is not None and self._tester is not None:
            await self._tester.end(opened.trial)
        del self._open[name]

    async def _settled(self, opened: _Open) -> None:
        """Wait until no further state of an attachment is expected, or until the time limit."""
        life = opened.life
        try:
            async with asyncio.timeout(self._pending):
                await opened.settled.wait()
        except TimeoutError:
            what = "addressed" if math.isnan(life.addressed) else "Ready" if math.isnan(life.ready) else "tested"
            self._broke(f"never {what}", f"not {what} within {self._pending:g} s", life.name)

    def _on_change(self, change: Change[Seen]) -> None:
        opened = self._open.get(change.key.name)
        if opened is None:
            return
        life, at = opened.life, self.clock()
        if change.new is None:
            life.gone = at
            opened.settled.set()
            opened.gone.set()
            return
        seen = change.new
        if math.isnan(life.addressed) and seen.ips:
            life.addressed, life.ips, life.uid = at, seen.ips, seen.uid
        if seen.ready and math.isnan(life.ready):
            life.ready = at
            self.now.ready += 1
            if opened.trial is None or self._tester is None:
                opened.settled.set()
            else:
                self._group.create_task(self._test(self._tester, opened, opened.trial))
        if seen.errors and (change.old is None or change.old.errors != seen.errors):
            self._broke("attachment broken", "; ".join(seen.errors), life.name)

    async def _test(self, tester: Tester, opened: _Open, trial: Trial) -> None:
        life = opened.life
        try:
            async with self._tests:
                if not await tester.half(trial, life.ips):
                    self._broke("half test failed", f"{', '.join(life.ips)} not on its device", life.name)
                    return
                life.half_tested = self.clock()
                if (peer := self._peer(opened)) is not None:
                    await self._visit(tester, opened, trial, peer)
        finally:
            opened.settled.set()

    async def _visit(self, tester: Tester, opened: _Open, trial: Trial, peer: _Open) -> None:
        """Ping another attachment, which is not deleted meanwhile."""
        peer.guests += 1
        peer.alone.clear()
        try:
            if await tester.full(trial, peer.life.ips):
                opened.life.tested = self.clock()
            else:
                text = f"no answer from {peer.life.name}, {', '.join(peer.life.ips)}"
                self._broke("ping failed", text, opened.life.name)
        finally:
            peer.guests -= 1
            if not peer.guests:
                peer.alone.set()

    def _peer(self, opened: _Open) -> _Open | None:
        """Return an attachment to ping: in the same Subnets, also tested, preferably on another node."""
        found = [
            other
            for other in self._open.values()
            if other.trial is not None
            and other is not opened
            and other.slot.subnets == opened.slot.subnets
            and not math.isnan(other.life.half_tested)
            and math.isnan(other.life.ending)
        ]
        return max(found, key=lambda other: other.slot.node != opened.slot.node, default=None)

    def _broke(self, kind: str, text: str, name: str) -> None:
        opened = self._open.get(name)
        self.outcome.broke(kind, text, opened.life if opened is not None else None)
        self.now.broken += 1
        if self._stop_on_error:
            self._halt.set()
