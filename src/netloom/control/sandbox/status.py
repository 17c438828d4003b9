"""The status of a Sandbox: how much of it there is, whether it is accepted, and what is not Ready yet.

`Accepted` is False with the first of its problems: a part of the topology that cannot be used, an object of another
owner that has a name of ours, something that the store refuses. The rest of the Sandbox is deployed all the same.
`Ready` is True when it is accepted and each of its objects is Ready. `Faulty` is True while it has deliberate faults,
and names them; so does the message of `Ready`, which they do not make False: the Sandbox is as requested.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.events import Recorder
from netloom.model.document import Condition, Resource
from netloom.model.kinds.sandbox import HostDocument, Sandbox, SandboxStatus
from netloom.plan.problem import Problem
from netloom.plan.sandbox.objects import SandboxPlan

ACCEPTED, WAITING = "Accepted", "Waiting"
REMOVING = "Removing"
FAULTY, NO_FAULTS = "Faulty", "NoFaults"
SHOWN = 5
"""How many problems, and how many objects that are not Ready, a message names."""


class StatusWriter:
    """Writes the statuses of Sandboxes."""

    def __init__(self, client: Client, recorder: Recorder, *, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def write(
        self, sandbox: Sandbox, plan: SandboxPlan, observed: Iterable[Resource], problems: Sequence[Problem]
    ) -> None:
        """Write the status, if it has changed, and record Events; `problems` are those of writing the objects."""
        found = {(one.kind, one.metadata.name): one for one in observed if not one.metadata.deletion_timestamp}
        wanted = [(one.kind, one.metadata.name) for one in plan.objects]
        missing = {key: why for key in wanted if (why := _missing(found.get(key)))}
        generation = sandbox.metadata.generation
        accepted = _accepted([*plan.problems, *problems], generation)
        faulty = _faulty(plan.faults, generation)
        ready = _ready(accepted, missing, faulty.message, generation)
        now = self._clock()
        conditions = with_condition(sandbox.status.conditions, accepted, now)
        conditions = with_condition(conditions, ready, now)
        conditions = with_condition(conditions, faulty, now)
        status = replace(
            sandbox.status,
            networks=sum(found.keys() >= set(keys) for keys in plan.networks.values()),
            routers=sum(found.keys() >= set(keys) for keys in plan.routers.values()),
            hosts=sum(not any(key in missing for key in keys) for keys in plan.hosts.values()),
            observed_generation=generation,
            conditions=conditions,
        )
        await self._client.update_status(sandbox, status)
        self._report(sandbox, status)

    async def write_removal(self, sandbox: Sandbox, observed: Iterable[Resource]) -> None:
        """Write which Nodes have not removed their parts of a deleted Sandbox."""
        left = sorted(one.spec.node for one in observed if isinstance(one, HostDocument))
        if not left:
            return
        nodes = f"{', '.join(left[:SHOWN])}{_more(len(left))}"
        ready = Condition(
            type=READY,
            status=FALSE,
            observed_generation=sandbox.metadata.generation,
            reason=REMOVING,
            message=f"not removed yet from {nodes}: start the agent there, or delete the Node if it is gone for good",
        )
        conditions = with_condition(sandbox.status.conditions, ready, self._clock())
        await self._client.update_status(sandbox, replace(sandbox.status, conditions=conditions))

    def _report(self, sandbox: Sandbox, status: SandboxStatus) -> None:
        before, now = sandbox.status.condition(ACCEPTED), status.condition(ACCEPTED)
        if now is not None and now.status == FALSE and (before is None or before.message != now.message):
            self._recorder.warning(sandbox, now.reason, now.message)
        was, ready = sandbox.status.condition(READY), status.condition(READY)
        if ready is not None and ready.status == TRUE and (was is None or was.status != TRUE):
            text = f"{status.networks} Networks, {status.routers} Routers and {status.hosts} hosts are Ready"
            self._recorder.normal(sandbox, READY, text)


def _accepted(problems: Sequence[Problem], generation: int) -> Condition:
    if not problems:
        return Condition(type=ACCEPTED, status=TRUE, observed_generation=generation, reason=ACCEPTED)
    text = "; ".join(one.message for one in problems[:SHOWN]) + _more(len(problems))
    return Condition(
        type=ACCEPTED, status=FALSE, observed_generation=generation, reason=problems[0].reason, message=text
    )


def _faulty(faults: Sequence[str], generation: int) -> Condition:
    if not faults:
        return Condition(type=FAULTY, status=FALSE, observed_generation=generation, reason=NO_FAULTS)
    text = "; ".join(faults[:SHOWN]) + _more(len(faults))
    return Condition(type=FAULTY, status=TRUE, observed_generation=generation, reason=FAULTY, message=text)


def _ready(accepted: Condition, missing: dict[tuple[str, str], str], faults: str, generation: int) -> Condition:
    if accepted.status == FALSE:
        return replace(accepted, type=READY)
    if not missing:
        text = f"with deliberate faults: {faults}" if faults else ""
        return Condition(type=READY, status=TRUE, observed_generation=generation, reason=READY, message=text)
    shown = [f"{kind} {name}: {why}" for (kind, name), why in list(missing.items())[:SHOWN]]
    text = "; ".join(shown) + _more(len(missing))
    return Condition(type=READY, status=FALSE, observed_generation=generation, reason=WAITING, message=text)


def _more(number: int) -> str:
    return f"; and {number - SHOWN} more" if number > SHOWN else ""


def _missing(found: Resource | None) -> str:
    """Return why an object is not Ready; "": it is."""
    if found is None:
        return "it does not exist yet"
    status: Any = getattr(found, "status", None)
    ready: Condition | None = None if status is None else status.condition(READY)
    if ready is None or ready.observed_generation < found.metadata.generation:
        return "it is not processed yet"
    return "" if ready.status == TRUE else ready.message or ready.reason or "it is not Ready"
