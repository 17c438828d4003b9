"""From resources to wanted rows, a change at a time.  Pure.

    put, remove -> world (who read what has changed?) -> dirty units -> plan_x(world, resource) -> wanted -> Delta

A unit is a resource of a kind in `UNITS`. Planning it asks the world and comes to an `Outcome`; nothing else goes in,
so the wanted rows depend on what the resources are, never on the order in which they came.

A planning function that raises is a mistake of ours. It costs that unit its rows, which is told as its problem.
"""

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from netloom.model.document import Resource
from netloom.plan.node.grants import ALL_PROVIDERS, ProviderRefusal
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.ovn.layer2.dhcp import plan_subnet
from netloom.plan.ovn.layer2.mirrors import plan_mirror
from netloom.plan.ovn.layer2.qos import plan_shaping
from netloom.plan.ovn.layer2.switches import plan_attachment, plan_network
from netloom.plan.ovn.layer3.load_balancers import plan_load_balancer
from netloom.plan.ovn.layer3.routers import plan_router
from netloom.plan.ovn.profiles import plan_profile
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Outcome
from netloom.plan.world.inputs import ATTACHMENT
from netloom.plan.world.world import Port, World

UNITS: dict[str, Callable[[World, Any], Outcome]] = {
    "Network": plan_network,
    "Subnet": plan_subnet,
    "NetworkAttachment": plan_attachment,
    "Router": plan_router,
    "SecurityProfile": plan_profile,
    "LoadBalancer": plan_load_balancer,
    "Shaping": plan_shaping,
    "Mirror": plan_mirror,
}

BULK = 500
"""So many units at once are a start or a great change."""


class Planner:
    """Keeps the wanted rows in step with the resources."""

    def __init__(self, refusal: ProviderRefusal = ALL_PROVIDERS.refusal) -> None:
        """`refusal` says which Networks may not join their physical networks; nothing is planned of these."""
        self.world = World(refusal)
        self.desired = DesiredRows()

    def put(self, resource: Resource | Port) -> None:
        """Let a resource be as it is now; kinds that nothing is planned from are ignored."""
        self.world.put(resource)

    def remove(self, unit: Unit) -> None:
        """Let a resource be gone."""
        self.world.remove(unit)

    def flush(self) -> Delta:
        """Plan what must be planned again; return what changed in what is wanted."""
        dirty = self.world.drain()
        with _uncollected() if len(dirty) >= BULK else nullcontext():
            for unit in dirty:
                self._plan(unit)
        return self.desired.take()

    def slices(self, most: int) -> Generator[Delta, None, None]:
        """Plan what must be planned again, so many units at a time; give what changed with each.

        Attachments come last, because they refer to what the others are. Whoever stops half-way closes this: then the
        rest is planned, and what that changes is in the next delta.
        """
        dirty = sorted(self.world.drain(), key=lambda unit: unit.kind == ATTACHMENT)
        position = 0
        try:
            while position < len(dirty):
                part, position = dirty[position : position + most], position + most
                with _uncollected() if len(part) >= BULK else nullcontext():
                    for unit in part:
                        self._plan(unit)
                yield self.desired.take()
        finally:
            for unit in dirty[position:]:
                self._plan(unit)

    def _plan(self, unit: Unit) -> None:
        plan = UNITS.get(unit.kind)
        if plan is None:
            return
        resource = self.world.resource(unit)
        if resource is None:
            self.world.forget(unit)
            self.desired.replace(unit, None)
            return
        try:
            outcome = self.world.watched(unit, plan, resource)
        except Exception as error:  # noqa: BLE001 - One unit's mistake must not cost the others their rows.
            outcome = Outcome(problems=[Problem("Internal", f"planning failed: {type(error).__name__}: {error}")])
        self.desired.replace(unit, outcome)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Have no garbage collected meanwhile.

    Thousands of units make tens of thousands of values that stay, and none that refer to themselves: to look through
    them over and over takes a third of the time and finds nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
