"""What became of wishes in OVN, in their statuses.

The `Ready` of Routers, SecurityProfiles, LoadBalancers, Shapings and Mirrors says whether their rows are in the
northbound database (`Programmed`), or what is in the way. Networks, Subnets and attachments have a `Ready`
of others: they get a condition `Programmed` only while something is in the way, so that nothing is written for the
thousands that are well.

A status is written when the database has what the present generation comes to, and never before: until then whoever
waits for `Ready` sees an `observedGeneration` of the past.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from netloom.control.ipam.telemetry import reference_to
from netloom.control.ipam.views import PROGRAMMED, Attachment
from netloom.control.ovn.details import details
from netloom.control.ovn.southbound import Southbound
from netloom.control.runtime.cache import Cache
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.events import Recorder
from netloom.errors import NotFound
from netloom.model.document import Condition, Document, Resource
from netloom.model.events import ObjectReference
from netloom.model.registry import KINDS, NETWORK_ATTACHMENT
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Problem, Unit
from netloom.plan.world.inputs import ATTACHMENT

OWN = frozenset(("Router", "SecurityProfile", "LoadBalancer", "Shaping", "Mirror"))
WORKERS = 16
SOON = 0.2
LONGEST = 1024


class Plans(Protocol):
    """What is planned, and how far it got: `Logical`, or `Planning` where there is no OVN."""

    planner: Planner
    in_step: bool
    programmed: dict[Unit, int]
    where: str
    """What is said of one that is planned."""

    @property
    def refusals(self) -> Mapping[Unit, Problem]:
        """What cannot be written, and why."""
        ...


class StatusKeeper:
    """Reconciles what statuses say of OVN.  The keys are Units."""

    def __init__(
        self,
        client: Client,
        logical: Plans,
        *,
        caches: Mapping[str, Cache[Any]],
        attachments: Cache[Attachment],
        recorder: Recorder,
        south: Southbound | None = None,
        clock: Clock = time_of_day,
    ) -> None:
        """`caches` are those of all kinds that are planned, by name, but attachments."""
        self._client = client
        self._logical = logical
        self._caches = caches
        self._attachments = attachments
        self._recorder = recorder
        self._south = south
        self._clock = clock

    def everything(self) -> Iterable[Unit]:
        """Return whoever may have something to be told."""
        wanted = self._logical.planner.desired
        units = [Unit(kind, *key) for kind in sorted(OWN) for key, _ in self._caches[kind].items()]
        units += sorted(wanted.problems.keys() | self._logical.refusals.keys())
        for kind in ("Network", "Subnet"):
            units += [Unit(kind, *key) for key, one in self._caches[kind].items() if one.status.condition(PROGRAMMED)]
        units += [Unit(ATTACHMENT, *key) for key, view in self._attachments.items() if view.unprogrammed]
        return dict.fromkeys(units)

    def about(self, unit: Unit) -> Resource | ObjectReference | None:
        """Return the resource of a unit, for Events."""
        if unit.kind == ATTACHMENT:
            view = self._attachments.get(unit.namespace, unit.name)
            return None if view is None else reference_to(view)
        cache = self._caches.get(unit.kind)
        found: Resource | None = None if cache is None else cache.get(unit.namespace, unit.name)
        return found

    def concerned(self, units: Iterable[Unit]) -> Iterable[Unit]:
        """Return whom a change in the southbound concerns; without a name, all of a namespace."""
        for unit in units:
            if unit.name:
                yield unit
                continue
            every = self._caches[unit.kind].items()
            yield from (Unit(unit.kind, *key) for key, _ in every if key.namespace == unit.namespace)

    async def reconcile(self, unit: Unit) -> float | None:
        """Write what became of one resource, if that is news."""
        if not self._logical.in_step:
            return None  # Everybody is looked at once it is.
        problems = self._problems(unit)
        if unit.kind == ATTACHMENT:
            view = self._attachments.get(unit.namespace, unit.name)
            if view is not None and (problems or view.unprogrammed):
                await self._tell_aside(unit, problems)
            return None
        cache = self._caches.get(unit.kind)
        resource = None if cache is None else cache.get(unit.namespace, unit.name)
        if resource is None or resource.metadata.deletion_timestamp:
            return None
        if unit.kind not in OWN:
            if problems or resource.status.condition(PROGRAMMED):
                await self._tell_aside(unit, problems)
            return None
        if self._logical.programmed.get(unit) != resource.metadata.generation:
            return None  # Told again when it is.
        await self._tell(resource, problems)
        return None

    def _problems(self, unit: Unit) -> tuple[Problem, ...]:
        problems = self._logical.planner.desired.problems.get(unit, ())
        refused = self._logical.refusals.get(unit)
        return problems if refused is None else (*problems, refused)

    async def _tell(self, resource: Any, problems: tuple[Problem, ...]) -> None:  # noqa: ANN401  # of any kind in OWN
        before = resource.status
        generation = resource.metadata.generation
        ready = _condition(READY, problems, generation)
        status = msgspec.structs.replace(
            before,
            observed_generation=generation,
            conditions=with_condition(before.conditions, ready, self._clock()),
        )
        status = details(resource, status, self._logical.planner, self._south)
        try:
            await self._client.update_status(resource, status)
        except NotFound:
            return
        old = before.condition(READY)
        if problems and (old is None or old.message != ready.message):
            self._recorder.warning(resource, ready.reason, ready.message)
        elif not problems and (old is None or old.status != TRUE):
            self._recorder.normal(resource, PROGRAMMED, self._logical.where)

    async def _tell_aside(self, unit: Unit, problems: tuple[Problem, ...]) -> None:
        """Let a status that is somebody else's say that something is in the way, or not any more."""
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
        status["conditions"] = [_written(one) for one in after]
        await self._client.replace_status(kind, document)
        about = self.about(unit)
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


def _written(one: Condition) -> Document:
    built: Document = msgspec.to_builtins(one)
    return built
