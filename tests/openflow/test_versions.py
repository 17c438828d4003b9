"""The tests against a real switch, with other generations of Open vSwitch: 3.5 and 4.0."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ovn, pytest.mark.root, pytest.mark.slow, pytest.mark.versions]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = {
    "ovs-vswitchd": "usr/lib/openvswitch-switch/ovs-vswitchd",
    "ovs-ofctl": "usr/bin/ovs-ofctl",
    "ovs-appctl": "usr/bin/ovs-appctl",
}


@pytest.mark.parametrize(("generation", "version"), [("25.03", "3.5."), ("26.03", "4.0.")])
def test_another_generation_takes_and_shows_the_same_flows(tmp_path: Path, generation: str, version: str) -> None:
    made = subprocess.run([ROOT / "tools" / "ovn-root", generation], capture_output=True, text=True, check=True)
    root = Path(made.stdout.strip())
    loader = [root / "lib64/ld-linux-x86-64.so.2", "--library-path", root / "usr/lib/x86_64-linux-gnu"]
    for name, path in PROGRAMS.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {" ".join(map(str, loader))} {root / path} "$@"\n')
        program.chmod(0o755)
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert f" {version}" in said.splitlines()[0]
    files = [str(HERE / file) for file in ("test_against_switch.py", "test_pipeline.py")]
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=ROOT, timeout=800, check=False)
    assert ended.returncode == 0, ended.stdout[-20000:] + ended.stderr[-2000:]
