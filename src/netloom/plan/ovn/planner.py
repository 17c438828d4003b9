"""From resources to desired rows, one change at a time.  Pure.

    put, remove -> world (which units read what changed?) -> dirty units -> plan_x(world, resource) -> desired -> Delta

A unit is a resource of a kind in `UNITS`. Its planning function queries the world and returns an `Outcome`. It has no
other input, so the desired rows depend on the resources only, never on the order in which they arrived.

An exception in a planning function is a bug. It costs that unit its rows, and is reported as its problem.
"""

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from netloom.model.document import Resource
from netloom.plan.node.grants import ALL_PROVIDERS, ProviderRefusal
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.ovn.layer2.dhcp import plan_subnet
from netloom.plan.ovn.layer2.evpn import plan_evpn_network, plan_remote_vtep
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
    "EVPNNetwork": plan_evpn_network,
    "RemoteVTEP": plan_remote_vtep,
}

BULK = 500
"""From how many units on to plan without garbage collection: a start, or a big change."""


class Planner:
    """Keeps the desired rows up to date with the resources."""

    def __init__(self, refusal: ProviderRefusal = ALL_PROVIDERS.refusal) -> None:
        """`refusal` returns why a Network may not join its physical network; such a Network is not planned."""
        self.world = World(refusal)
        self.desired = DesiredRows()

    def put(self, resource: Resource | Port) -> None:
        """Add or replace a resource; kinds that no plan reads are ignored."""
        self.world.put(resource)

    def remove(self, unit: Unit) -> None:
        """Remove a resource."""
        self.world.remove(unit)

    def flush(self) -> Delta:
        """Plan all dirty units; return what changed in the desired rows."""
        dirty = self.world.drain()
        with _uncollected() if len(dirty) >= BULK else nullcontext():
            for unit in dirty:
                self._plan(unit)
        return self.desired.take()

    def slices(self, most: int) -> Generator[Delta, None, None]:
        """Plan all dirty units, at most `most` at a time; yield what changed with each slice.

        Attachments come last, because they refer to the rows of the others. A caller that stops early closes the
        generator: it plans the rest, and the next delta contains those changes.
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
        except Exception as error:  # noqa: BLE001 - A bug in one unit must not cost the others their rows.
            outcome = Outcome(problems=[Problem("Internal", f"planning failed: {type(error).__name__}: {error}")])
        self.desired.replace(unit, outcome)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector.

    Thousands of units create tens of thousands of long-lived values without cycles: collections take a third of the
    time and find nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
