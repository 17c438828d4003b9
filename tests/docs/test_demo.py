"""`make demo`, the part after the set-up: it runs to its end, again and again, and leaves nothing behind."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.console import ROOT
from tests.run.serving import environment
from tests.support.process import Program, wait_until

DEMO = ROOT / "tools" / "demo"


@pytest.mark.timeout(180)
def test_the_demo_works_twice_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for _ in range(2):
        ended = subprocess.run(
            [DEMO], capture_output=True, text=True, timeout=90, env=environment(TMPDIR=str(tmp_path)), check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "spec.fabric: " in ended.stderr
        assert re.search(r"^web-1 +n1 +blue +10\.10\.0\.9/24 .* 06:0a:00:09:00:0a ", ended.stdout, re.MULTILINE)
        assert "Assigned 10.10.0." in ended.stdout
        assert "  NetworkAttachment default/web-1\n" in ended.stderr
        assert "nothing is amiss." in ended.stdout
        assert "Done: " in ended.stdout
        assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(180)
def test_a_demo_that_is_interrupted_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    with Program([DEMO], log=tmp_path / "log", env=environment(TMPDIR=str(folder))) as demo:
        wait_until(lambda: list(folder.glob("*/data/lock")), what="the server to be started")
        (lock,) = folder.glob("*/data/lock")
        server = wait_until(lambda: lock.read_text().strip(), what="the server's pid")
        os.kill(demo.pid, signal.SIGTERM)
        assert demo.wait() == 143
    assert list(folder.iterdir()) == []
    assert not Path("/proc", server).exists()
