"""The supervisor: starts a lab's processes, restarts those that end, and forwards the API to the nodes.

   needs ready ── start ── its socket accepts connections ── `after` ── ready ── it ends ─┐
                    ^                                                                      │
                     └──────────────────────── unless --no-restart ─────────────────────────┘

It is one process per lab, detached from the command that brought the lab up. It has no state that matters: when it is
killed the others continue, and its successor, which the keeper starts, finds them by their pid files and watches them
as its own. It does not end labs: `lab down` ends the supervisor first, then all other processes.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from netloom.errors import Conflict
from netloom.lab import clusters, state
from netloom.lab.daemons import health, relay
from netloom.lab.daemons.entering import entered
from netloom.lab.daemons.processes import is_of, read_pid
from netloom.lab.daemons.program import Program
from netloom.lab.daemons.programs import programs
from netloom.lab.layout import MARK, MARK_NAME, NODES_PORT, NORTHBOUND_PORT, Layout
from netloom.run import files

log = logging.getLogger(__name__)

ASK_SECONDS = 0.02
SHORT_LIFE = 2.0
LONGEST_PAUSE = 0.8
"""The longest delay before a restart, also for processes that end again and again."""


class Supervisor:
    """Runs the processes of one lab."""

    def __init__(self, layout: Layout) -> None:
        """Supervise the lab that `layout` describes."""
        self._layout = layout
        self._programs = programs(layout)
        self._ready = {program.name: asyncio.Event() for program in self._programs}

    async def run(self) -> None:
        """Keep all processes running, for ever."""
        port = self._layout.state.port
        listeners = [relay.listen(self._layout.netns(node), port) for node in self._layout.clients]
        if self._layout.on_cluster:
            listeners.append(relay.listen("", port))
        host, target, place = clusters.api(self._layout)
        netns = self._layout.netns(place) if place else ""
        async with asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(relay.serve(listener, host, target, netns=netns))
            for listener, place, address, port in self._databases():
                group.create_task(relay.serve(listener, address, port, netns=self._layout.netns(place)))
            for program in self._programs:
                group.create_task(self._keep(program))

    def _databases(self) -> list[tuple[socket.socket, str, str, int]]:
        """Return the control plane's listeners for OVN's servers, each with the address of the server."""
        layout = self._layout
        if not layout.secure:
            return []
        targets = [(place, layout.central_ip(place), NORTHBOUND_PORT) for place in layout.centrals]
        targets += [(place, layout.management_ip(place), NODES_PORT) for place in layout.centrals]
        ports = layout.state.ovn_ports
        return [(relay.listen("", port), *target) for port, target in zip(ports, targets, strict=True)]

    async def _keep(self, program: Program) -> None:
        pause = 0.0
        running = self._adopt(program)
        if running is None:
            for need in program.needs:
                await self._ready[need].wait()
        while True:
            while running is None and self._layout.is_off(program.place):  # noqa: ASYNC110  # a file signals it
                await asyncio.sleep(5 * ASK_SECONDS)
            started = time.monotonic()
            running = running or self._start(program)
            await self._live(program, running)
            log.warning("%s (%d) ended%s", program.name, running.pid, running.how())
            running = None
            if not self._layout.state.restart:
                return
            lived = time.monotonic() - started
            pause = 0.0 if lived > SHORT_LIFE else min(LONGEST_PAUSE, pause * 2 or 0.1)
            await asyncio.sleep(pause)

    async def _live(self, program: Program, running: "Running") -> None:
        """Make a started process ready, and return when it has ended."""
        try:
            async with asyncio.TaskGroup() as group:
                becoming = group.create_task(self._become_ready(program))
                await running.ended()
                becoming.cancel()
        finally:
            self._ready[program.name].clear()
            (self._layout.ready / program.name).unlink(missing_ok=True)

    async def _become_ready(self, program: Program) -> None:
        # Sockets and commands of other programs send no notification, so this polls until it is cancelled.
        while program.socket and not _answers(program.socket):  # noqa: ASYNC110  # as above
            await asyncio.sleep(ASK_SECONDS)
        netns = self._layout.netns(program.place) if program.place else ""
        while program.health and not await asyncio.to_thread(health.answers, program.health, netns):  # noqa: ASYNC110
            await asyncio.sleep(5 * ASK_SECONDS)
        for command in program.after:
            while not await self._succeeds(program, command):  # noqa: ASYNC110  # as above
                await asyncio.sleep(10 * ASK_SECONDS)
        self._ready[program.name].set()
        (self._layout.ready / program.name).touch()

    async def _succeeds(self, program: Program, command: tuple[str, ...]) -> bool:
        with (self._layout.log / program.name).open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=self._environment(program),
            )
        try:
            return await child.wait() == 0
        finally:
            if child.returncode is None:
                child.kill()

    def _adopt(self, program: Program) -> "Running | None":
        """Return the process that an earlier supervisor started, if it still runs."""
        pid = read_pid(self._layout.pids, program.name)
        if not pid or not is_of(pid, self._layout.id, program.name):
            return None
        try:
            running = Running(pid, None)
        except ProcessLookupError:
            return None
        log.info("%s (%d) is still running", program.name, pid)
        return running

    def _start(self, program: Program) -> "Running":
        netns = self._layout.netns(program.place) if program.place else ""
        argv = entered(program.argv, netns=netns, root=program.root, folder=self._layout.folder)
        with (self._layout.log / program.name).open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self._environment(program),
                cwd="/",
            )
        files.write_whole(self._layout.pids / program.name, f"{child.pid}\n".encode(), mode=0o644)
        log.info("%s (%d) started", program.name, child.pid)
        return Running(child.pid, child)

    def _environment(self, program: Program) -> dict[str, str]:
        marks = {MARK: self._layout.id, MARK_NAME: program.name}
        return {**os.environ, **program.environment, **marks}


class Running:
    """A running process, started by this supervisor or an earlier one."""

    def __init__(self, pid: int, child: "subprocess.Popen[bytes] | None") -> None:
        """Watch `pid`; `ProcessLookupError` if there is none."""
        self.pid = pid
        self._child = child
        self._descriptor = os.pidfd_open(pid)

    async def ended(self) -> None:
        """Return when the process has ended; call it once."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_reader(self._descriptor, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        if self._child is not None:
            self._child.wait()

    def how(self) -> str:
        """Return how it ended, if that is known."""
        if self._child is None or self._child.returncode is None:
            return ""
        code = self._child.returncode
        return f" by {signal.Signals(-code).name}" if code < 0 else f" with status {code}"


def _answers(address: str) -> bool:
    is_path = address.startswith("/")
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as probe:
        try:
            probe.connect(address if is_path else (host, int(port)))
        except OSError:
            return False
    return True


def main(folder: Path) -> int:
    """Supervise the lab in `folder` until killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    layout = Layout(folder, state.load(folder))
    try:
        with files.exclusive_lock(folder / "supervisor.lock", "the lab already has a supervisor"):
            # Written here, and only now: a second supervisor, which exits at once, must not replace the pid of the
            # first.
            files.write_whole(layout.pids / "supervisor", f"{os.getpid()}\n".encode(), mode=0o644)
            asyncio.run(Supervisor(layout).run())
    except Conflict as error:
        log.info("%s", error.message)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
