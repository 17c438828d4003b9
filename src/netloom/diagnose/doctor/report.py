"""What the sections of the doctor report, and the list of the sections.

A section compares one part of the system, through the API, in OVN's databases or on the nodes, with the resources. Each
complaint names an object, what is wrong with it, and what to do; a section may be able to repair it. What cannot be
reached is listed as unseen and is no complaint.

What is read at different moments from a running system is briefly inconsistent without being wrong. So a finding counts
only if a second check, some seconds later, makes it again (`confirmed`).
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from netloom.client.session import Session
from netloom.diagnose.access import Access
from netloom.plan.audit.finding import Finding

F = TypeVar("F")

SETTLE_SECONDS = 3.0
Settle = Callable[[float], object]
SECTIONS = ("store", "addresses", "northbound", "southbound", "nodes")


class Complaint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One inconsistency."""

    check: str
    """The name of the check that found it, such as `missing-row`."""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    message: str
    """What is wrong with the object."""
    advice: str
    """What to do."""
    repair: str = ""
    """What a repair did, or why it failed; "" if none was attempted."""

    @property
    def subject(self) -> str:
        """The object, as KIND NAMESPACE/NAME."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


def complaint(finding: Finding, advice: str, repair: str = "") -> Complaint:
    """Return a finding as a complaint."""
    return Complaint(
        check=finding.check.value,
        kind=finding.kind,
        namespace=finding.namespace,
        name=finding.name,
        uid=finding.uid,
        message=finding.message,
        advice=advice,
        repair=repair,
    )


class Report(Struct, frozen=True, kw_only=True):
    """The result of one section."""

    section: str = field(name="chapter")
    checked: dict[str, int] = field(name="looked_at")
    """The number of objects that were checked, by kind."""
    repaired: tuple[Complaint, ...] = field(name="mended", default=())
    complaints: tuple[Complaint, ...] = ()
    """The inconsistencies that remain."""
    unseen: tuple[str, ...] = ()
    """What could not be checked, and why."""


def confirmed(check: Callable[[], Sequence[F]], settle: Settle = time.sleep) -> list[F]:
    """Return the findings that two checks have in common; without findings, do not wait for the second."""
    before = set(check())
    if not before:
        return []
    settle(SETTLE_SECONDS)
    return [finding for finding in check() if finding in before]


class Section(Protocol):
    """One part of the system that can be checked."""

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Check this part, and repair what is safe to repair if asked to."""


def sections(access: Access) -> dict[str, Section]:
    """Return all sections by name, in the order of `SECTIONS`."""
    from netloom.diagnose.doctor.addresses import AddressSection  # each is imported only when it is used
    from netloom.diagnose.doctor.nodes import NodeSection
    from netloom.diagnose.doctor.northbound import NorthboundSection
    from netloom.diagnose.doctor.southbound import SouthboundSection
    from netloom.diagnose.doctor.store import StoreSection

    return {
        "store": StoreSection(),
        "addresses": AddressSection(),
        "northbound": NorthboundSection(access),
        "southbound": SouthboundSection(access),
        "nodes": NodeSection(access),
    }


def examine(session: Session, access: Access, only: tuple[str, ...] = (), *, repair: bool = False) -> list[Report]:
    """Return the reports of all sections, or of those named in `only`."""
    chosen = [section for name, section in sections(access).items() if not only or name in only]
    return [section.examine(session, repair=repair) for section in chosen]
