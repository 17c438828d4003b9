"""The start-up budget: what a person waits for each time they call the command line.

The budgets are milliseconds on the machine where they were set, where an empty interpreter took 11; elsewhere
they grow and shrink with that. What is compared is processor time, the best of several runs, so that a busy machine,
which can only make a run slower, does not fail a test.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EMPTY_MS = 11.0
IMPORT_MS = {"netloom.cli": 55.0, "netloom.cli.main": 55.0}
RUNS = 9

# What only the servers need. Each costs more than the command line may cost altogether, or nearly.
NOT_FOR_THE_CLI = {"cryptography", "h11", "httptools", "prometheus_client", "sqlite3", "uvicorn"}


def test_importing_the_command_line_stays_within_its_budget(tmp_path: Path) -> None:
    commands = {"pass": "pass"} | {module: f"import {module}" for module in IMPORT_MS}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(RUNS):  # In turns, so that a slow spell of the machine meets all of them.
        for name, command in commands.items():
            best[name] = min(best[name], _milliseconds(command, byte_code=tmp_path))
    factor = best["pass"] / EMPTY_MS
    for module, budget in IMPORT_MS.items():
        cost = best[module] - best["pass"]
        assert cost <= budget * factor, f"{module}: {cost:.0f} ms; {budget * factor:.0f} ms are allowed on this machine"


@pytest.mark.parametrize("module", IMPORT_MS)
def test_the_command_line_imports_nothing_that_only_servers_need(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_plain())
    assert not NOT_FOR_THE_CLI & set(loaded.stdout.split())


def _milliseconds(code: str, *, byte_code: Path) -> float:
    # The first run compiles and the others find the byte-code, as for a person, whatever the environment says.
    environment = _plain() | {"PYTHONPYCACHEPREFIX": str(byte_code), "PYTHONDONTWRITEBYTECODE": ""}
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"python -c {code!r} ended with {status}"
    return (usage.ru_utime + usage.ru_stime) * 1000


def _plain() -> dict[str, str]:
    # Without coverage's variables: measuring the child would be most of what is measured.
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
