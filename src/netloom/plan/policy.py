"""Not planned yet."""

from netloom.model.policy import SecurityProfile
from netloom.plan.rows import Member, Outcome
from netloom.plan.world import Port, World


def plan_profile(_world: World, _profile: SecurityProfile) -> Outcome:
    """Return nothing yet."""
    return Outcome()


def memberships(_world: World, _port: Port) -> list[Member]:
    """Return nothing yet."""
    return []
