"""Not planned yet."""

from netloom.model.policy import LoadBalancer
from netloom.plan.rows import Outcome
from netloom.plan.world import World


def plan_balancer(_world: World, _resource: LoadBalancer) -> Outcome:
    """Return nothing yet."""
    return Outcome()
