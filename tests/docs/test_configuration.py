"""docs/configuration.md names every setting of every process."""

import re

import msgspec
import pytest

from netloom.run.config import (
    AgentSettings,
    ApiserverSettings,
    ControllerSettings,
    ServeSettings,
    Settings,
    SpeakerSettings,
    VtepSettings,
)
from tests.docs.console import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text()
EVERYBODY = "Settings of every process"
SECTIONS = {
    Settings: [EVERYBODY],
    ServeSettings: [EVERYBODY, "netloom serve", "OVN"],
    ApiserverSettings: [EVERYBODY, "netloom apiserver"],
    ControllerSettings: [EVERYBODY, "netloom controller", "OVN"],
    AgentSettings: [EVERYBODY, "netloom agent"],
    SpeakerSettings: [EVERYBODY, "netloom speaker"],
    VtepSettings: [EVERYBODY, "netloom vtep"],
}


def keys(heading: str) -> set[str]:
    """Return the keys in the tables of a section."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {
        key for cell in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)
    }


@pytest.mark.parametrize("kind", SECTIONS, ids=lambda kind: kind.__name__)
def test_the_page_names_exactly_the_settings_there_are(kind: type[Settings]) -> None:
    told = set().union(*(keys(heading) for heading in SECTIONS[kind]))
    assert told == {field.encode_name for field in msgspec.structs.fields(kind)}
