"""One hostile client of each role at full speed beside 32 honest ones: the effect on the honest ones, and memory.

All clients use one `netloom apiserver` on sqlite. The honest ones create, read, list and delete, one request after the
other, each with its own token. The hostile ones send the most expensive requests that their role allows
(bench/client/hostile.go) over eight connections each: one without a valid token, a node, a viewer, an editor and an
administrator. Both cases are measured alternately, so that other load affects both. The ratio counts.
"""

import contextlib
import json
import secrets
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.api import Client, Target, api_process
from bench.table import Row
from netloom.front.api.auth.tokens import line
from tests.support.process import scratch

HONEST = 32
HELD = 2_000
CONNECTIONS = 8
ROUNDS = 3
SECONDS = 8.0
ROLES = {"nobody": "", "node": "netloom:node:n1", "viewer": "netloom:viewer", "editor": "netloom:editor"}
ROLES["admin"] = "netloom:admin"

P99 = 3.0
MEMORY = 3.0
"""The targets: p99 of the honest clients, and peak memory, with hostile clients compared to without."""


def rows() -> list[Row]:
    """Measure and return the table."""
    with scratch("bench-hostile") as folder:
        client = Client(folder)
        with api_process(folder, "apiserver", "--store", f"sqlite:{folder / 'bench.db'}") as target:
            return _measure(client, target, folder)


def _measure(client: Client, target: Target, folder: Path) -> list[Row]:
    callers = _tokens(folder / "data" / "tokens", folder / "honest")
    client.run(target, "create", "-n", HELD, "-clients", HONEST, "-prefix", "held")
    client.run(target, "create", "-n", 1, "-clients", 1, "-prefix", "mine")
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    said: Counter[str] = Counter()
    words = ("honest", "-tokens", folder / "honest", "-seconds", SECONDS)
    client.run(target, *words[:-1], 2.0, "-prefix", "warm")
    calm = _peak_mb(target.pid)
    for turn in range(ROUNDS):
        alone.append(client.run(target, *words, "-prefix", f"a{turn}"))
        if turn == 0:
            calm = _peak_mb(target.pid)
        with _attack(client, target, callers, said):
            beside.append(client.run(target, *words, "-prefix", f"b{turn}"))
    print(f"answers to hostile clients: {dict(sorted(said.items()))}")
    slow, calm_slow = _median(beside, "p99_ms"), _median(alone, "p99_ms")
    usual, calm_usual = _median(beside, "p50_ms"), _median(alone, "p50_ms")
    return [
        Row("p99 of 32 honest, 5 hostile beside", slow, "ms", calm_slow, P99, more_is_better=False),
        Row("p50 of 32 honest, 5 hostile beside", usual, "ms", calm_usual, P99, more_is_better=False),
        Row("most resident, 5 hostile beside", _peak_mb(target.pid), "MB", calm, MEMORY, more_is_better=False),
    ]


def _tokens(file: Path, honest: Path) -> dict[str, str]:
    """Admit all clients; return the hostile ones' tokens by role, and write the honest ones' into a file."""
    good = [secrets.token_urlsafe(24) for _ in range(HONEST)]
    bad = {name: secrets.token_urlsafe(24) for name in ROLES}
    with file.open("a") as known:
        known.writelines(line(token, f"honest-{i}", ["netloom:editor"]) for i, token in enumerate(good))
        known.writelines(line(token, f"hostile-{n}", [ROLES[n]]) for n, token in bad.items() if ROLES[n])
    honest.write_text("\n".join(good))
    return bad


@contextlib.contextmanager
def _attack(client: Client, target: Target, callers: dict[str, str], said: Counter[str]) -> Iterator[None]:
    """Attack during the block, and count the answers."""
    words = ("-connections", CONNECTIONS, "-seconds", SECONDS + 1)
    running = {
        role: client.begin(target._replace(token=token), "attack", "-role", role, *words)
        for role, token in callers.items()
    }
    try:
        yield
    finally:
        for role, process in running.items():
            answers, _ = process.communicate(timeout=120)
            said.update({f"{role} {code}": count for code, count in json.loads(answers).items()})


def _median(found: list[dict[str, float]], figure: str) -> float:
    return statistics.median(one[figure] for one in found)


def _peak_mb(pid: int) -> float:
    """Return a process's peak resident memory, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    [peak] = [text for text in status.splitlines() if text.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024 / 1e6
