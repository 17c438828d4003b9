"""The vxlan fabric in a world where everything goes wrong: at rest it is what the resources say, and nothing more.

1,000 histories of three nodes with real agents: attachments come, go and move with their addresses; SecurityProfiles
and Shapings change; nodes are cut off from the API, agents die, switches are started again, forget everything and
renumber their ports, connections break with an answer on its way. What each node must have in the end is in
`fabric_oracle`; where packets must get, in `fabric_packets`.

A failure names its seed and how to replay it. Here some of the seeds are run; NETLOOM_TEST_FABRIC=1000 runs them all.
"""

import os

import pytest

from netloom.control.node.fabrics.fabric import FabricReconciler
from netloom.control.node.views import Followed
from netloom.drivers.vxlan.driver import DesiredFlows, FabricFlows
from netloom.sim import loop as sim
from tests.sim.fabric_scenarios import fabric
from tests.sim.scenarios import BLOCKS, fails, run_block

SEEDS = int(os.environ.get("NETLOOM_TEST_FABRIC", "120"))
PLANTED = 20
"""How many seeds, at most, are searched for a planted bug."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_at_rest_every_nodes_fabric_is_what_the_resources_say_and_nothing_more(block: int) -> None:
    run_block(fabric, block, SEEDS)


def test_a_seed_replays_a_history() -> None:
    for seed in range(2):
        assert sim.traced(fabric(), seed=seed) == sim.traced(fabric(), seed=seed)


def _leaves_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an agent finds on the switch and does not want, it leaves there."""
    compare = FabricFlows.compare

    async def lazy(self: FabricFlows, desired: DesiredFlows, *, remove: bool = True) -> None:
        await compare(self, desired, remove=False)

    monkeypatch.setattr(FabricFlows, "compare", lazy)


def _forgets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last attachment of a Network leaves a node, those elsewhere stay known."""

    def end(self: Followed) -> None:
        self.ended = True
        for task in self.tasks:
            task.cancel()

    monkeypatch.setattr(Followed, "end", end)


def _keeps_the_first_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tunnel's number is believed to stay what it was, though switches are started again."""
    check = FabricReconciler.check_bridge

    def once(self: FabricReconciler) -> None:
        if self.plan.vtep is None:
            check(self)

    monkeypatch.setattr(FabricReconciler, "check_bridge", once)


@pytest.fixture(params=[_leaves_what_is_there, _forgets_nobody, _keeps_the_first_number])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    request.param(monkeypatch)


@pytest.mark.usefixtures("planted")
def test_a_seed_finds_a_planted_bug_and_finds_it_again() -> None:
    found = next((seed for seed in range(PLANTED) if fails(fabric, seed)), None)
    assert found is not None
    assert fails(fabric, found)
