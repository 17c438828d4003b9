"""The doctor's section on the northbound: Netloom's rows are those that the resources require, and no others.

The rows are planned again from all resources, and compared with the rows that carry Netloom's owner, by the comparison
of the driver that writes them. Rows of other owners are ignored.

*Repairs* use the controller's driver and its guarded transactions, and only for resources with a confirmed finding.
Before the rows of a deleted resource are removed, the resource is requested again.
"""

import asyncio
from collections.abc import Collection

from netloom.client.session import Session
from netloom.diagnose import snapshot
from netloom.diagnose.access import NO_NORTHBOUND, Access, following
from netloom.diagnose.doctor.report import Complaint, Report, confirmed
from netloom.drivers.northbound.audit import RowFinding
from netloom.drivers.northbound.driver import Applied
from netloom.errors import NetloomError, NotFound
from netloom.model.registry import KINDS
from netloom.plan.audit.finding import Check
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit

SECTION = "northbound"
_CONTROLLER = (
    "`netloom doctor --repair` does it now; if it comes back, check that a controller runs and reaches the database."
)
ADVICE = {
    Check.MISSING_ROW: f"The controller writes it within moments. {_CONTROLLER}",
    Check.DRIFTED_ROW: f"Another program changed it, and the controller restores it within minutes. {_CONTROLLER}",
    Check.LEFTOVER_ROW: f"The controller removes it within minutes. {_CONTROLLER}",
    Check.DOUBLE_ROW: f"Two writers were active at once; the controller removes one row within minutes. {_CONTROLLER}",
    Check.REFUSED_ROWS: "It is not written until this problem is solved; `netloom describe` shows its conditions.",
}
DONE = {
    Check.MISSING_ROW: "written",
    Check.DRIFTED_ROW: "restored",
    Check.LEFTOVER_ROW: "removed",
    Check.DOUBLE_ROW: "removed one row",
}


class NorthboundSection:
    """The section."""

    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access
        self._rows = 0

    def examine(self, *, repair: bool) -> Report:
        """Check twice, and repair if asked to."""
        if not self._access.nb:
            return Report(section=SECTION, checked={}, unseen=(NO_NORTHBOUND,))
        try:
            found = confirmed(lambda: asyncio.run(self._check()))
            repaired: list[Complaint] = []
            if repair and (units := {one.unit for one in found if one.check is not Check.REFUSED_ROWS}):
                asyncio.run(self._repair(units))
                left = asyncio.run(self._check())
                repaired = [_complaint(one, DONE.get(one.check, "")) for one in found if one not in left]
                found = [one for one in found if one in left]
        except NetloomError as error:
            return Report(section=SECTION, checked={}, unseen=(f"northbound database: {error.message}",))
        complaints = tuple(_complaint(one) for one in found)
        return Report(section=SECTION, checked={"rows": self._rows}, repaired=tuple(repaired), complaints=complaints)

    async def _check(self) -> list[RowFinding]:
        north = self._access.north()
        async with following(north.client):
            planner = self._planned()
            await asyncio.sleep(0)
            self._rows = len(north.seen())
            return north.audit(planner.desired)

    async def _repair(self, units: Collection[Unit]) -> Applied:
        north = self._access.north()
        async with following(north.client):
            planner = self._planned()
            return await north.mend(planner.desired, units, lambda unit: is_gone(self._session, unit))

    def _planned(self) -> Planner:
        """Return the plan of all resources; the doctor writes nothing that the controllers have not decided on yet."""
        resources = snapshot.load(self._session.client)
        return snapshot.planned(resources, snapshot.refusals(resources, undecided=snapshot.UNDECIDED))


def is_gone(session: Session, unit: Unit) -> bool:
    """Whether a resource, requested now, does not exist."""
    try:
        kind = next(kind for kind in KINDS if kind.name == unit.kind)
        session.client.get(kind.path(unit.namespace, unit.name))
    except (NotFound, StopIteration):
        return True
    return False


def _complaint(finding: RowFinding, repair: str = "") -> Complaint:
    row = f"{finding.table} {finding.key}: " if finding.table else ""
    return Complaint(
        check=finding.check.value,
        kind=finding.unit.kind,
        namespace=finding.unit.namespace,
        name=finding.unit.name,
        message=f"{row}{finding.message}",
        advice=ADVICE[finding.check],
        repair=repair,
    )
