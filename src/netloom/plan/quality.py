"""Not planned yet."""

from netloom.model.paths import Shaping
from netloom.plan.rows import Outcome
from netloom.plan.world import World


def plan_shaping(_world: World, _resource: Shaping) -> Outcome:
    """Return nothing yet."""
    return Outcome()
