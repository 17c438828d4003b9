"""The layers and doors of .importlinter hold, and the contracts would notice when they did not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)


def test_all_contracts_are_kept() -> None:
    ended = _lint(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("model/planted.py", "import time", "The model and the plans do no IO and read no clock BROKEN"),
        ("store/planted.py", "import netloom.front.api", "Each layer imports only the layers below it BROKEN"),
        ("control/planted.py", "import yaml", "Only the model's codec imports the YAML library BROKEN"),
        ("front/api/planted.py", "import sqlite3", "Only the sqlite store and its log use SQL BROKEN"),
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
