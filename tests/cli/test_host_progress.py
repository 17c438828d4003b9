"""The progress of programs on hosts, on a terminal and elsewhere."""

import os
import pty
import sys

import pytest

from netloom.cli.sandbox.ssh.progress import HostProgress
from netloom.drivers.remote.protocol import Result


def drawn(progress: HostProgress) -> None:
    progress.on_step("h1", "bridge \x1b[31mred created")
    progress.on_end("h1", Result(changes=1, problems=("no netem",)))
    progress.on_end("h2", Result(error="it is down\nby far"))


def test_elsewhere_each_step_is_a_line_and_nothing_can_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    drawn(HostProgress(2))
    out, err = capsys.readouterr()
    assert out == "h1: 1 change\n"
    assert err.splitlines() == [
        "h1: bridge \\x1b[31mred created",
        "h1: warning: no netem",
        "h2: failed: it is down...",
    ]


def test_on_a_terminal_a_bar_shows_how_many_hosts_are_done_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        drawn(HostProgress(2))
        stderr.flush()
        screen = os.read(reader, 65536).decode()
    os.close(reader)
    assert "0 of 2 hosts  h1: bridge \\x1b[31mred created" in screen
    assert "1 of 2 hosts" in screen
    assert screen.splitlines()[-1].rpartition("\r")[2] == "h2: failed: it is down..."
    assert capsys.readouterr().out == "h1: 1 change\n"


def test_in_a_dry_run_the_steps_are_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    progress = HostProgress(1, dry_run=True)
    progress.on_step("h1", "bridge created")
    progress.on_end("h1", Result(changes=1))
    assert capsys.readouterr().out.splitlines() == ["h1: bridge created (dry run)", "h1: 1 change (dry run)"]
