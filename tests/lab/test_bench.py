"""The load driver in a lab: real agents, real packets."""

import json
from pathlib import Path

import pytest

from netloom.lab import Lab
from tests.run.serving import netloom

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]
SMALL = ("--networks", "2", "--top-size", "6", "--rate", "10", "--cruise", "1s", "--test-share", "1")


@pytest.mark.parametrize("fabric", ["ovn", "vxlan"])
def test_attachments_that_come_and_go_answer_each_other(lab: Lab, tmp_path: Path, fabric: str) -> None:
    words = ("--fabric", fabric, "--run", f"lab-{fabric}", "-n", f"bench-{fabric}", "--output", tmp_path / "run.json")
    netloom("bench", "attachments", "--lab", lab.layout.folder, *SMALL, *words)
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["errors"] == {}
    assert written["summaries"]["tested"]["count"] >= 5
    assert all(one["half_tested"] is not None for one in written["attachments"])
    places = [path.name for path in Path("/run/netns").iterdir()]
    assert not any(f"bench-lab-{fabric}" in name for name in places)
