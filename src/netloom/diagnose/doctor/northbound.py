"""The doctor's chapter on the northbound: is OVN's wanted state what the resources come to, and nothing else of ours?

The rows are planned here once more, from all resources, and compared with those in the database that carry our owner,
in the way in which they are written. Rows of others are never looked at.

*Mending* goes through the same hands as the controller's: guarded transactions, of the resources that were found amiss
twice and of no others. Before rows of a resource that is gone are removed it is asked for once more.
"""

import asyncio
import time
from collections.abc import Collection

from netloom.cli.diagnosis.doctor import Complaint, Report
from netloom.cli.options import Session
from netloom.diagnose import snapshot as everything
from netloom.diagnose.access import NO_NORTHBOUND, Access, following
from netloom.diagnose.doctor.confirmation import Settle, believed
from netloom.drivers.northbound.audit import Check, RowFinding
from netloom.drivers.northbound.driver import Applied
from netloom.errors import NetloomError, NotFound
from netloom.model.registry import KINDS
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit

CHAPTER = "northbound"
_CONTROLLER = "--repair does it now; if it stays so, see that a controller runs and reaches the database."
ADVICE = {
    Check.MISSING: f"The controller writes it within moments. {_CONTROLLER}",
    Check.DRIFTED: f"Somebody else changed it, and the controller puts it back within minutes. {_CONTROLLER}",
    Check.LEFTOVER: f"The controller removes it within minutes. {_CONTROLLER}",
    Check.DOUBLE: f"Two writers were at work at once, and the controller removes one within minutes. {_CONTROLLER}",
    Check.REFUSED: "Nothing of it is written until this is out of the way; `netloom describe` shows its conditions.",
}
DONE = {Check.MISSING: "written", Check.DRIFTED: "put back", Check.LEFTOVER: "removed", Check.DOUBLE: "one is removed"}


class NorthboundChapter:
    """The chapter."""

    def __init__(self, access: Access, *, settle: Settle = time.sleep) -> None:
        self._access = access
        self._settle = settle
        self._rows = 0

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Look twice, and mend if told to."""
        if not self._access.ovn.nb:
            return Report(chapter=CHAPTER, looked_at={}, unseen=(NO_NORTHBOUND,))
        try:
            found = believed(lambda: self._look(session), self._settle)
            mended: list[Complaint] = []
            if repair and (units := {one.unit for one in found if one.check is not Check.REFUSED}):
                asyncio.run(self._mend(session, units))
                left = self._look(session)
                mended = [_complaint(one, DONE.get(one.check, "")) for one in found if one not in left]
                found = [one for one in found if one in left]
        except NetloomError as error:
            return Report(chapter=CHAPTER, looked_at={}, unseen=(f"northbound database: {error.message}",))
        complaints = tuple(_complaint(one) for one in found)
        return Report(chapter=CHAPTER, looked_at={"rows": self._rows}, mended=tuple(mended), complaints=complaints)

    def _look(self, session: Session) -> list[RowFinding]:
        return asyncio.run(self._audit(session))

    async def _audit(self, session: Session) -> list[RowFinding]:
        north = self._access.north()
        async with following(north.client):
            planner = _planned(session)
            await asyncio.sleep(0)
            self._rows = len(north.seen())
            return north.audit(planner.wanted)

    async def _mend(self, session: Session, units: Collection[Unit]) -> Applied:
        north = self._access.north()
        async with following(north.client):
            planner = _planned(session)
            return await north.mend(planner.wanted, units, lambda unit: is_gone(session, unit))


def _planned(session: Session) -> Planner:
    """Return the plan of all there is: what the controllers have not judged yet is not for the doctor to write."""
    resources = everything.load(session.client)
    return everything.planned(resources, everything.refusals(resources, unjudged=everything.UNJUDGED))


def is_gone(session: Session, unit: Unit) -> bool:
    """Whether a resource, asked for now, is not there."""
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
