"""`make demo`, the part after the set-up: it runs to its end, and leaves nothing behind."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from netloom.lab import state
from tests.docs.console import ROOT
from tests.lab.labs import left_of
from tests.run.serving import environment
from tests.support.process import Program, wait_until

DEMO = ROOT / "tools" / "demo"
pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.slow]


def test_the_demo_finds_everything_as_it_should_be_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = subprocess.run(
        [DEMO], capture_output=True, text=True, timeout=180, env=environment(TMPDIR=str(tmp_path)), check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^alice +yes/yes .* no/no ", ended.stdout, re.MULTILINE)
    assert "32 connections that must work, 12 that must not: no unexpected results." in ended.stdout
    assert "packet loss between alice and bob without any control plane: 0 % lost  (as expected)" in ended.stdout
    assert "spec.fabric: " in ended.stderr
    assert "no problems found." in ended.stdout
    assert "Done in " in ended.stdout
    assert list(tmp_path.iterdir()) == []
    assert not [folder for folder in state.registered().values() if folder.is_relative_to(tmp_path)]


def test_a_demo_that_is_interrupted_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    with Program([DEMO], log=tmp_path / "log", env=environment(TMPDIR=str(folder))) as demo:
        wait_until(lambda: list(folder.glob("*/lab/pids/supervisor")), what="the lab to be coming up")
        (pids,) = folder.glob("*/lab/pids")
        os.kill(demo.pid, signal.SIGTERM)
        assert demo.wait() == 143
    assert list(folder.iterdir()) == []
    assert left_of(pids.parent) == []
