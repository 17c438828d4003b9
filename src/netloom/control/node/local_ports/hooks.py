"""Runs the programs of attachments: after an interface is made, and after it is removed.

    made ("due") ──► installed ──► Ready written ──► "interrupted" recorded ──► run ──► outcome recorded ──► status
    removed ("after") ──► device gone ──► "started" recorded ──► run ──► Event ──► record removed

Each program runs at most once for each interface that is made or removed, because it is recorded in the switch's
database before it runs (`plan/node/hooks.py`): a program that never started runs after a crash, and one that had
started is reported as interrupted. An interface that is found after a restart was made before, and nothing is due for
it; one whose namespace went and came back is made again.

postCreateExec runs after Ready is written, not before: Ready says that packets are forwarded, which the program may
need, and no program may delay it. Its outcome goes to the report and the Events, and does not affect the interface; nor
does a program that is not allowed. Whether a program is allowed is checked when it is about to run.

A few programs run at a time, and those of one attachment one after another; the others wait, and nothing waits for
them. `reconcile` hands a program over and goes on. When the agent stops, running programs are ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, NoReturn, Protocol

from msgspec import structs

from netloom.control.node.local_ports.status import PlugResult, has_report
from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock, micro
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.events import Recorder
from netloom.drivers.programs.programs import Ended
from netloom.drivers.shapes import PortDevices
from netloom.drivers.vswitch.hook_journal import HookJournal
from netloom.errors import NetloomError
from netloom.model.kinds.attachments import ExecReport, NetworkAttachment
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.node import hooks
from netloom.plan.node.hooks import CREATE, CROWDED, DELETE, INTERRUPTED, NOT_STARTED, OVERDUE, REFUSED, After
from netloom.signals import Signal

log = logging.getLogger(__name__)

CONCURRENT = 8
"""Programs that run at a time."""
RECORDED_OUTPUT = 512
"""Characters of an output that the switch's database keeps, for an agent that starts after a crash."""
LONGEST_ARGUMENT = 1024
"""Characters of an argument in a report."""
DEVICE_GONE = 2.0
"""Seconds to wait for a device to disappear after its port was taken off the switch."""
POLL = 0.05
FAILED = "ExecFailed"


class ExitMeaning(NamedTuple):
    """What an exit status means: the label of metrics, the reason and the text of the Event."""

    label: str
    reason: str
    text: str


OUTCOMES = {
    0: ExitMeaning("succeeded", "ExecSucceeded", "succeeded"),
    REFUSED: ExitMeaning("refused", "ExecRefused", "is not among the programs this agent allows (--allowed-programs)"),
    NOT_STARTED: ExitMeaning("not_started", FAILED, "could not be started"),
    OVERDUE: ExitMeaning("overdue", "ExecTimedOut", "did not end in time and was killed"),
    INTERRUPTED: ExitMeaning(
        "interrupted", "ExecInterrupted", "was interrupted when the agent ended, and is not run again"
    ),
    CROWDED: ExitMeaning("crowded", FAILED, "started too many processes and was killed"),
}
INTERRUPTION = "[interrupted: the agent ended while the program ran; it is not run again]"


class ProgramRunner(Protocol):
    """Runs programs (`drivers/programs`)."""

    async def run(self, command: Sequence[str]) -> Ended:
        """Run one to its end."""


@dataclass(slots=True)
class _Turn:
    """One attachment's programs, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class HookRunner:
    """The programs of this node's attachments."""

    def __init__(
        self,
        journal: HookJournal,
        programs: ProgramRunner,
        devices: PortDevices,
        *,
        allowed: Collection[str],
        recorder: Recorder,
        clock: Clock,
        durations: Histograms,
    ) -> None:
        """`durations` takes how long programs ran, by hook and outcome."""
        self.on_report: Signal[[Key]] = Signal()
        """Sent when there is a report to write to an attachment's status."""
        self._journal = journal
        self._programs = programs
        self._devices = devices
        self._allowed = frozenset(allowed)
        self._recorder = recorder
        self._clock = clock
        self._durations = durations
        self._jobs: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._taken: set[str] = set()
        """The ports, and the records of removed ones, whose programs wait or run."""
        self._turns: dict[Key, _Turn] = {}
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._reports: dict[str, ExecReport] = {}
        """Reports with all of their output, by port, until they are written to the status."""

    # For the reconciler of attachments.

    def attachments(self) -> set[Key]:
        """Return the attachments whose interfaces are gone and for which a program is due, or was interrupted."""
        return {Key(after.namespace, after.name) for after in self._journal.removed().values()}

    def installed(self, key: Key, value: NetworkAttachment) -> None:
        """Run the program that is due now that an interface works."""
        found = self._journal.created(key, value.metadata.uid)
        if found is None or found[1].start_time or found[0] in self._taken:
            return
        port, report = found
        self._taken.add(port)
        self._jobs.put_nowait(partial(self._run_created, key, port, report.command))

    def removed(self, key: Key) -> None:
        """Run the programs that are due now that interfaces of an attachment are gone."""
        for record, after in self._journal.removed().items():
            if (after.namespace, after.name) == key and record not in self._taken:
                self._taken.add(record)
                self._jobs.put_nowait(partial(self._run_removed, key, record, after))

    def completed(self, key: Key, value: NetworkAttachment, result: PlugResult) -> PlugResult:
        """Return a result with the report of its program, and with complaints about programs."""
        complaints = hooks.complaints(value.spec, self._allowed)
        report = self._report(key, value.metadata.uid)
        return structs.replace(result, complaints=complaints, report=report) if complaints or report else result

    def reported(self, value: NetworkAttachment, result: PlugResult) -> None:
        """Record Events for what the status says now and did not say before."""
        for complaint in set(result.complaints) - set(value.status.errors.host):
            self._recorder.warning(value, OUTCOMES[REFUSED].reason, complaint)
        report = result.report
        if report is not None and not has_report(value, report):
            if report.exit_status != REFUSED or not result.complaints:
                self._record_event(value, CREATE, report.command, report.exit_status)
            self._reports = {port: one for port, one in self._reports.items() if one is not report}

    # Running.

    async def run(self) -> NoReturn:
        """Run programs as they become due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._supervised(await self._jobs.get()))
        raise AssertionError  # The group ends only by being cancelled.

    @staticmethod
    async def _supervised(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception:  # The edge: a bug with one program must not stop the others.
            log.exception("a program could not be run")

    def _report(self, key: Key, uid: str) -> ExecReport | None:
        found = self._journal.created(key, uid)
        if found is None or not found[1].start_time or found[0] in self._taken:
            return None
        port, written = found
        full = self._reports.get(port)
        return full if full is not None and full.start_time == written.start_time else written

    async def _run_created(self, key: Key, port: str, command: tuple[str, ...]) -> None:
        async with self._turn(key, port):
            report = ExecReport(
                command=_shortened(command),
                exit_status=INTERRUPTED,
                start_time=micro(self._clock()),
                std_err=INTERRUPTION,
            )
            refusal = hooks.refusal(CREATE, command, self._allowed)
            if not refusal and not await self._journal.mark(port, report):
                return  # The port is gone before its program ran.
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
            if not await self._journal.mark(port, short):
                del self._reports[port]
                log.info("%s: %s ended with status %s after its interface was removed", key, CREATE, ended.exit_status)
        self.on_report(key)

    async def _run_removed(self, key: Key, record: str, after: After) -> None:
        target = ObjectReference(
            kind=NETWORK_ATTACHMENT.name, namespace=after.namespace, name=after.name, uid=after.uid,
            api_version=NETWORK_ATTACHMENT.api_version,
        )  # fmt: skip
        async with self._turn(key, record):
            if after.started:
                self._measure(DELETE, INTERRUPTED)
                self._record_event(target, DELETE, after.command, INTERRUPTED)
                return await self._journal.forget(record)
            refusal = hooks.refusal(DELETE, after.command, self._allowed)
            if not refusal:
                await self._wait_until_gone(after)
                if not await self._journal.begin(record, structs.replace(after, started=micro(self._clock()))):
                    return None
            ended = await self._ended(DELETE, after.command, refusal)
            if ended.exit_status:
                log.info("%s: %s: %s", key, DELETE, ended.stderr)
            self._record_event(target, DELETE, after.command, ended.exit_status)
            return await self._journal.forget(record)

    @asynccontextmanager
    async def _turn(self, key: Key, what: str) -> AsyncIterator[None]:
        """Wait until no other program of the attachment runs, and few programs in all."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock, self._slots:
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

    async def _wait_until_gone(self, after: After) -> None:
        """Wait for a while until a device is gone: the switch removes its own devices with a delay."""
        try:
            if (await self._devices.pairs()).get(after.device) == after.uid:
                await self._devices.remove_pair(after.device)  # The agent crashed before it did so.
            deadline = _now() + DEVICE_GONE
            # A device that is on the switch again belongs to another interface by now.
            while after.device and not self._journal.in_use(after.device) and _now() < deadline:
                if await self._devices.device(after.device) is None:
                    return
                await asyncio.sleep(POLL)
        except NetloomError as error:
            log.info("cannot check whether %s is gone: %s", after.device, error)

    def _measure(self, what: str, status: int, seconds: float = 0.0) -> None:
        self._durations.observe((what.removesuffix("Exec"), _meaning(status).label), seconds)

    def _record_event(
        self, target: NetworkAttachment | ObjectReference, what: str, command: Sequence[str], status: int
    ) -> None:
        meaning = _meaning(status)
        record = self._recorder.warning if status else self._recorder.normal
        record(target, meaning.reason, f"{what}: {command[0] if command else ''} {meaning.text}")


def _meaning(status: int) -> ExitMeaning:
    return OUTCOMES.get(status) or ExitMeaning("failed", FAILED, f"ended with status {status}")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _short(text: str) -> str:
    return text if len(text) <= RECORDED_OUTPUT else text[:RECORDED_OUTPUT] + "…"


def _shortened(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command for a report: with its variables filled in it may be longer than the API accepts."""
    return tuple(one[:LONGEST_ARGUMENT] for one in command)
