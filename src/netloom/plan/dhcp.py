"""DHCP: what a Subnet tells its machines.  Pure."""

from netloom.model.networks import Subnet
from netloom.plan.rows import Outcome, Ref
from netloom.plan.world import World


def options(namespace: str, subnet: str) -> Ref:
    """Return which row holds a Subnet's options."""
    return Ref("DHCP_Options", f"{namespace}/{subnet}")


def plan_subnet(_world: World, _subnet: Subnet) -> Outcome:
    """Return nothing yet."""
    return Outcome()
