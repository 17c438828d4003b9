"""IPAM in a world where everything goes wrong: no address is given twice, none is lost, nobody waits in vain.

2,000 histories: some where two controllers both believe to lead while they crash, freeze, lag and are cut off, with
clocks a minute apart; and some where one controller dies before, or after, each single write of it. What must hold at
every write is in `ipam_ledger`, what must hold in the end in `ipam_oracle`.

A failure names its seed and how to replay it. NETLOOM_TEST_HISTORIES=10000 is the whole of it, which takes minutes; the
2,000 are its beginning.
"""

import os

import pytest

from netloom.sim import loop as sim
from netloom.sim.crashes import Crashes, Point, count, points
from tests.sim.ipam_scenarios import line, moving, peaceful, stormy
from tests.sim.ipam_wiring import forgetful, gullible, impatient, wiring
from tests.sim.scenarios import BLOCKS, Scenario, is_found_again, run_block

HISTORIES = int(os.environ.get("NETLOOM_TEST_HISTORIES", "2000"))
STORMS = HISTORIES * 3 // 10
LINES = HISTORIES * 6 // 100
MOVES = HISTORIES * 4 // 100
CRASHES = HISTORIES * 6 // 10


async def storm() -> None:
    """Two controllers in bad faults."""
    await stormy(wiring)


async def waiting_line() -> None:
    """One controller, crashing, and more who wait than there are addresses."""
    await line(wiring)


async def moving_vni() -> None:
    """A VNI that goes from one namespace to another while its addresses are still locked."""
    await moving(wiring)


async def peace(crashes: Crashes) -> None:
    """One controller, without network faults, but with one crash."""
    await peaceful(wiring, crashes)


async def gullible_storm() -> None:
    """A planted bug: a lock that is there already is taken for one's own."""
    await stormy(gullible)


async def impatient_storm() -> None:
    """A planted bug: no quarantine is kept."""
    await stormy(impatient)


async def forgetful_storm() -> None:
    """A planted bug: locks do not go with their attachments."""
    await stormy(forgetful)


def crash_at(point: Point, seed: int) -> None:
    try:
        sim.run(peace(Crashes(point)), seed=seed)
    except BaseException as error:
        error.add_note(f"replay with: sim.run(peace(Crashes({point!r})), seed={seed})")
        raise


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_a_storm_no_address_is_given_twice_and_in_the_end_everybody_has_what_there_is(block: int) -> None:
    run_block(storm, block, STORMS)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_who_came_first_is_served_first(block: int) -> None:
    run_block(waiting_line, block, LINES)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_vni_takes_no_address_along_to_another_namespace(block: int) -> None:
    run_block(moving_vni, block, MOVES)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_crash_before_or_after_any_write_costs_nothing_but_time(block: int) -> None:
    seed = histories = 0
    while histories < CRASHES:
        everywhere = list(points(count(peace, seed=seed)))
        for point in everywhere[block::BLOCKS]:
            crash_at(point, seed)
        histories += len(everywhere)
        seed += 1


@pytest.mark.parametrize("bug", [gullible_storm, impatient_storm, forgetful_storm])
def test_a_seed_finds_a_planted_bug_and_finds_it_again(bug: Scenario) -> None:
    assert is_found_again(bug, 60)


def test_a_seed_replays_a_storm() -> None:
    for seed in range(3):
        assert sim.traced(storm(), seed=seed) == sim.traced(storm(), seed=seed)
