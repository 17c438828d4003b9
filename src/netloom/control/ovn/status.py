"""The statuses of planned resources.

The condition `Ready` of Routers, SecurityProfiles, LoadBalancers, Shapings and Mirrors says whether their rows are in
the northbound database (reason `Programmed`), or why not. The `Ready` of Networks, Subnets and attachments belongs to
other controllers: they get a condition `Programmed` only while there is a problem, so that nothing is written for the
thousands without one. A RemoteVTEP has no status: its problems are shown at its EVPNNetwork.

A status is written once the database has the rows of the current generation, and never before: until then a client that
waits for `Ready` sees an older `observedGeneration`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netloom.control.ipam.telemetry import reference_to
from netloom.control.ipam.views import Attachment
from netloom.control.ovn.details import details
from netloom.control.ovn.plan_feed import PlanFeed
from netloom.control.ovn.southbound import Southbound
from netloom.control.runtime.cache import Cache
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.events import Recorder
from netloom.errors import NotFound
from netloom.model.conditions import PROGRAMMED
from netloom.model.document import Condition, Resource
from netloom.model.kind import Plan
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import EVPN_NETWORK, KINDS, NETWORK_ATTACHMENT, PLANNED, REMOTE_VTEP
from netloom.plan.problem import Problem, Unit
from netloom.plan.world.inputs import ATTACHMENT

READY_BY_PLAN = frozenset(kind.name for kind in PLANNED if kind.plan is Plan.READY)
ASIDE = tuple(kind.name for kind in PLANNED if kind.plan is Plan.ASIDE and kind is not NETWORK_ATTACHMENT)
WORKERS = 16
SOON = 0.2
LONGEST = 1024


class StatusReconciler:
    """Writes what became of plans to the statuses of resources.  The keys are Units."""

    def __init__(
        self,
        client: Client,
        plans: PlanFeed,
        *,
        caches: Mapping[str, Cache[Any]],
        attachments: Cache[Attachment],
        recorder: Recorder,
        south: Southbound | None = None,
        clock: Clock = time_of_day,
    ) -> None:
        """`caches` are those of all planned kinds except attachments, by name."""
        self._client = client
        self._plans = plans
        self._caches = caches
        self._attachments = attachments
        self._recorder = recorder
        self._south = south
        self._clock = clock

    def all_keys(self) -> Iterable[Unit]:
        """Return all resources whose status may have to be written."""
        units = [Unit(kind, *key) for kind in sorted(READY_BY_PLAN) for key, _ in self._caches[kind].items()]
        units += sorted({*self._plans.planner.desired.problems, *self._plans.sink.refused()})
        for kind in ASIDE:
            units += [Unit(kind, *key) for key, one in self._caches[kind].items() if one.status.condition(PROGRAMMED)]
        units += [Unit(ATTACHMENT, *key) for key, view in self._attachments.items() if view.unprogrammed]
        return dict.fromkeys(units)

    def event_target(self, unit: Unit) -> Resource | ObjectReference | None:
        """Return the resource of a unit, for Events."""
        if unit.kind == ATTACHMENT:
            view = self._attachments.get(unit.namespace, unit.name)
            return None if view is None else reference_to(view)
        cache = self._caches.get(unit.kind)
        found: Resource | None = None if cache is None else cache.get(unit.namespace, unit.name)
        return found

    def concerned(self, units: Iterable[Unit]) -> Iterable[Unit]:
        """Yield the resources that a southbound change concerns; a unit without a name is its whole namespace."""
        for unit in units:
            if unit.name:
                yield unit
                continue
            every = self._caches[unit.kind].items()
            yield from (Unit(unit.kind, *key) for key, _ in every if key.namespace == unit.namespace)

    async def reconcile(self, unit: Unit) -> float | None:
        """Write the status of one resource, if it changed."""
        if not self._plans.in_step:
            return None  # All resources are enqueued once it is.
        if unit.kind == REMOTE_VTEP.name:
            for one in self._evpn_networks(unit):
                await self.reconcile(one)
            return None
        problems = self._problems(unit)
        if unit.kind == ATTACHMENT:
            view = self._attachments.get(unit.namespace, unit.name)
            if view is not None and (problems or view.unprogrammed):
                await self._write_aside(unit, problems)
            return None
        cache = self._caches.get(unit.kind)
        resource = None if cache is None else cache.get(unit.namespace, unit.name)
        if resource is None or resource.metadata.deletion_timestamp:
            return None
        if unit.kind not in READY_BY_PLAN:
            if problems or resource.status.condition(PROGRAMMED):
                await self._write_aside(unit, problems)
            return None
        if self._plans.programmed.get(unit) != resource.metadata.generation:
            return None  # It is enqueued again when it is.
        await self._write(resource, problems)
        return None

    def _evpn_networks(self, vtep: Unit) -> list[Unit]:
        """Return the EVPNNetwork of a RemoteVTEP; of one that is gone, those with a problem."""
        found = self._caches[vtep.kind].get(vtep.namespace, vtep.name)
        if found is not None:
            return [Unit(EVPN_NETWORK.name, vtep.namespace, found.spec.evpn_network)]
        every = self._caches[EVPN_NETWORK.name].items()
        return [Unit(EVPN_NETWORK.name, *key) for key, one in every if one.status.condition(PROGRAMMED)]

    def _problems(self, unit: Unit) -> tuple[Problem, ...]:
        problems = self._own_problems(unit)
        if unit.kind != EVPN_NETWORK.name:
            return problems
        every = {*self._plans.planner.desired.problems, *self._plans.sink.refused()}
        for vtep in sorted(one for one in every if one.kind == REMOTE_VTEP.name):
            if unit in self._evpn_networks(vtep):
                problems += self._own_problems(vtep)
        return problems

    def _own_problems(self, unit: Unit) -> tuple[Problem, ...]:
        problems = self._plans.planner.desired.problems.get(unit, ())
        refusal = self._plans.sink.refusal(unit)
        return problems if refusal is None else (*problems, refusal)

    async def _write(self, resource: Any, problems: tuple[Problem, ...]) -> None:  # noqa: ANN401  # of any kind
        before = resource.status
        generation = resource.metadata.generation
        ready = _condition(READY, problems, generation)
        status = msgspec.structs.replace(
            before,
            observed_generation=generation,
            conditions=with_condition(before.conditions, ready, self._clock()),
        )
        status = details(resource, status, self._plans.planner, self._south)
        try:
            await self._client.update_status(resource, status)
        except NotFound:
            return
        old = before.condition(READY)
        if problems and (old is None or old.message != ready.message):
            self._recorder.warning(resource, ready.reason, ready.message)
        elif not problems and (old is None or old.status != TRUE):
            self._recorder.normal(resource, PROGRAMMED, self._plans.sink.success)

    async def _write_aside(self, unit: Unit, problems: tuple[Problem, ...]) -> None:
        """Set or remove the condition `Programmed` of a status that belongs to another controller."""
        kind = NETWORK_ATTACHMENT if unit.kind == ATTACHMENT else KINDS.named(unit.kind)
        try:
            document = await self._client.document(kind, unit.namespace, unit.name)
        except NotFound:
            return
        status = document.setdefault("status", {})
        have = msgspec.convert(status.get("conditions") or (), tuple[Condition, ...])
        after = tuple(one for one in have if one.type != PROGRAMMED)
        condition = _condition(PROGRAMMED, problems, document["metadata"].get("generation", 0))
        if problems:
            after = with_condition(have, condition, self._clock())
        if after == have:
            return
        status["conditions"] = msgspec.to_builtins(after)
        await self._client.replace_status(kind, document)
        about = self.event_target(unit)
        if problems and about is not None:
            self._recorder.warning(about, condition.reason, condition.message)


def _condition(kind: str, problems: tuple[Problem, ...], generation: int) -> Condition:
    if not problems:
        return Condition(type=kind, status=TRUE, observed_generation=generation, reason=PROGRAMMED)
    return Condition(
        type=kind,
        status=FALSE,
        observed_generation=generation,
        reason=problems[0].reason,
        message="; ".join(problem.message for problem in problems)[:LONGEST],
    )
