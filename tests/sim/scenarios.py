"""What the simulated scenarios share: running many seeds, and saying which one failed.

300 seeds each; NETLOOM_TEST_SEEDS=1000 for more.
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any

from netloom.sim import loop as sim

SEEDS = int(os.environ.get("NETLOOM_TEST_SEEDS", "300"))
BLOCKS = 8
"""Seeds are run in blocks, so that several workers share them."""

Scenario = Callable[[], Coroutine[Any, Any, object]]


def run_block(scenario: Scenario, block: int, seeds: int = SEEDS) -> None:
    """Run every BLOCKS-th seed; a failure names its seed."""
    for seed in range(block, seeds, BLOCKS):
        try:
            sim.run(scenario(), seed=seed)
        except BaseException as error:
            error.add_note(f"replay with: sim.run({scenario.__name__}(), seed={seed})")
            raise


def fails(scenario: Scenario, seed: int) -> bool:
    """Whether the scenario fails with this seed."""
    try:
        sim.run(scenario(), seed=seed)
    except (AssertionError, ExceptionGroup):
        return True
    return False


def is_found_again(scenario: Scenario, seeds: int) -> bool:
    """Whether some seed fails and some other does not, and both again: looked for among so many, until there are."""
    verdicts: list[bool] = []
    while len(verdicts) < seeds and len(set(verdicts)) < 2:
        verdicts.append(fails(scenario, len(verdicts)))
    return len(set(verdicts)) == 2 and verdicts == [fails(scenario, seed) for seed in range(len(verdicts))]
