"""The layers and doors of .importlinter hold, and the contracts would notice when they did not."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"

SOURCE = ROOT / "src" / "netloom"
IMPURE = {"asyncio", "http", "logging", "os", "selectors", "socket", "ssl", "subprocess", "threading", "time"}
"""What the sans-io contracts of .importlinter forbid."""


def _is_pure(path: Path) -> bool:
    """Return whether the docstring of a module says `Pure`."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return any(f"Pure{end}" in text for end in ".,:")


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)


def test_all_contracts_are_kept() -> None:
    ended = _lint(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_controllers_of_a_cluster_without_ovn_load_no_northbound_driver() -> None:
    code = "import sys, netloom.run.serve, netloom.run.controller; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "netloom.control.ovn.plan_only" in loaded
    assert [name for name in loaded if name.startswith("netloom.drivers.northbound")] == []


@pytest.mark.parametrize("path", [path for path in sorted(SOURCE.rglob("*.py")) if _is_pure(path)], ids=_dotted)
def test_a_module_that_calls_itself_pure_imports_nothing_that_does_io_or_reads_a_clock(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported.isdisjoint(IMPURE)


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("model/planted.py", "import time", "The model and the plans do no IO and read no clock BROKEN"),
        ("store/planted.py", "import netloom.front.api", "Each layer imports only the layers below it BROKEN"),
        ("control/planted.py", "import yaml", "Only the model's codec imports the YAML library BROKEN"),
        ("front/api/planted.py", "import sqlite3", "Only the sqlite store and its log use SQL BROKEN"),
        ("diagnose/planted.py", "import click", "Diagnosis knows no terminal BROKEN"),
        ("diagnose/planted.py", "import netloom.front.api", "Each layer imports only the layers below it BROKEN"),
        ("stray/__init__.py", "", "Each layer imports only the layers below it BROKEN"),
    ],
)
def test_a_planted_import_breaks_its_contract(tmp_path: Path, module: str, line: str, rule: str) -> None:
    shutil.copytree(ROOT / "src" / "netloom", tmp_path / "netloom", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    planted = tmp_path / "netloom" / module
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line + "\n")
    ended = _lint(tmp_path)
    assert ended.returncode == 1
    assert rule in ended.stdout.replace("\n", " "), ended.stdout
