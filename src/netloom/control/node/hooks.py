"""Runs the programs that attachments want run at their interfaces: when one is made, and when one is gone.

    made ("due") ──► installed ──► Ready told ──► "interrupted" written ──► run ──► outcome written ──► status, Event
    removed ("after") ──► device gone ──► "started" written ──► run ──► Event ──► forgotten

Each runs at most once for each interface that is made or removed, because what is about to run is written down first,
in the switch's database (`plan/node/hooks.py`): what never started is run after a crash, and what had started is
reported as interrupted. An interface that is found after a restart was made before, and nothing is due for it; one
whose namespace went and came back is made again.

postCreateExec runs after Ready is told, not before: Ready says that packets flow, which the program may need, and no
program is to decide when. What it comes to is in the report and the Events, and costs the interface nothing; nor does a
program that is not allowed. Whether one is allowed is asked when it is about to run.

A few run at a time, one after another for each attachment; the others wait, and nothing waits for them. The reconcile
that finds something to run hands it over and goes on. When the agent stops, what runs is ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, Protocol

from msgspec import structs

from netloom.control.node.status import Found, is_told
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock, micro
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.events import Recorder
from netloom.drivers.link.codec import Link
from netloom.drivers.programs.programs import Ended
from netloom.drivers.vswitch.hook_journal import HookJournal
from netloom.errors import NetloomError
from netloom.model.attachments import ExecReport, NetworkAttachment
from netloom.model.events import ObjectReference
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.node import hooks
from netloom.plan.node.hooks import CREATE, CROWDED, DELETE, INTERRUPTED, NOT_STARTED, OVERDUE, REFUSED, After

log = logging.getLogger(__name__)

AT_A_TIME = 8
SHORT = 512
"""How many characters of an output are kept in the switch's database, for whoever comes after a crash."""
ARGUMENT = 1024
"""How long a report's arguments may be."""
GOING = 2.0
"""For how many seconds a device that was taken off the switch is waited for to go."""
LOOK = 0.05
SUCCEEDED, FAILED = "ExecSucceeded", "ExecFailed"
REASONS = {0: SUCCEEDED, REFUSED: "ExecRefused", OVERDUE: "ExecTimedOut", INTERRUPTED: "ExecInterrupted"}
OUTCOMES = {
    0: "succeeded",
    REFUSED: "refused",
    NOT_STARTED: "not_started",
    OVERDUE: "overdue",
    INTERRUPTED: "interrupted",
    CROWDED: "crowded",
}
CUT_SHORT = "[interrupted: the agent ended while it ran; it is not run again]"


class Runs(Protocol):
    """Runs programs."""

    async def run(self, command: Sequence[str]) -> Ended:
        """Run one to its end."""


class Devices(Protocol):
    """Knows the node's devices."""

    async def device(self, name: str) -> Link | None:
        """Return one."""

    async def pairs(self) -> dict[str, str]:
        """Return the outer ends of our pairs, each with the uid it was made for."""

    async def remove_pair(self, name: str) -> None:
        """Remove a pair."""


@dataclass(slots=True)
class _Turn:
    """One attachment's programs, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class HookRunner:
    """The programs of this node's attachments."""

    def __init__(
        self,
        book: HookJournal,
        programs: Runs,
        devices: Devices,
        *,
        allowed: Collection[str],
        recorder: Recorder,
        clock: Clock,
        measured: Histograms | None = None,
    ) -> None:
        """`measured`: how long programs ran, by when they are run and how they ended; none where they were not."""
        self.look: Callable[[Key], None] = lambda key: None
        """Told which attachment there is something to tell of."""
        self._book = book
        self._programs = programs
        self._devices = devices
        self._allowed = frozenset(allowed)
        self._recorder = recorder
        self._clock = clock
        self._measured = measured or Histograms(("hook", "outcome"))
        self._jobs: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._taken: set[str] = set()
        """What waits to be run or runs: ports, and records of those that are gone."""
        self._turns: dict[Key, _Turn] = {}
        self._room = asyncio.Semaphore(AT_A_TIME)
        self._reports: dict[str, ExecReport] = {}
        """Reports in full, by port, until they are told."""

    @property
    def running(self) -> int:
        """How many programs wait or run."""
        return len(self._taken)

    # What the keeper of the ports calls.

    def places(self) -> set[Key]:
        """Return the attachments with something to be run, or to be told, although their interfaces are gone."""
        return {Key(after.namespace, after.name) for after in self._book.gone().values()}

    def ready(self, key: Key, value: NetworkAttachment) -> None:
        """Run what is due now that an interface works."""
        found = self._book.made(key, value.metadata.uid)
        if found is None or found[1].start_time or found[0] in self._taken:
            return
        port, report = found
        self._taken.add(port)
        self._jobs.put_nowait(partial(self._made, key, port, report.command))

    def gone(self, key: Key) -> None:
        """Run what is due now that interfaces of an attachment are gone."""
        for record, after in self._book.gone().items():
            if (after.namespace, after.name) == key and record not in self._taken:
                self._taken.add(record)
                self._jobs.put_nowait(partial(self._gone, key, record, after))

    def completed(self, key: Key, value: NetworkAttachment, found: Found) -> Found:
        """Return what became of an attachment, with what is to be told of its programs."""
        complaints = hooks.complaints(value.spec, self._allowed)
        report = self._report(key, value.metadata.uid)
        return structs.replace(found, complaints=complaints, report=report) if complaints or report else found

    def told(self, value: NetworkAttachment, found: Found) -> None:
        """Have people know, once the status says it, what it did not say before."""
        for complaint in set(found.complaints) - set(value.status.errors.host):
            self._recorder.warning(value, REASONS[REFUSED], complaint)
        report = found.report
        if report is not None and not is_told(value, report):
            if report.exit_status != REFUSED or not found.complaints:
                self._tell(value, CREATE, report.command, report.exit_status)
            self._reports = {port: one for port, one in self._reports.items() if one is not report}

    # What runs.

    async def run(self) -> NoReturn:
        """Run what is due until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._supervised(await self._jobs.get()))
        raise AssertionError  # The group ends only by being cancelled.

    @staticmethod
    async def _supervised(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception:  # The edge: one program nobody thought of must not stop the others.
            log.exception("a program could not be seen to")

    def _report(self, key: Key, uid: str) -> ExecReport | None:
        found = self._book.made(key, uid)
        if found is None or not found[1].start_time or found[0] in self._taken:
            return None
        port, written = found
        full = self._reports.get(port)
        return full if full is not None and full.start_time == written.start_time else written

    async def _made(self, key: Key, port: str, command: tuple[str, ...]) -> None:
        async with self._turn(key, port):
            report = ExecReport(
                command=_told(command), exit_status=INTERRUPTED, start_time=micro(self._clock()), std_err=CUT_SHORT
            )
            refusal = hooks.refusal(CREATE, command, self._allowed)
            if not refusal and not await self._book.mark(port, report):
                return  # It is gone before anything was run.
            ended = await self._ended(CREATE, command, refusal)
            report = self._reports[port] = ExecReport(
                command=report.command,
                exit_status=ended.exit_status,
                start_time=report.start_time,
                stop_time=micro(self._clock()),
                std_out=ended.stdout,
                std_err=ended.stderr,
            )
            short = structs.replace(report, std_out=_short(report.std_out), std_err=_short(report.std_err))
            if not await self._book.mark(port, short):
                del self._reports[port]
                log.info("%s: %s ended with status %s; its interface is gone", key, CREATE, ended.exit_status)
        self.look(key)

    async def _gone(self, key: Key, record: str, after: After) -> None:
        whom = ObjectReference(
            kind=NETWORK_ATTACHMENT.name, namespace=after.namespace, name=after.name, uid=after.uid,
            api_version=NETWORK_ATTACHMENT.api_version,
        )  # fmt: skip
        async with self._turn(key, record):
            if after.started:
                self._measure(DELETE, INTERRUPTED)
                self._tell(whom, DELETE, after.command, INTERRUPTED)
                return await self._book.forget(record)
            refusal = hooks.refusal(DELETE, after.command, self._allowed)
            if not refusal:
                await self._vanished(after)
                if not await self._book.begin(record, structs.replace(after, started=micro(self._clock()))):
                    return None
            ended = await self._ended(DELETE, after.command, refusal)
            if ended.exit_status:
                log.info("%s: %s: %s", key, DELETE, ended.stderr)
            self._tell(whom, DELETE, after.command, ended.exit_status)
            return await self._book.forget(record)

    @asynccontextmanager
    async def _turn(self, key: Key, what: str) -> AsyncIterator[None]:
        """Wait for our turn: one at a time for each attachment, and few at a time in all."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock, self._room:
                yield
        finally:
            self._taken.discard(what)
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def _ended(self, what: str, command: tuple[str, ...], refusal: str) -> Ended:
        began = _now()
        ended = Ended(exit_status=REFUSED, stderr=refusal) if refusal else await self._programs.run(command)
        self._measure(what, ended.exit_status, _now() - began)
        return ended

    async def _vanished(self, after: After) -> None:
        """Wait until a device is gone, for a while: the switch removes its own when it hears of it."""
        try:
            if (await self._devices.pairs()).get(after.device) == after.uid:
                await self._devices.remove_pair(after.device)  # A crash kept us from it.
            deadline = _now() + GOING
            # One that is on the switch again is another's by now.
            while after.device and not self._book.in_use(after.device) and _now() < deadline:
                if await self._devices.device(after.device) is None:
                    return
                await asyncio.sleep(LOOK)
        except NetloomError as error:
            log.info("whether %s is gone is not known: %s", after.device, error)

    def _measure(self, what: str, status: int, seconds: float = 0.0) -> None:
        self._measured.observe((what.removesuffix("Exec"), OUTCOMES.get(status, "failed")), seconds)

    def _tell(self, whom: NetworkAttachment | ObjectReference, what: str, command: Sequence[str], status: int) -> None:
        words = {
            0: "succeeded",
            REFUSED: "is not among the programs this agent allows (--allowed-programs)",
            NOT_STARTED: "could not be run",
            OVERDUE: "did not end in time, and was killed",
            CROWDED: "became too many processes, and was killed",
            INTERRUPTED: "was interrupted by the end of the agent, and is not run again",
        }
        message = f"{what}: {command[0] if command else ''} {words.get(status, f'ended with status {status}')}"
        tell = self._recorder.warning if status else self._recorder.normal
        tell(whom, REASONS.get(status, FAILED), message)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _short(text: str) -> str:
    return text if len(text) <= SHORT else text[:SHORT] + "…"


def _told(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command as a report has it: what is filled in may make it longer than the API takes."""
    return tuple(one[:ARGUMENT] for one in command)
