"""kill -9 of a process that writes to a SQLite store: whatever was acknowledged is there, nothing is half there."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from netloom.store.sqlite.store import SqliteStore
from tests.store.crashing import ATTACHMENT, NAMESPACE, Tally

OBJECTS = 10_000
KILLS = 50

pytestmark = pytest.mark.slow


def run_until_killed(path: Path, tally: Tally, *, first: int, kill_after: int | None) -> int:
    """Let a process write until it has acknowledged so much, kill it, and return how much it acknowledged."""
    command = [sys.executable, "-m", "tests.store.crashing", str(path), str(first), str(OBJECTS - first)]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                # A line cut short by the kill acknowledges nothing.
                if not line.endswith(b"\n"):
                    break
                name, revision = line.split()
                tally.acknowledged[name.decode()] = int(revision)
                acknowledged += 1
                if acknowledged == kill_after:
                    child.kill()
        finally:
            child.kill()
    return acknowledged


async def check(path: Path, tally: Tally) -> int:
    """Check the store as it was left, and return how many objects it has."""
    store = await SqliteStore.open(path)
    try:
        await tally.check(store)
        return len((await store.list(ATTACHMENT, NAMESPACE)).items)
    finally:
        await store.close()


def test_fifty_kills_over_ten_thousand_creates_lose_nothing(tmp_path: Path) -> None:
    path, random, tally = tmp_path / "store.db", Random(20261115), Tally()
    share = OBJECTS // (KILLS + 1)
    for _ in range(KILLS):
        # Writers are given names in order, so all but the last few of those before are there.
        first = max(0, len(tally.acknowledged) - 40)
        told = run_until_killed(path, tally, first=first, kill_after=random.randint(share // 3, share))
        assert told > 0
        asyncio.run(check(path, tally))
    told = run_until_killed(path, tally, first=0, kill_after=None)
    assert told == OBJECTS
    assert asyncio.run(check(path, tally)) == OBJECTS
    assert len(tally.acknowledged) == OBJECTS
