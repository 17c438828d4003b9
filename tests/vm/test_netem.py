"""Delay and loss by netem, in a virtual machine whose kernel has it."""

from pathlib import Path

import pytest

from tests.vm.machine import run_in_vm

pytestmark = pytest.mark.vm


def test_netem_delays_and_drops_packets_and_leaves_no_trace(tmp_path: Path) -> None:
    found = run_in_vm("tests.vm.netem_guest", ["veth", "sch_netem"], tmp_path)
    assert (found["before"], found["after"]) == (False, True), "only an attempt shows what the kernel has"
    assert found["plain"] < 0.05
    # The machine may be slow, but no packet is early.
    assert 0.05 <= found["slow"] < 0.05 * 1.15 + found["plain"] + 0.02
    assert found["slow_qdiscs"] == ["netem", "netem"]
    assert found["rewritten"] == 0
    assert found["lost"] == pytest.approx(0.2, abs=0.05)
    assert found["restored"] < 0.05
    assert found["restored_lost"] == 0
    assert found["restored_qdiscs"] == ["noqueue", "noqueue"]
    assert found["theirs"] == "netem"
    assert found["taken"] == "QdiscTaken"
