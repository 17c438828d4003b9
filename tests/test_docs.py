"""The documents are true as far as a program can tell: links lead somewhere, and commands they show exist."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MAKE = re.compile(r"(?:^\s*|`)make ([a-z][a-z-]*)", re.MULTILINE)
NETLOOM = re.compile(r"(?:^ {4}|^\$ |`)netloom ([a-z]+)", re.MULTILINE)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def _anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target}: no such file"
        assert not anchor or anchor in _anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_make_target_that_is_shown_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE.findall(page.read_text())) <= targets


def test_every_netloom_command_that_is_shown_exists() -> None:
    shown = {command for page in PAGES for command in NETLOOM.findall(page.read_text())}
    helped = subprocess.run(
        [sys.executable, "-m", "netloom.cli.main", "--help"], capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"^  ([a-z]+)\b", helped.stdout, re.MULTILINE))
    assert shown <= known | {"agent", "speaker"}, f"no such command: {sorted(shown - known)}"


def test_every_test_that_the_trust_table_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert len(named) > 10
    for file, name in sorted(named):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_the_reference_is_what_the_model_says() -> None:
    made = subprocess.run([sys.executable, ROOT / "tools/reference.py"], capture_output=True, text=True, check=True)
    assert (ROOT / "docs/reference.md").read_text() == made.stdout, "run make reference"


def test_every_function_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"`([\w/]+\.py): (\w+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 15
    for file, name in sorted(named):
        text = (ROOT / "src/netloom" / file).read_text()
        assert re.search(rf"^\s*(async )?(def|class) {name}\b", text, re.MULTILINE), f"{file}: {name}"


def test_every_file_that_the_architecture_names_exists() -> None:
    for file in set(re.findall(r"`((?:\w+/)+\w+\.py)\b", (ROOT / "ARCHITECTURE.md").read_text())):
        assert (ROOT / "src/netloom" / file).exists() or (ROOT / file).exists(), file


def test_the_way_of_an_attachment_is_counted_and_names_what_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## The way of an attachment, file by file")[2]
    text = text.partition("\n## ")[0]
    hops, functions, section = Counter[str](), Counter[str](), ""
    for line in text.splitlines():
        if begun := re.fullmatch(r"\| \*\*(\w+).*\*\* \| \| \|", line):
            section = begun[1]
        elif row := re.fullmatch(r"\| `([\w/]+\.py)` \| (.+) \| (\d+) \|", line):
            source = (ROOT / "src/netloom" / row[1]).read_text()
            names = re.findall(r"`([\w.]+)`", row[2])
            for name in names:
                for part in name.split("."):
                    assert re.search(rf"\b(def|class) {part}\b", source), f"{row[1]} has no {name}"
            hops[section] += int(row[3])
            functions[section] += len(names)
    ways = ("OVN", "vxlan")
    counted = [[sum(number for name, number in of.items() if name not in ways or name == way) for way in ways]
               for of in (hops, functions)]  # fmt: skip
    assert counted[0] == [int(number) for number in re.findall(r"\*\*(\d+)\*\*", text)]
    assert counted[0][0] <= 40
    assert counted[0][1] <= 36
    said = re.search(r"the table names (\d+) functions for OVN and (\d+) for vxlan", text)
    assert said is not None
    assert counted[1] == [int(said[1]), int(said[2])]
