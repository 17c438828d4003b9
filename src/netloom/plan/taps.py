"""Not planned yet."""

from netloom.model.paths import Mirror
from netloom.plan.rows import Outcome
from netloom.plan.world import World


def plan_mirror(_world: World, _resource: Mirror) -> Outcome:
    """Return nothing yet."""
    return Outcome()
