"""OVN's northbound database as a sink of plans."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from netloom.control.ovn.plan_feed import Followed, Sink
from netloom.control.runtime.events import Recorder
from netloom.drivers.northbound.driver import Northbound
from netloom.model.document import Resource
from netloom.model.kinds.events import ObjectReference
from netloom.plan.ovn.desired import Delta, DesiredRows
from netloom.plan.problem import Problem, Unit

SWEEP = 300.0
LONG = 10.0

logger = logging.getLogger(__name__)


class NorthboundSync(Sink):
    """Writes plans to a northbound database.

    The driver asks for a comparison of everything after a new connection, when a row of ours exists twice, and when a
    name that a row needs becomes free. Changes that another writer made to our rows are reverted, counted and reported
    as Events.
    """

    name = "the northbound database"
    success = "it is in OVN's northbound database"

    def __init__(
        self,
        north: Northbound,
        *,
        recorder: Recorder,
        event_target: Callable[[Unit], Resource | ObjectReference | None] = lambda _unit: None,
        sweep: float = SWEEP,
    ) -> None:
        """`event_target` finds the resource of a unit, for Events."""
        self.north = north
        self.sweep = sweep
        self.on_problem = north.on_problem
        self._recorder = recorder
        self._event_target = event_target

    def refusal(self, unit: Unit) -> Problem | None:
        """Return why the database does not take a resource, if so."""
        return self.north.problems.get(unit)

    def refused(self) -> Iterable[Unit]:
        """Return the resources that the database does not take."""
        return self.north.problems.keys()

    def is_connected(self) -> bool:
        """Return whether the rows of the database are followed."""
        return self.north.client.synced.is_set()

    async def connected(self) -> None:
        """Wait for the database; log when it takes long."""
        synced = self.north.client.synced
        while not synced.is_set():
            try:
                async with asyncio.timeout(LONG):
                    await synced.wait()
            except TimeoutError:
                logger.warning("no connection to the northbound database yet: %s", self.north.client.remote)

    async def follow(self, desired: DesiredRows, deltas: Iterator[Delta]) -> Followed:
        """Write changes as they are planned."""
        first, second = next(deltas, None), next(deltas, None)
        if first is None:
            return Followed(set(), wrote=False)
        if second is None:
            applied = await self.north.apply(desired, first)
        else:
            applied = await self.north.apply_each(desired, chain((first, second), deltas))
        return Followed(applied.units, wrote=bool(applied.transactions))

    async def resync(self, desired: DesiredRows, *, repairing: bool, keep: bool) -> set[Unit]:
        """Compare all rows and write what differs."""
        applied = await self.north.apply(desired, repairing=repairing, keep=keep)
        for unit, text in applied.repaired.items():
            if (target := self._event_target(unit)) is not None:
                self._recorder.warning(target, "Repaired", f"another writer changed its rows in OVN, reverted: {text}")
        return applied.units
