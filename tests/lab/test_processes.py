"""Whose a process is, and that a signal reaches nobody else."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from netloom.lab import state
from netloom.lab.daemons import processes, supervisor
from netloom.lab.layout import MARK, MARK_NAME
from netloom.lab.state import State

LAB = "nlt-processes"


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    ours = {MARK: LAB, MARK_NAME: "some"}
    with subprocess.Popen(["sleep", "600"], env=os.environ | ours) as one:
        yield one
        one.kill()


def test_a_process_is_found_by_what_it_carries_and_is_signalled(child: "subprocess.Popen[bytes]") -> None:
    (found,) = processes.of_lab(LAB, ())
    assert (found.pid, found.name) == (child.pid, "some")
    processes.signal_all([found], signal.SIGTERM)
    assert child.wait(120) == -signal.SIGTERM
    processes.signal_all([found], signal.SIGTERM)


def test_who_has_come_by_a_pid_since_gets_no_signal(child: "subprocess.Popen[bytes]") -> None:
    (found,) = processes.of_lab(LAB, ())
    processes.signal_all([replace(found, started=found.started - 1)], signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)


def test_the_machines_own_namespace_is_never_a_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "NETNS", tmp_path)
    (tmp_path / "nl-x-n1").symlink_to("/proc/self/ns/net")
    assert processes.of_lab("nobody", ["nl-x-n1"]) == []


def test_a_supervisor_writes_down_its_pid_when_it_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: supervisor.Supervisor) -> None:
        second.append(supervisor.main(tmp_path))
        assert (tmp_path / "pids" / "supervisor").read_text() == f"{os.getpid()}\n"

    second: list[int] = []
    state.save(tmp_path, State(nodes=1, port=20000))
    (tmp_path / "pids").mkdir()
    monkeypatch.setattr(supervisor.Supervisor, "run", nothing)
    assert supervisor.main(tmp_path) == 0
    assert second == [0]
